"""Overrides, and the revisions that a store keeps of them."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping
from datetime import datetime
from types import GenericAlias
from typing import Any, TypeVar

import attrs

from promptgraft import errors
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, Json, parse_json, shown
from promptgraft.ground.strict import structure
from promptgraft.ground.strict.checks import FINITE
from promptgraft.overrides.parts import KINDS, plain_lists, replacements
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.entry import OTHERS, Entry, SkipReason
from promptgraft.overrides.parts.task_example import (
    AddedTaskExample,
    RemovedTaskExample,
    TaskExampleOverride,
)
from promptgraft.overrides.parts.validation import check_key, check_ns, check_tag, check_text

T = TypeVar("T")

VERSION = 1
"""The version of the format."""

# Cached, because the converter caches a hook for every class that it sees.
_DOCUMENTS: dict[tuple[type, ...], Any] = {}


@attrs.frozen(kw_only=True)
class OverrideDocument:
    """An override as a document holds it, without its entries."""

    version: int
    ns: str
    prompt_key: str
    tag: str


def read_override(text: str | bytes, *, where: str) -> OverrideDocument:
    """Return the document of an override alone; its lists are attributes of their own.

    Raises:
        DataFormatError: naming ``where`` and the place in it.
        StoreError: it has another version.
    """
    plain = parse_json(text, where=where)
    check_version(plain, where)
    document = structure(plain, document_class(OverrideDocument), where=where)
    try:
        check_ns(document.ns)
        check_key(document.prompt_key, "prompt key")
        check_tag(document.tag)
    except errors.InvalidIdentifierError as error:
        raise errors.DataFormatError(f"{where}: {error}") from None
    return document


def entries_in(document: object, *, where: str) -> list[Entry]:
    """Return the checked entries of a document."""
    entries = [
        kind.read(entry, where=where)
        for kind in KINDS.values()
        for entry in getattr(document, kind.listed)
    ]
    for entry in entries:
        try:
            entry.check_address()
            entry.check_texts()
            entry.check_stored(f"{where}: {entry.part}")
        except (errors.InvalidOverrideError, errors.InvalidIdentifierError) as error:
            raise errors.DataFormatError(f"{where}: {error}") from None
    return entries


def document_class(base: type[T]) -> type[T]:
    """Return a subclass of ``base`` with a list for each kind of entry."""
    # The kinds belong to the key, because third parties may register more.
    key = (base, *KINDS.values())
    if key not in _DOCUMENTS:
        lists: dict[str, Any] = {}
        for kind in KINDS.values():
            listed: Any = GenericAlias(tuple, (kind.document or kind, ...))
            lists[kind.listed] = attrs.field(type=listed, default=())
        _DOCUMENTS[key] = attrs.make_class(
            "EntriesDocument", lists, bases=(base,), frozen=True, kw_only=True
        )
    document_type: type[T] = _DOCUMENTS[key]
    return document_type


def check_version(plain: Json, where: str) -> None:
    """Raise a ``StoreError`` if a document has another version."""
    version = plain.get("version") if isinstance(plain, dict) else None
    if type(version) is int and version != VERSION:
        raise errors.StoreError(
            f"{where}: version: expected {VERSION}, found {shown(version)}; "
            "read it with the promptgraft that wrote it, or a newer one"
        )


# Shared, because most kinds are empty in most overrides, and a search creates many thousands.
_NOTHING: FrozenMap[Any, Any] = FrozenMap()


@attrs.frozen
class PromptOverride:
    """All overrides of one prompt under one tag, by kind and key.

    Attributes:
        ns: namespace of the prompt.
        prompt_key: key of the prompt.
        tag: the tag.
        sections: section bodies, by path.
        tool_overrides: descriptions of tools, by name.
        tool_example_overrides: examples of tools, by tool and position.
        task_example_overrides: changes of task examples of the source, by path.
        added_task_examples: task examples that the source does not have, by path.
        removed_task_examples: task examples that are removed, by path.
        output_overrides: descriptions of fields of the answer, by field.
        summaries: summaries of sections, by path.
        visibilities: whether sections and task examples are shown, by path.
        others: entries of kinds that third parties registered, by kind and key.

    Raises:
        InvalidOverrideError: an entry is filed under a key that is not its own.
    """

    ns: str
    prompt_key: str
    tag: str
    sections: Mapping[SectionPath, replacements.SectionOverride] = _NOTHING
    tool_overrides: Mapping[str, replacements.ToolOverride] = _NOTHING
    tool_example_overrides: Mapping[tuple[str, int], replacements.ToolExampleOverride] = _NOTHING
    task_example_overrides: Mapping[SectionPath, TaskExampleOverride] = _NOTHING
    added_task_examples: Mapping[SectionPath, AddedTaskExample] = _NOTHING
    removed_task_examples: Mapping[SectionPath, RemovedTaskExample] = _NOTHING
    output_overrides: Mapping[str, replacements.OutputFieldOverride] = _NOTHING
    summaries: Mapping[SectionPath, replacements.SummaryOverride] = _NOTHING
    visibilities: Mapping[SectionPath, replacements.VisibilityOverride] = _NOTHING
    others: Mapping[tuple[str, Hashable], Entry] = _NOTHING
    _index: Mapping[tuple[type[Entry], Hashable], Entry] = attrs.field(
        init=False, repr=False, eq=False
    )

    def __attrs_post_init__(self) -> None:
        index: dict[tuple[type[Entry], Hashable], Entry] = {}
        for field in _FIELDS:
            filed = getattr(self, field)
            if not isinstance(filed, Mapping):
                raise errors.InvalidOverrideError(
                    f"{field}: expected a mapping by key, found {shown(filed)}"
                )
            if not isinstance(filed, FrozenMap):
                # Maps that are frozen already are shared, not copied.
                for kind in set(map(type, filed.values())):  # few, and its check is slow
                    if not issubclass(kind, Entry) or kind.with_overrides != field:
                        raise errors.InvalidOverrideError(
                            f"{field}: expected overrides of its kind, found a {kind.__name__}"
                        )
                if field == "task_example_overrides":
                    filed = {
                        key: entry if entry.path else attrs.evolve(entry, path=key)
                        for key, entry in filed.items()
                    }
                filed = FrozenMap(filed)
                object.__setattr__(self, field, filed)
            for key, entry in filed.items():
                if key != (own_key := _key(entry)):
                    entry.check_address()
                    raise errors.InvalidOverrideError(
                        f"{entry.part} is filed under {shown(key)}; file it under {shown(own_key)}"
                    )
                index[_place(entry)] = entry
        object.__setattr__(self, "_index", index)

    def __bool__(self) -> bool:
        return bool(self._index)

    def to_json(self) -> str:
        """Return the override as a JSON document: version, address, a list for each kind.

        :meth:`from_json` reads it back, so a store of your own can keep it as text.
        """
        plain = {
            "version": VERSION,
            "ns": self.ns,
            "prompt_key": self.prompt_key,
            "tag": self.tag,
            **plain_lists(self.entries()),
        }
        return json.dumps(plain, indent=2, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "override") -> PromptOverride:
        """Return the override that a document of :meth:`to_json` holds.

        Messages call the document ``where``.

        Raises:
            DataFormatError: naming the place of the fault.
            StoreError: it was written by another version.
        """
        document = read_override(text, where=where)
        address = cls(ns=document.ns, prompt_key=document.prompt_key, tag=document.tag)
        return override_of(document, address, where=where)

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries, in the order of kinds."""
        return tuple(self._index.values())

    def find(self, like: Entry) -> Entry | None:
        """Return the entry with the kind and key of ``like``, or None."""
        return self._index.get(_place(like))

    def undone_by(self, entry: Entry) -> Entry | None:
        """Return the entry that a newer ``entry`` cancels, or None."""
        if not entry.undoes:
            return None
        entries = (indexed for indexed in self._index.values() if indexed.kind == entry.undoes)
        return next((undone for undone in entries if undone.key == entry.key), None)

    def holding(self, entries: Iterable[Entry]) -> PromptOverride:
        """Return an override for the same prompt and tag that holds only ``entries``."""
        kinds: dict[str, Any] = {}
        for entry in entries:
            kinds.setdefault(entry.with_overrides, {})[_key(entry)] = entry
        return PromptOverride(ns=self.ns, prompt_key=self.prompt_key, tag=self.tag, **kinds)

    def merged_with(self, newer: PromptOverride) -> PromptOverride:
        """Return the entries of both; where both replace the same part, ``newer`` wins.

        Descriptions of a tool are merged by field if both were written for the same source.
        """
        if not newer:
            return self
        # Not copied: templates find what they have settled by the identity of the override.
        of_one_tag = (self.ns, self.prompt_key, self.tag) == (newer.ns, newer.prompt_key, newer.tag)
        if not self and of_one_tag:
            return newer
        return self.with_entries(newer.entries())

    def with_entries(self, newer: Iterable[Entry]) -> PromptOverride:
        """Return the override with further entries, merged as by :meth:`merged_with`."""
        merged = {**self._index}
        for entry in newer:
            place = _place(entry)
            older = merged.get(place)
            merged[place] = entry if older is None else entry.over(older)
            if entry.undoes and (undone := self.undone_by(entry)):
                merged.pop(_place(undone), None)
        return self.holding(merged.values())

    def without(self, *entries: Entry) -> PromptOverride:
        """Return the override without the entries that have these kinds and keys."""
        gone = {_place(entry) for entry in entries}
        return self.holding(entry for at, entry in self._index.items() if at not in gone)


