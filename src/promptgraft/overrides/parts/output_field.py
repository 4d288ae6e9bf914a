"""Overrides of the description, aliases and options of a field of the answer."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping

import attrs

from promptgraft.errors import InvalidOverrideError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, shown
from promptgraft.overrides.parts.descriptors import (
    PromptDescriptor,
    PromptLike,
    fold_name,
    taken_aliases,
)
from promptgraft.overrides.parts.entry import (
    EffectiveParts,
    Entry,
    LabelledTexts,
    SkipReason,
    SourcePart,
    labelled,
    text_or_none,
)
from promptgraft.overrides.parts.examples import given
from promptgraft.overrides.parts.validation import check_not_blank


def _names(names: Iterable[str] | None) -> tuple[str, ...] | None:
    if isinstance(names, str):
        raise InvalidOverrideError(f"aliases: expected a list of texts, found {shown(names)}")
    return None if names is None else tuple(names)


@attrs.frozen(kw_only=True)
class OutputFieldOverride(Entry):
    """An override of the description, aliases and options of a field of the answer.

    Attributes:
        field: the field: ``Review.severity``; the type's name if the answer is a choice.
        expected_hash: hash of its source descriptions, aliases and options.
        description: None keeps the source's.
        aliases: other names, the first of which the model sees; None keeps the source's.
        value_descriptions: descriptions of options; others keep the source's.
    """

    field: str
    expected_hash: HexDigest
    description: str | None = None
    aliases: tuple[str, ...] | None = attrs.field(default=None, converter=_names)
    value_descriptions: Mapping[str, str] = attrs.field(factory=dict, converter=FrozenMap[str, str])

    kind = replaces = "output field"
    with_overrides = "output_overrides"
    listed = "output_fields"

    @property
    def key(self) -> str:
        return self.field

    @property
    def owner(self) -> None:
        return None

    @classmethod
    def known(cls, descriptor: PromptDescriptor) -> Iterator[str]:
        return (output_field.field for output_field in descriptor.output_fields)

    def source(self, descriptor: PromptDescriptor) -> SourcePart | None:
        return descriptor.output_field(self.field)

    @classmethod
    def sources(cls, prompt: PromptLike) -> Iterator[OutputFieldOverride]:
        for output_field in prompt.descriptor.output_fields:
            values = {option: text for option, text in output_field.values.items() if text.strip()}
            description = text_or_none(output_field.description)
            if description or output_field.aliases or values:
                yield cls(
                    field=output_field.field,
                    expected_hash=output_field.content_hash,
                    description=description,
                    aliases=output_field.aliases or None,
                    value_descriptions=values,
                )

    def checked(self, descriptor: PromptDescriptor) -> OutputFieldOverride:
        field = descriptor.output_field(self.field)
        if field is None:
            return self
        if (self.description, self.aliases) == (None, None) and not self.value_descriptions:
            raise InvalidOverrideError(f"{self.part}: replaces nothing; give a description")
        if self.description is not None:
            check_not_blank(self.description, f"{self.part}: description")
        for option, text in self.value_descriptions.items():
            if option not in field.options:
                raise InvalidOverrideError(
                    f"{self.part}: there is no option {shown(option)}; options: "
                    + (", ".join(field.options) or "none")
                )
            check_not_blank(text, f"{self.part}: option `{option}`")
        if self.aliases and not field.name:
            raise InvalidOverrideError(f"{self.part}: an answer that is a choice has no aliases")
        aliases = self.aliases or ()
        for alias in aliases:
            check_not_blank(alias, f"{self.part}: alias")
        if taken_names := taken_aliases(field, aliases):
            raise InvalidOverrideError(f"{self.part}: the name {shown(taken_names[0])} is taken")
        return self

    def misfit(self, descriptor: PromptDescriptor) -> SkipReason | None:
        field = descriptor.output_field(self.field)
        is_taken = field is not None and taken_aliases(field, self.aliases or ())
        return SkipReason.NAME_TAKEN if is_taken else None

    def claims(self) -> Mapping[Hashable, str]:
        # Names need to differ only within a class.
        owner = self.field.rpartition(".")[0]
        return {(owner, fold_name(alias)): alias for alias in self.aliases or ()}

    def apply(self, parts: EffectiveParts) -> None:
        now = parts.fields[self.field]
        parts.fields[self.field] = attrs.evolve(
            now,
            **given(description=self.description, aliases=self.aliases),
            values={**now.values, **self.value_descriptions},
        )

    def labelled_texts(self) -> LabelledTexts:
        aliases = self.aliases
        yield "description", self.description
        yield "aliases", None if aliases is None else json.dumps(aliases, ensure_ascii=False)
        yield from labelled("option", self.value_descriptions)
