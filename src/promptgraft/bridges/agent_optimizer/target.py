"""``TargetPrompt``: the texts of an agent under the names that its owner gave them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from promptgraft.agents.sources import FileSource, Source, Sources, read_sources
from promptgraft.agents.writing import CallbackSource
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import shown
from promptgraft.runtime.deadline import Cancellation
from promptgraft.runtime.event_loop import beside

T = TypeVar("T")

_LONGEST_KEY = 48  # identifiers have at most 64 characters, and a number may follow


class TargetPrompt:
    """The texts of an agent that are to be improved, and where they are stored."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self._described: dict[str, str] = {}
        self._keys: dict[str, str] = {}
        self._placeholders: dict[str, tuple[str, ...]] = {}

    def add_path(
        self, name: str, path: str | os.PathLike[str], *, placeholders: Sequence[str] = ()
    ) -> Self:
        """Add a text that is stored in a file.

        Args:
            name: any text that names it; results and files use it.
            path: the file.
            placeholders: strings that every candidate must keep, such as ``{customer}``.

        Raises:
            ConfigError: there already is a text with this name, or an argument is invalid.
        """
        source = FileSource(Path(path).absolute())
        return self._add(name, source, placeholders, described=os.fspath(path))

    def add_callback(
        self,
        name: str,
        *,
        read: Callable[[], Any],
        write: Callable[[str], Any],
        placeholders: Sequence[str] = (),
    ) -> Self:
        """Add a text that functions read and write, plain or ``async``.

        Raises:
            ConfigError: there already is a text with this name, or an argument is invalid.
        """
        return self._add(name, CallbackSource(read, write), placeholders, described="<callback>")

    def _add(
        self, name: str, source: Source, placeholders: Sequence[str], *, described: str
    ) -> Self:
        name_object: object = name  # users may pass anything, whatever the annotation says
        if not isinstance(name_object, str) or not name.strip():
            raise ConfigError(f"name of a text: expected a text, found {shown(name_object)}")
        if name in self._sources:
            raise ConfigError(f"two texts have the name `{name}`; rename one")
        if isinstance(placeholders, str):
            raise ConfigError(
                f"placeholders: expected a list, found a text; write [{placeholders!r}]"
            )
        self._sources[name] = source
        self._described[name] = described
        self._keys[name] = _free_key(name, self._keys.values())
        self._placeholders[name] = tuple(placeholders)
        return self

    @property
    def keys(self) -> Mapping[str, str]:
        """The identifier of each text by its name; the same where the name is an identifier."""
        return dict(self._keys)

    @property
    def placeholders(self) -> Mapping[str, tuple[str, ...]]:
        """The strings that candidates must keep, by identifier of the text."""
        return {
            self._keys[name]: names_kept
            for name, names_kept in self._placeholders.items()
            if names_kept
        }

    def names(self) -> list[str]:
        """Return the names of the texts in the order of their addition."""
        return list(self._sources)

    def named(self, by_key: Mapping[str, T]) -> dict[str, T]:
        """Return the values for the texts by name, given by identifier."""
        return {name: by_key[key] for name, key in self._keys.items() if key in by_key}

    def describe_source(self, name: str) -> str:
        """Return the path of a text as it was given, or ``<callback>``.

        Raises:
            KeyError: there is no such text.
        """
        return self._described[name]

    async def read(self, name: str) -> str:
        """Return a text."""
        return (await self.read_all())[name]

    async def read_all(self) -> dict[str, str]:
        """Return all texts by name."""
        sources = await beside(self.sources, stop=Cancellation())
        return self.named(sources.texts)

    async def write_all(self, prompts: Mapping[str, str]) -> None:
        """Write all texts or none: files first, and after a failure everything is restored.

        Raises:
            ConfigError: ``prompts`` has other names than the texts, or a text cannot be written.
        """
        if set(prompts) != set(self._sources):
            raise ConfigError(
                f"expected the texts {', '.join(self._sources)}, found {', '.join(prompts)}"
            )
        await beside(lambda: self.write(prompts, by="TargetPrompt"), stop=Cancellation())

    def write(self, prompts: Mapping[str, str], *, by: str) -> None:
        """Write texts by name; ``by`` says who does."""
        self.sources().write({self._keys[name]: text for name, text in prompts.items()}, by=by)

    def sources(self) -> Sources:
        """Read the current texts, by identifier."""
        files = [source.path for source in self._sources.values() if isinstance(source, FileSource)]
        here = Path.cwd()
        # Sources are named relative to one folder that contains all of them.
        if any(not path.resolve().is_relative_to(here.resolve()) for path in files):
            # The folder that holds the lock and the record of writes must contain every file.
            here = Path(os.path.commonpath([path.resolve().parent for path in files]))
        by_key = {self._keys[name]: source for name, source in self._sources.items()}
        return read_sources(by_key, folder=here)


def _free_key(name: str, used_keys: Collection[str]) -> str:
    """Return an identifier for a text of any name that no other text has."""
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:_LONGEST_KEY] or "text"
    key, number = plain, 1
    while key in used_keys:
        number += 1
        key = f"{plain}-{number}"
    return key


def file_names(names: Sequence[str], keys: Mapping[str, str]) -> dict[str, str]:
    """Return a file name without ending for each text: its own name where every system takes it."""
    folded = [name.casefold() for name in names]
    return {
        name: name
        if re.fullmatch(r"\w[\w-]{0,99}", name) and folded.count(name.casefold()) == 1
        else keys[name]
        for name in names
    }
