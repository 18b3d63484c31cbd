"""Connections to servers with certificates of an authority of their own, through proxies, and why others fail."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from tests.server.network import Proxy, authority
from tests.server.serving import Server

from sfumato.app.http_client import AsyncHttpClient, HttpClient, ServerError
from sfumato.app.outbound import failure, outbound, outbound_from_environment
from sfumato.errors import InputError
from sfumato_server.registry import Scope

CLIENTS = Path(__file__).parents[2] / "clients"


@pytest.fixture(scope="module")
def trusted(tmp_path_factory):
    return authority(tmp_path_factory.mktemp("trusted"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, trusted):
    """``sfumato serve`` that speaks TLS itself, by a certificate of the authority; its address."""
    more = ("--certificate", str(trusted.certificate), "--certificate-key", str(trusted.key))
    started = TlsServer(f"sqlite:///{tmp_path_factory.mktemp('tls')}/s.ledger", workers=1, more=more)
    try:
        yield started.start()
    finally:
        started.stop()


class TlsServer(Server):
    @property
    def address(self):
        return f"https://127.0.0.1:{self.port}"


@pytest.fixture
def ask(server):
    """Ask for all datasets, by either client of Python."""
    key = server.key("ana", Scope.ANALYST)

    def asked(kind, **how):
        if kind == "sync":
            with HttpClient(server.address, key, **how) as client:
                return client.datasets()

        async def wait():
            async with AsyncHttpClient(server.address, key, **how) as client:
                return await client.datasets()

        return asyncio.run(wait())

    return asked


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_client_trusts_the_authority_that_it_is_told_of(ask, trusted, kind):
    assert ask(kind, ca=trusted.ca_file) == []


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_client_says_why_it_does_not_trust_a_server(ask, tmp_path, kind):
    for how in ({}, {"ca": authority(tmp_path, "other").ca_file}):
        with pytest.raises(ServerError, match=r"^the certificate of https.* is not trusted: .*ca='authority.pem'"):
            ask(kind, **how)


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_client_trusts_the_file_that_the_environment_names(ask, trusted, variable, monkeypatch):
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(trusted.ca_file))
    assert ask("sync") == []
    monkeypatch.setenv(variable, "/nowhere")
    with pytest.raises(InputError, match=f"{variable} of the environment: /nowhere holds no certificates"):
        ask("sync")
    assert ask("sync", ca=trusted.ca_file) == []


def test_a_rejected_certificate_is_not_tried_again_and_has_its_own_remedy(server, tmp_path):
    over = authority(tmp_path, "over", ended=True)
    with Echo(over).running() as echo, HttpClient(echo, "key", ca=over.ca_file) as client:
        started = time.monotonic()
        with pytest.raises(ServerError, match=r"certificate has expired. Ask who runs the server to renew"):
            client.datasets()
        assert time.monotonic() - started < 0.5  # repetitions wait for 0.7 seconds
    other = authority(tmp_path, "named")
    with (
        Echo(other, "127.0.0.2").running() as echo,
        HttpClient(echo, "key", ca=other.ca_file) as client,
        pytest.raises(ServerError, match="Use the address that the certificate names"),
    ):
        client.datasets()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_client_goes_through_a_proxy_with_its_login(ask, server, trusted, kind):
    with Proxy(login="ana:s3cret").running() as proxy:
        assert ask(kind, ca=trusted.ca_file, proxy=proxy.address) == []
        assert proxy.asked == [f"127.0.0.1:{server.port}"]
        with pytest.raises(ServerError, match="407 Proxy Authentication Required") as refused:
            ask(kind, ca=trusted.ca_file, proxy=proxy.address.replace("s3cret", "wr0ng"))
        assert "wr0ng" not in str(refused.value)


def test_a_client_goes_through_the_proxy_of_the_environment(server, trusted, monkeypatch):
    """A proxy is used for other machines only: ``release.test`` is a name that the proxy alone can resolve."""
    address, key = server.address.replace("127.0.0.1", "release.test"), server.key("ana", Scope.ANALYST)
    with Proxy().running() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.place)
        for host, reached in ((address, True), (server.address, False)):
            with HttpClient(host, key, ca=trusted.ca_file) as client:
                assert client.datasets() == []
            assert bool(proxy.asked) is reached
            proxy.asked.clear()
        monkeypatch.setenv("NO_PROXY", "localhost,.test")
        with (
            HttpClient(address, key, ca=trusted.ca_file) as client,
            pytest.raises(ServerError, match=r"no reply from https://release\.test"),
        ):
            client.datasets()
        assert not proxy.asked


@pytest.mark.parametrize(
    ("listed", "goes"), [("a.example:8443", False), ("a.example", False), ("a.example:9", True), ("xa.example", True)]
)
def test_no_proxy_may_name_a_port(listed, goes, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", listed)
    assert ("proxy" in outbound_from_environment("https://a.example:8443", None, None)) is goes


@pytest.mark.parametrize("address", ["https://a.example:99999", "http://a.example:x"])
def test_a_port_that_is_none_is_refused(address):
    with pytest.raises(InputError, match="the port of an address"):
        HttpClient(address, "key")


def test_certificates_for_an_address_without_tls_are_not_ignored(trusted):
    with pytest.raises(InputError, match="uses no certificates"):
        HttpClient("http://a.example", "key", ca=trusted.ca_file)


@pytest.mark.parametrize("proxy", ["socks5://p.example:1", "ftp://p.example:1"])
def test_a_proxy_of_the_environment_that_speaks_no_http_is_refused(proxy, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(InputError, match="names no HTTP proxy; pass proxy="):
        HttpClient("https://a.example", "key")
    HttpClient("http://127.0.0.1:8000", "key").close()


def test_the_server_ignores_the_environment(monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
    assert outbound(None, None) == {"trust_env": False}


def test_a_certificate_that_is_over_is_named(tmp_path):
    """The reason is that of TLS, whatever stands between it and the client."""
    over = authority(tmp_path, "over", ended=True)
    with (
        Echo(over).running() as echo,
        pytest.raises(httpx.ConnectError) as refused,
        httpx.Client(**outbound(over.ca_file, None)) as client,
    ):
        client.get(echo)
    assert failure(refused.value) == "ConnectError: the certificate is not trusted: certificate has expired"


def test_other_reasons_are_those_of_the_system():
    with httpx.Client(**outbound(None, None)) as client:
        with pytest.raises(httpx.ConnectError) as refused:
            client.get("http://127.0.0.1:9/")
        assert failure(refused.value).startswith("ConnectError: ")
        assert "refused" in failure(refused.value)


@pytest.mark.parametrize(
    "proxy", ["proxy.example", "http://proxy.example", "socks://p:1", "http://:3128", "http://p:x"]
)
def test_an_address_of_no_proxy_is_refused_without_showing_it(proxy):
    with pytest.raises(InputError, match="a proxy is written http://HOST:PORT"):
        outbound(None, proxy)


def test_files_without_certificates_are_refused(tmp_path):
    (tmp_path / "text").write_text("no certificate")
    for name in ("text", "missing"):
        with pytest.raises(InputError, match="holds no certificates"):
            HttpClient("https://a.example", "key", ca=tmp_path / name)


class Echo:
    """A server of TLS that answers nothing: connections end before a request comes."""

    def __init__(self, signed, host="127.0.0.1"):
        from http.server import BaseHTTPRequestHandler, HTTPServer

        self.server = HTTPServer((host, 0), BaseHTTPRequestHandler)
        self.server.socket = signed.context.wrap_socket(self.server.socket, server_side=True)

    def running(self):
        from contextlib import contextmanager
        from threading import Thread

        @contextmanager
        def run():
            thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
            thread.start()
            yield "https://{}:{}/".format(*self.server.server_address)
            self.server.shutdown()
            self.server.server_close()
            thread.join()

        return run()


R_PROGRAM = """
source({source!r})
tell <- function(...) tryCatch(length(sfumato_datasets(sfumato_client(...))), error = conditionMessage)
cat(tell({address!r}, {key!r}, ca = {ca!r}), "\\n")
cat(tell({address!r}, {key!r}, ca = {other!r}), "\\n")
cat(tell({address!r}, {key!r}, ca = {ca!r}, proxy = {proxy!r}), "\\n")
Sys.setenv(SSL_CERT_FILE = {ca!r}, HTTPS_PROXY = {proxy!r})
cat(tell({address!r}, {key!r}), "\\n")
cat(tell({named!r}, {key!r}), "\\n")
Sys.setenv(NO_PROXY = ".test")
cat(tell({named!r}, {key!r}), "\\n")
cat(tell("http://a.example", {key!r}, ca = {ca!r}), "\\n")
"""
NODE_PROGRAM = """
import {{ SfumatoClient }} from "./client.js";
const tell = async (address, options) => {{
  try {{
    console.log((await new SfumatoClient(address, {key!r}, options).datasets()).length);
  }} catch (error) {{
    console.log(error.message);
  }}
}};
await tell({address!r}, {{ ca: {ca!r} }});
await tell({address!r}, {{ ca: {other!r} }});
await tell({address!r}, {{ ca: {ca!r}, proxy: {proxy!r} }});
process.env.SSL_CERT_FILE = {ca!r};
process.env.HTTPS_PROXY = {proxy!r};
await tell({address!r});
await tell({named!r});
process.env.NO_PROXY = ".test";
await tell({named!r});
await tell("http://a.example", {{ ca: {ca!r} }});
"""


@pytest.fixture
def told(server, trusted, tmp_path):
    """Run a program of another language with two authorities and a proxy; return its lines and the use of the proxy."""

    def run(command, program, cwd):
        named = server.address.replace("127.0.0.1", "release.test")
        with Proxy(login="ana:s3cret").running() as proxy:
            text = program.format(
                source=str(CLIENTS / "r" / "R" / "client.R"), address=server.address, named=named,
                key=server.key("ana", Scope.ANALYST), ca=str(trusted.ca_file), proxy=proxy.address,
                other=str(authority(tmp_path, "other").ca_file),
            )  # fmt: skip
            environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
            done = subprocess.run(
                [*command, text], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
            )
            assert done.returncode == 0, done.stderr
            return [line.strip() for line in done.stdout.splitlines()], proxy.asked

    return run


def check_lines(lines, asked, server):
    by_file, by_other, by_proxy, by_environment, by_its_proxy, without_proxy, without_tls = lines
    assert (by_file, by_proxy, by_environment, by_its_proxy) == ("0", "0", "0", "0"), lines
    assert by_other.startswith(f"the certificate of {server.address} is not trusted: ")
    assert by_other.endswith("or name the file in SSL_CERT_FILE.")
    assert without_proxy.startswith("no reply from https://release.test")
    assert without_tls.startswith("the address begins with http://, which uses no certificates")
    assert asked == [f"127.0.0.1:{server.port}", f"release.test:{server.port}"]


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed; 'scripts/services r' installs it")
def test_the_client_for_r_trusts_an_authority_and_the_environment(server, told):
    check_lines(*told(["Rscript", "-e"], R_PROGRAM, CLIENTS / "r"), server)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_the_client_for_node_trusts_an_authority_and_the_environment(server, told):
    check_lines(*told(["node", "--input-type=module", "-e"], NODE_PROGRAM, CLIENTS / "typescript"), server)


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
def test_the_client_for_node_trusts_what_node_trusts(server, trusted):
    program = (
        "import('./client.js').then(async (m) => { const c = new m.SfumatoClient(process.argv[1], process.argv[2]);"
        "console.log(await c.datasets().then((found) => found.length, (error) => error.message)); })"
    )
    command = ["node", "-e", program, server.address, server.key("ana", Scope.ANALYST)]
    environment = {"PATH": os.environ["PATH"], "NODE_EXTRA_CA_CERTS": str(trusted.ca_file)}
    done = subprocess.run(
        command, cwd=CLIENTS / "typescript", env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "0"
