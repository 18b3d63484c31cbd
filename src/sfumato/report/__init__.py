"""Pages that people look at: self-contained HTML with tables and pictures, and the pictures as files."""
