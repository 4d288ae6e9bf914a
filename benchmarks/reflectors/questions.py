"""Reads a question to a reflection model as a language model does: from its text alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import attrs

_ONE = re.compile(r"The part is: (?:\w+ )?(\S+)\n\n(`{3,})\n(.*?)\n\2\n", re.DOTALL)
_REST = re.compile(r"## Rest of the prompt\n(.*?)\n## ", re.DOTALL)
_EMPTY = re.compile(r"The part is: (?:\w+ )?(\S+)\n\nIt has no text yet")
_UNNAMED = re.compile(r"perform a task for me:\n+(`{3,})\n(.*?)\n\1\n", re.DOTALL)
_MARKED = re.compile(
    r"^\*\*(P\d+):\*\* ((?:\w+ )?(\S+))[^\n]*\n\n(`{3,})\n(.*?)\n\4$", re.DOTALL | re.MULTILINE
)
_IN_BLOCKS = "Reply with one fenced block for each part"
_BRIEF = "Do not let a part grow"
_TRIED = re.compile(
    r"^(?:Tried, and not better|Better on the cases).*\n((?:(?:[-+] |\w+ \S+:).*\n)*)", re.MULTILINE
)
_ANSWER = re.compile(r"\[([a-z]+-\d+)\] ([a-z ]+)")
_FEEDBACK = re.compile(
    r"expected (\w+), answered (\w+)|\w+ wants \w+ \(\w+\)"
    r"|expected \w+ \w+ in \w+, answered \w+ \w+ in \w+"
)
_NAME = re.compile(r"\bof (\w+)")


@attrs.frozen(kw_only=True)
class Answer:
    """An answer that a question shows.

    Attributes:
        words: of its input.
        expected: the right label, where labels are asked for.
        answered: the label that was answered.
        feedback: what was said of it; empty if nothing that teaches.
    """

    words: tuple[str, ...]
    expected: str = ""
    answered: str = ""
    feedback: str = ""

    @property
    def is_wrong(self) -> bool:
        """Whether it was answered with another label."""
        return self.expected != self.answered


@attrs.frozen(kw_only=True)
class Read:
    """What a question says.

    Attributes:
        parts: the texts that may change, by name.
        marks: how the reply refers to them; empty if the reply is the text itself.
        answers: the answers that it shows.
        is_in_blocks: whether the reply is a block for each part, by its whole name.
        is_brief: whether it asks for texts that do not grow.
        failed: lines that were added and did not help.
        rest: the other texts of the prompt, as it shows them.
    """

    parts: Mapping[str, str]
    marks: Mapping[str, str]
    answers: tuple[Answer, ...]
    is_in_blocks: bool = False
    is_brief: bool = False
    failed: tuple[str, ...] = ()
    rest: str = ""

    def reply(self, texts: Mapping[str, str]) -> str:
        """Return new texts in the form that the question asks for."""
        if self.is_in_blocks:
            blocks = (f"It failed.\n```{self.marks[name]}\n{texts[name]}\n```" for name in texts)
            return "\n".join(blocks)
        if self.marks:
            edits = [{"part": self.marks[name], "text": text} for name, text in texts.items()]
            return f"```json\n{json.dumps({'edits': edits})}\n```"
        text = next(iter(texts.values()), *self.parts.values())
        return f"```instruction\n{text}\n```"


def read(question: str) -> Read:
    """Read a question of either package.

    Raises:
        ValueError: it is in no form that is known.
    """
    answers, is_brief = _answers(question), _BRIEF in question
    failed = tuple(
        line[2:]
        for lines in _TRIED.findall(question)
        for line in lines.splitlines()
        if line.startswith("+ ")
    )
    rest = "".join(_REST.findall(question))
    marked = _MARKED.findall(question)
    if marked:
        is_in_blocks = _IN_BLOCKS in question
        return Read(
            parts={_key(name): text for *_, name, _, text in marked},
            marks={_key(name): whole if is_in_blocks else mark for mark, whole, name, *_ in marked},
            answers=answers,
            is_in_blocks=is_in_blocks,
            is_brief=is_brief,
            failed=failed,
        )
    if named := _ONE.search(question):
        return Read(
            parts={_key(named[1]): named[3]},
            marks={},
            answers=answers,
            is_brief=is_brief,
            failed=failed,
            rest=rest,
        )
    if empty := _EMPTY.search(question):
        return Read(parts={_key(empty[1]): ""}, marks={}, answers=answers, rest=rest)
    if unnamed := _UNNAMED.search(question):
        # What the text says of itself is all that tells which part it is.
        name = _NAME.search(unnamed[2])
        return Read(parts={name[1] if name else "": unnamed[2]}, marks={}, answers=answers)
    raise ValueError(f"a question in an unknown form: {question[:200]!r}")


def _key(name: str) -> str:
    """Return the name of a text, in a graph that of its node."""
    return name.partition("#")[0].rpartition("/")[2]


def _answers(question: str) -> tuple[Answer, ...]:
    shown = list(_ANSWER.finditer(question))
    ends = [*(found.start() for found in shown[1:]), len(question)]
    answers: list[Answer] = []
    for found, end in zip(shown, ends, strict=True):
        said = _FEEDBACK.search(question, found.end(), end)
        answers.append(
            Answer(
                words=tuple(found[2].split()),
                expected=(said[1] or "") if said else "",
                answered=(said[2] or "") if said else "",
                feedback=said[0] if said else "",
            )
        )
    return tuple(answers)
