"""Turns row messages into D and I change rows with exact values and stamps. Does no IO."""
