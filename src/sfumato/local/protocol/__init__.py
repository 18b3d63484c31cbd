"""Clients, servers, and how reports travel between them."""
