"""Definitions that both binaries share: names, types, records on the wire and tables in the catalog.

Imports nothing else of this project. The only part that does IO is the status server, which both binaries run.
"""
