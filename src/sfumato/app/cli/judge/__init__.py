"""Commands that judge releases, and the sign-off page."""
