"""Pages about releases: self-contained HTML that works offline."""
