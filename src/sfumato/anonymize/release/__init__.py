"""From a request to rows that were counted again."""
