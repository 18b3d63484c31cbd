"""Login by OpenID Connect against a provider on this machine: who gets in as what, and everything forged is refused."""

from __future__ import annotations

import itertools
import re
import threading
from contextlib import closing, suppress
from datetime import timedelta
from fractions import Fraction
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml
from authlib.oauth2.base import OAuth2Error
from joserfc.jwk import OctKey, RSAKey
from tests.app.test_cli import sfumato
from tests.server.identity_provider import CLIENT, SECRET, IdentityProvider
from tests.server.serving import DOMAIN, Server, write_people

from sfumato.errors import InputError
from sfumato.ledger.store import Store
from sfumato_server import openid, sessions
from sfumato_server.access import COOKIE
from sfumato_server.openid import OpenIdSettings, Provider
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Registry, Scope
from sfumato_server.sessions import Identities

_ADDRESSES = itertools.count(1)


@pytest.fixture(scope="module")
def provider():
    with IdentityProvider().running() as running:
        yield running


@pytest.fixture(scope="module")
def settings(tmp_path_factory, provider):
    secret = tmp_path_factory.mktemp("openid") / "secret"
    secret.write_text(SECRET)
    return OpenIdSettings(
        issuer=provider.issuer,
        client_id=CLIENT,
        client_secret_file=str(secret),
        roles_claim="realm.roles",
        stewards=["owner"],
        analysts=["research"],
        officers=["privacy"],
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory, provider, settings):
    folder = tmp_path_factory.mktemp("server")
    (folder / "openid.yaml").write_text(yaml.safe_dump(settings.model_dump()))
    more = ("--openid", str(folder / "openid.yaml"), "--trusted-proxy", "127.0.0.1")
    started = Server(f"sqlite:///{folder}/s.ledger", workers=2, more=more)
    provider.redirect = f"{started.address}/login/back"
    try:
        yield started.start()
    finally:
        started.stop()


@pytest.fixture
def store(tmp_path):
    with closing(Store(f"sqlite:///{tmp_path}/s.ledger")) as opened:
        opened.prepare(create=True)
        yield opened


@pytest.fixture(autouse=True)
def _honest(provider):
    provider.changes, provider.signer, provider.algorithm, provider.silent = {}, None, "RS256", False
    provider.person = person("s1", "Ana")


def person(subject, name, *roles):
    return {"sub": subject, "preferred_username": name, "realm": {"roles": list(roles or ("research",))}}


@pytest.fixture
def browser(server):
    with browsing(server) as opened:
        yield opened


def browsing(server):
    """Return a browser with its own address, because logins per address and minute are limited."""
    headers = {"Accept": "text/html", "X-Forwarded-For": f"203.0.113.{next(_ADDRESSES)}"}
    return httpx.Client(base_url=server.address, headers=headers, timeout=60, trust_env=False)


def sent_back(browser):
    """Return the address to which the provider redirects a browser after login."""
    to_provider = browser.get("/login")
    assert to_provider.status_code == 303, to_provider.text
    return httpx.get(to_provider.headers["Location"], timeout=60, trust_env=False).headers["Location"]


def log_in(browser):
    return browser.get(sent_back(browser))


def refused(reply, status=403):
    assert reply.status_code == status, reply.text
    assert COOKIE not in reply.cookies
    return True


def test_an_analyst_logs_in_and_leaves(browser):
    assert 'href="/login"' in browser.get("/").text
    entered = log_in(browser)
    assert (home_after(entered), entered.cookies[COOKIE][:15]) == ("/", "sfumato_session")
    assert "Ana, analyst" in browser.get("/").text
    assert browser.get("/steward").status_code == 403
    browser.post("/leave")
    browser.cookies.clear()
    assert browser.get("/steward").status_code == 401


def test_a_steward_is_who_has_the_role(browser, provider):
    provider.person = person("s2", "Stew", "research", "owner")
    assert home_after(log_in(browser)) == "/steward"
    assert browser.get("/steward").status_code == 200


def home_after(entered):
    """Return the address to which the page after a login leads."""
    assert entered.status_code == 200, entered.text
    home = re.search('0; url=([^"]+)', entered.text)[1]
    assert f'<a href="{home}">Continue</a>' in entered.text
    return home


