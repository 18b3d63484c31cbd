"""Specs: frozen agreements between clients and servers about the quantity to estimate."""
