"""The parts of a prompt that a search may change: one class for each kind.

Overrides of each kind are defined in :mod:`promptgraft.overrides.parts`; the classes here show a
part to the reflection model, and turn its reply into an override.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import attrs

from promptgraft.errors import UnknownPartError
from promptgraft.ground.serde import field_names
from promptgraft.ground.text import listed
from promptgraft.overrides.parts.body import (
    kept_names,
    marker_names,
    proposed_body,
    shown_body,
    spell,
)
from promptgraft.overrides.parts.descriptors import (
    SectionPath,
    SectionVisibility,
    section_part,
    show_path,
    task_example_part,
)
from promptgraft.overrides.parts.entry import UNBOUND, Entry
from promptgraft.overrides.parts.examples import WorkedExample
from promptgraft.overrides.parts.replacements import (
    OutputFieldOverride,
    SectionOverride,
    SummaryOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
    visibilities,
)
from promptgraft.overrides.parts.task_example import AddedTaskExample, TaskExampleOverride
from promptgraft.overrides.resolution import require_source
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets import part_json
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.json_reply import fields_in, read_value, text_in
from promptgraft.targets.part import PromptModule, PromptPart, View
from promptgraft.targets.part_questions import meta_prompt
from promptgraft.targets.types import MetaPrompt, ModuleDescription, Written

_DESCRIPTION = "description"
_ALIASES = "aliases"


@attrs.frozen
class SectionModule(PromptModule):
    """The body of one section."""

    path: SectionPath

    @cached_property
    def blank(self) -> SectionOverride:
        return SectionOverride(path=self.path, expected_hash=UNBOUND, body="")

    def text(self, view: View) -> str:
        syntax = view.template.section(self.path).source.syntax
        return shown_body(view.body(self.path), syntax)

    def describe(self, view: View) -> ModuleDescription:
        section = view.template.section(self.path)
        source = section.source
        description = self.described(
            view,
            meta_prompt=MetaPrompt.SECTION,
            title=section.title,
            text=self.text(view),
            placeholders=tuple(spell(name, source.syntax) for name in source.placeholders),
            opaque={spell(name, source.syntax): text for name, text in source.opaque.items()},
        )
        if not source.opaque:
            return description
        text = source.as_template(view.body(self.path))
        definitions = source.jinja.definitions if source.jinja else ""
        written = Written(text, definitions, description.written.beside)
        return attrs.evolve(description, written=written)

    def read(self, view: View, text: str) -> SectionOverride:
        source = view.template.section(self.path).source
        syntax, names = source.syntax, frozenset(source.placeholders)
        before = view.body(self.path)
        body = proposed_body(text, syntax, names, like=before)
        # Again: markers that are spelled otherwise now may have made the text longer.
        view.check_length(shown_body(body, syntax))
        names_kept = kept_names(body, syntax, names)
        if lost := [name for name in source.placeholders if name not in names_kept]:
            markers = ", ".join(spell(name, syntax) for name in lost)
            raise InvalidProposalError(
                RejectionReason.LOST_PLACEHOLDER, f"the text lost the placeholders {markers}"
            )
        # A marker of the present text is not invented here, even if nothing replaces it.
        names_known = names | marker_names(before, syntax)
        if invented := sorted(marker_names(body, syntax) - names_known):
            markers = ", ".join(spell(name, syntax) for name in invented)
            raise InvalidProposalError(
                RejectionReason.INVENTED_PLACEHOLDER,
                f"the text uses {markers}, which nothing will replace; leave that out",
            )
        return attrs.evolve(self.blank, body=body)


@attrs.frozen
class SummaryModule(PromptModule):
    """The text that stands for a section that is not shown in full."""

    path: SectionPath

    @cached_property
    def blank(self) -> SummaryOverride:
        return SummaryOverride(path=self.path, expected_hash=UNBOUND, summary="")

    def describe(self, view: View) -> ModuleDescription:
        return self.described(
            view,
            meta_prompt=MetaPrompt.SECTION,
            title=f"{view.template.section(self.path).title} (summary)",
            text=view.summary(self.path),
        )

    def read(self, view: View, text: str) -> SummaryOverride:
        return attrs.evolve(self.blank, summary=text)


@attrs.frozen
class ToolModule(PromptModule):
    """The descriptions of one tool and its parameters."""

    tool_name: str

    @cached_property
    def blank(self) -> ToolOverride:
        return ToolOverride(name=self.tool_name, expected_hash=UNBOUND)

    def describe(self, view: View) -> ModuleDescription:
        return self.described(
            view,
            meta_prompt=MetaPrompt.TOOL,
            as_json=True,
            title=self.tool_name,
            text=part_json.write_named_texts(self._said(view)),
            schema=f"Parameters: {view.params_schema(self.tool_name)}",
        )

    def read(self, view: View, text: str) -> ToolOverride:
        now = self._said(view)
        texts = {**now, **part_json.read_named_texts(text, now)}
        params = {
            name: texts[_param(name)] for name in view.tool(self.tool_name).param_descriptions
        }
        return attrs.evolve(
            self.blank,
            # No description keeps that of the source.
            description=texts[_DESCRIPTION] or None,
            param_descriptions={name: text for name, text in params.items() if text},
        )

    def _said(self, view: View) -> dict[str, str]:
        now = view.tool(self.tool_name)
        params = {_param(name): text for name, text in now.param_descriptions.items()}
        return {_DESCRIPTION: now.description, **params}


def _param(name: str) -> str:
    return f"param {name}"


@attrs.frozen
class OutputFieldModule(PromptModule):
    """The description, aliases and options of one field of the answer."""

    field: str

    @cached_property
    def blank(self) -> OutputFieldOverride:
        return OutputFieldOverride(field=self.field, expected_hash=UNBOUND)

    def describe(self, view: View) -> ModuleDescription:
        field, now = view.field(self.field), view.parts.fields[self.field]
        descriptions = {_DESCRIPTION: now.description}
        if field.name:
            descriptions[_ALIASES] = part_json.write_names(now.aliases)
        descriptions.update(
            (_value(option), now.values.get(option, "")) for option in field.options
        )
        return self.described(
            view,
            meta_prompt=MetaPrompt.OUTPUT_FIELD,
            as_json=True,
            title=self.field,
            text=part_json.write_named_texts(descriptions),
        )

    def read(self, view: View, text: str) -> OutputFieldOverride:
        field, now = view.field(self.field), view.parts.fields[self.field]
        names = [_DESCRIPTION, *([_ALIASES] if field.name else []), *map(_value, field.options)]
        texts = part_json.read_named_texts(text, names)
        aliases = part_json.read_names(texts[_ALIASES]) if _ALIASES in texts else now.aliases
        values = {
            option: texts.get(_value(option), now.values.get(option, ""))
            for option in field.options
        }
        return attrs.evolve(
            self.blank,
            description=texts.get(_DESCRIPTION, now.description) or None,
            aliases=aliases if field.name else None,
            value_descriptions={option: text for option, text in values.items() if text},
        )


def _value(option: str) -> str:
    return f"value {option}"


@attrs.frozen
class ToolExampleModule(PromptModule):
    """One example of a tool."""

    tool_name: str
    example_index: int

    is_example = True

    @cached_property
    def blank(self) -> ToolExampleOverride:
        return ToolExampleOverride(
            tool_name=self.tool_name, example_index=self.example_index, expected_hash=UNBOUND
        )

    def describe(self, view: View) -> ModuleDescription:
        examples = [
            part_json.write_tool_example(call) for call in view.tool(self.tool_name).examples
        ]
        example = examples.pop(self.example_index)
        return self.described(
            view,
            meta_prompt=MetaPrompt.TOOL_EXAMPLE,
            as_json=True,
            title=self.tool_name,
            text=example,
            schema=view.tool_schema(self.tool_name),
            siblings=examples,
        )

    def read(self, view: View, text: str) -> ToolExampleOverride:
        read = part_json.read_tool_example(text, self.tool_name, bare=_bare(view))
        return attrs.evolve(
            self.blank,
            description=read.description,
            input_json=read.input_json,
            output_json=read.output_json,
        )


@attrs.frozen
class TaskExampleModule(PromptModule):
    """One task example, of the source or added."""

    path: SectionPath

    is_example = True

    @cached_property
    def blank(self) -> TaskExampleOverride:
        return TaskExampleOverride(path=self.path, expected_hash=UNBOUND)

    def require(self, view: View) -> None:
        examples_shown = self.path[-1] in view.parts.examples.get(self.path[:-1], {})
        # An added example has no source; what must allow it is the section that holds it.
        is_added = examples_shown and view.descriptor.task_example(self.path) is None
        require_source(view.descriptor, _blank(self.path[:-1]) if is_added else self.blank)
        if not examples_shown:
            raise UnknownPartError(
                f"{self.name} is not shown: the store holds an override that removes it; name "
                f"another target, or forget `removed {self.name}` with `remove_override`"
            )

    def has_room(self, view: View) -> bool:
        return not view.parts.hides(self.path)

    def describe(self, view: View) -> ModuleDescription:
        section, key = self.path[:-1], self.path[-1]
        examples = view.shown_examples(section)
        example = examples.pop(key)
        return self.described(
            view,
            meta_prompt=MetaPrompt.TASK_EXAMPLE,
            as_json=True,
            title=key,
            text=part_json.write_task_example(example),
            schema=view.tool_schemas(),
            siblings=_siblings(view, section, examples),
            without=section,
        )

    def read(self, view: View, text: str) -> TaskExampleOverride | AddedTaskExample:
        _, read = _proposed(view, text)
        # An example of the store has no source to override, so it is added anew under its key.
        if view.descriptor.task_example(self.path) is None:
            return _added(view, self.path[:-1], self.path[-1], read)
        return attrs.evolve(
            self.blank,
            objective=read.objective,
            outcome_json=view.own_outcome(read.outcome_json),
            steps_json=read.steps_json,
        )


def _siblings(view: View, section: SectionPath, examples: Mapping[str, WorkedExample]) -> list[str]:
    return [
        part_json.write_task_example(example, key=key)
        for key, example in examples.items()
        if not view.parts.hides((*section, key))
    ]


def _bare(view: View) -> tuple[str, ...]:
    return tuple(tool.name for tool in view.descriptor.tools if not field_names(tool.params_type))


def _proposed(view: View, text: str) -> tuple[str | None, WorkedExample]:
    return part_json.read_task_example(
        text,
        outcome_is_text=view.template.output_type in (None, str),
        has_tools=bool(view.descriptor.tools),
        bare=_bare(view),
    )


def _blank(container: SectionPath) -> AddedTaskExample:
    return AddedTaskExample(
        container_path=container,
        example_key="new",
        expected_hash=UNBOUND,
        objective="",
        outcome_json="",
        steps_json="",
    )


def _added(view: View, container: SectionPath, key: str, read: WorkedExample) -> AddedTaskExample:
    example = attrs.evolve(read, outcome_json=view.own_outcome(read.outcome_json))
    return attrs.evolve(_blank(container), example_key=key).changed(example)


@attrs.frozen
class GenerationModule(PromptModule):
    """A section of task examples to which an example may be added."""

    container_path: SectionPath

    is_example = True
    is_new = True

    @property
    def kind(self) -> str:
        return "generated example"

    @property
    def name(self) -> str:
        return f"new task example in {show_path(self.container_path)}"

    @cached_property
    def blank(self) -> AddedTaskExample:
        return _blank(self.container_path)

    def has_room(self, view: View) -> bool:
        return len(view.parts.shown_examples(self.container_path)) < view.max_task_examples

    def describe(self, view: View) -> ModuleDescription:
        section = view.template.section(self.container_path)
        examples = view.shown_examples(self.container_path)
        return self.described(
            view,
            meta_prompt=MetaPrompt.GENERATION,
            as_json=True,
            title=section.title,
            text=view.summary(self.container_path),
            schema=view.tool_schemas(),
            siblings=_siblings(view, self.container_path, examples),
            without=self.container_path,
        )

    def read(self, view: View, text: str) -> AddedTaskExample:
        expected, read = _proposed(view, text)
        key = part_json.fresh_key(expected, taken_keys(view, self.container_path))
        return _added(view, self.container_path, key, read)

    def check_entry(self, view: View, entry: Entry) -> None:
        """Refuse a task example that exists already under any key."""
        if not isinstance(entry, AddedTaskExample):
            return
        # Under another key it would take room, and tokens of every prompt, without showing more.
        content = entry.example.content_hash
        for container in view.descriptor.containers:
            for key, example in view.task_examples(container.path).items():
                if example.content_hash == content:
                    raise InvalidProposalError(
                        RejectionReason.DUPLICATE,
                        f"the same example is there already, as "
                        f"`{show_path((*container.path, key))}`; write one that shows something "
                        "else",
                    )


def taken_keys(view: View, container: SectionPath) -> set[str]:
    """Return the keys that a new task example of a section cannot have."""
    source = view.descriptor.container(container)
    return {*view.task_examples(container), *(source.taken if source else ())}


NAME = "what is shown"
"""The name of the module in its prompt."""

_FORM = """\
{
  "section <path>": "<full or hidden>",
  "task example <path>": "<full or hidden>"
}"""

VISIBILITY_QUESTION = meta_prompt(
    "reflect-visibility",
    name="Choose what is shown",
    task=(
        "Decide which of these parts the model is shown: `full` shows a part, `hidden` leaves it "
        "out with all that is below it, and `summary` shows its summary where it has one. Their "
        "texts are above, among the rest of the prompt. Hide what misleads the model, or does not "
        "help it, on inputs like these; show again what it lacks. Where answers are as good, a "
        "shorter prompt is better. Leave out what may stay as it is."
    ),
    form=_FORM,
)


@attrs.frozen
class VisibilityModule(PromptPart):
    """Which sections and task examples are shown.

    Attributes:
        paths: the sections and task examples that may be hidden; a section of task examples
            stands for itself and for each of its examples that may be overridden.
    """

    paths: tuple[SectionPath, ...]

    is_example = True

    @property
    def kind(self) -> str:
        return VisibilityOverride.kind

    @property
    def name(self) -> str:
        return NAME

    @property
    def question(self) -> PromptTemplate[object]:
        return VISIBILITY_QUESTION

    def require(self, view: View) -> None:
        for path in self.paths:
            require_source(view.descriptor, _override(path, SectionVisibility.FULL))
            if view.descriptor.task_example(path) and path not in self._open(view):
                name = task_example_part(path)
                raise UnknownPartError(
                    f"{name} cannot be shown: the store holds an override that removes it; name "
                    f"another target, or forget `removed {name}` with `remove_override`"
                )

    def text(self, view: View) -> str:
        return part_json.write_named_texts(
            {_part(view, path): view.parts.visibility_of(path) for path in self._open(view)}
        )

    def describe(self, view: View) -> ModuleDescription:
        return self.described(
            view,
            meta_prompt=VISIBILITY_QUESTION.key,
            as_json=True,
            title="What is shown",
            text=self.text(view),
            schema="\n".join(
                f"{_part(view, path)}: {' or '.join(visibilities(view.descriptor, path))}"
                for path in self._open(view)
            ),
            with_hidden=True,
        )

    def entries(self, view: View, text: str) -> tuple[Entry, ...]:
        open_paths = {_part(view, path): path for path in self._open(view)}
        fields = fields_in(read_value(text), (), optional=open_paths)
        if not fields:
            raise InvalidProposalError(
                RejectionReason.EMPTY,
                f"expected one of {listed(open_paths)} at least, found an empty object",
            )
        return tuple(
            _override(path, visibility)
            for name, value in fields.items()
            for path in [open_paths[name]]
            if (visibility := _chosen(view, path, text_in(value, name)))
            is not view.parts.visibility_of(path)
        )

    def reverted(self, base: View, entries: Sequence[Entry]) -> Sequence[Entry]:
        return [
            entry
            for entry in entries
            if isinstance(entry, VisibilityOverride)
            and entry.visibility is base.parts.visibility_of(entry.path)
        ]

    def _open(self, view: View) -> list[SectionPath]:
        """Return what may be hidden, in the order of the prompt; without removed examples."""
        descriptor, paths = view.descriptor, set(self.paths)
        open_paths: list[SectionPath] = []
        for section in descriptor.sections:
            if section.path in paths:
                open_paths.append(section.path)
            open_paths += [
                example.path
                for example in descriptor.task_examples
                if example.path[:-1] == section.path
                and (example.path in paths or (section.path in paths and example.overridable))
                and example.path[-1] in view.parts.examples[section.path]
            ]
        return open_paths


def _override(path: SectionPath, visibility: SectionVisibility) -> VisibilityOverride:
    return VisibilityOverride(path=path, expected_hash=UNBOUND, visibility=visibility)


def _part(view: View, path: SectionPath) -> str:
    is_section = view.descriptor.section(path) is not None
    return section_part(path) if is_section else task_example_part(path)


def _chosen(view: View, path: SectionPath, word: str) -> SectionVisibility:
    for visibility in visibilities(view.descriptor, path):
        if word.strip().casefold() == visibility:
            return visibility
    expected = " or ".join(visibilities(view.descriptor, path))
    raise InvalidProposalError(
        RejectionReason.DOES_NOT_FIT, f"{_part(view, path)}: expected {expected}, found {word!r}"
    )
