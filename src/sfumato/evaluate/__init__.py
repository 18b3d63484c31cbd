"""What a release is good for, what can be stolen from it, and whether its mechanism keeps its word."""
