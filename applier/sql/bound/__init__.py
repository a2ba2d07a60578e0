"""The bound plan: names and types are resolved, subqueries are dependent joins. Only `sql` knows it."""
