"""Linked tables beside those they were made from: parents with their children, and how families differ."""
