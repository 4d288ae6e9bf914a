"""Parsing replies of a reflection model: texts in blocks, or JSON with several fields."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape, unescape
from typing import NamedTuple

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import Json, did_you_mean, parse_json, shown
from promptgraft.ground.text import clip, listed
from promptgraft.journal.records import MAX_DEPTH
from promptgraft.overrides.parts.examples import ToolCall, WorkedExample, one_line
from promptgraft.prompt.answers import AnswerBlock, answer_text, blocks, name_of
from promptgraft.targets.base import InvalidProposalError, RejectionReason, unreadable
from promptgraft.targets.text_lines import SEARCH, SEARCHES, edited

TEXT_TAG = "instruction"
JSON_TAG = "json"
"""The tags of a reply's block: free text, or one JSON object."""

_CUT_OFF = frozenset({"length", "max_tokens"})  # as OpenAI and as Anthropic say it


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
    written = _checked(block.text)
    reason = clip(block.before, _REASON_CHARS, around=" ")
    return Edit(rewritten(current, written) if tag == TEXT_TAG else written, reason)


def _block_for(text: str, tag: str, part: str, others: Collection[str]) -> AnswerBlock:
    """Return the block for a part; edits in several blocks are one."""
    own_names = {tag, name_of(part)}
    all_names = own_names.union(map(name_of, filter(None, others)))
    blocks_read, is_open = blocks(text, all_names)
    if is_open:
        raise unreadable("the reply's fenced block does not end; close it with the same fence")
    bare = text.strip()
    if not blocks_read and tag == JSON_TAG and bare.startswith("{") and bare.endswith("}"):
        return AnswerBlock(tag, bare, "")
    if not blocks_read:
        raise unreadable(f"the reply has no fenced block; open one with ```{tag}")
    named = [block for block in blocks_read if name_of(block.info) in own_names]
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
_LONGER = "with more backticks than the text itself uses"
_TEXT_BESIDE = "text stands beside the fence that opens a block; begin a new line"


def _has_text(info: str, names: Iterable[str]) -> bool:
    """Return whether more than a name stands beside the fence that opens a block."""
    rests = (info[len(name) :] for name in names if info.casefold().startswith(name.casefold()))
    return any(map(_TEXT.fullmatch, rests))


def _checked(text: str) -> str:
    body = text.strip("\n")
    if not body.strip():
        raise InvalidProposalError(RejectionReason.EMPTY, "the block is empty; write a text")
    if bad := _UNUSABLE.search(body):
        raise _unusable(bad[0], "the text")
    return body


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


_OBJECT = re.compile(r"\s*\{\s*\"")
_ALIASES = "aliases"
_TOOL_EXAMPLE = ("description", "input", "output")
_STEP = ("tool", *_TOOL_EXAMPLE)
_NO_INPUT = (None, "", "none", "null", "nothing")
_TASK_EXAMPLE = ("objective", "steps", "outcome")

_UNUSABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
_FENCED = re.compile(r"(?P<run>`{3,}+|~{3,}+)[^`\n]*+\n(?P<body>.*)\n(?P=run)", re.DOTALL)
_SHOWN_CHARS = 80
_SHOWN_NAMES = 40
# The longest key that a store takes.
_KEY_CHARS = 64
_KEY_GAP = re.compile(r"[^a-z0-9_]+")


def read_value(text: str) -> Json:
    """Return the JSON that a model wrote, with or without a fence around it.

    Raises:
        InvalidProposalError: it cannot be read.
    """
    body = text.strip("\ufeff \t\r\n")
    if fenced := _FENCED.fullmatch(body):
        body = fenced["body"].strip()
    if not body:
        raise InvalidProposalError(RejectionReason.EMPTY, "the text is empty")
    from promptgraft.prompt.lenient_json import parse_lenient  # few replies are in JSON

    try:
        return parse_lenient(body)
    except DataFormatError as error:
        raise unreadable(str(error)) from None


