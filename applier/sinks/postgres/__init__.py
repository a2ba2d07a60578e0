"""A delta or a full result in; COPY, MERGE and the new frontier in one transaction of PostgreSQL out."""
