"""Improves those parts of a prompt that failures blame, as a reflection model would."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import attrs

from promptgraft.adapters.offline.learner import names_of
from promptgraft.adapters.offline.questions import AT_MOST, Question, read_blocks, read_question
from promptgraft.adapters.offline.reflector import (
    NOTHING_LEARNED,
    Better,
    why_nothing,
    without_unusable,
)
from promptgraft.adapters.offline.words import object_in
from promptgraft.serde import Json
from promptgraft.text import fenced

KEY = "reflect-prompt"

_MARK = re.compile(r"\*\*(P\d{1,6}):\*\* (.*)")
_KIND = re.compile(r"(?:.*#)?(section|summary|tool|output field) ")


def edit(text: str, *, words_per_failure: int, attention: int) -> str:
    """Return a reply to the question on all parts: one block with edits.

    Of the sections, the one whose text names most of the options is blamed. Tools and fields of
    the answer get what questions on them alone would be answered. After a refusal fewer words are
    added.

    Raises:
        ConfigError: the prompt does not show the current texts.
    """
    question = read_question(text)
    words = max(1, words_per_failure >> (question.refused is not None))
    parts = list(_parts(text, question))
    options = tuple(option for field in question.fields for option in field.options)
    sections = [mark for mark, kind, _ in parts if kind in ("section", "summary")]
    texts = {mark: part.current for mark, _, part in parts}
    blamed = max(
        sections,
        key=lambda mark: len(names_of(options).named_in(texts[mark])) if options else 0,
        default="",
    )
    edits: list[Json] = []
    for mark, kind, part in parts:
        better = Better(part, words, attention)
        new = better.tool() if kind == "tool" else better.field() if kind == "output field" else ""
        if mark == blamed:
            new = better.section()
        if new and new != part.current:
            new = without_unusable(new)
            said: Json = new if mark == blamed else object_in(new)
            edits.append({"part": mark, "reason": "failures belong to it", "text": said})
    if edits:
        return _block(edits)
    unchanged: Json = {"part": parts[0][0], "text": parts[0][2].current}
    return f"{NOTHING_LEARNED}{why_nothing(question)}\n\n{_block([unchanged])}"


def _parts(text: str, question: Question) -> Iterator[tuple[str, str, Question]]:
    """Yield mark, kind and question of each part that is shown."""
    block = next(block for block in read_blocks(text) if block.title == "current text")
    texts = dict(reversed(block.fenced))
    for shown in re.split(r"(?m)^(?=\*\*P\d)", block.prose):
        if found := _MARK.match(shown):
            kind, at_most, mark = _KIND.match(found[2]), AT_MOST.search(shown), found[1]
            others = (one for label, one in texts.items() if label != mark.lower())
            part = attrs.evolve(
                question,
                part=found[2][kind.start(1) :] if kind else found[2],
                current=texts.get(mark.lower(), ""),
                neighbours="\n\n".join((*others, question.neighbours)),
                max_chars=int(at_most[1]) if at_most else None,
                refused=None,
            )
            yield mark, kind[1] if kind else "section", part


def _block(edits: list[Json]) -> str:
    fence, _, rest = fenced(json.dumps({"edits": edits}, ensure_ascii=False)).partition("\n")
    return f"{fence}json\n{rest}"
