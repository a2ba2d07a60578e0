"""The bounded queue between receiving and publishing: receiving continues while the sink is slow or unavailable."""
