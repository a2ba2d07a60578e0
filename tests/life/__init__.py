"""Scenarios of production life: what besides writing rows happens to a database."""
