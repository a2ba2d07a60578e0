"""Correlated subqueries and LATERAL in, joins over the domain of outer values out."""
