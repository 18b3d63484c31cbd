"""Drafts of domains and schemas from a table, and the check that a table fits its description.

Only the owner of a table runs this: it reads exact values and prints them.  No release reads anything from here.
"""
