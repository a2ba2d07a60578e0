"""Writes the generated pages."""

from __future__ import annotations

from deploy.pages import pages

for path, text in pages().items():
    path.write_text(text)
