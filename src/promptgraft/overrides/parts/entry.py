"""The base class of every kind of override, and the parts of a prompt that overrides change.

A kind is a subclass of :class:`Entry` with everything that stores, rendering and diffs need, and
an item of :data:`promptgraft.overrides.parts.KINDS`. Invalid content raises
``InvalidOverrideError``; content that no store writes raises ``DataFormatError``, beginning with
``where``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self, TypeVar

import attrs

from promptgraft.errors import DataFormatError, InvalidOverrideError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, Json, shown, unstructure
from promptgraft.overrides.parts.descriptors import (
    OutputFieldDescriptor,
    PromptDescriptor,
    PromptLike,
    SectionPath,
    SectionVisibility,
    ToolDescriptor,
)
from promptgraft.overrides.parts.examples import WorkedExample
from promptgraft.overrides.parts.validation import check_path, check_text

K = TypeVar("K")
V = TypeVar("V")


@attrs.frozen(kw_only=True)
class EffectiveParts:
    """The parts of a prompt with overrides applied; overrides apply themselves.

    Attributes:
        bodies: the replaced bodies of sections.
        summaries: the replaced summaries of sections.
        tools: all tools by name, as they are described to a model.
        examples: the task examples by key, for each section that holds some.
        fields: the fields of the answer by key, as they are described to a model.
        visibility: how sections and task examples are shown, by path; full for those without.
    """

    bodies: dict[SectionPath, str] = attrs.field(factory=dict, hash=False)
    summaries: dict[SectionPath, str] = attrs.field(factory=dict, hash=False)
    tools: dict[str, ToolDescriptor] = attrs.field(hash=False)
    examples: dict[SectionPath, dict[str, WorkedExample]] = attrs.field(hash=False)
    fields: dict[str, OutputFieldDescriptor] = attrs.field(hash=False)
    visibility: dict[SectionPath, SectionVisibility] = attrs.field(factory=dict, hash=False)

    def visibility_of(self, path: SectionPath) -> SectionVisibility:
        """Return how a section or a task example is shown, whatever is above it."""
        return self.visibility.get(path, SectionVisibility.FULL)

    def hides(self, path: SectionPath) -> bool:
        """Return whether a section or a task example is not shown, whatever is above it."""
        return self.visibility.get(path) is SectionVisibility.HIDDEN

    def shown_examples(self, container: SectionPath) -> dict[str, WorkedExample]:
        """Return the task examples of a section that are shown while it is, by key."""
        examples = self.examples[container].items()
        return {key: example for key, example in examples if not self.hides((*container, key))}

    @classmethod
    def of_source(cls, descriptor: PromptDescriptor) -> EffectiveParts:
        """Return the parts of the source."""
        examples: dict[SectionPath, dict[str, WorkedExample]] = {
            container.path: {} for container in descriptor.containers
        }
        for example in descriptor.task_examples:
            examples[example.path[:-1]][example.path[-1]] = example.example
        return cls(
            tools={tool.name: tool for tool in descriptor.tools},
            examples=examples,
            fields={field.field: field for field in descriptor.output_fields},
            visibility=descriptor.not_in_full,
        )


UNBOUND = HexDigest("")
"""The expected hash of an entry that is not bound to a source yet."""

OTHERS = "others"
"""The field of ``PromptOverride`` for entries of kinds that are not built in."""

_HASH = re.compile(r"[0-9a-f]{64}")

LabelledTexts = Iterator[tuple[str, str | None]]
"""The texts of an override with their labels; None for texts that keep the source's."""


class SkipReason(StrEnum):
    """Why a stored override was not applied."""

    STALE = "stale"
    UNKNOWN_PART = "unknown part"
    NOT_OVERRIDABLE = "not overridable"
    LOST_PLACEHOLDER = "lost placeholder"
    KEY_TAKEN = "key taken by the source"
    NAME_TAKEN = "name taken by another field"


