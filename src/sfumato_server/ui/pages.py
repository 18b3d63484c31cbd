"""Pages and fragments.  A session in a cookie that no other site can send stands for whoever asks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, FastAPI, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from sfumato_server.access import COOKIE, Anyone, CurrentService, KeyLookup, RateLimiter, secret_of
from sfumato_server.datasets import summary
from sfumato_server.openid import Provider
from sfumato_server.problems import RefusalError, log
from sfumato_server.registry import Key, Scope
from sfumato_server.sessions import LOGIN_LASTS, LONGEST, is_session
from sfumato_server.ui import dataset_pages, description_pages, rendering, steward_pages
from sfumato_server.ui.rendering import by_tls, entrance, gauge, known, page, show_errors

BACK = "/login/back"
"""Where a provider of identities sends browsers back to."""

_LOGIN_COOKIE = "sfumato_login"
_LOGIN = "/login"


def same_site(request: Request) -> None:
    """Refuse forms that another site posts.

    Raises:
        RefusalError: the Origin header names another host, or another scheme than that by which people come.
    """
    origin, base = request.headers.get("origin"), request.app.state.base_url
    if origin is None:
        return
    if urlsplit(origin).netloc != request.headers.get("host") or (base is not None and origin != base):
        raise RefusalError("foreign-origin", "This form came from another site", 403, "post from the page itself")


router = APIRouter(include_in_schema=False, dependencies=[Depends(same_site)])


def mount(app: FastAPI) -> None:
    """Add the page to an application."""
    app.include_router(rendering.files_router)
    app.include_router(router)
    for pages in (dataset_pages.router, description_pages.router, steward_pages.router):
        app.include_router(pages, dependencies=[Depends(same_site)])
    show_errors(app)


@router.get("/", response_class=HTMLResponse)
def home(request: Request, service: CurrentService) -> Response:
    """Datasets, or the form that asks for a key."""
    key = known(request)
    if key is None:
        return entrance(request, wrong=secret_of(request) is not None)
    shown = [(summary(loaded), gauge(loaded.ledger.remaining())) for loaded in service.all_open_to(key)]
    return page("datasets.html.j2", key=key, datasets=shown)


@router.get("/enter")
def arrive(link: Annotated[str, Query(max_length=200)], request: Request, service: CurrentService) -> Response:
    """Show a steward's link as a button: whatever merely looks at the address must not use it up."""
    found = service.registry.key(link)
    if found is None or found.scope is not Scope.INVITATION or not found.valid:
        return entrance(request, wrong=True, status=403)
    return page("arrive.html.j2", key=None, link=link)


@router.post("/enter/link")
def follow(link: Annotated[str, Form(max_length=200)], request: Request, service: CurrentService) -> Response:
    """Trade a steward's link, once, for a session."""
    _take(request)
    found = service.registry.key(link)
    usable = found is not None and found.scope is Scope.INVITATION and found.valid
    if found is None or not usable or not service.registry.revoke(found.id, by=found.actor):
        return _turned_away(request, "unknown-link")
    return _entered(request, service, found, "link")


@router.post("/enter")
def enter(key: Annotated[str, Form(max_length=200)], request: Request, service: CurrentService) -> Response:
    """Begin a session with a key."""
    _take(request)
    key_lookup: KeyLookup = request.app.state.key_lookup
    if is_session(key.strip()):
        return _turned_away(request, "session")
    try:
        holder = key_lookup.key(key.strip())
    except RefusalError as error:
        return _turned_away(request, error.kind)
    if holder.scope is Scope.MONITOR:
        return _turned_away(request, "wrong-scope", holder.name)
    return _entered(request, service, holder, "key")


@router.get(_LOGIN)
def log_in(request: Request, service: CurrentService) -> Response:
    """Send a browser to the provider of identities."""
    _take(request)
    provider, login = _provider(request), service.identities.begin()
    response = RedirectResponse(provider.address(login), 303)
    lasting = int(LOGIN_LASTS.total_seconds())
    # lax, as the browser comes back from another site
    response.set_cookie(
        _LOGIN_COOKIE,
        login.browser,
        httponly=True,
        samesite="lax",
        secure=by_tls(request),
        max_age=lasting,
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
    """Begin a session for whom the provider vouches; what it refused has no code."""
    _take(request)
    provider = _provider(request)
    login = service.identities.take(state, request.cookies.get(_LOGIN_COOKIE, ""))
    if login is None or not code:
        log("login refused", reason="no code" if login else "state", name=None, client=_client(request))
        reason = "it is over, or not of this browser, or the provider refused it; begin anew"
        raise RefusalError("login-refused", "The login was refused", 403, reason)
    found = provider.identified(code, login, issuer=iss)
    try:
        name = service.identities.named(found.id, found.name, names_of_keys=provider.settings.names_of_keys)
    except RefusalError as refusal:
        log("login refused", reason=refusal.kind, name=found.name, client=_client(request))
        raise
    now = datetime.now(UTC)
    holder = Key(found.id, name, found.scope, now, now + LONGEST, revoked=False)
    # a page and no redirect: browsers send a strict cookie only with what this site led them to
    response = page("entered.html.j2", key=None)
    _keep_session(request, response, service.sessions.begin(holder, identity=found.id))
    _log_login(request, holder, "provider")
    response.delete_cookie(_LOGIN_COOKIE, path=_LOGIN)
    return response


def _provider(request: Request) -> Provider:
    found: Provider | None = request.app.state.provider
    if found is None:
        raise RefusalError("no-provider", "Nobody logs in here that way", 404, "enter with a key")
    return found


@router.post("/leave")
def leave(request: Request, service: CurrentService) -> Response:
    """End this session."""
    secret = secret_of(request)
    if secret is not None:
        service.sessions.end(secret)
    return _left(request)


@router.post("/leave/all")
def leave_everywhere(request: Request, key: Anyone, service: CurrentService) -> Response:
    """End all sessions of whoever asks, on every machine."""
    service.sessions.end_own(key.name)
    return _left(request)


def _take(request: Request) -> None:
    """Let one attempt of an address in.

    Raises:
        RefusalError: too many came before it.
    """
    tries: RateLimiter = request.app.state.entrance
    tries.take(_client(request))


def _left(request: Request) -> Response:
    key_lookup: KeyLookup = request.app.state.key_lookup
    key_lookup.forget()
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE)
    return response


def _entered(request: Request, service: CurrentService, holder: Key, by: str) -> Response:
    response = RedirectResponse("/", 303)
    _keep_session(request, response, service.sessions.begin(holder))
    _log_login(request, holder, by)
    return response


def _turned_away(request: Request, reason: str, name: str | None = None) -> Response:
    """Show the login page again, and log the reason and, if it is known, the holder of the key."""
    log("login refused", reason=reason, name=name, client=_client(request))
    return entrance(request, wrong=True, status=403)


def _log_login(request: Request, holder: Key, by: str) -> None:
    """Log the name and scope of a person who logged in, and the means: a key, a link or the identity provider."""
    scope = Scope.STEWARD if holder.scope is Scope.INVITATION else holder.scope
    log("login", name=holder.name, scope=scope.value, by=by, id=holder.id, client=_client(request))


def _client(request: Request) -> str:
    return "" if request.client is None else request.client.host


def _keep_session(request: Request, response: Response, session: str) -> None:
    lasting = int(LONGEST.total_seconds())
    response.set_cookie(COOKIE, session, httponly=True, samesite="strict", secure=by_tls(request), max_age=lasting)
