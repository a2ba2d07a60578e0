"""A stream table and an LSN range in; how it is refreshed, and what that is expected to take, out."""
