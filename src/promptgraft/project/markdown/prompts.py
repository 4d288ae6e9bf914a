"""Prompts in Markdown files, and the way back for what was found to be better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.overrides.resolution import effective_parts, resolve_override
from promptgraft.overrides.types import PromptOverride
from promptgraft.parts.body import Piece, Slot
from promptgraft.parts.descriptors import section_part, show_path, tool_part
from promptgraft.project.files import FileChange, PromptSource
from promptgraft.project.markdown.loading import EXAMPLES, TOOLS, Loaded, load_texts
from promptgraft.project.markdown.section_edits import with_sections, within
from promptgraft.project.markdown.value_edits import output_splices, with_examples, with_tools
from promptgraft.project.python_source import PythonSource
from promptgraft.prompt.syntax import Source
from promptgraft.prompt.template import Prompt, PromptTemplate

_TRIMS = re.compile(r"\A\{[{%]-|-[}%]\}\Z")


@attrs.frozen
class MarkdownPrompt:
    """A prompt that stands in a Markdown file.

    Attributes:
        prompt: the prompt, without a store.
        source: its files.
    """

    prompt: Prompt[object]
    source: PromptSource


@attrs.frozen
class _MarkdownSource:
    """The Markdown file of a prompt, and the YAML files beside it."""

    _loaded: Loaded
    _python: PythonSource

    @property
    def files(self) -> tuple[Path, ...]:
        return tuple(self._loaded.texts)

    def rewritten(self, override: PromptOverride) -> tuple[FileChange, ...]:
        """Return the changes that make the files say what ``override`` says.

        The files as they would be are read again: a change that does not mean just what the
        override means is refused.
        """
        loaded = self._loaded
        fresh = resolve_override(loaded.template.descriptor, override).fresh
        if fresh is None:
            return ()
        parts = effective_parts(loaded.template.descriptor, fresh)
        after = {loaded.path: with_sections(loaded, fresh, tuple(output_splices(loaded, parts)))}
        if TOOLS in loaded.beside:
            after[loaded.beside[TOOLS].path] = with_tools(loaded, parts)
        if EXAMPLES in loaded.beside:
            after[loaded.beside[EXAMPLES].path] = with_examples(loaded, parts)
        before = loaded.texts
        changes = {path: text for path, text in after.items() if text != before[path]}
        _check(loaded, fresh, {**before, **changes}, self._python)
        return tuple(FileChange(path, before[path], text) for path, text in changes.items())


def load_markdown_prompt(path: Path) -> MarkdownPrompt:
    """Return the prompt that a Markdown file holds, with the tools and examples beside it.

    Raises:
        DataFormatError: with every fault of all its files, one line each.
    """
    python = PythonSource(path.parent)
    loaded = load_texts(path, {}, python)
    return MarkdownPrompt(Prompt(loaded.template), _MarkdownSource(loaded, python))


def _check(
    loaded: Loaded, fresh: PromptOverride, texts: dict[Path, str], python: PythonSource
) -> None:
    mend = "this cannot be written back; write it by hand"
    try:
        written = load_texts(loaded.path, texts, python).template
    except DataFormatError as error:
        raise ConfigError(f"{error.faults[0]}; {mend}") from None
    wanted = dict(_meanings(loaded.template, fresh))
    found = dict(_meanings(written, None))
    for part in [*wanted, *found]:
        if wanted.get(part) != found.get(part):
            raise ConfigError(f"{loaded.path}: {part} would not read back the same; {mend}")
    if list(wanted) != list(found):
        raise ConfigError(f"{loaded.path}: its parts would read back in another order; {mend}")


def _meanings(
    template: PromptTemplate[object], fresh: PromptOverride | None
) -> Iterator[tuple[str, object]]:
    """Yield the parts of a prompt, as messages name them, with all that a model is shown."""
    descriptor = template.descriptor
    parts = effective_parts(descriptor, fresh)
    for path, section in template.walked:
        body, source = parts.bodies.get(path), section.source
        pieces = source.pieces if body is None else source.parse(body)
        meaning = tuple(_meaning(within(pieces), source))
        yield section_part(path), (section.title, section.overridable, meaning)
    for tool in descriptor.tools:
        yield tool_part(tool.name), (parts.tools[tool.name], tool.overridable)
    for container, examples in parts.examples.items():
        for key, example in examples.items():
            yield f"task example {show_path((*container, key))}", example
    for name, field in parts.fields.items():
        yield f"output field {name}", field


def _meaning(pieces: Sequence[Piece], source: Source) -> Iterator[Piece]:
    """Yield text, and slots by what they stand for; their names depend on their order."""
    for piece in pieces:
        if isinstance(piece, Slot) and piece.name in source.opaque:
            yield Slot(_TRIMS.sub(lambda trim: trim[0].replace("-", ""), source.opaque[piece.name]))
        else:
            yield piece
