"""Expressions proven equal to PostgreSQL's: which functions, over which carriers, and their Spark form. No IO.

`emit` turns a plan expression into a Spark column; `allow_list.ENTRIES` is everything that may stand in a Call.
"""
