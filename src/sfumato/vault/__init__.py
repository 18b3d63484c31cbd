"""The only place where exact counts become public numbers."""
