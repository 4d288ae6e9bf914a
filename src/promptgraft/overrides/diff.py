"""What overrides change, line by line; pure functions for people and for reviews."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.overrides.checks import skip_reason
from promptgraft.overrides.entries import Entry, RemovedTaskExample, SectionOverride
from promptgraft.overrides.parts import one_line
from promptgraft.overrides.sources import example_entry, source_entries
from promptgraft.overrides.types import PromptLike, PromptOverride, SkipReason
from promptgraft.serde import parse_json

_NO_NEWLINE = "\n\\ No newline at end of text\n"


@attrs.frozen(kw_only=True)
class PartDiff:
    """How one part of a prompt changes.

    Attributes:
        part: the part, as messages write it: ``section policies/refunds``.
        before: its text before; None when there was none.
        after: its text after; None when there is none.
        text: a unified diff of the two, empty when they are equal.
        state: why the override is not applied to today's source; None when it is applied, or
            when two revisions are compared.
    """

    part: str
    before: str | None
    after: str | None
    text: str
    state: SkipReason | None = None


def diff_bodies(before: str, after: str, *, part: str) -> str:
    """Return a unified diff of two bodies whose headers name ``part``; empty when equal."""
    if before == after:
        return ""
    return "".join(_diff_lines(_lines(before), _lines(after), part))


def diff_override(prompt: PromptLike, override: PromptOverride | None) -> tuple[PartDiff, ...]:
    """Compare today's source with each entry of ``override``, in the order of the prompt.

    Entries for parts that the prompt no longer has come last, with nothing before.

    Raises:
        InvalidOverrideError: the override is for another prompt.
    """
    if override is None:
        return ()
    descriptor = prompt.descriptor
    if (override.ns, override.prompt_key) != (descriptor.ns, descriptor.key):
        raise InvalidOverrideError(
            f"the override is for prompt `{override.ns}/{override.prompt_key}`, the source is "
            f"`{descriptor.ns}/{descriptor.key}`; compare those of one prompt"
        )
    order = {
        entry.part: position for position, entry in enumerate(source_entries(prompt, fixed=True))
    }
    entries = sorted(override.entries(), key=lambda entry: order.get(entry.part, len(order)))
    return tuple(
        _diff(
            entry.part,
            _source_text(prompt, entry),
            show_entry(entry),
            skip_reason(descriptor, entry),
        )
        for entry in entries
    )


def diff_revisions(before: PromptOverride, after: PromptOverride) -> tuple[PartDiff, ...]:
    """Compare the entries of two overrides, by part; entries that are equal are left out.

    An entry whose text is the same but was written for another source has an empty text.
    """
    older = {entry.part: entry for entry in before.entries()}
    newer = {entry.part: entry for entry in after.entries()}
    return tuple(
        _diff(part, _shown(older.get(part)), _shown(newer.get(part)), None)
        for part in sorted({*older, *newer})
        if older.get(part) != newer.get(part)
    )


def show_entry(entry: Entry) -> str:
    """Return what an override says, as text for people: a body, or its fields line by line."""
    if isinstance(entry, SectionOverride):
        return entry.body
    said = {
        name: value
        for name, value in attrs.asdict(entry, recurse=False).items()
        if name not in _IDENTIFYING and value not in _UNSAID
    }
    return "\n".join(f"{name}: {_show_value(name, value)}" for name, value in said.items())


# No aliases at all is something to say, and no mapping.
_UNSAID: tuple[object, ...] = (None, {})

_IDENTIFYING = {
    "path",
    "name",
    "tool_name",
    "example_index",
    "expected_hash",
    "container_path",
    "example_key",
    "field",
}


def _show_value(name: str, value: object) -> str:
    if name == "steps_json" and isinstance(value, str):
        return json.dumps(parse_json(value, where=name), indent=2, ensure_ascii=False)
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return "".join(
            f"\n  {key}: {text if isinstance(text, str) else one_line(text)}"
            for key, text in value.items()
        )
    return one_line(value)


def _source_text(prompt: PromptLike, entry: Entry) -> str | None:
    """Return the source of what an entry replaces, limited to the fields that it replaces."""
    if isinstance(entry, RemovedTaskExample):
        removed = prompt.descriptor.task_example(entry.path)
        return show_entry(example_entry(removed)) if removed else None
    for source in source_entries(prompt, fixed=True):
        if source.part == entry.part:
            return show_entry(_limited(source, entry))
    return None


def _limited(source: Entry, entry: Entry) -> Entry:
    kept = attrs.asdict(entry, recurse=False)
    return attrs.evolve(
        source,
        **{
            name: value if kept[name] not in _UNSAID else kept[name]
            for name, value in attrs.asdict(source, recurse=False).items()
        },
    )


def _diff(part: str, before: str | None, after: str | None, state: SkipReason | None) -> PartDiff:
    text = diff_bodies(before or "", after or "", part=part)
    return PartDiff(part=part, before=before, after=after, text=text, state=state)


def _shown(entry: Entry | None) -> str | None:
    return None if entry is None else show_entry(entry)


def _lines(text: str) -> list[str]:
    # Not splitlines: a form feed or a line separator is a character of its line.
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _diff_lines(before: list[str], after: list[str], part: str) -> Iterator[str]:
    for line in difflib.unified_diff(before, after, f"{part} (before)", f"{part} (after)"):
        yield line if line.endswith("\n") else line + _NO_NEWLINE
