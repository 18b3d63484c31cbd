"""Empirical lower bounds on the privacy loss of a mechanism."""
