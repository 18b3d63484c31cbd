"""A provider of identities for tests: OpenID Connect over real HTTP on this machine, with tokens that it really signs.

It checks what a provider has to: the client and its secret, the address to go back to, PKCE, and that a code is used
once.  What its tokens say, and who signs them, a test may change.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "sfumato", "s3cret of/the:client"


class IdentityProvider:
    """A provider that logs every visitor in as ``person``.

    Attributes:
        person: claims of the next login.
        changes: claims that replace those of a token; None removes one.
        signer: signs tokens instead of the provider's key.
        algorithm: of the signature.
        silent: True to answer with failures.
        userinfo: claims for the holder of the access token, besides the token; None: no such endpoint.

    Args:
        tls: the context of TLS; None for plain HTTP.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": secrets.token_hex(4)})
        self.person: dict[str, object] = {}
        self.changes: dict[str, object] = {}
        self.signer: RSAKey | OctKey | None = None
        self.algorithm = "RS256"
        self.silent = False
        self.userinfo: dict[str, object] | None = None
        self.userinfo_requests = 0
        self._access: set[str] = set()
        self.redirect: str | None = None
        self.token_requests = 0
        self._codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.get(self)

            def do_POST(self) -> None:
                provider.post(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.issuer = f"http{'' if tls is None else 's'}://127.0.0.1:{self._server.server_port}/realm"

    @contextmanager
    def running(self) -> Iterator[IdentityProvider]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def get(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        if self.silent:
            reply(request, 500, {})
        elif parts.path == "/realm/.well-known/openid-configuration":
            here = self.issuer
            described = {"issuer": here, "authorization_endpoint": f"{here}/authorize"}
            described |= {} if self.userinfo is None else {"userinfo_endpoint": f"{here}/userinfo"}
            reply(request, 200, described | {"token_endpoint": f"{here}/token", "jwks_uri": f"{here}/keys"})
        elif parts.path == "/realm/userinfo":
            self.userinfo_requests += 1
            known = request.headers.get("Authorization", "").removeprefix("Bearer ") in self._access
            reply(request, 200 if known else 401, self.userinfo or {} if known else {})
        elif parts.path == "/realm/keys":
            reply(request, 200, {"keys": [self.key.as_dict(private=False)]})
        elif parts.path == "/realm/authorize":
            self._authorize(request, {name: each[0] for name, each in parse_qs(parts.query).items()})
        else:
            reply(request, 404, {})

    def _authorize(self, request: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        fits = asked["client_id"] == CLIENT and asked["response_type"] == "code" and "openid" in asked["scope"].split()
        if not fits or asked["code_challenge_method"] != "S256" or asked["redirect_uri"] != self.redirect:
            reply(request, 400, {"error": "invalid_request"})
            return
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"], "iss": self.issuer})
        request.send_response(302)
        request.send_header("Location", f"{asked['redirect_uri']}?{back}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def post(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        form = {name: each[0] for name, each in parse_qs(body).items()}
        self.token_requests += 1
        kind, _, proof = request.headers.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(proof).decode().partition(":")
        asked = self._codes.pop(form.get("code", ""), None)  # once, whatever comes of it
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        fitting = challenge.decode().rstrip("=")
        if (kind, unquote(client), unquote(secret)) != ("Basic", CLIENT, SECRET):
            reply(request, 401, {"error": "invalid_client"})
        elif asked is None or form["redirect_uri"] != self.redirect or fitting != asked["code_challenge"]:
            reply(request, 400, {"error": "invalid_grant"})
        else:
            token, access = self.token(asked["nonce"]), secrets.token_hex(8)
            self._access.add(access)
            reply(request, 200, {"access_token": access, "token_type": "Bearer", "id_token": token})

    def token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce}
        claims = {name: value for name, value in (claims | self.person | self.changes).items() if value is not None}
        if self.algorithm == "none":
            parts = (json.dumps(each).encode() for each in ({"alg": "none"}, claims))
            return "".join(f"{base64.urlsafe_b64encode(part).decode().rstrip(chr(61))}." for part in parts)
        signer = self.key if self.signer is None else self.signer
        return jwt.encode({"alg": self.algorithm, "kid": self.key.kid}, claims, signer, algorithms=[self.algorithm])


def reply(request: BaseHTTPRequestHandler, status: int, document: dict[str, object]) -> None:
    body = json.dumps(document).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
