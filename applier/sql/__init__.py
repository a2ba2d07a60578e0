"""The text of a query in, a typed plan or a refusal out."""