_FIELDS = tuple(field.name for field in attrs.fields(PromptOverride) if field.default is _NOTHING)


def _place(entry: Entry) -> tuple[type[Entry], Hashable]:
    return type(entry), entry.key


def _key(entry: Entry) -> Hashable:
    return entry.key if entry.with_overrides != OTHERS else (entry.kind, entry.key)


@attrs.frozen(kw_only=True)
class AppliedOverride:
    """A part whose source was replaced."""

    part: str
    expected_hash: HexDigest


@attrs.frozen(kw_only=True)
class SkippedOverride:
    """A part whose override is stored but was not applied.

    Attributes:
        part: the part as messages name it: ``section policies/refunds``.
        reason: why not.
        expected_hash: hash of the source that the override was written for.
        found_hash: hash of the current source; None if the part is gone.
    """

    part: str
    reason: SkipReason
    expected_hash: HexDigest
    found_hash: HexDigest | None


@attrs.frozen(kw_only=True)
class Provenance:
    """The origin of a stored override.

    Attributes:
        run_id: the optimization run that produced it, if one did.
        note: one line for people.
        scores: names and values, such as ``baseline`` and ``best``.
    """

    run_id: str | None = None
    note: str = ""
    scores: FrozenMap[str, float] = attrs.field(factory=FrozenMap[str, float])