class SourcePart(Protocol):
    """The source of the part that an override replaces."""

    @property
    def content_hash(self) -> HexDigest:
        """Hash of its source."""
        ...

    @property
    def overridable(self) -> bool:
        """Whether the author allows overrides."""
        ...


@attrs.frozen
class PartSource:
    """A source that has no descriptor of its own."""

    content_hash: HexDigest
    overridable: bool


@attrs.frozen(kw_only=True)
class Entry(ABC):
    """An override of one part: an immutable attrs class, bound to the hash of its source.

    Attributes:
        expected_hash: the content hash of the source that it was written for. Kinds declare it
            again to fix its position in documents.
        kind: the prefix of names of such parts: ``tool example``.
        replaces: the kind of part that it replaces, as messages name it.
        with_overrides: the field of ``PromptOverride`` that holds entries of the kind.
        listed: the key under which documents list them.
        document: the class of an entry in a document; None for the entry's own.
        is_text: whether it is one text, rather than several fields.
        undoes: the kind whose entry of the same key is cancelled by a newer one of this kind.
    """

    expected_hash: HexDigest

    kind: ClassVar[str]
    replaces: ClassVar[str]
    with_overrides: ClassVar[str] = OTHERS
    listed: ClassVar[str]
    document: ClassVar[type | None] = None
    is_text: ClassVar[bool] = False
    undoes: ClassVar[str] = ""

    @property
    @abstractmethod
    def key(self) -> str | tuple[str | int, ...]:
        """Its key within its kind; keys of a kind can be sorted."""

    @property
    def name(self) -> str:
        """The part without its kind: ``policies/refunds``."""
        return "/".join(map(str, self.key)) if isinstance(self.key, tuple) else str(self.key)

    @property
    def part(self) -> str:
        """The part as messages name it: ``section policies/refunds``."""
        return f"{self.kind} {self.name}"

    @property
    def replaced(self) -> str:
        """The name of the replaced part, without its kind."""
        return self.name

    @property
    def target(self) -> str:
        """The replaced part, as messages name it."""
        return f"{self.replaces} {self.replaced}"

    @property
    def owner(self) -> str | None:
        """The section or tool that shows the part to a model; None for the answer's."""
        return self.target

    # The source.

    @classmethod
    @abstractmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        """Yield the names of the parts that overrides of the kind may replace."""

    @abstractmethod
    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        """Return the source of the part that it replaces; None if the prompt has none."""

    def needed(self, descriptor: PromptDescriptor) -> str:
        """Return why it may not be replaced although its author allows that; empty if it may."""
        return ""

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[Self]:
        """Yield the source of every part that is not empty, as an override."""
        return iter(())

    def counterpart(self, prompt: PromptLike) -> Entry | None:
        """Return the source of the replaced part, as an override; None if there is none."""
        return next((source for source in self.sources(prompt) if source.key == self.key), None)

    def is_same_in(self, prompt: PromptLike) -> bool:
        """Return whether the source has the same text, as after an override was written back."""
        source = self.counterpart(prompt)
        # Files may have more or fewer blank lines around a text.
        return source is not None and self.show_of(source).strip() == self.show().strip()

    # Checks.

    def check_address(self) -> None:
        """Refuse an address that cannot name a part of any prompt.

        Raises:
            InvalidOverrideError, InvalidIdentifierError: saying what is expected.
        """
        parts = self.key if isinstance(self.key, tuple) else (self.key,)
        if not all(isinstance(part, str | int) for part in parts):
            raise InvalidOverrideError(
                f"{self.kind}: expected the name of one, found {shown(self.key)}"
            )

    def checked(self, descriptor: PromptDescriptor) -> Self:
        """Return the entry with its JSON in one line and defaults filled in.

        Raises:
            InvalidOverrideError, DataFormatError: its content does not fit the prompt.
        """
        return self

    def check_texts(self) -> None:
        """Refuse a text that UTF-8 cannot encode or that is too long."""
        for text in _texts_in(self):
            check_text(text, self.part)

    def misfit(self, descriptor: PromptDescriptor) -> SkipReason | None:
        """Return why it does not apply although its source is unchanged; None if it does."""
        return None

    def claims(self) -> Mapping[Hashable, str]:
        """Return the names that other entries of the prompt may not use, by normalized form."""
        return {}

    # Effects.

    @abstractmethod
    def apply(self, parts: EffectiveParts) -> None:
        """Apply the entry to ``parts``."""

    def over(self, older: Self) -> Self:
        """Return the combination with an older entry; the newer one wins."""
        return self

    # How it is read by people.

    def as_written(self, prompt: PromptLike) -> Self:
        """Return it with its text as the author of the prompt would write it, to be shown."""
        return self

    @abstractmethod
    def labelled_texts(self) -> LabelledTexts:
        """Yield its texts with their labels."""

    def texts(self) -> Mapping[str, str]:
        """Return its texts by label, without those that keep the source's."""
        return {label: text for label, text in self.labelled_texts() if text is not None}

    def show(self) -> str:
        """Return its content: a text, or fields line by line; empty for a removal."""
        return self._shown(self.texts())

    def show_of(self, source: Entry) -> str:
        """Return the content of ``source``, the source of its part, that it replaces."""
        return self._shown(
            {label: text for label, text in source.texts().items() if self.is_about(label)}
        )

    def is_about(self, label: str) -> bool:
        """Return whether it replaces the text of that label."""
        return label in self.texts()

    def _shown(self, texts: Mapping[str, str]) -> str:
        if self.is_text:
            return "".join(texts.values())
        # Indented, so that no line of a text can be mistaken for a field.
        return "\n".join(f"{label}: {text}".replace("\n", "\n  ") for label, text in texts.items())

    # How it is stored.

    def plain(self) -> dict[str, Json]:
        """Return it as plain data."""
        return {name: unstructure(value) for name, value in self.stored_fields().items()}

    def stored_fields(self) -> dict[str, Any]:
        """Return its fields in the form of documents."""
        return attrs.asdict(self, recurse=False)

    @classmethod
    def read(cls, document: Any, *, where: str) -> Self:
        """Return the entry of a ``document`` instance."""
        assert isinstance(document, cls)  # noqa: S101 - unless a kind has a document of its own
        return document

    def check_stored(self, where: str) -> None:
        """Refuse content that no store writes, whatever the prompt."""
        check_hash(self.expected_hash, f"{where}: expected_hash")


