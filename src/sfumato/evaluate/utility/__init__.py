"""How close a release is to the real table."""
