"""A small network for tests: an authority of its own, with a certificate that it signs, and a proxy."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import selectors
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Authority:
    """An authority whose certificate lies in ``ca_file``, with one that it signed for this machine, and its key."""

    ca_file: Path
    certificate: Path
    key: Path

    @property
    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a server."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def authority(folder: Path, name: str = "authority", *, ended: bool = False) -> Authority:
    """Make an authority; with ``ended``, what it signed is over."""
    signer, ours = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.now(dt.UTC)
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Test {name}")])
    end = now + dt.timedelta(days=-1 if ended else 1)

    def build(subject: x509.Name, public: ec.EllipticCurvePublicKey, until: dt.datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=3))
            .not_valid_after(until)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )

    root = build(issuer, signer.public_key(), now + dt.timedelta(days=1))
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    root = root.add_extension(usage, critical=True)
    root = root.add_extension(x509.SubjectKeyIdentifier.from_public_key(signer.public_key()), critical=False)
    leaf = build(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")]), ours.public_key(), end)
    names = [x509.DNSName("localhost"), x509.DNSName("release.test"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = leaf.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = Authority(folder / f"{name}.pem", folder / f"{name}-server.pem", folder / f"{name}-server.key")
    pem = serialization.Encoding.PEM
    made.ca_file.write_bytes(root.sign(signer, hashes.SHA256()).public_bytes(pem))
    made.certificate.write_bytes(leaf.sign(signer, hashes.SHA256()).public_bytes(pem))
    made.key.write_bytes(ours.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return made


class Proxy:
    """A proxy (RFC 9110, 9.3.6); ``asked`` lists the requested connections."""

    def __init__(self, *, login: str | None = None) -> None:
        self.asked: list[str] = []
        self.login = login
        proxy = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                proxy.serve(self)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self._server.server_address[1]}"
        self.address = f"http://{self.place}" if login is None else f"http://{login}@{self.place}"

    def serve(self, request: socketserver.StreamRequestHandler) -> None:
        method, target, _ = request.rfile.readline().decode().split()
        headers = {}
        while (line := request.rfile.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        wanted = None if self.login is None else f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if method != "CONNECT" or headers.get("proxy-authorization") != wanted:
            request.wfile.write(
                b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=test\r\n"
                b"Content-Length: 0\r\nConnection: close\r\n\r\n"
            )
            return
        self.asked.append(target)
        host, _, port = target.rpartition(":")
        host = "127.0.0.1" if host == "release.test" else host
        with closing(socket.create_connection((host, int(port)))) as there:
            request.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            self._relay(request.connection, there)

    @staticmethod
    def _relay(client: socket.socket, server: socket.socket) -> None:
        """Pass bytes on in both directions until one end closes."""
        with selectors.DefaultSelector() as selector:  # `select.select` fails for descriptors above 1023
            selector.register(client, selectors.EVENT_READ, (client, server))
            selector.register(server, selectors.EVENT_READ, (server, client))
            while True:
                for key, _ in selector.select():
                    source, target = key.data
                    if not (data := source.recv(1 << 16)):
                        return
                    target.sendall(data)

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()
