"""The same running stack and connection as the end-to-end tests."""

from __future__ import annotations

from tests.e2e.conftest import db

__all__ = ["db"]
