"""Deltas of many ticks in, one MERGE per Delta table with its frontier in the commit out."""