def read_tool_example(text: str, tool_name: str, *, bare: Collection[str] = ()) -> ToolCall:
    """Return the example of the tool ``tool_name`` that a model wrote.

    Args:
        text: what it wrote.
        tool_name: the tool.
        bare: the tools without parameters, whose ``input`` may be missing, null or "none".

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    value = _with_input(read_value(text), tool_name, bare)
    return _read_call(fields_in(value, _TOOL_EXAMPLE), tool_name)


def write_tool_example(call: ToolCall) -> str:
    """Return an example of a tool in the form that :func:`read_tool_example` reads."""
    return _on_lines(_call(call))


def read_task_example(
    text: str, *, outcome_is_text: bool, has_tools: bool = True, bare: Collection[str] = ()
) -> tuple[str | None, WorkedExample]:
    """Return the task example that a model wrote, preceded by its key if it has one.

    Args:
        text: what it wrote.
        outcome_is_text: whether the outcome must be a text; else it is any JSON value.
        has_tools: whether there are tools; without any, ``steps`` are left out.
        bare: as :func:`read_tool_example` takes it.

    Raises:
        InvalidProposalError: it cannot be read, lacks a field, or holds unusable characters.
    """
    value = read_value(text)
    if not has_tools and isinstance(value, dict):
        value["steps"] = []
    fields = fields_in(value, _TASK_EXAMPLE, optional=("key",))
    objective = text_in(fields["objective"], "objective")
    if not objective.strip():
        raise InvalidProposalError(RejectionReason.EMPTY, "objective: expected a text, found none")
    outcome = fields["outcome"]
    key = text_in(fields["key"], "key") if "key" in fields else None
    return key, WorkedExample(
        objective=objective,
        steps=tuple(_steps(fields["steps"], bare)),
        outcome_json=one_line(text_in(outcome, "outcome") if outcome_is_text else outcome),
    )


def write_task_example(example: WorkedExample, *, key: str | None = None) -> str:
    """Return a task example in the form that :func:`read_task_example` reads."""
    steps = [
        _on_one_line({"tool": one_line(step.tool_name), **_call(step)}) for step in example.steps
    ]
    fields = {} if key is None else {"key": one_line(key)}
    fields["objective"] = one_line(example.objective)
    fields["steps"] = "[\n    " + ",\n    ".join(steps) + "\n  ]" if steps else "[]"
    fields["outcome"] = example.outcome_json
    return _on_lines(fields)


def read_named_texts(text: str, names: Collection[str]) -> dict[str, str]:
    """Return the text of each field that a model wrote one for; others are left out.

    ``aliases`` is a list of names, kept as :func:`write_names` writes it.

    Args:
        text: what it wrote.
        names: the fields that there are, such as ``description`` and ``param query``.

    Raises:
        InvalidProposalError: it names another field, or holds unusable characters.
    """
    texts = fields_in(read_value(text), (), optional=names)
    if not texts:
        detail = f"expected one of {_listed(names)} at least, found an empty object"
        raise InvalidProposalError(RejectionReason.EMPTY, detail)
    return {
        name: write_names(_names(value)) if name == _ALIASES else text_in(value, name)
        for name, value in texts.items()
    }


def write_named_texts(said: Mapping[str, str]) -> str:
    """Return texts by name in the form that :func:`read_named_texts` reads."""
    return _on_lines(
        {name: text if name == _ALIASES else one_line(text) for name, text in said.items()}
    )


def read_names(text: str) -> tuple[str, ...]:
    """Return the names in a text that :func:`write_names` wrote."""
    return _names(parse_json(text, where=_ALIASES))


def write_names(names: Sequence[str]) -> str:
    """Return names as a JSON list in one line."""
    return one_line(list(names))


def fresh_key(wanted: str | None, taken: Collection[str]) -> str:
    """Return a key for a task example that resembles ``wanted`` and is not in ``taken``."""
    decomposed = unicodedata.normalize("NFKD", wanted or "")
    letters = "".join(char for char in decomposed if not unicodedata.combining(char))
    stem = _KEY_GAP.sub("-", letters.casefold()).strip("-_")[:_KEY_CHARS].rstrip("-_") or "example"
    endings = (f"-{number}" for number in itertools.count(2))
    numbered = (f"{stem[: _KEY_CHARS - len(end)]}{end}" for end in endings)
    used = frozenset(taken)
    return next(key for key in itertools.chain([stem], numbered) if key not in used)


def fields_in(
    value: Json, required: Collection[str], *, optional: Collection[str] = (), where: str = ""
) -> dict[str, Json]:
    """Return an object that has all required fields, and no others except optional ones.

    Raises:
        InvalidProposalError: it does not fit; the message begins with ``where``.
    """
    names = (*optional, *required)
    if not isinstance(value, dict):
        raise unfit(f"{where}expected one JSON object", value)
    for name in value:
        if name not in names:
            hint = did_you_mean(name[:_SHOWN_CHARS], list(names))
            raise unreadable(f"{where}unknown field {shown(name)}{hint}; expected {_listed(names)}")
    for name in required:
        if name not in value:
            raise unreadable(f"{where}the field `{name}` is missing; expected {_listed(names)}")
    for name, inner in value.items():
        _check_usable(inner, f"{where}{name}")
    return value


def _check_usable(value: Json, where: str) -> None:
    levels: list[tuple[Json, int]] = [(value, 1)]
    while levels:
        part, depth = levels.pop()
        if isinstance(part, str):
            if bad := _UNUSABLE.search(part):
                raise _unusable(bad[0], where)
        elif isinstance(part, (list, dict)):
            if depth > MAX_DEPTH:
                raise unreadable(f"{where}: nested deeper than {MAX_DEPTH} levels")
            inner = part if isinstance(part, list) else [*part, *part.values()]
            levels.extend((each, depth + 1) for each in inner)


def _unusable(character: str, where: str) -> InvalidProposalError:
    detail = f"{where} holds the character U+{ord(character):04X}; leave it out"
    return InvalidProposalError(RejectionReason.UNUSABLE_TEXT, detail)


def text_in(value: Json, where: str) -> str:
    """Return a value that is a text.

    Raises:
        InvalidProposalError: it is not; the message begins with ``where``.
    """
    if not isinstance(value, str):
        raise unfit(f"{where}: expected a text", value)
    return value


def _names(value: Json) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise unfit(f"{_ALIASES}: expected a list of texts", value)
    names = tuple(text_in(item, _ALIASES) for item in value)
    if not all(map(str.strip, names)):
        raise unfit(f"{_ALIASES}: expected no empty name", value)
    return names


def _with_input(value: Json, tool: Json, bare: Collection[str]) -> Json:
    """Return a call; the input of a tool without parameters is normalized to an empty object."""
    if isinstance(value, dict) and isinstance(tool, str) and tool in bare:
        input_value = value.get("input")
        normalized = input_value.strip().casefold() if isinstance(input_value, str) else input_value
        return {**value, "input": {}} if normalized in _NO_INPUT else value
    return value


def _steps(value: Json, bare: Collection[str]) -> Iterator[ToolCall]:
    if not isinstance(value, list):
        raise unfit("steps: expected a list of objects", value)
    for number, item in enumerate(value, start=1):
        where = f"step {number}: "
        tool = item.get("tool") if isinstance(item, dict) else None
        fields = fields_in(_with_input(item, tool, bare), _STEP, where=where)
        yield _read_call(fields, text_in(fields["tool"], f"{where}tool"), where)


def _read_call(found: Mapping[str, Json], tool_name: str, where: str = "") -> ToolCall:
    return ToolCall(
        tool_name=tool_name,
        description=text_in(found["description"], f"{where}description"),
        input_json=one_line(found["input"]),
        output_json=one_line(found["output"]),
    )


def _call(call: ToolCall) -> dict[str, str]:
    return {
        "description": one_line(call.description),
        "input": call.input_json,
        "output": call.output_json,
    }


def _on_lines(fields: Mapping[str, str]) -> str:
    """Return a JSON object from values that are JSON already, with each field on a line."""
    lines = ",\n".join(f"  {one_line(name)}: {value}" for name, value in fields.items())
    return f"{{\n{lines}\n}}"


def _on_one_line(fields: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{one_line(name)}: {value}' for name, value in fields.items())}}}"


def _listed(names: Collection[str]) -> str:
    listed = [f"`{name}`" for name in itertools.islice(names, _SHOWN_NAMES)]
    return ", ".join(listed if len(listed) == len(names) else [*listed, "…"])


def unfit(expected: str, value: Json) -> InvalidProposalError:
    """Return the refusal of a value in a reply, with the beginning of what was found."""
    value_shown = clip(json.dumps(value), _SHOWN_CHARS, around=" ")
    return unreadable(f"{expected}, found {value_shown}")


_REASON_CHARS = 400
_JSON_EDITS = re.compile(r"""\bedits["'”]?\s*:""")


