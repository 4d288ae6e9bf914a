"""Reading the replies of a reflection model: a new text for one part, or for several.

A text stands in a fenced block, or is made of edits of the current text. Several parts may also be
edited in one JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from html import escape, unescape
from typing import NamedTuple

import attrs

from promptgraft.ground.serde import Json, did_you_mean, shown
from promptgraft.ground.text import clip, clip_line, listed
from promptgraft.overrides.parts.examples import json_line
from promptgraft.prompt.answers import AnswerBlock, answer_text, blocks, name_of
from promptgraft.targets.base import (
    InvalidProposalError,
    RejectionReason,
    check_usable,
    unreadable,
)
from promptgraft.targets.json_reply import fields_in, read_value, text_in, unfit
from promptgraft.targets.text_lines import SEARCH, SEARCHES, edited

TEXT_TAG = "instruction"
JSON_TAG = "json"
"""The tags of a reply's block: free text, or one JSON object."""

_CUT_OFF = frozenset({"length", "max_tokens"})  # as OpenAI and as Anthropic say it
_REASON_CHARS = 400
_LONGER = "with more backticks than the text itself uses"


class Edit(NamedTuple):
    """A new text, and the model's reason for it in one line, which may be empty."""

    text: str
    reason: str = ""


# One part.


def new_text(
    reply: str,
    current: str = "",
    *,
    tag: str = TEXT_TAG,
    finish_reason: str = "stop",
    part: str = "",
    others: Collection[str] = (),
) -> Edit:
    """Return the text of the reply's block with ``tag``, and the line before the block.

    The block is the only one with that tag or with the name of the part, or the only one at all.
    Its text may contain blocks, if their fences are shorter or have a language. What is around it
    is ignored, but for a bare fence below it, which may end a text with bare fences. A JSON object,
    or edits, need no block; edits are made in the current text, and may stand in several blocks.

    Args:
        reply: the reply.
        current: the current text.
        tag: what the block opens with.
        finish_reason: why the model ended it.
        part: the name of the part that the text is for.
        others: the names of other parts, whose texts are refused.

    Raises:
        InvalidProposalError: there is no such block, more than one, or one whose end is unclear;
            its text is empty or contains unusable characters; or :func:`rewritten` refuses it.
    """
    if finish_reason in _CUT_OFF:
        raise unreadable("the reply was cut off before its end; write a shorter text")
    text = answer_text(reply)
    search = SEARCHES.search(text) if tag == TEXT_TAG else None
    if search and blocks(text[: search.start()]) == ([], False):
        block = AnswerBlock("", text[search.start() :].strip(), "")
    else:
        block = _block_for(text, tag, part or tag, others)
    edit = _edit_in(block)
    return edit._replace(text=rewritten(current, edit.text)) if tag == TEXT_TAG else edit


def _block_for(text: str, tag: str, part: str, others: Collection[str]) -> AnswerBlock:
    """Return the block for a part; edits in several blocks are one."""
    names = {tag, name_of(part)}
    all_names = names.union(map(name_of, filter(None, others)))
    blocks_read, is_open = blocks(text, all_names)
    if is_open:
        raise unreadable("the reply's fenced block does not end; close it with the same fence")
    bare = text.strip()
    if not blocks_read and tag == JSON_TAG and bare.startswith("{") and bare.endswith("}"):
        return AnswerBlock(tag, bare, "")
    if not blocks_read:
        raise unreadable(f"the reply has no fenced block; open one with ```{tag}")
    named = [block for block in blocks_read if name_of(block.info) in names]
    chosen = named or blocks_read
    if len(chosen) > 1 and not all(SEARCHES.match(block.text) for block in chosen):
        raise unreadable(
            f"the reply has {len(chosen)} blocks that may be the text; reply with one, and open it "
            f"{_LONGER}"
        )
    if any(not block.info for block in blocks_read[blocks_read.index(chosen[-1]) + 1 :]):
        raise unreadable(f"it is not clear where the text ends; open the block {_LONGER}")
    if not named and (name := name_of(chosen[0].info)) in all_names:
        raise unreadable(f"the block is for {shown(name)}; write the text of {shown(part)}")
    if not named and _has_text(chosen[0].info, all_names):
        raise unreadable(_TEXT_BESIDE)
    return attrs.evolve(chosen[0], text="\n".join(block.text for block in chosen))


# Behind the name of a block: more than a word, and no attributes.
_TEXT = re.compile(r"[ :]\s*+[^\s=][^=]*\s[^=]*")
_TEXT_BESIDE = "text stands beside the fence that opens a block; begin a new line"


def _has_text(info: str, names: Iterable[str]) -> bool:
    """Return whether more than a name stands beside the fence that opens a block."""
    rests = (info[len(name) :] for name in names if info.casefold().startswith(name.casefold()))
    return any(map(_TEXT.fullmatch, rests))


