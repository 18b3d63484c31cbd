"""Login by OpenID Connect (Core 1.0, by authorization code with PKCE, RFC 7636): whom a provider vouches for.

The provider is asked over connections of the server's own; nothing that comes through the browser is believed but a
code, which the provider trades once for a token that it signed, for this client, of this login, not over yet.
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
_LEEWAY = 30  # seconds by which clocks may differ
_PATIENCE = 10.0  # seconds for a reply of the provider
_KEPT = 600.0  # seconds for which its description and keys are trusted
_BETWEEN = 10.0  # seconds between looks at its keys for one that is not known
_LARGEST = 1 << 20  # bytes of a reply


class OpenIdSettings(StrictModel):
    """Which provider vouches for people, and who of them may do what: the file of ``serve --openid``.

    Attributes:
        issuer: its address, as its tokens name it.
        client_id: what it calls this server.
        client_secret_file: a file that holds the secret which it gave this server.
        scopes: what is asked for besides ``openid``.
        name_claim: where a token has the name of its holder; of an ``email``, only a verified one.
        roles_claim: where it has their roles or groups; dots lead into objects.
        stewards: roles that make a steward.
        analysts: roles that make an analyst; ``*`` for everybody whom it vouches for.
        names_of_keys: whether somebody whose name is that of a key is the holder of that key.
        ca_file: certificates in PEM of the only authorities that are trusted for it; None: those that come with httpx.
        proxy: ``http://[USER:PASSWORD@]HOST:PORT``, through which it is reached; None: none.
    """

    issuer: str = Field(min_length=1, max_length=500)
    client_id: str = Field(min_length=1, max_length=500)
    client_secret_file: str
    scopes: list[str] = Field(default=["profile", "email"])
    name_claim: str = "preferred_username"
    roles_claim: str
    stewards: list[str]
    analysts: list[str]
    names_of_keys: bool = False
    ca_file: str | None = None
    proxy: str | None = None

    @classmethod
    def read(cls, file: Path) -> OpenIdSettings:
        """Read the file.

        Raises:
            InputError: it cannot be read, or is not such a file.
        """
        try:
            found = read_yaml(file.read_text(encoding="utf-8"), name=str(file))
        except (OSError, UnicodeDecodeError):
            raise InputError(f"cannot read {file}", culprit=file) from None
        if not isinstance(found, dict):
            raise InputError(f"{file} is a mapping with 'issuer', 'client_id' and more", culprit=file)
        settings = validate_fields(cls, found)
        refuse_address(settings.issuer, "a provider of identities")
        _ = settings.secret
        outbound(settings.ca_file, settings.proxy)
        return settings

    @property
    def secret(self) -> str:
        """The secret of this server.

        Raises:
            InputError: its file cannot be read, or holds nothing.
        """
        try:
            found = Path(self.client_secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            found = ""
        if not found:
            raise InputError(f"{self.client_secret_file} holds no secret", culprit=self.client_secret_file)
        return found

    def scope(self, roles: Any) -> Scope | None:  # noqa: ANN401  (whatever the claim of roles holds)
        """Return the scope of a person with these roles; None if they may do nothing."""
        each = [roles] if isinstance(roles, str) else roles if isinstance(roles, list) else []
        held = {role for role in each if isinstance(role, str)}
        if held & set(self.stewards):
            return Scope.STEWARD
        return Scope.ANALYST if EVERYBODY in self.analysts or held & set(self.analysts) else None


@dataclass(frozen=True)
class Identified:
    """Whom a provider vouched for.

    Attributes:
        id: what no other identity of any provider has, and which tells nothing about it.
        name: what the provider calls it.
        scope: what it may do.
    """

    id: str
    name: str
    scope: Scope


class Provider:
    """A provider of identities.

    Args:
        settings: which one.
        back: the address to which it sends browsers back.
    """

    def __init__(self, settings: OpenIdSettings, *, back: str) -> None:
        self.settings = settings
        self._back = back
        self._reached = outbound(settings.ca_file, settings.proxy)
        self._lock = threading.Lock()
        self._described: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, KeySet] | None = None

    def address(self, login: Login) -> str:
        """Where to send a browser to log in.

        Raises:
            RefusalError: the provider does not answer.
        """
        endpoint = self._description()["authorization_endpoint"]
        address: str = self._flow(None).create_authorization_url(
            endpoint, state=login.state, nonce=login.nonce, code_verifier=login.verifier
        )[0]
        return address

    def identified(self, code: str, login: Login, *, issuer: str | None = None) -> Identified:
        """Trade a code for a token, and say whom it is of.

        Args:
            code: what came back through the browser.
            login: the one that it came back to.
            issuer: who says to have sent it (RFC 9207); None where nobody says.

        Raises:
            RefusalError: the provider does not answer, or does not know the code; or the token is not one that it
                signed for this client and this login, is over, or has no role that may enter.
        """
        if issuer is not None and issuer != self.settings.issuer:
            raise _refused("issuer")
        token, access = self._tokens(code, login)
        claims = [self._claims(token, login)]
        by_mail = self.settings.name_claim == "email"
        wanted = (self.settings.name_claim, self.settings.roles_claim, *(["email_verified"] if by_mail else []))
        if any(claim(claims, path) is None for path in wanted):
            claims.append(self._userinfo(access, claims[0]["sub"]))
        name = self._name(claims)
        identity = hashlib.sha256(f"{self.settings.issuer}\0{claims[0]['sub']}".encode()).hexdigest()[:24]
        return Identified(identity, name, self._scope(claims, name))

    def _name(self, claims: Sequence[Mapping[str, Any]]) -> str:
        """Return what the provider calls a person.

        Raises:
            RefusalError: it does not say, or names an address of mail that it did not verify.
        """
        name = claim(claims, self.settings.name_claim)
        verified = any(each.get("email") == name and each.get("email_verified") is True for each in claims)
        if not isinstance(name, str) or (self.settings.name_claim == "email" and not verified):
            raise _refused("name")
        return name

    def _scope(self, claims: Sequence[Mapping[str, Any]], name: str) -> Scope:
        """Return what a person may do.

        Raises:
            RefusalError: they have no role that may enter, or more groups than the provider lists, so that nobody
                knows their role.
        """
        path = self.settings.roles_claim
        roles = claim(claims, path)
        if roles is None and any(_overflows(each, path) for each in claims):
            _refused("group-overage", name)
            raise RefusalError(
                "group-overage",
                "The provider did not list your groups",
                403,
                "you are in more groups than it puts into a token, so your role is not known; whoever runs the server "
                "has the provider send only the groups that are assigned to this server, or roles of it",
            )
        if roles is None:
            log("roles missing", name=name, claim=path)  # of all whom the provider knows, one may be a steward
        scope = self.settings.scope(roles)
        if scope is None:
            _refused("no-role", name)
            raise RefusalError(
                "no-role", "You have no role here", 403, "whoever runs the server names the roles that may enter"
            )
        return scope

    def _tokens(self, code: str, login: Login) -> tuple[str, str | None]:
        """Trade a code for the ID token, and for the access token that opens userinfo."""
        endpoint = self._description()["token_endpoint"]
        try:
            with ProviderConnection(**self._reached) as connection:
                reply = self._flow(connection).fetch_token(
                    endpoint, code=code, code_verifier=login.verifier, auth=self._proof()
                )
        except OAuth2Error as error:
            raise _refused("code") from error
        except (httpx.HTTPError, ValueError, TypeError) as error:
            raise _silent(failure(error)) from error
        if not isinstance(reply, dict):
            raise _silent("token")
        token, access = reply.get("id_token"), reply.get("access_token")
        if not isinstance(token, str):
            raise _refused("code")
        return token, access if isinstance(access, str) else None

    def _userinfo(self, access: str | None, subject: str) -> Mapping[str, Any]:
        """Return the provider's userinfo of a person (Core 1.0, 5.3); empty if the provider has none.

        Raises:
            RefusalError: it does not answer, answers in another form than plain JSON, or speaks of another person.
        """
        place = self._description().get("userinfo_endpoint")
        if place is None or access is None:
            return {}
        if not isinstance(place, str):
            raise _silent("userinfo_endpoint")
        found = self._fetch(place, bearer=access)
        if found.get("sub") != subject:
            raise _refused("userinfo of another person")
        return found

    def _proof(self) -> tuple[str, str]:
        """How this server shows who it is, in the way that every provider has to understand (RFC 6749, 2.3.1)."""
        return quote(self.settings.client_id, safe=""), quote(self.settings.secret, safe="")

    def _claims(self, token: str, login: Login) -> Mapping[str, Any]:
        """What a token says, once everything about it is as it has to be."""
        issued = {
            "iss": {"essential": True, "value": self.settings.issuer},
            "aud": {"essential": True, "value": self.settings.client_id},
        }
        asked = {"nonce": login.nonce, "client_id": self.settings.client_id}
        try:
            decoded = self._decoded(token)
            claims = CodeIDToken(decoded.claims, decoded.header, issued, asked)
            claims.validate(leeway=_LEEWAY)
        except (JoseError, ValueError, TypeError) as error:
            raise _refused(type(error).__name__) from error
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise _refused("sub")
        return dict(claims)

    def _decoded(self, token: str) -> jwt.Token:
        try:
            return jwt.decode(token, self._key_set(), algorithms=list(ALGORITHMS))
        except (InvalidKeyIdError, ValueError):  # a key that is newer than what is known of its keys
            return jwt.decode(token, self._key_set(known_for=_BETWEEN), algorithms=list(ALGORITHMS))

    def _key_set(self, known_for: float = _KEPT) -> KeySet:
        with self._lock:
            if self._keys is None or time.monotonic() - self._keys[0] > known_for:
                found = self._fetch(self._description()["jwks_uri"])
                keys: Any = [each for each in found.get("keys", []) if each.get("kty") in {"RSA", "EC", "OKP"}]
                self._keys = (time.monotonic(), KeySet.import_key_set({"keys": keys}))
            return self._keys[1]

    def _description(self) -> dict[str, Any]:
        """What the provider says of itself (OpenID Connect Discovery 1.0)."""
        if self._described is None or time.monotonic() - self._described[0] > _KEPT:
            place = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
            found = self._fetch(place)
            if found.get("issuer") != self.settings.issuer:
                raise _silent("issuer")
            for endpoint in ("authorization_endpoint", "token_endpoint", "jwks_uri"):  # the browser reads the first
                if not isinstance(found.get(endpoint), str) or not is_safe(found[endpoint]):
                    raise _silent(endpoint)
            self._described = (time.monotonic(), found)
        return self._described[1]

    def _fetch(self, address: str, *, bearer: str | None = None) -> dict[str, Any]:
        headers = {"Accept": "application/json"} | ({} if bearer is None else {"Authorization": f"Bearer {bearer}"})
        try:
            with ProviderConnection(**self._reached) as connection:
                reply = connection.get(address, headers=headers)
            document = reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise _silent(failure(error)) from error
        if not reply.is_success or not isinstance(document, dict):
            raise _silent(f"status {reply.status_code}")
        return document

    def _flow(self, connection: ProviderConnection | None) -> OAuth2Client:
        """Return authlib's client of the code flow with PKCE; it sends by the connection that it is given.

        Authlib's own subclass of httpx.Client is not used, because its version 1.9 deprecates httpx.
        """
        flow = OAuth2Client(
            connection,
            self.settings.client_id,
            scope=["openid", *self.settings.scopes],
            redirect_uri=self._back,
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
    """An HTTP client that sends to safe addresses alone, follows no redirect and reads at most 1 MiB of a reply.

    Args:
        **reached: the trusted authority and the proxy, as :func:`sfumato.app.outbound.outbound` returns them.
    """

    def __init__(self, **reached: Any) -> None:  # noqa: ANN401  (arguments of httpx)
        super().__init__(timeout=_PATIENCE, follow_redirects=False, **reached)

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
                if len(content) > _LARGEST:
                    raise httpx.ReadError("the reply is too large", request=request)
        finally:
            reply.close()
        kind = {"Content-Type": reply.headers.get("Content-Type", "")}  # the content is decompressed by now
        return httpx.Response(reply.status_code, headers=kind, content=bytes(content), request=request)


def refuse_address(address: str, whose: str) -> None:
    """Refuse an address to which others in the network can read or write along.

    Raises:
        InputError: it is not at https, nor on this machine.
    """
    if not is_safe(address):
        raise InputError(f"{whose} is at https://..., or on this machine", culprit=address)


def is_safe(address: str) -> bool:
    """Whether nobody between here and an address can read or write.

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
    for each in claims:
        found: Any = each.get(path)  # a claim may have dots in its name, such as a URL
        if found is None:
            found = each
            for part in path.split("."):
                found = found.get(part) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None


def _overflows(claims: Mapping[str, Any], path: str) -> bool:
    """Return whether the provider lists only a part of a claim, and keeps the rest elsewhere (Core 1.0, 5.6.2)."""
    elsewhere = claims.get("_claim_names")  # a document, or with some providers its text
    names = {path, path.partition(".")[0]}
    if isinstance(elsewhere, Mapping | str) and any(name in elsewhere for name in names):
        return True
    return "groups" in names and claims.get("hasgroups") in (True, "true")


def _refused(reason: str, name: str | None = None) -> RefusalError:
    log("login refused", reason=reason, name=name)
    return RefusalError(
        "login-refused", "The login was refused", 403, "begin anew; whoever runs the server finds why in its log"
    )


def _silent(reason: str) -> RefusalError:
    log("provider unavailable", reason=reason)
    return RefusalError(
        "provider-unavailable",
        "The provider of identities does not answer",
        503,
        "try again later, or enter with a key",
    )
