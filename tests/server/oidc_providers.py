"""OpenID Connect providers: a real one in a process, and one that forges its tokens."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs
import httpx
import pytest

_WAIT_SECONDS = 60
CLIENT = "promptgraft"


def need(*modules: str) -> None:
    """Skip a test that needs modules which are not installed."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed: `make test` brings it")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@contextmanager
def real_provider(users: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    """Run oidc-provider-mock with some users and their claims; yield its issuer."""
    need("oidc_provider_mock", "joserfc")
    port = _free_port()
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), "--require-nonce"]
    for sub, claims in users.items():
        command += ["--user-claims", json.dumps({"sub": sub, **claims})]
    issuer = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(_WAIT_SECONDS * 10):
            assert server.poll() is None, f"the provider ended with {server.returncode}"
            try:
                httpx.get(f"{issuer}/.well-known/openid-configuration", timeout=_WAIT_SECONDS)
                break
            except httpx.ConnectError:
                with pytest.raises(subprocess.TimeoutExpired):
                    server.wait(0.1)
        yield issuer
    finally:
        server.terminate()
        server.wait(_WAIT_SECONDS)


@attrs.define
class Forger:
    """A provider whose answers a test chooses.

    Attributes:
        issuer: its address.
        sign: makes an ID token of claims; by default one that is right.
        claims: replace those of an ID token; None removes one.
        metadata: replaces entries of the discovery document.
        status: status of what the token endpoint answers.
        answer: what it answers; None for an ID token.
        asked: the forms that the token endpoint has got, with the `Authorization` header.
    """

    issuer: str
    sign: Callable[[dict[str, object]], str]
    claims: dict[str, object] = attrs.field(factory=dict)
    metadata: dict[str, object] = attrs.field(factory=dict)
    status: int = 200
    answer: bytes | None = None
    asked: list[dict[str, str]] = attrs.field(factory=list)
    nonces: dict[str, str] = attrs.field(factory=dict)
    challenges: dict[str, str] = attrs.field(factory=dict)

    def code(self, address: str) -> dict[str, str]:
        """Return code and state, as for a user who agrees at the address of the provider."""
        query = dict(parse_qsl(urlsplit(address).query))
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = f"code-{len(self.nonces)}"
        self.nonces[code], self.challenges[code] = query["nonce"], query["code_challenge"]
        return {"code": code, "state": query["state"]}

    def token(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        if self.answer is not None or self.status != 200:
            return self.status, self.answer or b"{}"
        # A code works once, and only for who can show the secret behind the challenge.
        challenge = self.challenges.pop(form["code"], "")
        hashed = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(hashed).decode().rstrip("=") != challenge:
            return 400, b'{"error": "invalid_grant", "error_description": "<b>no</b>"}'
        now = int(time.time())
        claims: dict[str, object] = {
            "iss": self.issuer,
            "aud": CLIENT,
            "sub": "7",
            "exp": now + 300,
            "iat": now,
            "nonce": self.nonces[form["code"]],
            "email": "ana@example.org",
            "email_verified": True,
            "groups": ["leads"],
            **self.claims,
        }
        token = self.sign({name: value for name, value in claims.items() if value is not None})
        return 200, json.dumps({"id_token": token, "access_token": "x"}).encode()


@functools.cache
def rsa_key(name: str, kid: str = "own") -> Any:
    """Return the key of a name, the same each time: to make one takes longer than most tests."""
    from joserfc import jwk

    return jwk.RSAKey.generate_key(2048, {"kid": kid})


@contextmanager
def forger() -> Iterator[Forger]:
    """Run a provider that says what the test tells it to."""
    need("joserfc")
    from joserfc import jwt

    key = rsa_key("provider")
    state: list[Forger] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            own = state[0]
            documents: dict[str, Any] = {
                "/keys": {"keys": [key.as_dict(private=False)]},
                "/.well-known/openid-configuration": {
                    "issuer": own.issuer,
                    "authorization_endpoint": f"{own.issuer}/authorize?tenant=1",
                    "token_endpoint": f"{own.issuer}/token",
                    "jwks_uri": f"{own.issuer}/keys",
                    **own.metadata,
                },
            }
            self.reply(200, json.dumps(documents[self.path]).encode())

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            form = dict(parse_qsl(self.rfile.read(length).decode()))
            state[0].asked.append({**form, "auth": self.headers.get("Authorization", "")})
            self.reply(*state[0].token(form))

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    header = {"alg": "RS256", "kid": "own"}
    issuer = f"http://127.0.0.1:{server.server_address[1]}"
    state.append(Forger(issuer, lambda claims: jwt.encode(header, claims, key)))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield state[0]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