def _edit_in(block: AnswerBlock) -> Edit:
    text = block.text.strip("\n")
    if not text.strip():
        raise InvalidProposalError(RejectionReason.EMPTY, "the block is empty; write a text")
    check_usable(text, "the text")
    return Edit(text, clip(block.before, _REASON_CHARS, around=" "))


_KEPT = r"(?:(?:is|are|remain|stay)s? )?(?:unchanged|no changes?|(?:the )?same|as before|as above)"
_REST = (
    rf"(?:the )?(?:rest|remaining|existing|previous)(?: \w+){{0,4}}? (?:{_KEPT}"
    rf"|(?:text|prompt|rules?|instructions?|lines?|sections?)(?: {_KEPT}| here)?)"
)
# What a model writes beside or in place of a text; the first two are known in English only. A good
# text that is refused costs a question, and a bad one that is taken a few test calls: both the form
# and the words must be those of no text.
_NO_TEXT = {
    "begins with words about it": re.compile(
        r"\A\W{0,20}(?:(?:sure|certainly|of course)[,!.][^\n:]{0,99}"
        r"|(?:\w+[,!.] )?(?:here|below)(?:['’]s| is| are)\b[^\n:]{0,60}\b(?:improved|revised"
        r"|updated|new|rewritten|refined|better|optimi[sz]ed|final|modified)\b[^\n:]{0,40}"
        r"\b(?:prompt|instructions?|text|version|section)\b(?! (?:of|from|by)\b)[^\n:]{0,60})"
        r":\W*(?:\n|\Z)",
        re.IGNORECASE,
    ),
    "leaves out lines": re.compile(
        rf"^(?:(?=[^\w\n]*?(?:\.{{3}}|…))[^\w\n]*+(?:\w++[ ,]++){{0,6}}?{_KEPT}"
        rf"|(?=[^\w\n]*?(?:\.{{3}}|…|[\[(]|<!--))[^\w\n]*+(?:{_KEPT}|{_REST}))[^\w\n]*+$",
        re.IGNORECASE | re.MULTILINE,
    ),
    "is a diff": re.compile(
        r"\A\s*(?:@@ -\d|--- \S[^\n]*\n\+\+\+ |\*\*\* (?:Begin Patch|Update File)|diff --git "
        r"|<{5,} )|^>{5,} ?REPLACE",
        re.MULTILINE,
    ),
    "is a placeholder": re.compile(r"\A\s*<[^<>\n]+>\s*\Z"),
    "begins with a tag of the question": re.compile(
        r"\A\s*(?:<think>|<instruction>(?s:.)*</instruction>\s*\Z)"
    ),
}
_OBJECT = re.compile(r"\s*\{\s*\"")


def rewritten(before: str, reply: str) -> str:
    """Return the text that a block means: the edits in it made in the current text, or itself.

    Raises:
        InvalidProposalError: the edits cannot be applied, or the block is no text alone, such as a
            diff or one that leaves out lines, and the current text has nothing like that.
    """
    if (search := SEARCHES.search(reply)) and not SEARCHES.search(before):
        if reply[: search.start()].strip():
            raise unreadable(f"the block holds other text before its edits; begin it with {SEARCH}")
        return edited(before, reply)
    faults = [
        fault
        for fault, pattern in _NO_TEXT.items()
        if pattern.search(reply) and not pattern.search(before)
    ]
    removed = {f"-{line}" for line in before.split("\n") if line.strip()}
    if "\n+" in f"\n{reply}" and not removed.isdisjoint(reply.split("\n")):
        faults.append("is a diff")
    plain = unescape(reply)
    if escape(plain) == reply.replace("&#39;", "&#x27;") != plain and unescape(before) == before:
        faults.append("is escaped for HTML")
    if _OBJECT.match(reply) and not _OBJECT.match(before):
        with suppress(InvalidProposalError):
            read_value(reply)
            faults.append("is a JSON object")
    if faults:
        raise unreadable(f"the block {faults[0]}; write the whole new text in it and nothing else")
    return reply


# Several parts.

_JSON_EDITS = re.compile(r"""\bedits["'”]?\s*:""")


class ReadEdits(NamedTuple):
    """The usable edits of a reply by the marks of their parts, and the faults of the others."""

    edits: Mapping[str, Edit]
    faults: Sequence[InvalidProposalError]


