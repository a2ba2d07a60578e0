"""`make demo`: a small shop, three stream tables, a writer, and a check against PostgreSQL."""
