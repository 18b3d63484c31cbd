"""Claims of a provider outside its token: userinfo, groups that it does not list, TLS, proxies."""

from __future__ import annotations

import json
import logging
import ssl
from contextlib import closing
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import yaml
from tests.app.test_cli import sfumato
from tests.server.identity_provider import CLIENT, SECRET, IdentityProvider
from tests.server.network import Proxy, authority
from tests.server.serving import Server

from sfumato.ledger.store import Store
from sfumato_server.access import COOKIE
from sfumato_server.openid import OpenIdSettings, Provider
from sfumato_server.problems import RefusalError
from sfumato_server.registry import Scope
from sfumato_server.sessions import Identities

BACK = "http://127.0.0.1:9/login/back"


@pytest.fixture
def provider():
    with IdentityProvider().running() as running:
        running.redirect = BACK
        yield running


@pytest.fixture
def store(tmp_path):
    with closing(Store(f"sqlite:///{tmp_path}/s.ledger")) as opened:
        opened.prepare(create=True)
        yield opened


@pytest.fixture
def log_in(tmp_path, provider, store):
    """Log a person in, like a server with the given settings."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    usual = {"client_id": CLIENT, "client_secret_file": str(secret), "roles_claim": "groups"}
    usual |= {"stewards": ["owner"], "analysts": ["*"]}

    def logged_in(of=provider, trusted=None, **settings):
        known = Provider(OpenIdSettings(issuer=of.issuer, **(usual | settings)), callback=BACK)
        login = Identities(store).start_login()
        found = httpx.get(known.login_url(login), timeout=60, trust_env=False, verify=trusted or True)
        return known.identify(parse_qs(urlsplit(found.headers["Location"]).query)["code"][0], login)

    return logged_in


def lines(caplog, event):
    found = [json.loads(record.getMessage()) for record in caplog.records if record.name == "sfumato.http"]
    return [each for each in found if each["event"] == event]


def refusal(log_in, kind, **how):
    with pytest.raises(RefusalError) as refused:
        log_in(**how)
    assert refused.value.kind == kind
    return refused.value


def test_roles_and_names_that_the_token_lacks_are_read_from_userinfo(provider, log_in):
    provider.person = {"sub": "s1"}
    provider.userinfo = {"sub": "s1", "preferred_username": "Stew", "groups": ["owner"]}
    found = log_in()
    assert (found.name, found.scope) == ("Stew", Scope.STEWARD)
    assert found.id == log_in().id


@pytest.mark.parametrize("path", ["realm.roles", "https://a.example/roles"])
def test_a_claim_is_looked_for_part_by_part(provider, log_in, path):
    provider.person = {"sub": "s1", "preferred_username": "Stew", "realm": {"other": 1}}
    provider.userinfo = {"sub": "s1", "realm": {"roles": ["owner"]}, "https://a.example/roles": ["owner"]}
    assert log_in(roles_claim=path).scope is Scope.STEWARD


def test_what_the_token_says_counts_before_userinfo(provider, log_in):
    provider.person = {"sub": "s1", "groups": ["research"]}
    provider.userinfo = {"sub": "s1", "preferred_username": "Ana", "groups": ["owner"]}
    assert log_in().scope is Scope.ANALYST


def test_userinfo_is_not_asked_where_the_token_says_all(provider, log_in):
    provider.person = {"sub": "s1", "preferred_username": "Ana", "groups": []}
    provider.userinfo = {"sub": "s1", "groups": ["owner"]}
    assert log_in().scope is Scope.ANALYST
    assert provider.userinfo_requests == 0


def test_userinfo_of_another_person_is_refused(provider, log_in, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    provider.person = {"sub": "s1", "preferred_username": "Ana"}
    provider.userinfo = {"sub": "s2", "groups": ["owner"]}
    refusal(log_in, "login-refused")
    assert lines(caplog, "login refused")[0]["reason"] == "userinfo of another person"


def test_userinfo_that_fails_is_no_lesser_role(provider, log_in):
    provider.person = {"sub": "s1", "preferred_username": "Stew"}
    provider.userinfo = {"sub": "s1", "groups": ["owner"]}
    provider._access = _Nothing()  # noqa: SLF001  (so that it knows no token)
    refusal(log_in, "provider-unavailable")


class _Nothing(set):
    """A set that takes nothing."""

    def add(self, _):
        pass


@pytest.mark.parametrize("said", [{"email": "a@b.example", "email_verified": True}, {"email": "a@b.example"}, {}])
def test_an_address_of_mail_is_taken_where_the_same_address_is_verified(provider, log_in, said):
    provider.person = {"sub": "s1", "groups": []}
    provider.userinfo = {"sub": "s1", **said}
    if said.get("email_verified"):
        assert log_in(name_claim="email").name == "a@b.example"
        provider.person["email"] = "other@b.example"  # which userinfo does not speak of
        refusal(log_in, "login-refused", name_claim="email")
        provider.person["email"] = "a@b.example"
        assert log_in(name_claim="email").name == "a@b.example"
    else:
        refusal(log_in, "login-refused", name_claim="email")


GRAPH = "https://graph.example/users/s1/getMemberObjects"
OVERAGE = {
    "names and sources": {"_claim_names": {"groups": "src1"}, "_claim_sources": {"src1": {"endpoint": GRAPH}}},
    "names as text": {"_claim_names": '{"groups":"src1"}'},
    "a mark": {"hasgroups": True},
    "a mark as text": {"hasgroups": "true"},
}


@pytest.mark.parametrize("said", OVERAGE.values(), ids=OVERAGE)
@pytest.mark.parametrize("place", ["token", "userinfo"])
def test_groups_that_are_not_listed_are_refused_by_name(provider, log_in, caplog, said, place):
    caplog.set_level(logging.INFO, "sfumato.http")
    provider.person = {"sub": "s1", "preferred_username": "Stew", **(said if place == "token" else {})}
    provider.userinfo = {"sub": "s1", **(said if place == "userinfo" else {})}
    assert "more groups than it puts into a token" in str(refusal(log_in, "group-overage").detail)
    (line,) = lines(caplog, "login refused")
    assert (line["reason"], line["name"]) == ("group-overage", "Stew")


def test_groups_that_userinfo_lists_in_full_are_taken(provider, log_in):
    provider.person = {"sub": "s1", "preferred_username": "Stew", **OVERAGE["a mark"]}
    provider.userinfo = {"sub": "s1", "groups": ["owner"]}
    assert log_in().scope is Scope.STEWARD


def test_overage_of_groups_says_nothing_of_roles(provider, log_in):
    provider.person = {"sub": "s1", "preferred_username": "Ana", **OVERAGE["names and sources"]}
    assert log_in(roles_claim="roles").scope is Scope.ANALYST


def test_a_person_without_the_claim_is_logged_where_everybody_may_enter(provider, log_in, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    provider.person = {"sub": "s1", "preferred_username": "Ana"}
    assert log_in().scope is Scope.ANALYST
    assert [(each["name"], each["claim"]) for each in lines(caplog, "roles missing")] == [("Ana", "groups")]
    refusal(log_in, "no-role", analysts=["research"])
    assert [(each["name"], each["reason"]) for each in lines(caplog, "login refused")] == [("Ana", "no-role")]


@pytest.mark.parametrize(
    ("roles", "scope"),
    [(["dpo"], Scope.OFFICER), (["dpo", "owner"], Scope.STEWARD), (["other"], Scope.ANALYST), ([], Scope.ANALYST)],
)
def test_a_role_makes_a_privacy_officer_unless_it_makes_a_steward(provider, log_in, roles, scope):
    provider.person = {"sub": "s1", "preferred_username": "Ida", "groups": roles}
    assert log_in(officers=["dpo"]).scope is scope
    assert log_in().scope is (Scope.STEWARD if "owner" in roles else Scope.ANALYST)


def test_a_provider_of_its_own_authority_is_reached_with_ca_file_through_a_proxy(tmp_path, log_in, caplog):
    caplog.set_level(logging.INFO, "sfumato.http")
    trusted = authority(tmp_path)
    with IdentityProvider(tls=trusted.context).running() as there, Proxy().running() as proxy:
        there.redirect = BACK
        there.person = {"sub": "s1", "preferred_username": "Ana", "groups": []}
        how = {
            "of": there,
            "trusted": ssl.create_default_context(cafile=trusted.ca_file),
            "ca_file": str(trusted.ca_file),
        }
        assert log_in(**how).name == "Ana"
        assert proxy.asked == []
        assert log_in(**how, proxy=proxy.address).name == "Ana"
        assert set(proxy.asked) == {urlsplit(there.issuer).netloc}
        for wrong in ({}, {"ca_file": str(authority(tmp_path, "other").ca_file)}):
            refusal(log_in, "provider-unavailable", **(how | {"ca_file": None} | wrong))
        refusal(log_in, "provider-unavailable", **how, proxy="http://127.0.0.1:9")
    reasons = [each["reason"] for each in lines(caplog, "provider unavailable")]
    assert all("the certificate is not trusted: unable to get local issuer" in each for each in reasons[:2]), reasons
    assert "refused" in reasons[2]


def test_a_server_logs_people_in_by_a_provider_of_its_own_authority(tmp_path):
    trusted = authority(tmp_path)
    (tmp_path / "secret").write_text(SECRET)
    by = ssl.create_default_context(cafile=trusted.ca_file)
    with IdentityProvider(tls=trusted.context).running() as there:
        settings = {"issuer": there.issuer, "client_id": CLIENT, "client_secret_file": str(tmp_path / "secret")}
        settings |= {"roles_claim": "groups", "stewards": ["owner"], "analysts": [], "ca_file": str(trusted.ca_file)}
        (tmp_path / "openid.yaml").write_text(yaml.safe_dump(settings))
        there.person, there.userinfo = {"sub": "s1", "preferred_username": "Stew"}, {"sub": "s1", "groups": ["owner"]}
        server = Server(f"sqlite:///{tmp_path}/s.ledger", workers=1, more=("--openid", str(tmp_path / "openid.yaml")))
        server.log, server.fresh = tmp_path / "log", True  # a log is written by a fresh process
        there.redirect = f"{server.address}/login/back"
        try:
            server.start()
            with httpx.Client(base_url=server.address, headers={"Accept": "text/html"}, trust_env=False) as browser:
                to_provider = browser.get("/login").headers["Location"]
                back = httpx.get(to_provider, verify=by, trust_env=False).headers["Location"]
                assert browser.get(back).cookies[COOKIE]
                assert browser.get("/steward").status_code == 200
            with httpx.Client(base_url=server.address, trust_env=False) as other:
                there.person, there.userinfo = (
                    {"sub": "s2", "preferred_username": "STEW"},
                    {"sub": "s2", "groups": ["owner"]},
                )
                back = httpx.get(other.get("/login").headers["Location"], verify=by, trust_env=False).headers[
                    "Location"
                ]
                assert other.get(back).json()["type"] == "/problems/name-taken"
                assert other.get(back).json()["type"] == "/problems/login-refused"
            told = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]
            refused = [(each["reason"], each["name"]) for each in told if each["event"] == "login refused"]
            assert refused == [("name-taken", "STEW"), ("state", None)]
        finally:
            server.stop()


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"ca_file": "missing.pem"}, "holds no certificates"), ({"proxy": "proxy.example"}, "A proxy is written")],
)
def test_settings_that_cannot_be_used_are_refused_before_the_server_starts(tmp_path, change, reason):
    (tmp_path / "secret").write_text(SECRET)
    settings = {"issuer": "https://login.example", "client_id": CLIENT, "client_secret_file": "secret"}
    settings |= {"roles_claim": "groups", "stewards": [], "analysts": ["*"], **change}
    (tmp_path / "openid.yaml").write_text(yaml.safe_dump(settings))
    done = sfumato("serve", "--create", "--openid", "openid.yaml", cwd=tmp_path, code=2)
    assert reason in done.stderr