def test_a_privacy_officer_logs_in_and_reads_journals_only(browser, provider, server, tmp_path):
    with server.client("sten", Scope.STEWARD) as steward:
        steward.register("read", source=str(write_people(tmp_path / "p.parquet")), domain=DOMAIN, limit="1")
        steward.ask("read", "SELECT COUNT(*) FROM t", epsilon="0.5")
    provider.person = person("o1", "Olga", "privacy", "research")
    assert home_after(log_in(browser)) == "/officer"
    start = browser.get("/", follow_redirects=True)
    assert (start.url.path, "Olga, privacy officer" in start.text) == ("/officer", True)
    for path, status in {
        "/officer/read": 200, "/sign-off/read": 200, "/steward": 403, "/datasets/read": 403, "/steward/read": 403
    }.items():  # fmt: skip
        assert browser.get(path).status_code == status, path
    question = {"aggregate": "count", "epsilon": "0.1", "how": "builder"}
    assert browser.post("/datasets/read/ask", data=question).status_code == 403
    assert browser.post("/steward/caps", data={"dataset": "read", "analyst": "Ana", "most": "1"}).status_code == 403
    with server.ledger("read") as ledger:
        assert (ledger.remaining().spent.epsilon, set(ledger.caps())) == (Fraction(1, 2), {"sten"})
    browser.post("/leave")
    browser.cookies.clear()
    assert browser.get("/officer").status_code == 401


def test_a_steward_who_is_also_a_privacy_officer_is_a_steward(browser, provider):
    provider.person = person("s3", "Both", "privacy", "owner")
    assert home_after(log_in(browser)) == "/steward"


@pytest.mark.parametrize("roles", [["other"], "researcher", [["research"]], {"research": True}, None])
def test_who_has_no_role_is_refused(browser, provider, roles):
    provider.changes = {"realm": {"roles": roles}}
    assert refused(log_in(browser))