class Edit(NamedTuple):
    """A new text, and the model's reason for it in one line, which may be empty."""

    text: str
    reason: str = ""


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
    meanings: dict[str, set[str]] = {}
    for name, mark in names.items():
        meanings.setdefault(name_of(name), set()).add(mark)
    edits, twice, faults = dict[str, Edit](), set[str](), list[InvalidProposalError]()
    for block in blocks_read:
        # In its own spelling, or in any other that fits a single part: `look` may stand by `Look`.
        spelled = {names[block.info]} if block.info in names else meanings.get(name_of(block.info))
        try:
            if spelled is None and _has_text(block.info, names):
                raise unreadable(_TEXT_BESIDE)
            if spelled is None and (near := did_you_mean(block.info, names)):
                raise unreadable(f"no part is called {shown(block.info)}{near}")
            if spelled is None or len(spelled) > 1:
                continue
            [mark] = spelled
            edit = Edit(_checked(block.text), clip(block.before, _REASON_CHARS, around=" "))
            earlier = edits.setdefault(mark, edit)
            if SEARCHES.match(earlier.text) and SEARCHES.match(edit.text) and earlier is not edit:
                edits[mark] = Edit(f"{earlier.text}\n{edit.text}", earlier.reason)
            elif earlier is not edit:
                twice.add(mark)
                raise unfit("expected one block for each part, found two for", mark)
        except InvalidProposalError as error:
            faults.append(error)
    return {mark: edit for mark, edit in edits.items() if mark not in twice}, faults


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
    if isinstance(value, dict) and isinstance(edits, list):
        value = {**value, "edits": []}  # each is checked by itself
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
        except InvalidProposalError as error:
            faults.append(error)
            continue
        if mark in unread_marks:
            unread_marks.remove(mark)
            edits_read[mark] = edit
        else:
            edits_read.pop(mark, None)  # of two texts for a part neither is the one that is meant
            expected = f"{where}part: expected one of {listed(marks)}, each once"
            faults.append(unfit(expected, mark))
    if not edits_read:
        raise faults[0]
    return ReadEdits(edits_read, faults)


def _read_edit(given: Json, where: str) -> tuple[str, Edit]:
    fields = fields_in(given, ("part", "text"), optional=("reason",), where=where)
    mark = text_in(fields["part"], f"{where}part").strip(" []`").upper()
    new_text, reason = fields["text"], fields.get("reason")
    text = one_line(new_text) if isinstance(new_text, dict) else text_in(new_text, f"{where}text")
    why = " ".join(reason.split()) if isinstance(reason, str) else ""
    return mark, Edit(text, clip(why, _REASON_CHARS, around=" "))
