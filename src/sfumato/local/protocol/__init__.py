"""Clients, servers, and the exchange of reports between them."""
