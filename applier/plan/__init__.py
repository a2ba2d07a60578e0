"""The relational nodes of a query and what can be derived from them: keys, lineage, cardinality, explanations."""
