"""Login by OpenID Connect (Core 1.0, authorization code with PKCE, RFC 7636).

The server talks to the identity provider over its own connections.  From the browser it accepts only a code, which the
provider exchanges for a signed token.  The token must be for this client and this login, and must not have expired.
"""

from __future__ import annotations

import hashlib
import ipaddress
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
from authlib.oauth2.base import OAuth2Error
from authlib.oauth2.client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from pydantic import Field

from sfumato.app.api.questions import StrictModel, validate_fields
from sfumato.app.outbound import failure, outbound
from sfumato.errors import InputError
from sfumato.strict_documents import read_yaml
from sfumato_server.problems import RefusalError, log
from sfumato_server.registry import Scope
from sfumato_server.sessions import Login

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
EVERYBODY = "*"
_LEEWAY = 30  # seconds between the clocks
_TIMEOUT = 10.0  # seconds for a reply of the provider
_CACHE_SECONDS = 600.0  # for the provider's metadata and keys
_KEY_RELOAD_SECONDS = 10.0  # between two reloads of the keys because of an unknown one
_MAX_REPLY_BYTES = 1 << 20


class OpenIdSettings(StrictModel):
    """The identity provider and the roles of its users: the file of ``serve --openid``.

    Attributes:
        issuer: the provider's address, as its tokens name it.
        client_id: the provider's id of this server.
        client_secret_file: a file with the secret that the provider gave this server.
        scopes: the scopes to request in addition to ``openid``.
        name_claim: the claim with a person's name; ``email`` has to be verified.
        roles_claim: the claim with a person's roles or groups; dots lead into objects.
        stewards: the roles that make a steward.
        analysts: the roles that make an analyst; ``*`` for every user of the provider.
        officers: the roles that make a privacy officer, unless the person is a steward.
        names_of_keys: whether a person with the name of a key is the holder of that key.
        ca_file: PEM certificates of the only trusted authorities; None for those of httpx.
        proxy: ``http://[USER:PASSWORD@]HOST:PORT``, the proxy to the provider; None for none.
    """

    issuer: str = Field(min_length=1, max_length=500)
    client_id: str = Field(min_length=1, max_length=500)
    client_secret_file: str
    scopes: list[str] = Field(default=["profile", "email"])
    name_claim: str = "preferred_username"
    roles_claim: str
    stewards: list[str]
    analysts: list[str]
    officers: list[str] = Field(default=[])
    names_of_keys: bool = False
    ca_file: str | None = None
    proxy: str | None = None

    @classmethod
    def read(cls, file: Path) -> OpenIdSettings:
        """Read the file.

        Raises:
            InputError: the file cannot be read, or its content is invalid.
        """
        try:
            document = read_yaml(file.read_text(encoding="utf-8"), name=str(file))
        except (OSError, UnicodeDecodeError):
            raise InputError(f"cannot read {file}", culprit=file) from None
        if not isinstance(document, dict):
            raise InputError(f"{file} is a mapping with 'issuer', 'client_id' and more", culprit=file)
        settings = validate_fields(cls, document)
        refuse_address(settings.issuer, "a provider of identities")
        _ = settings.secret  # refuses a file that cannot be read
        outbound(settings.ca_file, settings.proxy)
        return settings

    @property
    def secret(self) -> str:
        """The secret of this server.

        Raises:
            InputError: its file cannot be read, or is empty.
        """
        try:
            secret = Path(self.client_secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            secret = ""
        if not secret:
            raise InputError(f"{self.client_secret_file} holds no secret", culprit=self.client_secret_file)
        return secret

    def scope(self, roles: Any) -> Scope | None:  # noqa: ANN401  (a claim is any JSON)
        """Return the scope of a person with these roles; None if they may do nothing."""
        listed = [roles] if isinstance(roles, str) else roles if isinstance(roles, list) else []
        names = {role for role in listed if isinstance(role, str)}
        if names & set(self.stewards):
            return Scope.STEWARD
        if names & set(self.officers):
            return Scope.OFFICER
        return Scope.ANALYST if EVERYBODY in self.analysts or names & set(self.analysts) else None


@dataclass(frozen=True)
class VerifiedIdentity:
    """A person whom a provider identified.

    Attributes:
        id: a pseudonymous id, unique over all identities and providers.
        name: the name that the provider states.
        scope: what the person may do.
    """

    id: str
    name: str
    scope: Scope


class Provider:
    """An identity provider.

    Args:
        settings: its settings.
        callback: the address to which it sends browsers back.
    """

    def __init__(self, settings: OpenIdSettings, *, callback: str) -> None:
        self.settings = settings
        self._callback = callback
        self._client_options = outbound(settings.ca_file, settings.proxy)
        self._lock = threading.Lock()
        self._metadata_cache: tuple[float, dict[str, Any]] | None = None  # with the time of the request
        self._keys: tuple[float, KeySet] | None = None

    def login_url(self, login: Login) -> str:
        """Return the address to which a browser goes to log in.

        Raises:
            RefusalError: the provider does not answer.
        """
        endpoint = self._metadata()["authorization_endpoint"]
        url: str = self._flow(None).create_authorization_url(
            endpoint, state=login.state, nonce=login.nonce, code_verifier=login.verifier
        )[0]
        return url

    def identify(self, code: str, login: Login, *, issuer: str | None = None) -> VerifiedIdentity:
        """Exchange a code for a token, and return the person whom it identifies.

        Args:
            code: the code that came back through the browser.
            login: the login to which it belongs.
            issuer: the issuer that the reply names (RFC 9207); None if it names none.

        Raises:
            RefusalError: the provider does not answer or refuses the code, the token is not valid for this client and
                login, or the person has no role that may enter.
        """
        if issuer is not None and issuer != self.settings.issuer:
            raise _login_refusal("issuer")
        token, access = self._tokens(code, login)
        claims = [self._claims(token, login)]
        by_mail = self.settings.name_claim == "email"
        required = (self.settings.name_claim, self.settings.roles_claim, *(["email_verified"] if by_mail else []))
        if any(claim(claims, path) is None for path in required):
            claims.append(self._userinfo(access, claims[0]["sub"]))
        name = self._name(claims)
        identity = hashlib.sha256(f"{self.settings.issuer}\0{claims[0]['sub']}".encode()).hexdigest()[:24]
        return VerifiedIdentity(identity, name, self._scope(claims, name))

    def _name(self, claims: Sequence[Mapping[str, Any]]) -> str:
        """Return the provider's name of a person.

        Raises:
            RefusalError: there is none, or it is an address of mail that is not verified.
        """
        name = claim(claims, self.settings.name_claim)
        verified = any(each.get("email") == name and each.get("email_verified") is True for each in claims)
        if not isinstance(name, str) or (self.settings.name_claim == "email" and not verified):
            raise _login_refusal("name")
        return name

    def _scope(self, claims: Sequence[Mapping[str, Any]], name: str) -> Scope:
        """Return what a person may do.

        Raises:
            RefusalError: the person has no role that may enter, or the provider did not list all their groups.
        """
        path = self.settings.roles_claim
        roles = claim(claims, path)
        if roles is None and any(_overflows(each, path) for each in claims):
            _login_refusal("group-overage", name)
            raise RefusalError(
                "group-overage",
                "The provider did not list your groups",
                403,
                "you are in more groups than it puts into a token, so your role is not known; ask the operator "
                "of the server to have the provider send only the groups of this server, or roles",
            )
        if roles is None:
            log("roles missing", name=name, claim=path)  # for the operator, who may have misspelled the claim
        scope = self.settings.scope(roles)
        if scope is None:
            _login_refusal("no-role", name)
            raise RefusalError(
                "no-role", "You have no role here", 403, "the operator of the server names the roles that may sign in"
            )
        return scope

    def _tokens(self, code: str, login: Login) -> tuple[str, str | None]:
        """Exchange a code for the ID token and the access token for userinfo."""
        endpoint = self._metadata()["token_endpoint"]
        try:
            with ProviderConnection(**self._client_options) as connection:
                reply = self._flow(connection).fetch_token(
                    endpoint, code=code, code_verifier=login.verifier, auth=self._credentials()
                )
        except OAuth2Error as error:
            raise _login_refusal("code") from error
        except (httpx.HTTPError, ValueError, TypeError) as error:
            raise _unavailable(failure(error)) from error
        if not isinstance(reply, dict):
            raise _unavailable("token")
        token, access = reply.get("id_token"), reply.get("access_token")
        if not isinstance(token, str):
            raise _login_refusal("code")
        return token, access if isinstance(access, str) else None

    def _userinfo(self, access: str | None, subject: str) -> Mapping[str, Any]:
        """Return the provider's userinfo of a person (Core 1.0, 5.3); empty if the provider has none.

        Raises:
            RefusalError: the provider does not answer with plain JSON, or answers for another person.
        """
        endpoint = self._metadata().get("userinfo_endpoint")
        if endpoint is None or access is None:
            return {}
        if not isinstance(endpoint, str):
            raise _unavailable("userinfo_endpoint")
        userinfo = self._fetch(endpoint, bearer=access)
        if userinfo.get("sub") != subject:
            raise _login_refusal("userinfo of another person")
        return userinfo

    def _credentials(self) -> tuple[str, str]:
        """Return this server's id and secret for basic authentication (RFC 6749, 2.3.1)."""
        return quote(self.settings.client_id, safe=""), quote(self.settings.secret, safe="")

    def _claims(self, token: str, login: Login) -> Mapping[str, Any]:
        """Return the claims of a token, after all of them are checked."""
        issued = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
        }
        expected = {"nonce": login.nonce, "client_id": self.settings.client_id}
        try:
            decoded = self._decoded(token)
            claims = CodeIDToken(decoded.claims, decoded.header, issued, expected)
            claims.validate(leeway=_LEEWAY)
        except (JoseError, ValueError, TypeError) as error:
            raise _login_refusal(type(error).__name__) from error
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise _login_refusal("sub")
        return dict(claims)

    def _decoded(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, self._key_set(), algorithms=list(ALGORITHMS))
        except (InvalidKeyIdError, ValueError):  # the key may be newer than the cached ones
            return jwt.decode(token, self._key_set(max_age=_KEY_RELOAD_SECONDS), algorithms=list(ALGORITHMS))

    def _key_set(self, max_age: float = _CACHE_SECONDS) -> KeySet:
        with self._lock:
            if self._keys is None or time.monotonic() - self._keys[0] > max_age:
                document = self._fetch(self._metadata()["jwks_uri"])
                keys: Any = [each for each in document.get("keys", []) if each.get("kty") in {"RSA", "EC", "OKP"}]
                self._keys = (time.monotonic(), KeySet.import_key_set({"keys": keys}))
            return self._keys[1]

    def _metadata(self) -> dict[str, Any]:
        """Return the provider's metadata (OpenID Connect Discovery 1.0)."""
        if self._metadata_cache is None or time.monotonic() - self._metadata_cache[0] > _CACHE_SECONDS:
            metadata = self._fetch(self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
            if metadata.get("issuer") != self.settings.issuer:
                raise _unavailable("issuer")
            for endpoint in ("authorization_endpoint", "token_endpoint", "jwks_uri"):  # browsers go to the first
                if not isinstance(metadata.get(endpoint), str) or not is_safe(metadata[endpoint]):
                    raise _unavailable(endpoint)
            self._metadata_cache = (time.monotonic(), metadata)
        return self._metadata_cache[1]

    def _fetch(self, address: str, *, bearer: str | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"} | ({} if bearer is None else {"Authorization": f"Bearer {bearer}"})
        try:
            with ProviderConnection(**self._client_options) as connection:
                reply = connection.get(address, headers=headers)
            document = reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _unavailable(failure(error)) from error
        if not reply.is_success or not isinstance(document, dict):
            raise _unavailable(f"status {reply.status_code}")
        return document

    def _flow(self, connection: ProviderConnection | None) -> OAuth2Client:
        """Return authlib's client of the code flow with PKCE; it sends by the connection that it is given.

        Authlib's own subclass of httpx.Client is not used, because its version 1.9 deprecates httpx.
        """
        flow = OAuth2Client(
            connection,
            self.settings.client_id,
            scope=["openid", *self.settings.scopes],
            redirect_uri=self._callback,
            code_challenge_method="S256",
        )
        flow.register_compliance_hook("access_token_response", _refuse_status)
        return flow


def _refuse_status(reply: httpx.Response) -> httpx.Response:
    """Refuse a token in a reply that is no success; authlib reads one from any status below 500."""
    if reply.is_client_error and isinstance(reply.json(), dict):
        raise OAuth2Error("refused")
    return reply.raise_for_status()


class ProviderConnection(httpx.Client):
    """An HTTP client that sends to safe addresses only, follows no redirect and reads at most 1 MiB of a reply.

    Args:
        **options: the trusted authority and the proxy, see :func:`sfumato.app.outbound.outbound`.
    """

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  (arguments of httpx)
        super().__init__(timeout=_TIMEOUT, follow_redirects=False, **options)

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:  # noqa: ANN401  (arguments of httpx)
        """Send a request and read its reply.

        Raises:
            httpx.HTTPError: the address is not safe, the reply is too large, or the connection failed.
        """
        if not is_safe(str(request.url)):
            raise httpx.UnsupportedProtocol("the address is not safe", request=request)
        reply = super().send(request, **options | {"stream": True})
        content = bytearray()
        try:
            for piece in reply.iter_bytes(1 << 16):
                content += piece
                if len(content) > _MAX_REPLY_BYTES:
                    raise httpx.ReadError("the reply is too large", request=request)
        finally:
            reply.close()
        kind = {"Content-Type": reply.headers.get("Content-Type", "")}  # the content is decompressed by now
        return httpx.Response(reply.status_code, headers=kind, content=bytes(content), request=request)


def refuse_address(address: str, whose: str) -> None:
    """Refuse an address whose traffic others in the network could read or change.

    Raises:
        InputError: the address is neither https nor on this machine.
    """
    if not is_safe(address):
        raise InputError(f"{whose} is at https://..., or on this machine", culprit=address)


def is_safe(address: str) -> bool:
    """Return whether traffic to an address is safe from others: by https, or on this machine.

    >>> is_safe("https://login.example"), is_safe("http://login.example"), is_safe("http://127.0.0.1:8080/realm")
    (True, False, True)
    """
    parts = urlsplit(address)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        return parts.scheme == "http" and ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.scheme == "http" and parts.hostname == "localhost"


def claim(claims: Iterable[Mapping[str, Any]], path: str) -> Any:  # noqa: ANN401  (JSON)
    """Return a claim from the first of several documents that has it; None if none has it.

    >>> claim([{"realm": {}}, {"realm": {"roles": ["a"]}}], "realm.roles"), claim([{"a.b": 1}], "a.b")
    (['a'], 1)
    """
    for document in claims:
        value: Any = document.get(path)  # the name of a claim may have dots, such as a URL
        if value is None:
            value = document
            for part in path.split("."):
                value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return None


def _overflows(claims: Mapping[str, Any], path: str) -> bool:
    """Return whether the provider left a claim out because it is too long (Core 1.0, 5.6.2)."""
    elsewhere = claims.get("_claim_names")  # a document, or its JSON text from some providers
    names = {path, path.partition(".")[0]}
    if isinstance(elsewhere, Mapping | str) and any(name in elsewhere for name in names):
        return True
    return "groups" in names and claims.get("hasgroups") in (True, "true")


def _login_refusal(reason: str, name: str | None = None) -> RefusalError:
    log("login refused", reason=reason, name=name)
    return RefusalError(
        "login-refused",
        "The login was refused",
        403,
        "sign in again; the operator of the server finds the reason in its log",
    )


def _unavailable(reason: str) -> RefusalError:
    log("provider unavailable", reason=reason)
    return RefusalError(
        "provider-unavailable",
        "The provider of identities does not answer",
        503,
        "try again later, or sign in with a key",
    )
