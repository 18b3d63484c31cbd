"""The pages' router: home, login by key, link or identity provider, and logout.

A request of a page acts for the session that its cookie names.  Other sites cannot send this cookie.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from sfumato_server.access import COOKIE, CurrentService, KeyLookup, RateLimiter, Reader, secret_of
from sfumato_server.datasets import summary
from sfumato_server.openid import Provider
from sfumato_server.problems import RefusalError, log
from sfumato_server.registry import Key, Scope
from sfumato_server.service import Service
from sfumato_server.sessions import LOGIN_LIFETIME, SESSION_LIFETIME, is_session
from sfumato_server.ui import (
    dataset_pages,
    description_pages,
    journal_pages,
    release_pages,
    rendering,
    steward_pages,
)
from sfumato_server.ui.budgets import gauge
from sfumato_server.ui.rendering import add_error_pages, is_https, login_page, page, request_key

BACK = "/login/back"
"""The path to which the identity provider sends browsers back."""

_LOGIN_COOKIE = "sfumato_login"
_LOGIN = "/login"


def same_site(request: Request) -> None:
    """Refuse forms that another site posts.

    Raises:
        RefusalError: the Origin header names another host, or another scheme than that of this server.
    """
    origin, base = request.headers.get("origin"), request.app.state.base_url
    if origin is None:
        return
    if urlsplit(origin).netloc != request.headers.get("host") or (base is not None and origin != base):
        raise RefusalError("foreign-origin", "This form came from another site", 403, "post from the page itself")


router = APIRouter(include_in_schema=False, dependencies=[Depends(same_site)])


def mount(app: FastAPI) -> None:
    """Add the pages to an application."""
    app.include_router(rendering.files_router)
    app.include_router(router)
    for pages in (dataset_pages, release_pages, description_pages, steward_pages, journal_pages):
        app.include_router(pages.router, dependencies=[Depends(same_site)])
    add_error_pages(app)


@router.get("/", response_class=HTMLResponse)
def home(request: Request, service: CurrentService) -> Response:
    """Show the datasets, or the login page.  A privacy officer is sent to the journals."""
    key = request_key(request)
    if key is None:
        return login_page(request, wrong=secret_of(request) is not None)
    if key.scope is Scope.OFFICER:
        return RedirectResponse(journal_pages.OFFICER, 303)
    datasets = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in service.accessible_datasets(key)]
    return page("datasets.html.j2", key=key, datasets=datasets)


def home_of(key: Key) -> str:
    """Return the page on which a person starts after a login: a steward's, an officer's, or the datasets."""
    if key.scope is Scope.OFFICER:
        return journal_pages.OFFICER
    return steward_pages.HOME if key.sees_all or key.scope is Scope.INVITATION else "/"


@router.get("/enter")
def arrive(link: Annotated[str, Query(max_length=200)], request: Request, service: CurrentService) -> Response:
    """Show a steward's link as a button.  Software that only opens the address must not use the link up."""
    if _invitation(service, link) is None:
        return login_page(request, wrong=True, status=403)
    return page("arrive.html.j2", key=None, link=link)


@router.post("/enter/link")
def follow(link: Annotated[str, Form(max_length=200)], request: Request, service: CurrentService) -> Response:
    """Start a session by a steward's link, which ends."""
    _count_attempt(request)
    invitation = _invitation(service, link)
    if invitation is None or not service.registry.revoke(invitation.id, by=invitation.actor):
        return _refuse_login(request, "unknown-link")
    return _start_session(request, service, invitation, "link")


def _invitation(service: Service, secret: str) -> Key | None:
    """Return the valid invitation of a secret; None if there is none."""
    key = service.registry.key(secret)
    return key if key is not None and key.scope is Scope.INVITATION and key.valid else None


@router.post("/enter")
def enter(key: Annotated[str, Form(max_length=200)], request: Request, service: CurrentService) -> Response:
    """Start a session by a key."""
    _count_attempt(request)
    key_lookup: KeyLookup = request.app.state.key_lookup
    if is_session(key.strip()):
        return _refuse_login(request, "session")
    try:
        holder = key_lookup.find(key.strip())
    except RefusalError as error:
        return _refuse_login(request, error.kind)
    if holder.scope is Scope.MONITOR:
        return _refuse_login(request, "wrong-scope", holder.name)
    return _start_session(request, service, holder, "key")


