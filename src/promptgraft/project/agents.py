"""The texts of an agent as a prompt of a project, and the agent that they are delivered to."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.adapter import AgentAdapter
from promptgraft.agents.call import Delivery
from promptgraft.agents.defaults import AGENTS_NS
from promptgraft.agents.delivery import FolderCopy, InCall
from promptgraft.agents.live import LiveFiles
from promptgraft.agents.sources import FileSource, Source, Sources, read_sources
from promptgraft.agents.user import simulated_user
from promptgraft.agents.writing import CallbackSource, WrittenText, difference
from promptgraft.errors import ConfigError
from promptgraft.overrides import PromptOverride
from promptgraft.overrides.parts.descriptors import show_path
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.project.format import ProjectConfig
from promptgraft.project.format_agents import DeliveryConfig, FileConfig, TextsConfig
from promptgraft.project.project_prompt import ProjectPrompt
from promptgraft.project.python_source import ObjectKind, Surroundings
from promptgraft.prompt.template import with_stored_overrides
from promptgraft.prompt.texts import TextsPrompt


@attrs.frozen
class TextsSource:
    """The files and callbacks that hold the texts of a prompt, as they were read."""

    sources: Sources

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the prompt is read from."""
        return tuple(file.path for file in self.sources.files.values())

    def protected(self) -> Iterator[tuple[str, str]]:
        """Yield each text that has protected front matter, with a line about it."""
        for name, file in self.sources.files.items():
            if file.protected_lines:
                where = f"lines 1 to {file.protected_lines} of {file.name}"
                mend = "`frozen: none` opens it"
                yield name, f"the front matter, {where}, never changes; {mend}"

    def texts(self, override: PromptOverride) -> Mapping[str, str]:
        """Return the texts that ``override`` replaces, by name."""
        return {show_path(path): entry.body for path, entry in override.sections.items()}

    def changes(self, override: PromptOverride) -> tuple[WrittenText, ...]:
        """Return the changes that bring the sources in line with ``override``."""
        return self.sources.changes(self.texts(override))

    def changed_since(self, began: Mapping[str, str], base: PromptOverride) -> Iterator[str]:
        """Yield a line for each source that has changed, with the first difference.

        Args:
            began: the text of each part when the run began.
            base: the overrides then in force; the sources of overridden texts are not known.
        """
        for name in self.sources.texts:
            before, now = began.get(f"section {name}"), self.sources.held(name)
            if before is None or (name,) in base.sections:
                continue
            if (old := self.sources.content(name, {name: before})) != now.old:
                yield f"{now.where}:{difference(old, now.old)}"


def load_texts(name: str, config: TextsConfig, around: Surroundings) -> ProjectPrompt:
    """Read the texts of an agent and return them as a prompt.

    Raises:
        DataFormatError: all faults of the sources, one line each.
    """
    path = ("prompts", name)
    sources: dict[str, Source] = {}
    for text, file in config.files.items():
        file_config = FileConfig(path=file) if isinstance(file, str) else file
        sources[text] = FileSource(
            Path(file_config.path), file_config.frozen or "", file_config.at or ""
        )
    for text, callback in callbacks_of(config, (*path, "callbacks"), around).items():
        if sources.setdefault(text, callback) is not callback:
            raise around.refusal(
                (*path, "callbacks"), f"text `{text}` is one of `files` too; rename one of them"
            )

    def line(text: str, why: str) -> str:
        if text in config.files:
            return around.file.line((*path, "files", text), why)
        return around.file.line((*path, "callbacks"), f"text `{text}`: {why}")

    texts = read_sources(sources, folder=around.folder, line=line)
    with around.placed(path):
        prompt = TextsPrompt.of(
            texts.texts, ns=AGENTS_NS, key=name, placeholders=config.placeholders, takes_cases=True
        )
    return ProjectPrompt(name=name, prompt=prompt, source=TextsSource(texts))


def callbacks_of(
    config: TextsConfig, path: tuple[str, ...], around: Surroundings
) -> Mapping[str, CallbackSource]:
    """Load the callbacks of texts, by name, without calling them.

    Raises:
        DataFormatError: they cannot be loaded.
    """
    if config.callbacks is None:
        return {}
    alone = config.callbacks.rpartition(":")[2].rpartition(".")[2].lower()
    wanted_kind = ObjectKind(
        expected="an object with the functions `read` and `write`, or several of them by name",
        plural="callbacks",
        read=functools.partial(_as_callbacks, alone),
    )
    return around.loaded(path, config.callbacks, wanted_kind)


def _as_callbacks(alone: str, value: object) -> Mapping[str, CallbackSource] | None:
    """Return callbacks by name; a single one is named ``alone``."""
    by_name: Mapping[object, Any] = value if isinstance(value, Mapping) else {alone: value}
    # A class has the functions, but without an instance; a module may have a `read` by chance.
    if isinstance(value, (type, ModuleType)):
        return None
    try:
        sources = {
            str(name): CallbackSource(source.read, source.write) for name, source in by_name.items()
        }
    except (AttributeError, ConfigError):
        return None
    return sources or None


def delivery_of(
    config: str | DeliveryConfig | None,
    prompt: ProjectPrompt,
    around: Surroundings,
    *,
    leave_out: Iterable[Path],
) -> Delivery:
    """Return the delivery of texts to the agent of a project.

    Raises:
        DataFormatError: the texts cannot be delivered in this way.
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
    with around.placed(("delivery",)):
        return FolderCopy(
            source.sources, _copied_folder(config, around), leave_out=tuple(leave_out)
        )


def _copied_folder(config: str | DeliveryConfig | None, around: Surroundings) -> Path:
    return around.folder / (config.folder if isinstance(config, DeliveryConfig) else ".")


def asking(
    project: ProjectConfig,
    prompt: ProjectPrompt,
    around: Surroundings,
    *,
    user: ProviderAdapter | None = None,
    store: PromptOverridesStore | None = None,
) -> AgentAdapter:
    """Return the adapter of the agent of a project. No call is made; secrets need not be set.

    ``store`` may hold an override of the simulated user's meta-prompt.

    Raises:
        ConfigError: the project names no agent.
        DataFormatError: the agent cannot be made, or the texts cannot be delivered to it.
    """
    config = project.agent
    if config is None:
        raise ConfigError("agent: expected one, found none")
    # Runs are left out of copies: they grow, and hold what is expected of the agent.
    delivery = delivery_of(
        project.delivery, prompt, around, leave_out=[around.folder / project.runs]
    )
    names = tuple(section.key for section in prompt.prompt.template.sections)
    with around.placed(("agent",)):
        agent = config.made(around.python, _copied_folder(project.delivery, around))
        agent.check(delivery.kind, names)
    return AgentAdapter(
        agent=agent,
        names=names,
        delivery=delivery,
        on_agent_error=config.on_agent_error,
        user=user,
        max_turns=config.max_turns,
        max_call_cost=config.max_call_cost,
        question=with_stored_overrides(simulated_user(), store),
    )
