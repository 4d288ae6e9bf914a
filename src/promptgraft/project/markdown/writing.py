"""From an override to changes of the files that a prompt was read from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.overrides.body import Piece, Slot
from promptgraft.overrides.effective import (
    effective_field,
    effective_task_examples,
    effective_tool,
)
from promptgraft.overrides.entries import section_part, show_path, tool_part
from promptgraft.overrides.resolution import resolve_override
from promptgraft.overrides.types import PromptOverride
from promptgraft.project.markdown.assembly import EXAMPLES, TOOLS
from promptgraft.project.markdown.loading import Loaded, load_texts
from promptgraft.project.markdown.python import Python
from promptgraft.project.markdown.section_edits import with_sections, within
from promptgraft.project.markdown.value_edits import output_splices, with_examples, with_tools
from promptgraft.project.sources import FileChange
from promptgraft.prompt.syntax import Source
from promptgraft.prompt.template import PromptTemplate

_TRIMS = re.compile(r"\A\{[{%]-|-[}%]\}\Z")


def rewritten(loaded: Loaded, override: PromptOverride, python: Python) -> tuple[FileChange, ...]:
    """Return the changes that make the files of a prompt say what ``override`` says.

    The files as they would be are read again: a change that does not mean just what the
    override means is refused.

    Raises:
        ConfigError: a part of the override cannot be written back.
    """
    fresh = resolve_override(loaded.template.descriptor, override).fresh
    if fresh is None:
        return ()
    after = {loaded.path: with_sections(loaded, fresh, tuple(output_splices(loaded, fresh)))}
    if TOOLS in loaded.beside:
        after[loaded.beside[TOOLS].path] = with_tools(loaded, fresh)
    if EXAMPLES in loaded.beside:
        after[loaded.beside[EXAMPLES].path] = with_examples(loaded, fresh)
    before = loaded.texts
    changes = {path: text for path, text in after.items() if text != before[path]}
    _check(loaded, fresh, {**before, **changes}, python)
    return tuple(FileChange(path, before[path], text) for path, text in changes.items())


def _check(loaded: Loaded, fresh: PromptOverride, texts: dict[Path, str], python: Python) -> None:
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
    for path, section in template.walked:
        override = fresh.sections.get(path) if fresh else None
        source = section.source
        pieces = source.pieces if override is None else source.parse(override.body)
        meaning = tuple(_meaning(within(pieces), source))
        yield section_part(path), (section.title, section.overridable, meaning)
    for tool in descriptor.tools:
        yield tool_part(tool.name), (effective_tool(tool, fresh), tool.overridable)
    for container in descriptor.containers:
        for key, example in effective_task_examples(descriptor, container.path, fresh):
            yield f"task example {show_path((*container.path, key))}", example
    for field in descriptor.output_fields:
        override_of_field = fresh.output_overrides.get(field.field) if fresh else None
        yield f"output field {field.field}", effective_field(field, override_of_field)


def _meaning(pieces: Sequence[Piece], source: Source) -> Iterator[Piece]:
    """Yield text, and slots by what they stand for; their names depend on their order."""
    for piece in pieces:
        if isinstance(piece, Slot) and piece.name in source.opaque:
            yield Slot(_TRIMS.sub(lambda trim: trim[0].replace("-", ""), source.opaque[piece.name]))
        else:
            yield piece
