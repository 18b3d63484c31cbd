"""A typed client of the server."""

from sfumato.app.client.client import Client, ServerError

__all__ = ["Client", "ServerError"]
