"""The text of a query in; out come PostgreSQL's own tree of it and the catalog facts that the tree names."""
