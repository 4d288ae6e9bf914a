"""Base classes for the parts of a prompt that may change, and the view of a candidate."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import attrs

from promptgraft.errors import CallerError, DataFormatError, InvalidOverrideError
from promptgraft.ground.serde import canonical_json, parse_json
from promptgraft.ground.text import clip, fenced
from promptgraft.overrides.parts import descriptors
from promptgraft.overrides.parts.entry import EffectiveParts, Entry
from promptgraft.overrides.parts.examples import WorkedExample, json_line
from promptgraft.overrides.parts.validation import check_text
from promptgraft.overrides.resolution import bound_entry, checked_entry, require_source
from promptgraft.prompt.fields import options_of
from promptgraft.prompt.schema import (
    NOTHING_SAID,
    FieldTexts,
    describe,
    output_descriptions,
    own_names,
    params_descriptions,
    schema_of,
    shown_names,
    type_name,
)
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets.base import InvalidProposalError, RejectionReason, check_length
from promptgraft.targets.types import Module, ModuleDescription, RolloutRecord, Written

_SHAPES = {"boolean": "true or false", "integer": "a whole number", "number": "a number"}


@attrs.frozen(kw_only=True)
class View:
    """A prompt with the changes of one candidate.

    Attributes:
        template: the source.
        parts: its parts with the overrides of base and candidate.
        max_part_chars: maximum length of a new text.
        max_shown_chars: how much of a neighbour is shown.
        max_task_examples: how many examples a section may hold.
        described: the parts that have been described, for those who keep the view.
    """

    template: PromptTemplate[object]
    parts: EffectiveParts
    max_part_chars: int
    max_shown_chars: int
    max_task_examples: int
    described: dict[Module, ModuleDescription] = attrs.field(factory=dict, init=False, eq=False)

    @classmethod
    def of_source(cls, template: PromptTemplate[object]) -> View:
        """Return a view of a prompt without overrides, for reading its parts."""
        # The limits concern proposals, and none is made from this view.
        return cls(
            template=template,
            parts=EffectiveParts.of_source(template.descriptor),
            max_part_chars=0,
            max_shown_chars=0,
            max_task_examples=0,
        )

    @property
    def descriptor(self) -> descriptors.PromptDescriptor:
        """Identity and hashes of the source."""
        return self.template.descriptor

    def body(self, path: descriptors.SectionPath) -> str:
        """Return the text of a section."""
        body = self.parts.bodies.get(path)
        return self.template.section_body(path) if body is None else body

    def summary(self, path: descriptors.SectionPath) -> str:
        """Return the summary of a section."""
        summary = self.parts.summaries.get(path)
        return (self.template.section(path).summary or "") if summary is None else summary

    def tool(self, name: str) -> descriptors.ToolDescriptor:
        """Return a tool with the changes of the candidate."""
        return self.parts.tools[name]

    def task_examples(self, container: descriptors.SectionPath) -> dict[str, WorkedExample]:
        """Return the task examples of a section by key."""
        return {**self.parts.examples[container]}

    def shown_examples(self, container: descriptors.SectionPath) -> dict[str, WorkedExample]:
        """Return the task examples of a section by key, with outcomes as a model would see them."""
        return {
            key: attrs.evolve(example, outcome_json=self._shown_outcome(example.outcome_json))
            for key, example in self.task_examples(container).items()
        }

    def own_outcome(self, outcome_json: str) -> str:
        """Return an outcome with the source's field names, as stores keep it.

        Raises:
            InvalidProposalError: two of its names belong to one field.
        """
        # The model writes the aliases of this candidate, which others may not have.
        value = parse_json(outcome_json, where="outcome")
        kind = self.template.output_type
        try:
            return json_line(own_names(value, kind, self._said, where="outcome"))
        except DataFormatError as error:
            raise InvalidProposalError(RejectionReason.DOES_NOT_FIT, str(error)) from None

    def field(self, name: str) -> descriptors.OutputFieldDescriptor:
        """Return a field of the answer from the source."""
        return next(field for field in self.descriptor.output_fields if field.field == name)

    def params_schema(self, name: str) -> str:
        """Return the JSON Schema of a tool's parameters, with the candidate's descriptions."""
        kind = self.descriptor.tools_by_name[name].params_type
        descriptions = params_descriptions(kind, self.tool(name).param_descriptions)
        return canonical_json(schema_of(kind, descriptions))

    def tool_schema(self, name: str) -> str:
        """Return a tool's description and the schemas of its parameters and its result."""
        result_type = self.descriptor.tools_by_name[name].result_type
        return (
            f"Tool `{name}`:\n\n"
            f"{fenced(clip(self.tool(name).description, self.max_shown_chars))}\n\n"
            f"input: {self.params_schema(name)}\n"
            f"output: {canonical_json(schema_of(result_type))}"
        )

    def tool_schemas(self) -> str:
        """Return :meth:`tool_schema` of all tools."""
        return "\n\n".join(self.tool_schema(tool.name) for tool in self.descriptor.tools)

    def output(self) -> str:
        """Return the expected form of answers, with the candidate's descriptions."""
        kind = self.template.output_type
        if choices := options_of(kind):
            meaning = describe(self._said.get(type_name(kind), NOTHING_SAID), choices)
            description = f"\nDescribed as: {json_line(meaning)}" if meaning else ""
            return f"One of: {', '.join(choices)}{description}"
        if kind is None or kind is str:
            return "Text."
        schema = json.dumps(schema_of(kind, self._said), ensure_ascii=False)
        return f"A JSON object of type {kind.__name__}, with this schema: {schema}"

    def is_shown(self, path: descriptors.SectionPath) -> bool:
        """Return whether neither a section or task example, nor anything above it, is hidden."""
        return not any(self.parts.hides(path[:depth]) for depth in range(1, len(path) + 1))

    def neighbours(
        self, but: str, *, without: descriptors.SectionPath | None = None, with_hidden: bool = False
    ) -> list[tuple[str, str]]:
        """Return name and text of the other parts that are not empty.

        Leaves out the part ``but``, the task examples of the section ``without``, and what is
        hidden.
        """
        all_of_them = with_hidden or not self.parts.visibility
        sections = [
            section.path
            for section in self.descriptor.sections
            if all_of_them or self.is_shown(section.path)
        ]
        parts = [(descriptors.section_part(path), self.body(path)) for path in sections]
        parts += [(descriptors.summary_part(path), self.summary(path)) for path in sections]
        for name in self.descriptor.tools_by_name:
            tool = self.tool(name)
            parts.append((f"tool {name}", tool.description))
            # The question about one of them shows the others in the form of its reply.
            calls = () if but.startswith(f"tool example {name}/") else tool.examples
            for at, call in enumerate(calls):
                text = f"{call.description}: {call.input_json} → {call.output_json}"
                parts.append((f"tool example {name}/{at}", text))
        for container in self.descriptor.containers:
            if container.path == without:
                continue
            for key, example in self.shown_examples(container.path).items():
                path = (*container.path, key)
                if all_of_them or self.is_shown(path):
                    text = f"{example.objective} → {example.outcome_json}"
                    parts.append((descriptors.task_example_part(path), text))
        return [
            (name, clip(text, self.max_shown_chars)) for name, text in parts if text and name != but
        ]

    @property
    def _said(self) -> FieldTexts:
        return output_descriptions(self.descriptor, self.parts)

    def _shown_outcome(self, outcome_json: str) -> str:
        value = parse_json(outcome_json, where="outcome")
        return json_line(shown_names(value, self.template.output_type, self._said))

    def check_length(self, text: str) -> None:
        """Refuse a text that is too long, or that UTF-8 cannot encode.

        Raises:
            InvalidProposalError: with the limit.
        """
        check_length(text, self.max_part_chars)
        try:
            check_text(text, "the text")
        except InvalidOverrideError as error:
            raise InvalidProposalError(RejectionReason.UNUSABLE_TEXT, str(error)) from None


