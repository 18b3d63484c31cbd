"""Algorithms that form the classes of a local recoding."""
