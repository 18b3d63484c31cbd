"""Distributions over a domain: factors, inference and sampling.  Knows no data and adds no noise."""
