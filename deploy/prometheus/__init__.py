"""The configuration of Prometheus, and the check of its rules."""
