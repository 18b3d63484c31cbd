"""What specs prove and guarantee."""
