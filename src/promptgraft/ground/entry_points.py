"""Finds what installed packages add under a name, by entry point."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from promptgraft.errors import ConfigError, user_errors
from promptgraft.ground.text import listed, message_of, raised

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

T = TypeVar("T")


class Group(NamedTuple, Generic[T]):
    """An entry point group whose members are subclasses of one class.

    Attributes:
        name: the group, as packages write it: ``promptgraft.algorithms``.
        noun: what a member is called in messages.
        base: the class that members derive from.
        built_in: places of the classes that the core has without an entry point, ``MODULE:CLASS``.
    """

    name: str
    noun: str
    base: type[T]
    built_in: Mapping[str, str] = MappingProxyType({})

    @property
    def names(self) -> list[str]:
        """All known names, sorted."""
        return sorted({*self.built_in, *installed(self.name)})

    def load(self, name: str) -> type[T]:
        """Return one of its own classes, or that which a package has registered under ``name``.

        Raises:
            ConfigError: there is none, it cannot be imported, or it is no subclass.
        """
        if name in self.built_in:
            module, _, attribute = self.built_in[name].partition(":")
            own_class: type[T] = getattr(importlib.import_module(module), attribute)
            return own_class
        offer = load(self.name, name, noun=self.noun, own=self.built_in)
        if isinstance(offer.value, type) and issubclass(offer.value, self.base):
            return offer.value
        raise offer.unfit(f"a subclass of {self.base.__name__}")


class Offer(NamedTuple):
    """What a package has registered, and the entry point for messages."""

    value: object
    where: str

    def unfit(self, expected: str) -> ConfigError:
        """Return the error for a value that is not what its group consists of."""
        from promptgraft.ground.serde import shown  # not for `promptgraft --help`

        return ConfigError(f"{self.where}: expected {expected}, found {shown(self.value)}")


def members(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, without importing the packages behind them.

    Of several packages with the same name, the one that comes first on ``sys.path`` counts.
    """
    # Reversed, because a dict keeps the last of equal names.
    points = reversed([point for point in _added() if point.group == group])
    return dict(sorted((point.name, point) for point in points))


def _added() -> Iterator[EntryPoint]:
    """Yield what installed packages add to promptgraft, in the order of ``sys.path``."""
    for path in map(Path, sys.path):
        if path.exists():
            yield from _added_in(str(path.absolute()), path.stat().st_mtime_ns)


# To read the metadata of all packages of a large environment takes 50 ms.
@lru_cache
def _added_in(folder: str, _changed: int) -> tuple[EntryPoint, ...]:
    from importlib import metadata  # loads much of the standard library

    return tuple(
        point
        for distribution in metadata.distributions(path=[folder])
        for point in distribution.entry_points
        if point.group.startswith("promptgraft.")
    )


def installed(group: str) -> tuple[str, ...]:
    """Return the names in a group, sorted."""
    return tuple(members(group))


def load(group: str, name: str, *, noun: str, own: Collection[str] = ()) -> Offer:
    """Import and return what a package has registered under a name.

    Args:
        group: the entry point group.
        name: the name.
        noun: what a member of the group is called in messages.
        own: further known names, for the message.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    points = members(group)
    if name in points:
        return imported(points[name], noun)
    from promptgraft.ground.serde import did_you_mean  # not for `promptgraft --help`

    names_known = sorted({*own, *points})
    there = f": there are {listed(names_known)}" if names_known else f": no package adds a {noun}"
    raise ConfigError(f"unknown {noun} `{name}`{did_you_mean(name, names_known) or there}")


def imported(point: EntryPoint, noun: str) -> Offer:
    """Import and return what an entry point names.

    Raises:
        ConfigError: it cannot be imported.
    """
    where = f"{noun} `{point.name}`: the entry point {point.value!r}"
    try:
        return Offer(point.load(), where)
    except user_errors() as error:  # a module may fail in any way while it is imported
        is_plain = isinstance(error, (ImportError, AttributeError))
        reason = message_of(error) if is_plain else raised(error)
        raise ConfigError(f"{where} cannot be imported: {reason}") from error


def place_in_package(error: BaseException) -> str:
    """Return where a package that adds to promptgraft raised an exception; empty if none did."""
    modules = {point.module.partition(".")[0] for point in _added()} - {"promptgraft"}
    place, frames = "", error.__traceback__
    while frames is not None:
        module = str(frames.tb_frame.f_globals.get("__name__", ""))
        top = module.partition(".")[0]
        if top in modules:
            place = f"{module}:{frames.tb_lineno}"
        elif top == "promptgraft":  # which it had called
            place = ""
        frames = frames.tb_next
    return place