@router.get(_LOGIN)
def log_in(request: Request, service: CurrentService) -> Response:
    """Send a browser to the identity provider."""
    _count_attempt(request)
    provider, login = _provider(request), service.identities.start_login()
    response = RedirectResponse(provider.login_url(login), 303)
    seconds = int(LOGIN_LIFETIME.total_seconds())
    # lax, because the browser comes back from another site
    response.set_cookie(
        _LOGIN_COOKIE,
        login.browser,
        httponly=True,
        samesite="lax",
        secure=is_https(request),
        max_age=seconds,
        path=_LOGIN,
    )
    return response


@router.get(BACK, response_class=HTMLResponse)
def come_back(
    request: Request,
    service: CurrentService,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
    iss: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """Start a session for the person whom the provider identified.  A reply without a code is a refusal."""
    _count_attempt(request)
    provider = _provider(request)
    login = service.identities.take(state, request.cookies.get(_LOGIN_COOKIE, ""))
    if login is None or not code:
        log("login refused", reason="no code" if login else "state", name=None, client=_client(request))
        reason = "it has expired, belongs to another browser, or the provider refused it; sign in again"
        raise RefusalError("login-refused", "The login was refused", 403, reason)
    identity = provider.identify(code, login, issuer=iss)
    try:
        name = service.identities.assign_name(identity.id, identity.name, names_of_keys=provider.settings.names_of_keys)
    except RefusalError as refusal:
        log("login refused", reason=refusal.kind, name=identity.name, client=_client(request))
        raise
    now = datetime.now(UTC)
    holder = Key(identity.id, name, identity.scope, now, now + SESSION_LIFETIME, revoked=False)
    # a page, not a redirect: browsers send a strict cookie only after a navigation within this site
    response = page("entered.html.j2", key=None, home=home_of(holder))
    _set_session_cookie(request, response, service.sessions.start(holder, identity=identity.id))
    _log_login(request, holder, "provider")
    response.delete_cookie(_LOGIN_COOKIE, path=_LOGIN)
    return response


def _provider(request: Request) -> Provider:
    provider: Provider | None = request.app.state.provider
    if provider is None:
        raise RefusalError("no-provider", "This server has no identity provider", 404, "sign in with a key")
    return provider


@router.post("/leave")
def leave(request: Request, service: CurrentService) -> Response:
    """End this session."""
    secret = secret_of(request)
    if secret is not None:
        service.sessions.end(secret)
    return _logged_out(request)


@router.post("/leave/all")
def leave_everywhere(request: Request, key: Reader, service: CurrentService) -> Response:
    """End all sessions of this user, on every machine."""
    service.sessions.end_own(key.name)
    return _logged_out(request)


def _count_attempt(request: Request) -> None:
    """Count a login attempt of the client's address.

    Raises:
        RefusalError: the address made too many attempts.
    """
    login_limiter: RateLimiter = request.app.state.login_limiter
    login_limiter.take(_client(request))


def _logged_out(request: Request) -> Response:
    key_lookup: KeyLookup = request.app.state.key_lookup
    key_lookup.forget()
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE)
    return response


def _start_session(request: Request, service: Service, holder: Key, by: str) -> Response:
    response = RedirectResponse(home_of(holder), 303)
    _set_session_cookie(request, response, service.sessions.start(holder))
    _log_login(request, holder, by)
    return response


def _refuse_login(request: Request, reason: str, name: str | None = None) -> Response:
    """Show the login page again, and log the reason and, if it is known, the holder of the key."""
    log("login refused", reason=reason, name=name, client=_client(request))
    return login_page(request, wrong=True, status=403)


def _log_login(request: Request, holder: Key, by: str) -> None:
    """Log the name and scope of a person who logged in, and the means: a key, a link or the identity provider."""
    scope = Scope.STEWARD if holder.scope is Scope.INVITATION else holder.scope
    log("login", name=holder.name, scope=scope.value, by=by, id=holder.id, client=_client(request))


def _client(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _set_session_cookie(request: Request, response: Response, session: str) -> None:
    seconds = int(SESSION_LIFETIME.total_seconds())
    response.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=is_https(request), max_age=seconds)
