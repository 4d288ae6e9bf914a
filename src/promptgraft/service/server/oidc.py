"""Signing in by an OpenID Connect provider: authorization code with PKCE, and the ID token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, TypeVar
from urllib.parse import quote, urlencode

import attrs
import httpx

from promptgraft.adapters.calling.access import is_address, is_confidential
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json, parse_json, shown
from promptgraft.service.jobs.client import authorities
from promptgraft.service.server.oidc_settings import OidcSettings
from promptgraft.service.server.problems import ApiProblem
from promptgraft.service.server.tokens import LOCAL, NAME

T = TypeVar("T")
_Key: TypeAlias = "dict[str, str | list[str]]"

SECONDS_TO_SIGN_IN = 600.0
"""Time between leaving for the provider and coming back."""

_SECONDS_TO_ANSWER = 10.0
_SECONDS_BETWEEN_LOOKS = 3_600.0
_SECONDS_BETWEEN_KEYS = 10.0
_MOST_BYTES = 1_000_000
_MOST_AT_ONCE = 4
# Signatures with a key that the provider keeps to itself: not `none`, and no shared secret.
_ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
_ALGORITHMS += ["EdDSA", "Ed25519"]
_KEY_TYPES = ("RSA", "EC", "OKP")
# The clock of the provider may differ by so much.
_LEEWAY_SECONDS = 60
_CODE = re.compile(r"[a-z_]{1,40}")
_AGAIN = "sign in again, and if that does not help, tell whoever runs this server"
_ELSEWHERE = "try again in a moment, or sign in with a token"

_logger = logging.getLogger("promptgraft.service.server")


@attrs.frozen
class Login:
    """A way to the provider and back, by a secret that only the browser has.

    What the provider sees (state, nonce, challenge) is computed from the secret and does not
    reveal it, so that no server has to remember it.
    """

    secret: str = attrs.field(repr=False)

    def _of(self, purpose: str) -> str:
        return _plain(hmac.digest(self.secret.encode(), purpose.encode(), hashlib.sha256))

    @property
    def state(self) -> str:
        """What the provider has to send back."""
        return self._of("state")

    @property
    def nonce(self) -> str:
        """What the ID token has to contain."""
        return self._of("nonce")

    @property
    def verifier(self) -> str:
        """What proves that who exchanges the code is who has asked for it."""
        return self._of("verifier")

    @property
    def challenge(self) -> str:
        """The SHA-256 of the verifier."""
        return _plain(hashlib.sha256(self.verifier.encode()).digest())


def _plain(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


@attrs.frozen(kw_only=True)
class OidcUser:
    """A user as the provider has named them.

    Attributes:
        digest: SHA-256 of issuer and subject, which stay the same when the name changes.
        name: the name that records show.
        memberships: the groups that the settings name, and that the user belongs to.
    """

    digest: str
    name: str
    memberships: frozenset[str]


@attrs.frozen(kw_only=True)
class _Metadata:
    """The discovery document of a provider, as far as it is used."""

    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    takes_basic: bool


class OidcProvider:
    """An OpenID Connect provider; safe to share between threads.

    Args:
        settings: how users sign in.
        now: a monotonic clock in seconds.

    Attributes:
        settings: as given.

    Raises:
        ConfigError: the extra is not installed.
    """

    def __init__(
        self, settings: OidcSettings, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        try:
            import joserfc  # noqa: F401 - a server that lacks it must not start
        except ModuleNotFoundError as error:
            raise ConfigError(
                f'--oidc needs {error.name}; run `pip install "promptgraft[server,oidc]"`'
            ) from None
        self.settings, self._now = settings, now
        # A provider that hangs must not hold all threads of the server.
        self._turns = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._cached_metadata: tuple[float, _Metadata] | None = None
        self._cached_keys: tuple[float, Sequence[_Key]] | None = None

    def address(self, login: Login, back: str) -> str:
        """Return the address of the provider that signs a user in and sends them ``back``.

        Raises:
            Problem: 429, 502: the provider does not answer as it should.
        """
        metadata = self._in_turn(self._metadata)
        parameters = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": back,
            "scope": " ".join(dict.fromkeys(("openid", *self.settings.scopes))),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": login.challenge,
            "code_challenge_method": "S256",
        }
        sign = "&" if "?" in metadata.authorization_endpoint else "?"
        return f"{metadata.authorization_endpoint}{sign}{urlencode(parameters)}"

    def user(self, query: Mapping[str, str], login: Login, back: str) -> OidcUser:
        """Return the user whom the provider has sent back with a code.

        Raises:
            Problem: 401, 403: the user is not signed in, and why; 429, 502: as :meth:`address`.
        """
        if "error" in query:
            raise ApiProblem(401, f"the provider has signed nobody in{_code(query)}; {_AGAIN}")
        if query.get("iss", self.settings.issuer) != self.settings.issuer:
            raise ApiProblem(401, f"the answer comes from another provider; {_AGAIN}")
        return self._user(self._in_turn(lambda: self._claims(query.get("code", ""), login, back)))

    def _in_turn(self, work: Callable[[], T]) -> T:
        if not self._turns.acquire(blocking=False):
            raise ApiProblem(
                429, f"too many are signing in at once; {_ELSEWHERE}", headers={"Retry-After": "5"}
            )
        try:
            return work()
        finally:
            self._turns.release()

    def _user(self, claims: Mapping[str, object]) -> OidcUser:
        settings = self.settings
        name = claims.get(settings.name)
        # OpenID Connect Core, 5.1: only `true` says that the address belongs to the user.
        if "email" in (settings.name, settings.claim) and claims.get("email_verified") is not True:
            if "email_verified" in claims:
                mend = "have it do so, and sign in again"
            else:
                mend = "whoever runs this server can have it send `email_verified`, or set `name`"
            raise ApiProblem(
                403, f"the provider does not say that your address is verified; {mend}"
            )
        plain = name.strip().lower() if isinstance(name, str) else ""
        if not NAME.fullmatch(plain) or plain == LOCAL.name:
            raise ApiProblem(
                403,
                f"the claim `{settings.name}` of your ID token is no name for this server (letters "
                "without accents, digits and `._@+-`); tell whoever runs it",
            )
        listed = claims.get(settings.claim)
        groups = [listed] if isinstance(listed, str) else listed if isinstance(listed, list) else ()
        subject = f"{settings.issuer}\0{claims['sub']}"
        return OidcUser(
            digest=hashlib.sha256(subject.encode("utf-8", "replace")).hexdigest(),
            name=plain,
            memberships=frozenset(settings.groups) & {str(group) for group in groups},
        )

    # What the provider says

    def _claims(self, code: str, login: Login, back: str) -> Mapping[str, object]:
        """Exchange a code for an ID token, and return its claims once they are validated."""
        metadata, settings = self._metadata(), self.settings
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": back,
            "code_verifier": login.verifier,
        }
        auth: httpx.Auth | None = None
        if settings.client_secret and metadata.takes_basic:
            pair = (quote(part, safe="") for part in (settings.client_id, settings.client_secret))
            auth = httpx.BasicAuth(*pair)
        else:
            form["client_id"] = settings.client_id
            if settings.client_secret:
                form["client_secret"] = settings.client_secret
        status, answer = self._ask("POST", metadata.token_endpoint, data=form, auth=auth)
        if status >= 500:
            raise self._failed(f"the provider failed (status {status})")
        if answer.get("error") == "invalid_grant":
            # Of clients: not logged.
            raise ApiProblem(401, f"the code was used before, has expired or is invalid; {_AGAIN}")
        if status != 200:
            raise self._refused(f"the provider refused this server{_code(answer)}")
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise self._failed("the provider sent no ID token")
        return self._validated(token, login.nonce)

    def _validated(self, text: str, nonce: str) -> Mapping[str, object]:
        from joserfc import errors, jwt

        settings = self.settings
        registry = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        )
        try:
            claims = self._decoded(text)
            registry.validate(claims)
        except errors.ClaimError as error:
            raise self._refused(f"the ID token is refused: {error.error} {error.claim}") from None
        except (errors.JoseError, ValueError) as error:
            reason = error.error if isinstance(error, errors.JoseError) else "not a signed token"
            raise self._refused(f"the ID token is refused: {reason}") from None
        audience = claims.get("aud")
        # A token for several programs says for which of them it was made.
        if claims.get("azp", settings.client_id) != settings.client_id or (
            isinstance(audience, list) and len(audience) > 1 and "azp" not in claims
        ):
            raise self._refused("the ID token is refused: it was made for another program")
        return claims

    def _decoded(self, text: str) -> dict[str, object]:
        from joserfc import errors, jwk, jwt

        def decoded(documents: Sequence[_Key]) -> dict[str, object]:
            keys = jwk.KeySet([jwk.import_key(document) for document in documents])
            claims: dict[str, object] = jwt.decode(text, keys, algorithms=_ALGORITHMS).claims
            return claims

        try:
            return decoded(self._keys(_SECONDS_BETWEEN_LOOKS))
        except errors.InvalidKeyIdError:
            # The provider may have changed its keys; a token that names any cannot make us ask
            # more often than this.
            return decoded(self._keys(_SECONDS_BETWEEN_KEYS))

    def _keys(self, most_seconds: float) -> Sequence[_Key]:
        cached = self._cached_keys
        if cached is None or self._now() - cached[0] >= most_seconds:
            status, answer = self._ask("GET", self._metadata().jwks_uri)
            listed = answer.get("keys")
            keys: list[_Key] = [
                # Its numbers; lists say what else it may be used for.
                {name: value for name, value in key.items() if isinstance(value, str)}
                for key in (listed if isinstance(listed, list) else ())
                if isinstance(key, dict)
                and key.get("kty") in _KEY_TYPES
                and key.get("use", "sig") == "sig"
            ]
            if status != 200 or not keys:
                raise self._failed("the provider shows no keys")
            self._cached_keys = cached = (self._now(), keys)
        return cached[1]

    def _metadata(self) -> _Metadata:
        cached = self._cached_metadata
        if cached is None or self._now() - cached[0] >= _SECONDS_BETWEEN_LOOKS:
            address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
            status, answer = self._ask("GET", address)
            if status != 200:
                raise self._failed(f"the provider has no discovery document (status {status})")
            if answer.get("issuer") != self.settings.issuer:
                raise self._failed(
                    f"the provider calls itself {shown(answer.get('issuer'))}, and the settings "
                    f"{shown(self.settings.issuer)}"
                )
            self._cached_metadata = cached = (self._now(), self._read(answer))
        return cached[1]

    def _read(self, document: Mapping[str, Json]) -> _Metadata:
        names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
        addresses = {name: str(document.get(name, "")) for name in names}
        for name, address in addresses.items():
            if not (is_address(address.partition("?")[0]) and is_confidential(address)):
                raise self._failed(f"the provider's `{name}` is no https address")
        methods = document.get("token_endpoint_auth_methods_supported")
        takes_basic = not isinstance(methods, list) or "client_secret_basic" in methods
        return _Metadata(**addresses, takes_basic=takes_basic)

    def _ask(
        self,
        method: str,
        address: str,
        *,
        data: Mapping[str, str] | None = None,
        auth: httpx.Auth | None = None,
    ) -> tuple[int, Mapping[str, Json]]:
        """Return status and JSON object of a reply; redirects would take secrets elsewhere."""
        body, until = bytearray(), time.monotonic() + _SECONDS_TO_ANSWER
        try:
            with (
                httpx.Client(timeout=_SECONDS_TO_ANSWER, verify=authorities()) as client,
                client.stream(
                    method, address, data=data, auth=auth, headers={"Accept": "application/json"}
                ) as answer,
            ):
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) > _MOST_BYTES or time.monotonic() > until:
                        raise self._failed("the provider's answer is too long")
        except httpx.HTTPError as error:
            raise self._failed(f"the provider cannot be reached ({type(error).__name__})") from None
        try:
            document = parse_json(bytes(body), where="provider")
        except DataFormatError:
            document = None
        if not isinstance(document, dict):
            raise self._failed(f"the provider's answer is no JSON object ({answer.status_code})")
        return answer.status_code, document

    def _failed(self, what: str) -> ApiProblem:
        _logger.warning("signing in by %s failed: %s", self.settings.issuer, what)
        return ApiProblem(502, f"{what}; {_ELSEWHERE}")

    def _refused(self, what: str) -> ApiProblem:
        _logger.warning("signing in by %s was refused: %s", self.settings.issuer, what)
        return ApiProblem(401, f"{what}; {_AGAIN}")


def _code(answer: Mapping[str, Json]) -> str:
    """Return the code of an error in parentheses; any other text might be somebody else's."""
    code = answer.get("error")
    return f" ({code})" if isinstance(code, str) and _CODE.fullmatch(code) else ""