def test_the_browser_keeps_nothing_of_the_login(browser):
    to_provider = browser.get("/login")
    kept = to_provider.headers["set-cookie"]
    assert "HttpOnly" in kept
    assert "Path=/login" in kept
    asked = parse_qs(urlsplit(to_provider.headers["Location"]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert not {asked["state"][0], asked["nonce"][0]} & set(browser.cookies.values())


FORGED = {
    "expired": {"exp": 1_000_000_000},
    "no end": {"exp": None},
    "of another client": {"aud": "other"},
    "of another client, in the name of this one": {"aud": "other", "azp": CLIENT},
    "of several clients, for another": {"aud": [CLIENT, "other"], "azp": "other"},
    "of another issuer": {"iss": "http://127.0.0.1:1/realm"},
    "of another login": {"nonce": "n"},
    "of no login": {"nonce": None},
    "of nobody": {"sub": None},
    "of an empty subject": {"sub": ""},
    "without a name": {"preferred_username": None},
    "of a name that is no text": {"preferred_username": ["Ana"]},
    "issued later": {"iat": 4_000_000_000, "nbf": 4_000_000_000, "exp": 4_000_000_300},
}


@pytest.mark.parametrize("changes", FORGED.values(), ids=FORGED)
def test_a_forged_token_is_refused(browser, provider, changes):
    provider.changes = changes
    assert refused(log_in(browser))
    assert browser.get("/steward").status_code == 401


def test_a_token_that_another_signed_is_refused(browser, provider):
    provider.signer = RSAKey.generate_key(2048, {"kid": provider.key.kid})
    assert refused(log_in(browser))


def test_a_token_signed_with_the_secret_of_the_client_is_refused(browser, provider):
    provider.signer, provider.algorithm = OctKey.import_key(SECRET.ljust(32, "-")), "HS256"
    assert refused(log_in(browser))


def test_a_token_that_nobody_signed_is_refused(browser, provider):
    provider.algorithm = "none"
    assert refused(log_in(browser))


def test_a_new_key_of_the_provider_is_found_and_not_looked_for_again_and_again(settings, provider, store, monkeypatch):
    known, asking = Provider(settings, callback=provider.redirect), Identities(store)

    def identified():
        login = asking.start_login()
        back = httpx.get(known.login_url(login), timeout=60, trust_env=False).headers["Location"]
        return known.identify(parse_qs(urlsplit(back).query)["code"][0], login)

    first = identified()
    assert (first.name, first.scope) == ("Ana", Scope.ANALYST)
    before = provider.key
    try:
        provider.key = RSAKey.generate_key(2048, {"kid": "next"})
        with pytest.raises(RefusalError):
            identified()
        monkeypatch.setattr(openid, "_KEY_RELOAD_SECONDS", 0.0)
        assert identified() == first
    finally:
        provider.key = before


def test_a_state_is_used_once(server, browser):
    back = sent_back(browser)
    kept = {name: value for name, value in browser.cookies.items() if name == "sfumato_login"}
    assert kept
    assert browser.get(back).status_code == 200
    with browsing(server) as again:
        again.cookies.update(kept)
        assert refused(again.get(back))


def test_a_state_is_of_the_browser_that_began(server, browser):
    back = sent_back(browser)
    with browsing(server) as victim:
        assert refused(victim.get(back))
        victim.get("/login")
        assert refused(victim.get(back))
    assert browser.get(back).status_code == 200


@pytest.mark.parametrize("state", ["", "x", "a" * 43, "é", "a' OR 1=1 --"])
def test_a_forged_state_is_refused(browser, state):
    parts = urlsplit(sent_back(browser))
    code = parse_qs(parts.query)["code"][0]
    assert refused(browser.get(parts.path, params={"code": code, "state": state}))


def test_a_used_code_is_refused(browser, provider):
    first = urlsplit(sent_back(browser))
    assert browser.get(first.geturl()).status_code == 200
    browser.cookies.clear()
    second = parse_qs(urlsplit(sent_back(browser)).query)
    code = parse_qs(first.query)["code"][0]
    assert refused(browser.get("/login/back", params={"code": code, "state": second["state"][0]}))


def test_a_code_of_another_login_is_refused_for_its_challenge(server, browser):
    """Somebody slips their code into the login of another browser: the other's verifier does not fit it."""
    with browsing(server) as other:
        code = parse_qs(urlsplit(sent_back(other)).query)["code"][0]
    state = parse_qs(urlsplit(sent_back(browser)).query)["state"][0]
    assert refused(browser.get("/login/back", params={"code": code, "state": state}))


def test_a_reply_of_another_issuer_is_refused_before_its_code_is_traded(browser, provider):
    asked = parse_qs(urlsplit(sent_back(browser)).query)
    before = provider.token_requests
    mixed = {"code": asked["code"][0], "state": asked["state"][0], "iss": "https://evil.example"}
    assert refused(browser.get("/login/back", params=mixed))
    assert provider.token_requests == before


def test_a_provider_that_fails_is_named(browser, provider):
    back = sent_back(browser)
    provider.silent = True
    reply = browser.get(back)
    assert reply.status_code in {200, 503}  # a worker that knows its keys asks for the token alone
    if reply.status_code == 503:
        assert "provider of identities does not answer" in reply.text


def test_who_is_called_otherwise_later_stays_who_they_were(browser, provider):
    provider.person = person("s7", "Cleo")
    assert log_in(browser).status_code == 200
    provider.person = person("s7", "Ana")
    assert log_in(browser).status_code == 200
    assert "Cleo, analyst" in browser.get("/").text


@pytest.mark.parametrize("name", ["Ana", "ana ", "\uff21na"])
def test_nobody_else_gets_a_name(browser, provider, name):
    assert log_in(browser).status_code == 200
    provider.person = person("somebody else", name)
    browser.cookies.clear()
    assert refused(log_in(browser))


def test_a_name_of_a_key_is_not_given_to_whom_a_provider_calls_so(server, browser, provider):
    server.key("Dora", Scope.ANALYST)
    provider.person = person("s9", "dora")
    reply = log_in(browser)
    assert refused(reply)
    assert "Another person has this name" in reply.text


def test_names_of_keys_and_of_a_provider_may_be_declared_the_same(store):
    Registry(store).issue("Dora", Scope.ANALYST, timedelta(days=1))
    known = Identities(store)
    with pytest.raises(RefusalError, match="names of keys"):
        known.assign_name("a", "dora", names_of_keys=False)
    assert known.assign_name("a", "dora", names_of_keys=True) == "Dora"
    with pytest.raises(RefusalError):
        known.assign_name("b", "DORA", names_of_keys=True)
    with pytest.raises(InputError):
        known.assign_name("c", " ", names_of_keys=True)
    assert Registry(store).issue("DORA", Scope.ANALYST, timedelta(days=1))[0].name == "Dora"


def test_a_login_is_over_after_ten_minutes_and_only_so_many_are_open(store, monkeypatch):
    known = Identities(store)
    login = known.start_login()
    with store.writing() as driver:
        driver.run("UPDATE service_login SET begun = :ago", {"ago": "2020-01-01T00:00:00+00:00"})
    assert known.take(login.state, login.browser) is None
    monkeypatch.setattr(sessions, "_MAX_LOGINS", 8)
    many = [known.start_login() for _ in range(20)]
    assert known.take(many[-1].state, many[-1].browser) == many[-1]
    assert known.take(many[0].state, many[0].browser) is None
    with store.reading() as driver:
        assert driver.value("SELECT COUNT(*) FROM service_login") <= 8


def test_a_login_is_taken_once_by_the_browser_that_began_it(store):
    known = Identities(store)
    login = known.start_login()
    assert known.take(login.state, "another") is None
    assert known.take(login.state, login.browser) == login
    assert known.take(login.state, login.browser) is None


def test_secrets_of_a_login_are_not_kept(store):
    login = Identities(store).start_login()
    with store.reading() as driver:
        kept = str(driver.rows("SELECT state, browser FROM service_login"))
    assert login.state not in kept
    assert login.browser not in kept


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"issuer": "http://login.example"}, "https"),
        ({"client_secret_file": "missing"}, "holds no secret"),
        ({"stewards": "owner"}, "stewards"),
        ({"other": 1}, "other"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_before_anything_is_begun(tmp_path, change, reason):
    (tmp_path / "secret").write_text(SECRET)
    settings = {"issuer": "https://login.example", "client_id": CLIENT, "client_secret_file": "secret"}
    settings |= {"roles_claim": "groups", "stewards": [], "analysts": ["*"]}
    (tmp_path / "openid.yaml").write_text(yaml.safe_dump(settings | change))
    done = sfumato("serve", "--create", "--openid", "openid.yaml", cwd=tmp_path, code=2)
    assert reason.lower() in done.stderr.lower()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["openid.yaml", "secret"]


def test_roles_are_found_by_their_whole_name_first(settings):
    claim = "https://a.example/roles"
    settings = settings.model_copy(update={"roles_claim": claim, "analysts": ["*"]})
    assert settings.scope(openid.claim([{claim: "owner"}], claim)) is Scope.STEWARD
    assert settings.scope(openid.claim([{}], claim)) is Scope.ANALYST


def test_a_connection_to_a_provider_reads_at_most_a_mebibyte_of_a_reply():
    sent = []

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while len(sent) < 1024:
                    self.wfile.write(bytes(1 << 16))
                    sent.append(1 << 16)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Endless) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with openid.ProviderConnection() as connection, pytest.raises(httpx.ReadError, match="too large"):
                connection.get(f"http://127.0.0.1:{server.server_port}/")
        finally:
            server.shutdown()
            thread.join()
    assert sum(sent) < 32 << 20  # what buffers of the system hold is sent, and not 64 MiB


def test_nothing_is_sent_to_a_provider_at_a_readable_address():
    with openid.ProviderConnection() as connection, pytest.raises(httpx.UnsupportedProtocol, match="not safe"):
        connection.post("http://192.0.2.1/token", data={"code": "secret"})


@pytest.mark.parametrize(("status", "kind"), [(400, "login-refused"), (302, "provider-unavailable")])
def test_a_token_in_a_reply_that_is_no_success_is_refused(settings, provider, store, monkeypatch, status, kind):
    known = Provider(settings, callback=provider.redirect)
    login = Identities(store).start_login()
    known.login_url(login)
    reply = httpx.Response(status, json={"id_token": "a.b.c"}, request=httpx.Request("POST", "https://provider.test"))
    monkeypatch.setattr(openid.ProviderConnection, "send", lambda *_, **__: reply)
    with pytest.raises(RefusalError) as refusal:
        known.identify("code", login)
    assert refusal.value.kind == kind
    assert isinstance(refusal.value.__cause__, OAuth2Error | httpx.HTTPStatusError)  # and not what a bad token raises