@attrs.frozen(kw_only=True)
class PathEntry(Entry):
    """An override whose key is the path of a section or of a task example.

    Attributes:
        path: that path.
    """

    path: SectionPath

    @property
    def key(self) -> SectionPath:
        return self.path

    def check_address(self) -> None:
        check_path(self.path)


def frozen_texts(texts: Mapping[str, str]) -> FrozenMap[str, str]:
    """Return a read-only copy of texts by name."""
    return frozen(texts, "texts by name")


def frozen(items: Mapping[K, V], what: str) -> FrozenMap[K, V]:
    """Return a read-only copy of a mapping, whose message calls it ``what``.

    Raises:
        InvalidOverrideError: it is no mapping.
    """
    value: object = items  # users may pass anything, whatever the annotation says
    if not isinstance(value, Mapping):
        raise InvalidOverrideError(f"expected a mapping of {what}, found {shown(value)}")
    return FrozenMap(items)


def check_hash(text: str, where: str) -> None:
    """Refuse a text that is not a SHA-256 in hexadecimal digits."""
    if not _HASH.fullmatch(text):
        raise DataFormatError(
            f"{where}: expected 64 lower-case hexadecimal digits, found {shown(text)}"
        )


def labelled(noun: str, texts: Mapping[str, str]) -> LabelledTexts:
    """Yield texts by name, in order, as ``noun name``."""
    for name in sorted(texts):
        yield f"{noun} {name}", texts[name]


def text_or_none(text: str) -> str | None:
    """Return a text of the source, or None if it is blank, which no override may be."""
    return text if text.strip() else None


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts_in(key)
            yield from _texts_in(item)
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts_in(item)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _texts_in(getattr(value, field.name))
