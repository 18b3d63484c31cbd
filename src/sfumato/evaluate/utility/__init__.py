"""Utility: how close a release is to the real table."""
