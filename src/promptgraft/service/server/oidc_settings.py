"""Settings of an OpenID Connect provider, and what the groups of its users may do."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

import attrs

from promptgraft.adapters.calling.access import is_address, is_confidential
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import PATH, TEXT, Kind, check, one_of
from promptgraft.ground.strict.kinds import Key, checked, listed, named, record, record_of
from promptgraft.project.files import source_file
from promptgraft.service.server.tokens import ApiCaller, Scope

EVERYBODY = "*"
"""The group of all whom the provider has signed in."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@attrs.frozen(kw_only=True)
class OidcGroup:
    """What the members of a group may do.

    Attributes:
        roles: `read`, `submit`, `approve` and `admin`, or some of them.
        projects: The projects that they see; without this key all.
    """

    roles: frozenset[Scope]
    projects: frozenset[str] | None = None


@attrs.frozen(kw_only=True)
class OidcSettings:
    """How users sign in by an OpenID Connect provider.

    Attributes:
        issuer: Its address, exactly as it names itself.
        client_id: What it calls this server.
        groups: What each group may do. The first one in this order that a user belongs to decides.
        client_secret: `${NAME}`, an environment variable.
        client_secret_file: A file with the secret, in place of a variable.
        label: Its name on the page.
        claim: The claim of ID tokens that lists the groups of a user.
        name: The claim with the name that records show.
        scopes: What is asked of the provider besides `openid`.
    """

    issuer: str
    client_id: str
    groups: Mapping[str, OidcGroup]
    client_secret: str = attrs.field(default="", repr=False)
    client_secret_file: str = ""
    label: str = "OpenID Connect"
    claim: str = "groups"
    name: str = "email"
    scopes: tuple[str, ...] = ("email", "profile")

    def caller(self, name: str, memberships: Collection[str], digest: str) -> ApiCaller | None:
        """Return what a user may do, or None for a member of no group that is named.

        The first group decides the roles. Other groups that have all of these roles add their
        projects: no role reaches a project by a group that does not have it.

        Args:
            name: the name of the user.
            memberships: the groups of the user.
            digest: SHA-256 of the user, by which their sessions are found.
        """
        groups = [
            group
            for group_name, group in self.groups.items()
            if group_name == EVERYBODY or group_name in memberships
        ]
        if not groups:
            return None
        roles = groups[0].roles
        projects = frozenset[str]()
        for group in (group for group in groups if group.roles >= roles):
            if group.projects is None:
                return ApiCaller(name=name, scopes=roles, token=digest)
            projects |= group.projects
        return ApiCaller(name=name, scopes=roles, projects=projects, token=digest)


def _check_issuer(issuer: str) -> None:
    if not (is_address(issuer) and is_confidential(issuer)):
        raise ConfigError(
            "expected an address such as https://login.example.org (`http` only on this machine), "
            f"found {shown(issuer)}"
        )


_ROLE: Kind[Scope] = Kind(
    lambda node: None if (role := one_of(*Scope).read(node)) is None else Scope(role),
    one_of(*Scope).schema,
)


def _some(values: Collection[object]) -> None:
    if not values:
        raise ConfigError("expected at least one; without `projects`, members see all")


def _group(roles: Collection[Scope], projects: Collection[str] | None = None) -> OidcGroup:
    named_projects = None if projects is None else frozenset(projects)
    return OidcGroup(roles=frozenset(roles), projects=named_projects)


_ROLES: Kind[tuple[Scope, ...]] = checked(listed(_ROLE), _some)
_PROJECTS: Kind[tuple[str, ...]] = checked(listed(TEXT), _some)
_ISSUER: Kind[str] = checked(TEXT, _check_issuer)
_GROUP: Kind[OidcGroup] = record(
    _group,
    {
        "roles": Key(_ROLES, "What members may do.", required=True),
        "projects": Key(_PROJECTS, "What members see."),
    },
)
_SECRET = check(
    "`${NAME}`",
    lambda value: value if isinstance(value, str) and _REFERENCE.fullmatch(value) else None,
    {"type": "string"},
    hidden=True,
    mend="put the secret into an environment variable and name that, or use `client_secret_file`",
)
_SETTINGS: Kind[OidcSettings] = record_of(
    OidcSettings,
    special={
        "issuer": _ISSUER,
        "client_id": TEXT,
        "groups": named(_GROUP, "an object with what each group may do", least=1),
        "client_secret": _SECRET,
        "client_secret_file": PATH,
        "label": TEXT,
        "claim": TEXT,
        "name": TEXT,
        "scopes": listed(TEXT),
    },
)


def read_oidc(path: str | Path) -> OidcSettings:
    """Read the settings in a file, with the secret from the environment or a file.

    Raises:
        DataFormatError: the file is invalid; a line for each fault.
        ConfigError: the secret is missing, or it has two places.
    """
    source = source_file(Path(path))
    settings = _SETTINGS.read(source.root)
    source.raise_all()
    assert settings is not None  # noqa: S101 - what has no fault is read
    return attrs.evolve(settings, client_secret=_secret(Path(path), settings))


def _secret(path: Path, settings: OidcSettings) -> str:
    if settings.client_secret and settings.client_secret_file:
        raise ConfigError(f"{path}: client_secret and client_secret_file: leave one out")
    if settings.client_secret:
        variable = _REFERENCE.sub(r"\1", settings.client_secret)
        if not (secret := os.environ.get(variable, "")):
            raise ConfigError(f"{path}: client_secret: the variable {variable} is not set")
        return secret
    if settings.client_secret_file:
        file = path.parent / settings.client_secret_file
        try:
            secret = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path}: client_secret_file: {file} cannot be read: {type(error).__name__}"
            ) from None
        if not secret:
            raise ConfigError(f"{path}: client_secret_file: {file} is empty")
        return secret
    # A public client, which proves by PKCE alone that it is the one that has asked.
    return ""
