"""Meta-prompts as Markdown files: written out, edited by the user, and read back.

A file records the hash of each shipped text that it was written from, so that an edit of an older
shipped text is never applied to the current one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from promptgraft.agents.user import simulated_user
from promptgraft.algorithms import shipped_questions
from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.ground.serde import HexDigest, did_you_mean
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.ground.yaml_text import Note
from promptgraft.overrides import PromptOverride, SectionOverride
from promptgraft.overrides.parts.descriptors import hash_section
from promptgraft.overrides.resolution import checked_entry, resolve_override
from promptgraft.overrides.store import DEFAULT_TAG, OverrideAddress
from promptgraft.prompt import MarkdownSection, PromptTemplate

Template = PromptTemplate[object]

SHIPPED: Mapping[str, Template] = {**shipped_questions(), simulated_user().key: simulated_user()}
"""The meta-prompts by name."""
_NAMESPACES = tuple(dict.fromkeys(template.ns for template in SHIPPED.values()))

_FENCE = "---"
_MARKER = re.compile(r"# .*\{#([^{}]*)\}[ \t]*")
_HELP = (
    "# `$name` stands for a value that is filled in; keep each one. Text may be changed in any\n"
    "# other way, below the headings with a `{#key}`. The hashes tell what it was written from.\n"
)


@attrs.frozen(kw_only=True)
class MetaCopy:
    """A copy of a meta-prompt in a user's file.

    Attributes:
        template: the shipped meta-prompt.
        shipped: for each section, the hash of the shipped text at the time of writing.
        texts: the text of each section.
    """

    path: Path
    template: Template
    shipped: Mapping[str, str]
    texts: Mapping[str, str]

    @property
    def outdated(self) -> tuple[str, ...]:
        """The sections whose shipped text has changed since the file was written."""
        return tuple(
            section.key
            for section in self.template.sections
            if self.shipped[section.key] != _hash(section)
        )

    @property
    def edits(self) -> PromptOverride:
        """The edited sections, as overrides of the texts that the file was written from."""
        return empty(self.template).holding(
            SectionOverride(
                path=(section.key,),
                expected_hash=HexDigest(self.shipped[section.key]),
                body=self.texts[section.key],
            )
            for section in self.template.sections
            if hash_section(self.texts[section.key], section.source.syntax)
            != self.shipped[section.key]
        )


def empty(template: Template) -> PromptOverride:
    """Return an empty override under the tag that runs use."""
    return OverrideAddress(template.ns, template.key, DEFAULT_TAG).empty()


def _hash(section: MarkdownSection) -> HexDigest:
    return hash_section(section.source.body, section.source.syntax)


def meta_text(template: Template, stored: PromptOverride | None) -> str:
    """Return a meta-prompt as a file, with the overrides in force; stale ones are ignored."""
    # Quoted, because a hash of digits, or of digits and one `e`, would be a number in YAML.
    in_force = resolve_override(template.descriptor, stored).sections
    hashes = "".join(f'  {section.key}: "{_hash(section)}"\n' for section in template.sections)
    head = f"{_FENCE}\n{_HELP}prompt: {template.ns}/{template.key}\nshipped:\n{hashes}{_FENCE}\n"
    sections = []
    for section in template.sections:
        override = in_force.get((section.key,))
        body = section.source.body if override is None else override.body
        sections.append(f"\n# {section.title} {{#{section.key}}}\n\n{body}\n")
    return head + "".join(sections)


def read_copies(folder: Path) -> tuple[MetaCopy, ...]:
    """Read all copies of meta-prompts in ``folder``; other Markdown files are ignored.

    Raises:
        DataFormatError: a line for each fault of each file; or there is no copy.
    """
    copies: list[MetaCopy] = []
    faults: list[str] = []
    for path in sorted(folder.glob("*.md")):
        try:
            copy = _read(path)
        except DataFormatError as error:
            faults.extend(error.faults)
            continue
        twin = next(
            (
                copy_prompt
                for copy_prompt in copies
                if copy and copy_prompt.template is copy.template
            ),
            None,
        )
        if copy and twin:
            faults.append(f"{path}: a copy of the same meta-prompt as {twin.path}; keep one")
        elif copy:
            copies.append(copy)
    if not copies and not faults:
        faults.append(
            f"{folder}: expected copies of meta-prompts, found none; `promptgraft meta write "
            f"{folder}` makes them"
        )
    if faults:
        raise DataFormatError.of(faults)
    return tuple(copies)


def checked_edits(copies: Iterable[MetaCopy]) -> tuple[PromptOverride, ...]:
    """Return the edits of each copy as overrides for a store.

    Raises:
        DataFormatError: a line for each section that was edited in a copy of an older shipped
            text, lost a placeholder, or is empty.
    """
    faults: list[str] = []
    checked = []
    for copy in copies:
        sections = []
        for entry in copy.edits.sections.values():
            where = f"{copy.path}: section `{entry.path[0]}`"
            if entry.path[0] in copy.outdated:
                faults.append(
                    f"{where}: the shipped text has changed since the copy was written; write "
                    "new copies to another folder with `promptgraft meta write` and carry the "
                    "edit over"
                )
                continue
            try:
                sections.append(checked_entry(copy.template.descriptor, entry))
            except InvalidOverrideError as error:
                faults.append(f"{copy.path}: {error}")
        checked.append(empty(copy.template).holding(sections))
    if faults:
        raise DataFormatError.of(faults)
    return tuple(checked)


def _read(path: Path) -> MetaCopy | None:
    """Read a copy; return None for a Markdown file of another kind."""
    try:
        text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError:
        raise DataFormatError(f"{path}: expected UTF-8; save the file again") from None
    if not text.startswith(f"{_FENCE}\n"):
        return None
    head, separator, body = text.removeprefix(f"{_FENCE}\n").partition(f"\n{_FENCE}\n")
    if not separator:
        raise DataFormatError(f"{path}:1: expected a line `---` that ends the front matter")
    source = Source(str(path))
    # The empty line stands for the fence, so that faults name the lines of the file.
    source.take_yaml(f"\n{head}")
    template = _named_template(source.root.member("prompt"))
    if template is None:
        source.raise_all()
        return None
    hashes = dict(_hashes(template, source.root.member("shipped")))
    texts = dict(_sections(template, body, head.count("\n") + 4, source.note))
    source.raise_all()
    return MetaCopy(path=path, template=template, shipped=hashes, texts=texts)


def _named_template(name: Node) -> Template | None:
    ns, _, key = name.value.rpartition("/") if isinstance(name.value, str) else ("", "", "")
    if ns not in _NAMESPACES:
        return None
    # Another key in our namespace is a misspelling; any other namespace is not ours.
    template = SHIPPED.get(key)
    if template is None or template.ns != ns:
        name.fault(
            f"there is no meta-prompt `{key}`{did_you_mean(key, list(SHIPPED))}; "
            f"there are {', '.join(SHIPPED)}"
        )
        return None
    return template


def _hashes(template: Template, shipped: Node) -> Iterator[tuple[str, str]]:
    for section in template.sections:
        shipped_section = shipped.member(section.key)
        if isinstance(shipped_section.value, str):
            yield section.key, shipped_section.value
        else:
            mend = "; write the copies again with `promptgraft meta write`"
            shipped_section.expected("the hash of the shipped text", mend)


def _sections(template: Template, body: str, line: int, note: Note) -> Iterator[tuple[str, str]]:
    """Yield the key and text of each section; ``line`` is the line number of the body."""
    keys = [section.key for section in template.sections]
    keys_seen: set[str] = set()
    for key, text, at in _cut(body, line):
        if key in keys_seen:
            note(at, f"section `{key}` appears twice; remove one of them")
        elif key in keys:
            keys_seen.add(key)
            yield key, text
        elif key:
            near = did_you_mean(key, keys)
            there = ", ".join(keys)
            note(at, f"section `{key}` is not in the meta-prompt{near}; it has {there}")
        elif text:
            note(at, "text before the first heading belongs to no section; move it into one")
    for key in keys:
        if key not in keys_seen:
            mend = f"restore its heading `# … {{#{key}}}` and its text"
            note(0, f"section `{key}` is missing; {mend}")


def _cut(body: str, line: int) -> Iterator[tuple[str, str, int]]:
    """Split a body at headings with a key; yield the key, text and line of each piece."""
    key, begin, lines = "", line, list[str]()
    for at, text in enumerate(body.split("\n"), start=line):
        if match := _MARKER.fullmatch(text):
            yield key, "\n".join(lines).strip("\n"), begin
            key, begin, lines = match[1], at, []
        else:
            lines.append(text)
    yield key, "\n".join(lines).strip("\n"), begin
