"""Captures tables: copies their rows at one consistent point, from which on every later change is streamed."""
