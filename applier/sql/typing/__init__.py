"""Expressions of a query tree in; allow-listed functions over physical types, or a refusal, out."""
