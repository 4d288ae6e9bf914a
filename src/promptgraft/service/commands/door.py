"""Options of ``promptgraft serve`` about its address: where it listens, and who gets in."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import attrs
import click

from promptgraft.adapters.calling.access import is_every_address, is_loopback
from promptgraft.cli import options
from promptgraft.errors import ConfigError

_BASE_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*")


@attrs.frozen(kw_only=True)
class Door:
    """Where a server listens, under which names it is known, and whose word it takes.

    Attributes:
        host: the address to listen on.
        port: the port; 0 for any free one.
        behind_proxy: the host name of a TLS proxy; None if there is none.
        proxy_from: addresses of the proxy.
        user_header: the header in which the proxy names users; None if it does not.
        user_scopes: scopes of users without a token.
        oidc: a file about the OpenID Connect provider that signs users in; None if there is none.
        base_path: the path below which browsers see the server; empty for the root.
        known_as: further ``Host`` headers of requests.
        limits: pairs ``NAME=NUMBER``.
        certificate: a file with a certificate; None for plain HTTP.
        key: a file with its private key.
    """

    host: str
    port: int
    behind_proxy: str | None
    proxy_from: tuple[str, ...]
    user_header: str | None
    user_scopes: tuple[str, ...]
    oidc: str | None
    base_path: str
    known_as: tuple[str, ...]
    limits: tuple[str, ...]
    certificate: str | None
    key: str | None

    def check(self) -> None:
        """Refuse options that do not fit together.

        Raises:
            ConfigError: one does not.
        """
        _check_tls(self.certificate, self.key)
        if not _BASE_PATH.fullmatch(self.base_path):
            raise ConfigError(f"--base-path: expected a path such as /pg, found {self.base_path!r}")
        if self.user_scopes and not self.user_header:
            raise ConfigError("--user-scope: is for the users of --user-header; give that too")
        if not (is_loopback(self.host) or self.behind_proxy or self.certificate):
            raise ConfigError(
                f"--host {self.host}: others could read tokens on the way; give --certificate and "
                "--key, or --behind-proxy with the name that the proxy serves"
            )
        if is_every_address(self.host) and not self.behind_proxy:
            raise ConfigError(
                f"--host {self.host}: this is every address of the machine, and browsers ask for a "
                "name; give that name as --host, or --behind-proxy with the name that the proxy "
                "serves"
            )

    @property
    def is_local(self) -> bool:
        """Whether only programs on this machine reach the server."""
        return is_loopback(self.host) and not self.behind_proxy

    def address(self, port: int) -> str:
        """Return the address of the server for browsers."""
        scheme = "https" if self.is_secure else "http"
        return f"{scheme}://{self.names(port)[0]}{self.base_path}"

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach the server by HTTPS only."""
        return bool(self.certificate or self.behind_proxy)

    def names(self, port: int) -> list[str]:
        """Return the ``Host`` headers of requests, the usual one first."""
        if self.behind_proxy:
            return [self.behind_proxy]
        return host_names(self.host, port, secure=bool(self.certificate))


def _check_tls(certificate: str | None, key: str | None) -> None:
    if (certificate is None) != (key is None):
        raise ConfigError("--certificate and --key: give both, or none")
    for name, file in (("--certificate", certificate), ("--key", key)):
        if file is not None and not Path(file).is_file():
            raise ConfigError(f"{name}: there is no file {file}")


def host_names(host: str, port: int, *, secure: bool) -> list[str]:
    """Return the ``Host`` headers of requests to this server, the usual one first."""
    bare = f"[{host}]" if ":" in host else host
    names = [f"{bare}:{port}", f"localhost:{port}"]
    # Browsers leave out the default port.
    return [*names, bare, "localhost"] if port == (443 if secure else 80) else names


_options = options.together(
    click.option("--host", default="127.0.0.1", help="The address to listen on."),
    click.option(
        "--port",
        type=options.at_least(0, 65_535),
        default="8400",
        help="The port; 0 for any free port.",
    ),
    click.option(
        "--behind-proxy",
        metavar="HOST",
        help="The host name of a TLS proxy that forwards requests to this server.",
    ),
    click.option(
        "--proxy-from",
        metavar="ADDRESS",
        multiple=True,
        help="An address or network of the proxy, such as 10.0.0.0/8: what it says of a client's "
        "address and user is believed. May be repeated.",
    ),
    click.option(
        "--user-header",
        metavar="NAME",
        help="The header in which the proxy names the user that it has signed in, such as "
        "X-Forwarded-User. A token of this name gives scopes and projects.",
    ),
    click.option(
        "--user-scope",
        "user_scopes",
        metavar="SCOPE",
        multiple=True,
        help="A scope of users without a token; may be repeated. By default they are refused.",
    ),
    click.option(
        "--oidc",
        metavar="FILE",
        envvar="PROMPTGRAFT_OIDC",
        help="The settings of an OpenID Connect provider that signs users in; by default the file "
        "in the variable PROMPTGRAFT_OIDC, if it is set. Needs the extra `oidc`.",
    ),
    click.option(
        "--base-path",
        metavar="PATH",
        default="",
        help="The path below which browsers see the server, such as /pg.",
    ),
    click.option(
        "--known-as",
        metavar="HOST[:PORT]",
        multiple=True,
        help="A further name in the `Host` header of requests, as a scraper of metrics uses; may "
        "be repeated.",
    ),
    click.option(
        "--limit",
        "limits",
        metavar="NAME=NUMBER",
        multiple=True,
        help="A limit of the server, such as `requests=50`; may be repeated.",
    ),
    click.option("--certificate", metavar="FILE", help="A certificate for TLS, with its chain."),
    click.option("--key", metavar="FILE", help="The private key of the certificate."),
)


def door_options(command: options.Command) -> options.Command:
    """Add the options of a :class:`Door`; the command receives it as ``door``."""
    names = [field.name for field in attrs.fields(Door)]

    @functools.wraps(command)
    def wrapped(**given: object) -> int | None:
        settings = {name: given.pop(name) for name in names}
        door = Door(**settings)  # type: ignore[arg-type]
        door.check()
        return command(door=door, **given)

    return _options(wrapped)
