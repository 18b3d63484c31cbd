"""Anonymized releases: requests, recodings, and rows that are verified by a recount."""