class PromptPart(Module):
    """What one question about a prompt is about: an immutable attrs class.

    A part that one override replaces is a :class:`PromptModule`.
    """

    __slots__ = ()

    @abstractmethod
    def describe(self, view: View) -> ModuleDescription:
        """Return what the reflection model may know about the part."""

    @abstractmethod
    def entries(self, view: View, text: str) -> tuple[Entry, ...]:
        """Return the overrides of a proposal, not bound to a source yet.

        Raises:
            InvalidProposalError: it cannot be read.
        """

    @abstractmethod
    def require(self, view: View) -> None:
        """Refuse a part that the prompt does not have with the overrides in force.

        Raises:
            UnknownPartError: there is no such part, or it may not be overridden; the message
                lists what exists.
        """

    def text(self, view: View) -> str:
        """Return only the text of :meth:`describe`."""
        return self.describe(view).text

    def check_entry(self, view: View, entry: Entry) -> None:
        """Refuse a proposal that fits the prompt, but is not useful.

        Raises:
            InvalidProposalError: saying why.
        """
        del view, entry

    def reverted(self, base: View, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return those of several overrides that say what is in force anyway."""
        return ()

    def has_room(self, view: View) -> bool:
        """Return whether the part can be changed now; a section of examples can be full."""
        return True

    def edits(self, view: View, text: str) -> tuple[Entry, ...]:
        """Return the overrides of a proposal, with the checks of a store.

        Raises:
            InvalidProposalError: it cannot be read, or does not fit the part.
        """
        # Before it is parsed, so that an endless reply costs nothing.
        view.check_length(text)
        descriptor = view.descriptor
        try:
            entries = tuple(
                checked_entry(descriptor, bound_entry(descriptor, entry))
                for entry in self.entries(view, text)
            )
        # To a store the caller is at fault; here it is the model that proposed the text.
        except CallerError as error:
            raise InvalidProposalError(RejectionReason.DOES_NOT_FIT, str(error)) from None
        for entry in entries:
            self.check_entry(view, entry)
        return entries

    def described(
        self,
        view: View,
        *,
        meta_prompt: str,
        title: str,
        text: str,
        placeholders: tuple[str, ...] = (),
        opaque: Mapping[str, str] | None = None,
        schema: str = "",
        siblings: Sequence[str] = (),
        without: descriptors.SectionPath | None = None,
        with_hidden: bool = False,
        as_json: bool = False,
    ) -> ModuleDescription:
        """Return a description, with the fields that all kinds have in common filled in.

        ``without`` is a section whose task examples are left out of the neighbours; with
        ``with_hidden`` those that are not shown to the model are among them.
        """
        kind, answers = view.template.output_type, None
        if kind in (None, str):
            answers = ""  # "Text." would tell a model nothing, and could be taken for an answer
        elif not options_of(kind) and (form := schema_of(kind)).get("type") != "object":
            # Digests keep the words of `output`.
            answers = (
                _SHAPES.get(str(form.get("type"))) or f"JSON with this schema: {json_line(form)}"
            )
        return ModuleDescription(
            name=self.name,
            meta_prompt=meta_prompt,
            title=title,
            text=text,
            placeholders=placeholders,
            opaque=opaque or {},
            max_chars=view.max_part_chars,
            output=view.output(),
            answers=answers,
            neighbours=view.neighbours(self.name, without=without, with_hidden=with_hidden),
            schema=schema,
            siblings=siblings,
            as_json=as_json,
            is_new=self.is_new,
            written=Written(
                beside={
                    descriptors.section_part(path): clip(
                        section.source.as_template(view.body(path)), view.max_shown_chars
                    )
                    for path, section in view.template.walked
                    if section.source.opaque
                }
            ),
        )


class PromptModule(PromptPart):
    """A part of a prompt that one override replaces."""

    __slots__ = ()

    # Kinds compute it once: a name is read thousands of times, and an override checks itself.
    @property
    @abstractmethod
    def blank(self) -> Entry:
        """An empty override of the part."""

    @abstractmethod
    def read(self, view: View, text: str) -> Entry:
        """Return the override of a proposal, not bound to a source yet.

        Raises:
            InvalidProposalError: it cannot be read.
        """

    @property
    def kind(self) -> str:
        return self.blank.kind

    @property
    def name(self) -> str:
        return self.blank.part

    @property
    def owner(self) -> str | None:
        return self.blank.owner

    def entries(self, view: View, text: str) -> tuple[Entry, ...]:
        return (self.read(view, text),)

    def require(self, view: View) -> None:
        require_source(view.descriptor, self.blank)


@attrs.frozen
class PartOf(Module):
    """A part of one of several prompts; its names include the prompt.

    Attributes:
        address: the prompt, ``namespace/key``.
        label: its name in the prompt; by default the part's own name.
    """

    address: str
    part: PromptPart
    label: str = ""

    @property
    def kind(self) -> str:
        return self.part.kind

    @property
    def name(self) -> str:
        return named_in(self.address, self.label or self.part.name)

    @property
    def owner(self) -> str | None:
        owner = self.part.owner
        return None if owner is None else named_in(self.address, owner)

    @property
    def is_example(self) -> bool:
        return self.part.is_example

    @property
    def is_new(self) -> bool:
        return self.part.is_new

    @property
    def question(self) -> PromptTemplate[object] | None:
        return self.part.question


def named_in(address: str, part: str) -> str:
    """Return the name of a part of one of several prompts: ``support/router#section rules``."""
    return f"{address}#{part}"


def prompt_of(name: str) -> str:
    """Return ``namespace/key`` of the prompt of a part; empty if there is a single prompt."""
    return name.rpartition("#")[0]


def beside(parts: Sequence[ModuleDescription]) -> Sequence[tuple[str, str]]:
    """Return names and texts beside some parts; the names with the prompt if there are several."""
    names = {part.name for part in parts}
    first_of = {prompt_of(part.name): part for part in reversed(parts)}
    return [
        (name if len(first_of) == 1 else f"{prompt} {name}", part.written.beside.get(name, text))
        for prompt, part in reversed(first_of.items())
        for name, text in part.neighbours
        if names.isdisjoint((name, named_in(prompt, name)))
    ]


def passing(records: Iterable[RolloutRecord], parts: Iterable[Module]) -> tuple[RolloutRecord, ...]:
    """Return the rollouts that asked a prompt of the parts; all if it is the only prompt."""
    prompts = {part.name.rpartition("#")[0] for part in parts}
    return tuple(
        record
        for record in records
        if "" in prompts
        or not record.steps  # of a target that tells none
        or any(prompt_of(name) in prompts for step in record.steps for name in step.parts)
    )