def edits_in(reply: str, names: Mapping[str, str], *, finish_reason: str = "stop") -> ReadEdits:
    """Return the new texts in a reply: blocks by the names of their parts, or one JSON object.

    ``names`` has the marks of the parts that it may edit, by name.

    Raises:
        InvalidProposalError: the reply cannot be read.
    """
    all_names = {**names, **{mark: mark for mark in names.values()}}
    blocks_read, is_open = blocks(answer_text(reply), set(map(name_of, all_names)))
    edits, faults = _named_edits(blocks_read, all_names)
    if not edits and _JSON_EDITS.search(reply):
        return read_edits(
            new_text(reply, tag=JSON_TAG, finish_reason=finish_reason).text, names.values()
        )
    if finish_reason in _CUT_OFF:
        raise unreadable("the reply was cut off before its end; write shorter texts")
    if is_open:
        raise unreadable("the reply's last block does not end; close it with the same fence")
    if any(not block.info for block in blocks_read):
        raise unreadable(f"it is not clear where a text ends; open its block {_LONGER}")
    if not edits:
        what = "no block of the reply opens with the name of a part; open the block of each new"
        mend = f"text with ``` and a name, such as ```{next(iter(names))}"
        raise faults[0] if faults else unreadable(f"{what} {mend}")
    return ReadEdits(edits, faults)


def _named_edits(
    blocks_read: Iterable[AnswerBlock], names: Mapping[str, str]
) -> tuple[Mapping[str, Edit], list[InvalidProposalError]]:
    """Return the texts of blocks by the marks of their parts, and the faults of other blocks.

    These are empty, have unusable characters or text beside the fence, misspell a name, or are
    several for one part and no edits.
    """
    edits, twice, faults = dict[str, Edit](), set[str](), list[InvalidProposalError]()
    for block in blocks_read:
        try:
            mark = _mark_of(block, names)
            if mark is None:
                continue
            edit, earlier = _edit_in(block), edits.get(mark)
            if earlier is None:
                edits[mark] = edit
            elif SEARCHES.match(earlier.text) and SEARCHES.match(edit.text):
                edits[mark] = Edit(f"{earlier.text}\n{edit.text}", earlier.reason)
            else:
                twice.add(mark)
                raise unfit("expected one block for each part, found two for", mark)
        except InvalidProposalError as error:
            faults.append(error)
    return {mark: edit for mark, edit in edits.items() if mark not in twice}, faults


def _mark_of(block: AnswerBlock, names: Mapping[str, str]) -> str | None:
    """Return the mark of the part that a block names; None if it names no part, or several."""
    if block.info in names:
        return names[block.info]
    # In another spelling it must fit a single part: `look` may stand beside `Look`.
    folded = name_of(block.info)
    marks = {mark for name, mark in names.items() if name_of(name) == folded}
    if len(marks) == 1:
        return marks.pop()
    if not marks and _has_text(block.info, names):
        raise unreadable(_TEXT_BESIDE)
    if not marks and (hint := did_you_mean(block.info, names)):
        raise unreadable(f"no part is called {shown(block.info)}{hint}")
    return None


def no_edit() -> InvalidProposalError:
    """Return the refusal of a reply without an edit."""
    return InvalidProposalError(RejectionReason.UNCHANGED, "the reply edits no part")


def read_edits(text: str, marks: Collection[str]) -> ReadEdits:
    """Return the new texts in a reply of JSON by ``marks``, those of the parts; objects as JSON.

    Raises:
        InvalidProposalError: the reply cannot be read, or none of its edits can: they edit an
            unknown part or one part twice, or contain unusable characters.
    """
    value = read_value(text)
    edits = value.get("edits") if isinstance(value, dict) else None
    # Beside edits, other fields do no harm.
    edits = edits or fields_in(value, ("edits",))["edits"]
    if not isinstance(edits, list):
        raise unfit("edits: expected a list of objects", edits)
    if not edits:
        raise no_edit()
    edits_read: dict[str, Edit] = {}
    faults: list[InvalidProposalError] = []
    unread_marks = set(marks)
    for number, entry in enumerate(edits, start=1):
        where = f"edit {number}: "
        try:
            mark, edit = _read_edit(entry, where)
            if mark not in unread_marks:
                edits_read.pop(mark, None)  # of two texts for a part, neither may be meant
                expected = f"{where}part: expected one of {listed(marks)}, each once"
                raise unfit(expected, mark)
        except InvalidProposalError as error:
            faults.append(error)
        else:
            unread_marks.remove(mark)
            edits_read[mark] = edit
    if not edits_read:
        raise faults[0]
    return ReadEdits(edits_read, faults)


def _read_edit(entry: Json, where: str) -> tuple[str, Edit]:
    fields = fields_in(entry, ("part", "text"), optional=("reason",), where=where)
    mark = text_in(fields["part"], f"{where}part").strip(" []`").upper()
    value, reason = fields["text"], fields.get("reason")
    # The text of a part in JSON may stand in its form, as an object.
    text = json_line(value) if isinstance(value, dict) else text_in(value, f"{where}text")
    why = clip_line(reason, _REASON_CHARS) if isinstance(reason, str) else ""
    return mark, Edit(text, why)
