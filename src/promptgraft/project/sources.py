"""The texts of an agent as a prompt of a project, and their way to the agent and back."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from promptgraft.agents.agent import AGENTS_NS
from promptgraft.agents.call import Delivery
from promptgraft.agents.delivery import FolderCopy, InCall
from promptgraft.agents.live import LiveFiles
from promptgraft.agents.sources import CallbackSource, FileSource, Source, Sources, read_sources
from promptgraft.agents.writing import HeldText, difference
from promptgraft.errors import CallerError, ConfigError
from promptgraft.overrides import PromptOverride
from promptgraft.parts.descriptors import show_path
from promptgraft.project.format_sources import DeliveryConfig, FileConfig, TextsConfig
from promptgraft.project.parts import ProjectPrompt, Surroundings
from promptgraft.project.python_source import Wanted
from promptgraft.prompt.texts import TextsPrompt
from promptgraft.strict.nodes import spelled


@attrs.frozen
class TextsSource:
    """The sources of the texts of a prompt.

    Attributes:
        sources: the sources, as they were read.
    """

    sources: Sources

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the prompt is read from."""
        return tuple(file.path for file in self.sources.files.values())

    def texts(self, override: PromptOverride) -> Mapping[str, str]:
        """Return the texts that ``override`` says anything of."""
        return {show_path(path): entry.body for path, entry in override.sections.items()}

    def changes(self, override: PromptOverride) -> tuple[HeldText, ...]:
        """Return what changes where the sources are to say what ``override`` says."""
        return self.sources.changes(self.texts(override))

    def changed_since(self, began: Mapping[str, str], base: PromptOverride) -> Iterator[str]:
        """Yield a line for each source that is not what it was: where it begins to differ.

        Args:
            began: the text of each part as a run began.
            base: what overrode the source then, and says nothing of it.
        """
        for name in self.sources.texts:
            before, held = began.get(f"section {name}"), self.sources.held(name)
            if before is None or (name,) in base.sections:
                continue
            if (old := self.sources.content(name, before)) != held.old:
                yield f"{held.where}:{difference(old, held.old)}"


def load_texts(name: str, config: TextsConfig, around: Surroundings) -> ProjectPrompt:
    """Return the texts of an agent as a prompt; they are read now.

    Raises:
        DataFormatError: with every fault of the sources, one line each.
    """
    path = ("prompts", name)
    sources: dict[str, Source] = {}
    for text, file in config.files.items():
        given = FileConfig(path=file) if isinstance(file, str) else file
        sources[text] = FileSource(Path(given.path), given.frozen or "")
    for text, one in callbacks_of(config, (*path, "callbacks"), around).items():
        if sources.setdefault(text, one) is not one:
            raise around.refusal(
                (*path, "callbacks"), f"text `{text}` is one of `files` too; rename one of them"
            )

    def line(text: str, why: str) -> str:
        if text in config.files:
            return around.file.line((*path, "files", text), why)
        return around.file.line((*path, "callbacks"), f"text `{text}`: {why}")

    found = read_sources(sources, folder=around.folder, line=line)
    try:
        prompt = TextsPrompt.of(
            found.texts,
            ns=AGENTS_NS,
            key=name,
            placeholders=config.placeholders,
            takes_cases=True,
        )
    except CallerError as error:
        raise around.refusal(path, error) from error
    return ProjectPrompt(name=name, prompt=prompt, source=TextsSource(found))


def callbacks_of(
    config: TextsConfig, path: tuple[str, ...], around: Surroundings
) -> Mapping[str, CallbackSource]:
    """Return the callbacks of texts by name; none is called.

    Raises:
        DataFormatError: they cannot be loaded.
    """
    if config.callbacks is None:
        return {}
    alone = config.callbacks.rpartition(":")[2].rpartition(".")[2].lower()
    wanted = Wanted(
        what=spelled(path),
        expected="an object with the functions `read` and `write`, or several of them by name",
        plural="callbacks",
        read=functools.partial(_as_callbacks, alone),
    )
    return around.loaded(path, config.callbacks, wanted)


def _as_callbacks(alone: str, value: object) -> Mapping[str, CallbackSource] | None:
    """Return callbacks by name; ``alone`` names the only one."""
    given: Mapping[object, Any] = value if isinstance(value, Mapping) else {alone: value}
    if isinstance(value, (type, ModuleType)):
        return None
    try:
        found = {str(name): CallbackSource(one.read, one.write) for name, one in given.items()}
    except (AttributeError, ConfigError):
        return None
    return found or None


def delivery_of(
    config: str | DeliveryConfig | None,
    prompt: ProjectPrompt,
    around: Surroundings,
    *,
    leave_out: Iterable[Path],
) -> Delivery:
    """Return what hands texts to the agent of a project.

    Raises:
        DataFormatError: the texts cannot reach the agent in this way.
    """
    if config in (None, "argument", "request"):
        return InCall("request" if config == "request" else "argument")
    source = prompt.source
    if not isinstance(source, TextsSource) or not (source.files or config == "live"):
        raise around.refusal(
            ("delivery",),
            f"expected `files` in `prompts.{prompt.name}`, found none to deliver; name them there",
        )
    if config == "live":
        return LiveFiles(source.sources)
    folder = config.folder if isinstance(config, DeliveryConfig) else "."
    try:
        return FolderCopy(source.sources, around.folder / folder, leave_out=tuple(leave_out))
    except ConfigError as error:
        raise around.refusal(("delivery",), error) from error
