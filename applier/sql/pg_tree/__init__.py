"""The text of a PostgreSQL query tree in, typed nodes under PostgreSQL's names out."""
