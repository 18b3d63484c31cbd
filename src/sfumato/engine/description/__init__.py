"""Drafts of domains and schemas from a table, and the check that a table fits its description."""