@attrs.frozen(kw_only=True)
class Revision:
    """An immutable state of a tag.

    Attributes:
        id: SHA-256 of everything else in the revision.
        number: counts the writes to the tag, from 1.
        parent: id of the revision that it replaced; None when the tag was empty.
        step: the same for all revisions of one atomic write of several tags; None if it was
            written alone.
        time: when it was written, in UTC.
        provenance: its origin.
        override: its content.
    """

    id: HexDigest
    number: int
    parent: HexDigest | None
    step: HexDigest | None = None
    time: datetime
    provenance: Provenance
    override: PromptOverride


def check_provenance(provenance: Provenance) -> None:
    """Refuse a provenance that could not be read back from a store.

    Raises:
        InvalidOverrideError: a text is not Unicode or too long, or a score is not finite.
    """
    if provenance.run_id is not None:
        check_text(provenance.run_id, "provenance.run_id")
    check_text(provenance.note, "provenance.note")
    for name, score in provenance.scores.items():
        check_text(name, "provenance.scores: name")
        if FINITE.fits(score) is None:
            fault = FINITE.fault(shown(score), score)
            raise errors.InvalidOverrideError(f"provenance.scores: {shown(name)}: {fault}")


def override_of(document: object, address: PromptOverride, *, where: str) -> PromptOverride:
    """Return the override that a document holds, for the prompt and tag of ``address``."""
    entries = entries_in(document, where=where)
    override = address.holding(entries)
    if len(override.entries()) != len(entries):
        raise errors.DataFormatError(f"{where}: one part occurs twice")
    return override


def read_entries(data: object, address: PromptOverride, *, where: str) -> PromptOverride:
    """Return the override that ``data`` holds, for the prompt and tag of ``address``."""
    return override_of(structure(data, document_class(object), where=where), address, where=where)
