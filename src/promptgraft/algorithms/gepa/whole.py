"""One question about all parts of a prompt, whose reply changes the parts that are at fault."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import attrs

from promptgraft.algorithms.gepa.line_edits import HOW_TO_EDIT, LONG_CHARS, SEARCH, edited
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.algorithms.gepa.questions import (
    NOT_REFUSED,
    MetaPrompts,
    Part,
    Refusal,
    example_of,
    limits_of,
    reflection_params,
)
from promptgraft.parts.examples import one_line
from promptgraft.search.asks import Question, Reply
from promptgraft.serde import Json, digest
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.formatting import fenced_part, in_one_line
from promptgraft.targets.replies import JSON_TAG, fields_in, parse_reply, read_value, text_in
from promptgraft.targets.types import Module, ModuleDescription, RolloutRecord
from promptgraft.text import clip, counted, fenced, listed

T = TypeVar("T")

_MOST_CHARS = 24_000
"""Most characters of all texts that one question may change, unless the first alone has more."""
_SUMMARY_CHARS = 1_000
_PREVIOUS_CHARS = 60_000
_SHOWN_CHARS = 80
_REASON_CHARS = 400


def most_shown(modules: Sequence[Module], text: Callable[[Module], str]) -> tuple[Module, ...]:
    """Return as many of the first modules as fit into one question, all of the same prompt."""
    left = _MOST_CHARS
    found: list[Module] = []
    prompts = [module.name.rpartition("#")[0] for module in modules]
    for module, prompt in zip(modules, prompts, strict=True):
        if prompt != prompts[0]:
            continue
        left -= len(text(module))
        if left < 0 and found:
            break
        found.append(module)
    return tuple(found)


def question_on_all(
    position: str,
    parts: Sequence[ModuleDescription],
    records: Sequence[RolloutRecord],
    *,
    meta_prompts: MetaPrompts,
    earlier: Mapping[str, Sequence[RolloutRecord]],
    refused: Refusal = NOT_REFUSED,
) -> Question:
    """Return the question that asks for new texts of the parts that are at fault.

    The other parts of the prompt are shown for context; of long ones only the beginning.

    Args:
        position: position in the run.
        parts: the parts that may be changed.
        records: their rollouts; unscored ones are left out.
        meta_prompts: the meta-prompts by key.
        earlier: better answers to the same examples, by example id.
        refused: the previous reply, and why it could not be used, if there is one.
    """
    marks = {part.name: mark for mark, part in _marked(parts)}
    others = dict(parts[0].neighbours)
    problem, previous = refused
    whole = attrs.evolve(
        parts[0],
        neighbours=[(name, _summary(others[name])) for name in others if name not in marks],
        siblings=(),
        max_chars=_PREVIOUS_CHARS,
    )
    params = reflection_params(whole, (), problem=problem, previous=previous)
    examples = (
        example_of(record, earlier.get(record.example_id, ()), marks)
        for record in records
        if record.feedback is not None
    )
    params = attrs.evolve(
        params,
        part="one or several",
        current="\n\n".join(_shown(mark, part) for mark, part in _marked(parts)),
        limits="",
        schema="",
        examples="\n\n".join(examples),
        edits=HOW_TO_EDIT
        if any(len(part.text) >= LONG_CHARS and not part.as_json for part in parts)
        else "",
    )
    prompt = meta_prompts[WHOLE.key].bind(params)
    return Question(position=position, prompt=prompt, digest=digest([WHOLE.key, params]))


class Edit(NamedTuple):
    """A new text, and the model's reason for it in one line, which may be empty."""

    text: str
    reason: str = ""


def edits_of(reply: Reply, parts: Sequence[Part]) -> list[tuple[Part, Edit]]:
    """Return the parts that a reply changes, each with its new text.

    Raises:
        InvalidProposalError: the reply cannot be read.
    """
    text = parse_reply(reply.text, tag=JSON_TAG, finish_reason=reply.finish_reason)
    found: list[tuple[Part, Edit]] = []
    by_mark = dict(_marked(parts))
    for mark, edit in read_edits(text, by_mark).items():
        part, text = by_mark[mark], edit.text.lstrip("\n")
        changed = edited(part[1].text, text) if text.startswith(SEARCH) else edit.text
        found.append((part, edit._replace(text=changed)))
    return found


def read_edits(text: str, marks: Collection[str]) -> dict[str, Edit]:
    """Return the new texts in a reply by the marks of their parts; objects as JSON.

    Args:
        text: the reply's JSON.
        marks: the marks of the parts that it may edit.

    Raises:
        InvalidProposalError: the reply cannot be read, edits no part, an unknown part or a part
            twice, or contains unusable characters.
    """
    edits = fields_in(read_value(text), ("edits",))["edits"]
    if not isinstance(edits, list):
        raise _unreadable("edits: expected a list of objects", edits)
    if not edits:
        raise InvalidProposalError(RejectionReason.UNCHANGED, "the reply edits no part")
    found: dict[str, Edit] = {}
    for number, edit in enumerate(edits, start=1):
        where = f"edit {number}: "
        fields = fields_in(edit, ("part", "text"), optional=("reason",), where=where)
        mark = text_in(fields["part"], f"{where}part").strip(" []`").upper()
        if mark not in marks or mark in found:
            raise _unreadable(f"{where}part: expected one of {listed(marks)}, each once", mark)
        said, reason = fields["text"], fields.get("reason")
        found[mark] = Edit(
            one_line(said) if isinstance(said, dict) else text_in(said, f"{where}text"),
            clip(" ".join(reason.split()), _REASON_CHARS, around=" ")
            if isinstance(reason, str)
            else "",
        )
    return found


def _unreadable(expected: str, value: Json) -> InvalidProposalError:
    found = clip(json.dumps(value), _SHOWN_CHARS, around=" ")
    return InvalidProposalError(RejectionReason.UNPARSABLE, f"{expected}, found {found}")


def _marked(parts: Sequence[T]) -> Iterator[tuple[str, T]]:
    return ((f"P{number}", part) for number, part in enumerate(parts, start=1))


def _shown(mark: str, part: ModuleDescription) -> str:
    title = "" if part.title in part.name else f" ({in_one_line(part.title)})"
    text = fenced(part.text) if part.text else "It has no text yet."
    types = f"**Types:**\n\n{fenced_part(part.schema)}" if part.schema else ""
    said = (f"**{mark}:** {in_one_line(part.name)}{title}", text, limits_of(part), types)
    return "\n\n".join(filter(None, said))


def _summary(text: str) -> str:
    """Return a text, or the head of a long one with its number of lines."""
    if len(text) <= _SUMMARY_CHARS:
        return text
    lines = counted(len(text.splitlines()), "line")
    return f"{text[:_SUMMARY_CHARS]}\n[… the head of {lines}, {len(text)} characters …]"
