"""Reads the reflection prompt as a model does: from its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import attrs

from promptgraft.errors import ConfigError

_HEADING = re.compile(r"(#{1,6}) (.*)")
_FENCE = re.compile(r"(`{3,})[\w-]*\s*")
_ANSWERS = re.compile(r"one of:\s*(.+)", re.IGNORECASE)
_AT_MOST = re.compile(r"at most (\d+) characters")
_KEEP = re.compile(r"keep each of these placeholders[^:]*:\s*(.+?)\.(?:\s|$)", re.IGNORECASE)
_LABEL = re.compile(r"\*\*([^*:]{1,40}):\*\*\s*(.*)")


@attrs.frozen(kw_only=True)
class Shown:
    """One example as the reflection prompt shows it.

    Attributes:
        score: its score; None when it has none.
        input: what went in, as text.
        output: what came out.
        feedback: why it has its score.
    """

    score: float | None
    input: str
    output: str
    feedback: str


@attrs.frozen(kw_only=True)
class Task:
    """What a reflection prompt asks for.

    Attributes:
        current: the present text of the part.
        neighbours: the other parts of the prompt, as one text.
        choices: the answers that are allowed; empty when they are no choice.
        examples: what happened, in the order shown.
        placeholders: markers that the new text must hold.
        max_chars: how long the new text may be; None when nothing is said.
        problem: why the previous reply was refused; empty at the first attempt.
        previous: the previous reply; empty at the first attempt.
    """

    current: str
    neighbours: str
    choices: tuple[str, ...]
    examples: tuple[Shown, ...]
    placeholders: tuple[str, ...]
    max_chars: int | None
    problem: str
    previous: str


@attrs.define
class _Block:
    """A heading with the lines and the fenced texts below it."""

    title: str
    level: int
    lines: list[str] = attrs.field(factory=list)
    fences: list[tuple[str, str]] = attrs.field(factory=list)

    @property
    def prose(self) -> str:
        return "\n".join(self.lines)

    def fenced_after(self, label: str) -> str:
        return next((text for named, text in self.fences if named == label), "")


def read_task(text: str) -> Task:
    """Read a reflection prompt, in linear time.

    Raises:
        ConfigError: it shows no current text.
    """
    blocks = list(_blocks(text))
    current = _titled(blocks, "current text")
    if not current.fences:
        raise ConfigError(
            "the embedded offline model: the reflection prompt has no fenced text under "
            "`## Current text`; keep that section when you override promptgraft/gepa"
        )
    limits = _titled(blocks, "task").prose
    refused = _titled(blocks, "refused attempt")
    at_most = _AT_MOST.search(limits)
    keep = _KEEP.search(limits)
    return Task(
        current=current.fences[0][1],
        neighbours="\n\n".join(t for _, t in _titled(blocks, "rest of the prompt").fences),
        choices=_choices(_titled(blocks, "expected answers").prose),
        examples=tuple(_shown(block) for block in blocks if block.level == 3),
        placeholders=tuple(keep[1].split(", ")) if keep else (),
        max_chars=int(at_most[1]) if at_most else None,
        problem=refused.prose,
        previous=refused.fences[0][1] if refused.fences else "",
    )


def _blocks(text: str) -> Iterator[_Block]:
    block = _Block("", 0)
    fence = ""
    inside: list[str] = []
    label = ""
    for line in text.split("\n"):
        if fence:
            if line.startswith(fence) and not line.strip("` \r"):
                block.fences.append((label, "\n".join(inside)))
                fence = ""
            else:
                inside.append(line)
        elif opening := _FENCE.fullmatch(line):
            fence, inside = opening[1], []
        elif heading := _HEADING.fullmatch(line):
            yield block
            block = _Block(heading[2].strip().lower(), len(heading[1]))
            label = ""
        else:
            block.lines.append(line)
            if labelled := _LABEL.match(line):
                label = labelled[1].lower()
    if fence:
        block.fences.append((label, "\n".join(inside)))
    yield block


def _titled(blocks: list[_Block], title: str) -> _Block:
    return next((block for block in blocks if block.title == title), _Block(title, 0))


def _choices(prose: str) -> tuple[str, ...]:
    found = _ANSWERS.search(prose)
    if found is None:
        return ()
    answers = (answer.strip(" `'\".") for answer in found[1].split(","))
    return tuple(dict.fromkeys(answer for answer in answers if answer))


def _shown(block: _Block) -> Shown:
    score = None
    for line in block.lines:
        labelled = _LABEL.match(line)
        if labelled and labelled[1].lower() == "score":
            score = _number(labelled[2])
    return Shown(
        score=score,
        input=values_in(block.fenced_after("input")),
        output=block.fenced_after("output"),
        feedback=block.fenced_after("feedback"),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def values_in(text: str) -> str:
    """Return the strings that a JSON text holds, one a line, without its keys; else the text."""
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return text
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return text
    found: list[str] = []
    waiting = [data]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            waiting.extend(reversed(value.values()))
        elif isinstance(value, list):
            waiting.extend(reversed(value))
    return "\n".join(found)
