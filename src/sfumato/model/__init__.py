"""Distributions over a domain: factors, inference and sampling.  The package reads no data and adds no noise."""
