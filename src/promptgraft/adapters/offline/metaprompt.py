"""Reads the reflection prompt as a model does: from its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import attrs

from promptgraft.errors import ConfigError

_HEADING = re.compile(r"(#{1,6}) (.*)")
_FENCE = re.compile(r"(`{3,})[\w-]*\s*")
_LABEL = re.compile(r"\*\*([^*:]{1,40}):\*\*\s*(.*)")
_CHOICES = re.compile(r"one of:\s*(.+)", re.IGNORECASE)
_AT_MOST = re.compile(r"at most (\d{1,9}) characters")
_KEEP = re.compile(r"keep each of these placeholders[^:]*:\s*(.+?)\.(?:\s|$)", re.IGNORECASE)
_EXAMPLE_LEVEL = 3


@attrs.frozen(kw_only=True)
class ShownExample:
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
class ReflectionTask:
    """What a reflection prompt asks for.

    Attributes:
        current: the present text of the part.
        neighbours: the other parts of the prompt, as one text.
        choices: the answers that are allowed; empty when they are no choice.
        examples: what happened, in the order shown.
        placeholders: markers that the new text must hold.
        max_chars: how long the new text may be; None when nothing is said.
        previous: the reply that was refused; None at the first attempt.
    """

    current: str
    neighbours: str
    choices: tuple[str, ...]
    examples: tuple[ShownExample, ...]
    placeholders: tuple[str, ...]
    max_chars: int | None
    previous: str | None


@attrs.frozen
class Block:
    """A heading with the lines and the fenced texts below it.

    Attributes:
        title: the heading in lower case.
        level: how many ``#`` it has; 0 for what stands before the first one.
        lines: the lines that are not fenced.
        fenced: the last label (``**Input:**``) above each fenced text, and the text.
    """

    title: str
    level: int
    lines: list[str] = attrs.field(factory=list)
    fenced: list[tuple[str, str]] = attrs.field(factory=list)

    @property
    def prose(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    def under(self, label: str) -> str:
        """Return the first fenced text with that label; empty for none."""
        return next((text for found, text in self.fenced if found == label), "")


def read_task(text: str) -> ReflectionTask:
    """Read a reflection prompt, in linear time.

    Raises:
        ConfigError: it does not show the current text.
    """
    return task_of(tuple(read_blocks(text)))


def task_of(blocks: Sequence[Block]) -> ReflectionTask:
    """Return what the blocks of a reflection prompt ask for; raises as :func:`read_task`."""
    shown = titled(blocks, "current text")
    if not shown.level:
        raise ConfigError(
            "the embedded offline model: the reflection prompt has no heading "
            "`## Current text`; keep that section where you override the prompt"
        )
    limits = titled(blocks, "task").prose
    at_most = _AT_MOST.search(limits)
    keep = _KEEP.search(limits)
    refused = titled(blocks, "refused attempt").fenced
    return ReflectionTask(
        current=shown.fenced[0][1] if shown.fenced else "",
        neighbours="\n\n".join(text for _, text in titled(blocks, "rest of the prompt").fenced),
        choices=_choices(titled(blocks, "expected answers").prose),
        examples=tuple(_example(block) for block in blocks_of_examples(blocks)),
        placeholders=tuple(keep[1].split(", ")) if keep else (),
        max_chars=int(at_most[1]) if at_most else None,
        previous=refused[0][1] if refused else None,
    )


def read_blocks(text: str) -> Iterator[Block]:
    """Yield what stands before the first heading, and the blocks below the others."""
    block = Block("", 0)
    fence, label = "", ""
    inside: list[str] = []
    for line in text.split("\n"):
        if fence:
            if line.startswith(fence) and not line.strip("` \r"):
                block.fenced.append((label, "\n".join(inside)))
                fence = ""
            else:
                inside.append(line)
        elif opening := _FENCE.fullmatch(line):
            fence, inside = opening[1], []
        elif heading := _HEADING.fullmatch(line):
            yield block
            block = Block(heading[2].strip().lower(), len(heading[1]))
            label = ""
        else:
            block.lines.append(line)
            labelled = _LABEL.match(line)
            label = labelled[1].lower() if labelled else label
    yield block


def blocks_of_examples(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Return the blocks that show one example each."""
    return tuple(block for block in blocks if block.level == _EXAMPLE_LEVEL)


def titled(blocks: Sequence[Block], title: str) -> Block:
    """Return the first block of that title; an empty one of level 0 where there is none."""
    return next((block for block in blocks if block.title == title), Block(title, 0))


def _choices(prose: str) -> tuple[str, ...]:
    found = _CHOICES.search(prose)
    answers = found[1].split(",") if found else ()
    return tuple(dict.fromkeys(filter(None, (answer.strip(" `'\".") for answer in answers))))


def _example(block: Block) -> ShownExample:
    labels = {found[1].lower(): found[2] for found in map(_LABEL.match, block.lines) if found}
    return ShownExample(
        score=_number(labels.get("score", "")),
        input=_values_in(block.under("input")),
        output=block.under("output"),
        feedback=block.under("feedback"),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _values_in(text: str) -> str:
    """Return the strings that a JSON text holds, one a line, without keys; else the text."""
    try:
        waiting: list[object] = [json.loads(text)]
    except (ValueError, RecursionError):
        return text
    found: list[str] = []
    while waiting:
        match waiting.pop():
            case str(value):
                found.append(value)
            case list(items):
                waiting.extend(reversed(items))
            case dict(fields):
                waiting.extend(reversed(fields.values()))
            case _:
                pass
    return "\n".join(found)
