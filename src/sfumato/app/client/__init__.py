"""A typed client of the server."""

from sfumato.extras import require

require("client", "the HTTP client")

from sfumato.app.client.client import HttpClient, ServerError  # noqa: E402  (after what it needs was found to be there)

__all__ = ["HttpClient", "ServerError"]
