"""Schedules, tiers and measured times in; when the next refresh is due, and how much goes into a tick, out. Pure."""
