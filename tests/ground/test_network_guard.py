"""The guard of ``conftest.py`` guards."""

from __future__ import annotations

import socket

import pytest


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.org"])
def test_a_connection_to_another_machine_fails_the_test(host: str) -> None:
    with pytest.raises(pytest.fail.Exception, match="may not leave this machine"):
        socket.create_connection((host, 9), timeout=1)


def test_every_way_to_another_machine_is_guarded() -> None:
    def sock() -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    with sock() as one, pytest.raises(pytest.fail.Exception, match=r"sendto '192\.0\.2\.1'"):
        one.sendto(b"x", ("192.0.2.1", 9))
    with sock() as two, pytest.raises(pytest.fail.Exception, match=r"connect '192\.0\.2\.1'"):
        two.connect(("192.0.2.1", 9))
    with sock() as three, pytest.raises(pytest.fail.Exception, match=r"connect_ex '192\.0\.2\.1'"):
        three.connect_ex(("192.0.2.1", 9))


def test_connections_inside_this_machine_work() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("localhost", port)) as client:
            accepted, _ = server.accept()
            with accepted:
                client.sendall(b"ping")
                assert accepted.recv(4) == b"ping"
    left, right = socket.socketpair()
    with left, right:
        left.sendall(b"pong")
        assert right.recv(4) == b"pong"
