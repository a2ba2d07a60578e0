"""A bound plan in, a plan out: dependent joins and LATERAL become joins over the domain of outer values."""
