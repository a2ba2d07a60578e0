"""What both binaries agree on: names, types, records on the wire and tables in the catalog.

Imports nothing of ours. The one thing that does IO is the status server both binaries run.
"""
