"""Utility scores: the distance of a release from the real table."""
