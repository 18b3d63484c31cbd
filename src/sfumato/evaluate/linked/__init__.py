"""Evaluation of releases of linked tables against the tables that they were made from."""
