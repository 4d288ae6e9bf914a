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
from promptgraft.parts.descriptors import OutputFieldDescriptor, section_part, show_path, tool_part
from promptgraft.parts.entry import EffectiveParts
from promptgraft.parts.examples import WorkedExample, plain_call
from promptgraft.project.files import FileChange, PromptSource
from promptgraft.project.markdown.loading import DEFAULT_NAME, EXAMPLES, TOOLS, Loaded, load_texts
from promptgraft.project.markdown.section_edits import with_sections, within
from promptgraft.project.markdown.values import nested_name
from promptgraft.project.markdown.yaml_edits import changed, with_items
from promptgraft.project.python_source import PythonSource
from promptgraft.prompt.syntax import Source
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.serde import Json, parse_json
from promptgraft.strict.nodes import Node
from promptgraft.yaml_text import YamlPath

_TRIMS = re.compile(r"\A\{[{%]-|-[}%]\}\Z")


@attrs.frozen
class MarkdownPrompt:
    """A prompt that stands in a Markdown file, without a store, and its files."""

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
        after = {loaded.path: with_sections(loaded, fresh, _with_output(loaded, parts))}
        if TOOLS in loaded.beside:
            after[loaded.beside[TOOLS].path] = _with_tools(loaded, parts)
        if EXAMPLES in loaded.beside:
            after[loaded.beside[EXAMPLES].path] = _with_examples(loaded, parts)
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


def _with_output(loaded: Loaded, parts: EffectiveParts) -> str | None:
    """Return the front matter as an override leaves it: with what it says of the answer."""
    text = loaded.outline.front
    places = dict(_places(loaded))
    source = EffectiveParts.of_source(loaded.template.descriptor).fields
    for field in loaded.template.descriptor.output_fields:
        now = parts.fields[field.field]
        if text is None or now == source[field.field]:
            continue
        if field.field not in places:
            said = f"output field `{field.field}` is written in Python; change it there"
            raise ConfigError(loaded.front.line(("output",), said))
        text = _with_field(text, places[field.field].path, field, now)
    return text


def _places(loaded: Loaded) -> Iterator[tuple[str, Node]]:
    """Yield each field of the answer that the front matter describes, by its key."""
    output = loaded.front.root.member("output")
    if "choices" in output.members():
        yield loaded.template.descriptor.output_fields[0].field, output
    else:
        yield from _fields(output, DEFAULT_NAME)


def _fields(owner: Node, name: str) -> Iterator[tuple[str, Node]]:
    own = owner.member("name").value
    name = own if isinstance(own, str) else name
    for field, node in owner.member("fields").members().items():
        yield f"{name}.{field}", node
        yield from _fields(node, nested_name(name, field))


def _with_field(
    text: str, path: YamlPath, field: OutputFieldDescriptor, now: OutputFieldDescriptor
) -> str:
    text = changed(text, (*path, "description"), field.description, now.description)
    text = changed(text, (*path, "aliases"), list(field.aliases), list(now.aliases))
    before: dict[str, Json] = {option: field.values.get(option) for option in field.options}
    after: dict[str, Json] = {option: now.values.get(option) for option in field.options}
    return changed(text, (*path, "choices"), before, after)


def _with_tools(loaded: Loaded, parts: EffectiveParts) -> str:
    text = loaded.beside[TOOLS].text
    for index, tool in enumerate(loaded.template.descriptor.tools):
        now, here = parts.tools[tool.name], (TOOLS, index)
        text = changed(text, (*here, "description"), tool.description, now.description)
        for name, said in tool.param_descriptions.items():
            place = (*here, "parameters", name, "description")
            text = changed(text, place, said, now.param_descriptions[name])
        for at, (before, after) in enumerate(zip(tool.examples, now.examples, strict=True)):
            text = changed(text, (*here, "examples", at), plain_call(before), plain_call(after))
    return text


def _with_examples(loaded: Loaded, parts: EffectiveParts) -> str:
    beside = loaded.beside[EXAMPLES]
    items: list[tuple[Json, Json]] = []
    known = {found.path: found for found in loaded.template.descriptor.task_examples}
    for path, found in known.items():
        frozen: dict[str, Json] = {} if found.overridable else {"frozen": True}
        now = parts.examples[path[:-1]].get(path[-1])
        after = {**_example(path[-1], now), **frozen} if now else None
        items.append(({**_example(path[-1], found.example), **frozen}, after))
    added: list[Json] = [
        {name: said for name, said in _example(key, example).items() if said != []}
        for key, example in parts.examples[beside.section].items()
        if (*beside.section, key) not in known
    ]
    return with_items(beside.text, (EXAMPLES,), items, added)


def _example(key: str, example: WorkedExample) -> dict[str, Json]:
    return {
        "key": key,
        "objective": example.objective,
        "steps": [{"tool": step.tool_name, **plain_call(step)} for step in example.steps],
        "outcome": parse_json(example.outcome_json, where="outcome"),
    }


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
