"""Connections to other servers: trusted certificates, the proxy, and reasons of failure."""

from __future__ import annotations

import os
import re
import ssl
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from sfumato.errors import InputError

_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Variables that name a file of trusted certificates; the first that is set counts."""
_EXPECTED_FILE = "name the file in which your organization publishes its authority, such as authority.pem"
_PLACE = re.compile(r" \(_ssl\.c:\d+\)$")


def outbound(ca_file: str | Path | None, proxy: str | None) -> dict[str, Any]:
    """Return the arguments of an httpx client that trusts one authority and goes through one proxy.

    Environment variables such as ``HTTPS_PROXY`` are ignored.

    Args:
        ca_file: certificates in PEM of the only authorities that are trusted; None: those that come with httpx.
        proxy: ``http://[USER:PASSWORD@]HOST:PORT``, through which every connection goes; None: none.

    Raises:
        InputError: the file has no certificate that can be read, or the proxy is no such address.
    """
    settings: dict[str, Any] = {"trust_env": False}
    if ca_file is not None:
        settings["verify"] = _trusting(ca_file)
    if proxy is not None:
        settings["proxy"] = _proxy(proxy)
    return settings


def outbound_from_environment(address: str, ca: str | Path | None, proxy: str | None) -> dict[str, Any]:
    """Return the arguments of an httpx client for one server; the environment supplies what the caller does not name.

    Args:
        address: the address of the server.
        ca: see ``ca_file`` of :func:`outbound`; None: the file named by ``SSL_CERT_FILE``, ``REQUESTS_CA_BUNDLE`` or
            ``CURL_CA_BUNDLE``, else the certificates of the system and those that come with httpx.
        proxy: see :func:`outbound`; None: the proxy of ``HTTPS_PROXY``, ``HTTP_PROXY`` or ``ALL_PROXY``, unless
            ``NO_PROXY`` lists the server or the server is on this machine.

    Raises:
        InputError: see :func:`outbound`; or ``ca`` is given for an address without TLS.
    """
    parts = urlsplit(address)
    bundle = next((name for name in _BUNDLES if os.environ.get(name)), None) if parts.scheme == "https" else None
    if ca is not None and parts.scheme == "http":
        raise InputError("the address begins with http://, which uses no certificates; write https://, or leave out ca")
    settings = outbound(ca, proxy)
    if ca is None and bundle is not None:
        try:
            settings["verify"] = _trusting(os.environ[bundle])
        except InputError as error:
            raise InputError(f"{bundle} of the environment: {error}", culprit=bundle) from error
    elif ca is None and parts.scheme == "https":
        settings["verify"] = httpx.create_ssl_context(trust_env=False)
        settings["verify"].load_default_certs()
    if proxy is None and (named := _proxy_from_environment(parts.scheme, parts.hostname or "", parts.port)):
        settings["proxy"] = named
    return settings


def rejected_certificate(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the reason why the certificate of a server was rejected; None if the connection failed otherwise."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def failure(error: Exception) -> str:
    """Return why a connection failed, in the words of TLS, the system or the proxy, and without any address."""
    kind = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{kind}: the certificate is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError):
            return f"{kind}: TLS failed: {_PLACE.sub('', cause.reason or 'unknown reason')}"
        if isinstance(cause, OSError) and cause.errno is not None:  # a name that is not resolved has a negative one
            return f"{kind}: {os.strerror(cause.errno) if cause.errno > 0 else cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return f"{kind}: {error}" if isinstance(error, httpx.ProxyError) else kind


def _proxy_from_environment(scheme: str, host: str, port: int | None) -> str | None:
    """Return the address of the proxy for a host; None for no proxy."""
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or _on_this_machine(host) or proxy_bypass(host):
        return None
    if port is not None and ":" not in host and proxy_bypass(f"{host}:{port}"):  # NO_PROXY may name a port
        return None
    address = proxy if "://" in proxy else f"http://{proxy}"
    if not address.startswith(("http://", "https://")):
        raise InputError("the environment names no HTTP proxy; pass proxy='http://HOST:PORT', or set NO_PROXY")
    return address


def _on_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _trusting(ca_file: str | Path) -> ssl.SSLContext:
    try:
        if Path(ca_file).is_dir():
            return ssl.create_default_context(capath=ca_file)
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # as SSLError is
        raise InputError(
            f"{ca_file} holds no certificates in PEM that can be read; {_EXPECTED_FILE}", culprit=ca_file
        ) from error


def _proxy(address: str) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise InputError("a proxy is written http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT")
    return address
