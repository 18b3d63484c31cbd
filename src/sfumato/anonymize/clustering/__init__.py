"""Classes for local recoding."""
