"""Traces and the columns that plans read in, arrangements with indexes by key out."""
