"""The published experiments, as printed and done honestly."""
