"""What both binaries agree on: names, types, records on the wire and tables in the catalog.

Imports nothing of ours and does no IO.
"""
