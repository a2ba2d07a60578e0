"""Runs the audit; prints problems and returns exit code 1 if there are any."""

from __future__ import annotations

import sys

from deploy.audit import audit

problems = audit()
for problem in problems:
    print(problem, file=sys.stderr)
sys.exit(1 if problems else 0)
