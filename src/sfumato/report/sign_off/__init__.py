"""Sign-off pages of releases: one A4 page on which a privacy officer decides."""
