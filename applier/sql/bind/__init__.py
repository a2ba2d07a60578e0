"""A query tree in, a bound plan out: names, scopes and types are resolved, subqueries are dependent joins."""
