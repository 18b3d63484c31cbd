"""Connections to other servers: trusted certificates, the proxy, and reasons of failure."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from sfumato.errors import InputError

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


def _trusting(ca_file: str | Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:  # as SSLError is
        raise InputError(f"{ca_file} holds no certificates in PEM that can be read", culprit=ca_file) from error


def _proxy(address: str) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise InputError("a proxy is written http://HOST:PORT, or http://USER:PASSWORD@HOST:PORT")
    return address
