"""Syntactic anonymisation: hierarchies, criteria, losses, searches, local recoding, risk.  Not differential privacy."""
