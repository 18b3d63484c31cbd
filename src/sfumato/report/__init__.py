"""Self-contained HTML pages with tables and pictures, and the pictures as files."""
