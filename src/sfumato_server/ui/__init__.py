"""The page: server-rendered, works without a network, and calls what HTTP calls."""
