"""Access control: who sends a request, from where, and how often."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import attrs

from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.ground.text import visible_line
from promptgraft.service.server.limits import Buckets, Limits
from promptgraft.service.server.oidc import SECONDS_TO_SIGN_IN, Login, OidcProvider
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.sessions import SessionStore
from promptgraft.service.server.tokens import LOCAL, ApiCaller, Scope, TokenStore, secret_digest

COOKIE = "promptgraft_session"
LOGIN_COOKIE = "promptgraft_login"
_MOST_NAME_CHARS = 64
_MOST_PATH_CHARS = 2_000

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(addresses: Iterable[str]) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(address) for address in addresses)
    except ValueError as error:
        raise ConfigError(
            f"--proxy-from: expected an address or a network such as 10.0.0.0/8: {error}"
        ) from None


@attrs.frozen(kw_only=True)
class Proxy:
    """A proxy in front of the server, and what is believed of its requests.

    Attributes:
        addresses: addresses or networks that its requests come from; nothing is believed of others.
        user_header: the header in which it names the user that it has authenticated; empty: none.
        scopes: scopes of users without a token of their own name; with none they are refused.

    Raises:
        ConfigError: an address is invalid, or a header is believed from anybody.
    """

    addresses: tuple[Network, ...] = attrs.field(default=(), converter=_networks)
    user_header: str = ""
    scopes: frozenset[Scope] = frozenset()

    def __attrs_post_init__(self) -> None:
        if self.user_header and not self.addresses:
            raise ConfigError(
                "--user-header: anybody could send it; name the addresses of the proxy with "
                "--proxy-from"
            )

    def is_at(self, peer: str) -> bool:
        """Return whether a connection from this address is one of the proxy."""
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in network for network in self.addresses)


NO_PROXY = Proxy()


@attrs.frozen(kw_only=True)
class Visit:
    """Where a request comes from, and where it came to.

    Attributes:
        address: the address of the client.
        base: the path that the application is mounted at; empty for the root.
        is_secure: whether the client came by HTTPS.
        browser: what the client calls itself.
        host: the name of the server in the request, which has been checked.
    """

    address: str = ""
    base: str = ""
    is_secure: bool = False
    browser: str = ""
    host: str = ""

    @property
    def origin(self) -> str:
        """The address of the application as the client knows it."""
        return f"{'https' if self.is_secure else 'http'}://{self.host}{self.base}"

    def login_cookie(self, secret: str) -> str:
        """Return the header that sets the cookie of a browser that leaves for a provider."""
        # `Lax`, unlike that of a session: the browser comes back from another site.
        secure = "; Secure" if self.is_secure else ""
        return (
            f"{LOGIN_COOKIE}={secret}; Path={self.base}/login; HttpOnly; SameSite=Lax; "
            f"Max-Age={SECONDS_TO_SIGN_IN:.0f}{secure}"
        )

    def cookie(self, session: str) -> str:
        """Return the header that sets the cookie of a session; an empty one removes it."""
        end = "" if session else "; Max-Age=0"
        secure = "; Secure" if self.is_secure else ""
        path = self.base or "/"
        return f"{COOKIE}={session}; Path={path}; HttpOnly; SameSite=Strict{secure}{end}"


def _values(headers: Mapping[str, str], header: str) -> list[str]:
    """Return the values of all headers of a name in lower case, in order."""
    return [value for name, value in headers.items() if name == header]


def _back(visit: Visit) -> str:
    """Return the address that the provider sends browsers back to."""
    return f"{visit.origin}/login/oidc/callback"


class Access:
    """Authenticates requests and limits their rate; safe to share between threads.

    Args:
        hosts: the ``Host`` headers that are accepted, with ports.
        limits: rates, numbers of streams, and how long sessions last.
        proxy: a proxy in front of the server.
        provider: an OpenID Connect provider that signs users in; None if there is none.
        is_secure: whether browsers reach the server by HTTPS only, also where a proxy ends it.
        now: a monotonic clock in seconds.

    Attributes:
        limits: as given.
        tokens: as given.
        provider: as given.
        sessions: the sessions of browsers.
    """

    def __init__(
        self,
        tokens: TokenStore,
        *,
        hosts: Iterable[str],
        limits: Limits | None = None,
        proxy: Proxy = NO_PROXY,
        provider: OidcProvider | None = None,
        is_secure: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits: Limits = limits or Limits()
        self.tokens, self.provider = tokens, provider
        settings = provider.settings if provider else None
        self.sessions: SessionStore = SessionStore(tokens.database, self.limits, settings)
        self._proxy, self._is_secure = proxy, is_secure
        self._hosts = frozenset(host.lower() for host in hosts)
        self._lock = threading.Lock()
        self._codes: set[str] = set()
        self._of_callers = Buckets(self.limits.requests, now=now)
        self._of_addresses = Buckets(self.limits.address_requests, now=now)
        self._of_guesses = Buckets(self.limits.requests, now=now)
        self._streams = Counter[tuple[str, str]]()

    def visit(
        self, headers: Mapping[str, str], *, peer: str, base: str = "", scheme: str = "http"
    ) -> Visit:
        """Return where a request comes from, and count it.

        Raises:
            Problem: 429: too many requests from this address.
        """
        # The last entry of the last header: it is the one that the proxy itself has added.
        entries = ",".join(_values(headers, "x-forwarded-for"))
        forwarded = entries.rpartition(",")[2].strip()
        address = forwarded[:_MOST_NAME_CHARS] if forwarded and self._proxy.is_at(peer) else peer
        # Before anything else: requests that are too many must not cost a look at the database.
        self._of_addresses.take(address)
        is_secure = self._is_secure or scheme == "https"
        browser, host = headers.get("user-agent", ""), headers.get("host", "")
        return Visit(address=address, base=base, is_secure=is_secure, browser=browser, host=host)

    # Signing in

    def new_code(self) -> str:
        """Return a login code for a browser on this machine, which works once."""
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes.add(secret_digest(code))
        return code

    def redeem_code(self, code: str, visit: Visit) -> str:
        """Exchange a login code for the cookie of a session.

        Raises:
            Problem: 401: the code was used before, or is invalid.
        """
        digest = secret_digest(code)
        with self._lock:
            # Digests are compared, not secrets, so that timing reveals nothing about them.
            is_valid = digest in self._codes
            self._codes.discard(digest)
        if not is_valid:
            self._of_guesses.take(visit.address)
            raise ApiProblem(
                401, "this link was used before or is invalid; `promptgraft serve` prints a new one"
            )
        return self.sessions.open("", visit.browser)

    def redeem_link(self, code: str, visit: Visit) -> str:
        """Exchange the code of a link for the cookie of a session.

        Raises:
            Problem: 401: the code was used before, has expired, or is invalid.
        """
        try:
            return self.sessions.redeem(code, visit.browser)
        except ApiProblem:
            self._of_guesses.take(visit.address)
            raise

    def redeem_token(self, token: str, visit: Visit) -> str:
        """Exchange a token for the cookie of a session.

        Raises:
            Problem: 401: the token is invalid.
        """
        caller = self.tokens.find(token)
        if caller is None:
            self._of_guesses.take(visit.address)
            raise ApiProblem(401, "this is not a token of this server, or it was revoked")
        return self.sessions.open(caller.token, visit.browser)

    def leave_for_provider(self, path: str, visit: Visit) -> tuple[str, str]:
        """Return the address of the provider, and the secret of the browser that goes there.

        Args:
            path: the path of this application that the user wants to see.
            visit: where the request comes from.

        Raises:
            Problem: 404: there is no provider; 429, 502: it does not answer as it should.
        """
        provider = self._provider()
        # Each costs a row, and may cost a look at the provider.
        self._of_guesses.take(visit.address)
        login = Login(secrets.token_urlsafe(32))
        address = provider.address(login, _back(visit))
        self.sessions.begin_login(login.state, path[:_MOST_PATH_CHARS])
        return address, login.secret

    def come_back(
        self, query: Mapping[str, str], secret: str | None, visit: Visit
    ) -> tuple[str, str]:
        """Return the path that a user wanted to see, and the cookie of their session.

        Raises:
            Problem: 401, 403: the user is not signed in, and why; 404, 429, 502: see
                :meth:`leave_for_provider`.
        """
        provider, login = self._provider(), Login(secret or "")
        try:
            path = self._path_of(login, query.get("state", ""))
            user = provider.user(query, login, _back(visit))
        except ApiProblem:
            self._of_guesses.take(visit.address)
            raise
        if provider.settings.caller(user.name, user.memberships, user.digest) is None:
            raise ApiProblem(
                403, f"{user.name} is in no group that may use this server; ask whoever runs it"
            )
        return path, self.sessions.open_for(user, visit.browser)

    def _path_of(self, login: Login, state: str) -> str:
        """Return the path of a login that has begun, which works once."""
        is_own = hmac.compare_digest(state.encode(), login.state.encode())
        path = self.sessions.end_login(login.state) if is_own else None
        if path is None:
            raise ApiProblem(
                401,
                "this did not begin in this browser, was used before, or took longer than "
                f"{SECONDS_TO_SIGN_IN / 60:.0f} minutes; sign in again",
            )
        return path

    @property
    def provider_name(self) -> str:
        """What the page calls the provider; empty if there is none."""
        return self.provider.settings.label if self.provider else ""

    def _provider(self) -> OidcProvider:
        if self.provider is None:
            raise ApiProblem(404, "nobody signs in here by a provider; use a token")
        return self.provider

    # Requests

    def check_origin(self, method: str, headers: Mapping[str, str]) -> None:
        """Refuse unknown host names, against DNS rebinding, and requests from other sites.

        Raises:
            Problem: 403.
        """
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            raise ApiProblem(
                403,
                f"host: this server is not known as {shown(host[:100])}; a proxy must pass the "
                "header `Host` on, and `promptgraft serve --known-as` allows further names",
            )
        origin = headers.get("origin")
        # Hosts only: a proxy may end TLS, so that the scheme differs.
        if origin is not None and origin.lower().partition("://")[2] != host:
            raise ApiProblem(
                403, "the request comes from another site; use the pages of this server"
            )
        # For requests without `Origin`: browsers add this header to all of theirs.
        if method != "GET" and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            raise ApiProblem(
                403, "the request comes from another site; use the pages of this server"
            )

    def caller(
        self,
        headers: Mapping[str, str],
        cookies: Mapping[str, str],
        visit: Visit = Visit(),
        *,
        peer: str = "",
    ) -> ApiCaller:
        """Authenticate a request: by its token, by the user that a proxy names, by its session.

        Raises:
            Problem: 401: token and session are missing or invalid; 403: the user of a proxy has no
                scopes; 429: too many requests.
        """
        caller_found = self._found(headers, cookies.get(COOKIE), peer)
        if caller_found is None:
            # Only for those that fail: who guesses is slowed down, and whoever comes with a token
            # through the same proxy is not.
            self._of_guesses.take(visit.address)
            raise ApiProblem(
                401,
                "send a token: `Authorization: Bearer ...`; `promptgraft tokens create` makes one",
                headers={"WWW-Authenticate": "Bearer"},
            )
        # Limits are per token, so that one client cannot use up those of others.
        self._of_callers.take(caller_found.name)
        return caller_found

    def _found(self, headers: Mapping[str, str], cookie: str | None, peer: str) -> ApiCaller | None:
        authorization = headers.get("authorization")
        if authorization is not None:
            kind, _, token = authorization.partition(" ")
            # A header that is invalid is not made good by a session.
            return self.tokens.find(token.strip()) if kind.lower() == "bearer" else None
        proxy = self._proxy
        if proxy.user_header and proxy.is_at(peer):
            users = _values(headers, proxy.user_header.lower())
            # A proxy that adds its own header leaves that of the client in the first place.
            if len(users) > 1:
                return None
            # An empty one is how some proxies say that they have authenticated nobody.
            if user := "".join(users).strip():
                return self._of_user(user)
        return self.sessions.find(cookie) if cookie else None

    def _of_user(self, user: str) -> ApiCaller:
        """Return the caller for a user whom a proxy has authenticated."""
        name = visible_line(user.lower())
        # Cut to the length of a name, it could be that of somebody else.
        if len(name) > _MOST_NAME_CHARS or name == LOCAL.name:
            raise ApiProblem(403, f"nobody may be called {shown(name)} here")
        caller = self.tokens.named(name)
        if caller is not None:
            return caller
        if not self._proxy.scopes:
            raise ApiProblem(
                403,
                f"the user {shown(name)} has no token here; `promptgraft tokens create` with this "
                "name gives scopes and projects, and `serve --user-scope` gives scopes to all",
            )
        return ApiCaller(name=name, scopes=self._proxy.scopes)

    def is_still_in(self, caller: ApiCaller) -> bool:
        """Return whether the session or the token that a request came with has not ended since."""
        if caller.session:
            return self.sessions.is_open(caller.session)
        return not caller.token or self.tokens.is_there(caller.token)

    @contextmanager
    def streaming(self, caller: ApiCaller, project: str = "") -> Iterator[None]:
        """Count a stream of events of a project while it is open.

        Raises:
            Problem: 429: too many streams are open.
        """
        limits, key = self.limits, (caller.name, project)
        with self._lock:
            of_caller = [pair for pair in self._streams if pair[0] == caller.name]
            own_streams = sum(self._streams[pair] for pair in of_caller)
            if own_streams >= limits.streams or self._streams.total() >= limits.all_streams:
                raise ApiProblem(
                    429,
                    f"at most {limits.streams:.0f} streams for a token and "
                    f"{limits.all_streams:.0f} in total; close one first",
                    headers={"Retry-After": "5"},
                )
            self._streams[key] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[key] -= 1
                self._streams += Counter()  # drops what has come to nothing

    def streams(self, caller: ApiCaller) -> int:
        """Return the number of open streams of the projects that a caller sees."""
        with self._lock:
            return sum(
                count for (_, project), count in self._streams.items() if caller.sees(project)
            )
