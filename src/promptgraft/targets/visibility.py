"""What is shown of a prompt, as a part that a search may change."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.errors import DataFormatError, UnknownPartError
from promptgraft.ground.serde import parse_json
from promptgraft.ground.text import listed
from promptgraft.overrides.parts.descriptors import (
    SectionPath,
    SectionVisibility,
    section_part,
    task_example_part,
)
from promptgraft.overrides.parts.entry import UNBOUND, Entry
from promptgraft.overrides.parts.visibility import VisibilityOverride, visibilities
from promptgraft.overrides.resolution import require_source
from promptgraft.prompt.template import PromptTemplate
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.part import PromptPart, View
from promptgraft.targets.part_questions import meta_prompt
from promptgraft.targets.replies import fields_in, read_value, text_in, write_named_texts
from promptgraft.targets.types import ModuleDescription

NAME = "what is shown"
"""The name of the module in its prompt."""

_IN_WORDS = {
    SectionVisibility.FULL: "is shown now",
    SectionVisibility.SUMMARY: "is shown as its summary",
    SectionVisibility.HIDDEN: "is no longer shown",
}
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
        return write_named_texts(
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


def changes_in_words(name: str, before: str, after: str) -> str:
    """Return how two texts of a module differ, a sentence a line.

    It is empty if ``name`` is that of another part.
    """
    if name.rpartition("#")[2] != NAME:
        return ""
    try:
        old, new = (parse_json(text, where=name) for text in (before, after))
    except DataFormatError:
        return ""  # it is a part of somebody's own target
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return ""
    return "\n".join(
        f"{part} {_IN_WORDS[visibility]}"
        for part, state in new.items()
        for visibility in SectionVisibility
        if state == visibility and state != old.get(part)
    )


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
