"""Finite channels with exact integer probability tables."""
