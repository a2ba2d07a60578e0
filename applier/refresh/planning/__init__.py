"""Stored definitions in; the stream tables with their plans, and what it takes to maintain them, out."""
