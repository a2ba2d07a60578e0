"""Deltas in, change rows and progress records on the topics of stream tables out."""
