"""What in a reply of a model is the answer: without thoughts, decorations and other wrapping.

Everything that reads replies builds on this module: rollouts, judges, agents and reflections. It
repairs what can be meant in one way only, and refuses everything else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Generic, TypeVar, get_origin
from unicodedata import normalize

import attrs

from promptgraft.errors import DataFormatError, OutputError
from promptgraft.ground.serde import Json, is_unicode, parse_json, shown
from promptgraft.ground.strict import structure
from promptgraft.prompt.fields import BOOL_WORDS, Described, options_of
from promptgraft.prompt.schema import bare_value, own_names, takes_bare_text

T = TypeVar("T")

_NAMES = r"(?:seed:)?think(?:ing)?|thoughts?|reasoning"
# The tags of Qwen and R1, Magistral, Kimi, and models that imitate them.
_OPENING = re.compile(
    rf"<(?:{_NAMES})(?:\s++[\w-]++=[^<>]*+)?>|\[THINK\]|◁think▷|<\|begin_of_thought\|>"
    r"|(?:<\|start\|>assistant)?<\|channel\|>(?:analysis|commentary)<\|message\|>"
    # gpt-oss behind servers that drop its control tokens.
    r"|\A(?-i:analysis(?=(?s:.)*?assistantfinal))",
    re.IGNORECASE,
)
_CLOSING = re.compile(
    rf"</(?:{_NAMES})>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>"
    r"|(?:<\|end\|>)?(?:<\|start\|>assistant)?<\|channel\|>final<\|message\|>"
    r"|(?-i:assistantfinal)",
    re.IGNORECASE,
)
# Tried only where one may begin, which takes a sixth of the time.
_EITHER = re.compile(
    rf"(?=[<\[◁a])(?:(?P<opening>{_OPENING.pattern})|{_CLOSING.pattern})", re.IGNORECASE
)
# Ends of turns, which servers with a wrong chat template leave in the text.
_ENDS = re.compile(
    r"(?=<)(?:(?:<[|｜](?:im_end|eot_id|eom_id|end|return|end[ _▁]?of[ _▁]?\w+)[|｜]>"
    r"|<end_of_turn>|<eos>|(?P<s></s>))\s*)+\Z",
    re.IGNORECASE,
)
_UNSEEN = "\ufeff\u200b"
_BLANK = " \t\r\n\ufeff"
_BLANKS = re.compile(f"[{_BLANK}]*+")
_LINE_END = re.compile(r"[^\S\n]*+\n")
ONLY_THOUGHTS = "the reply ends with its thoughts; no answer follows them"


def answer_text(reply: str) -> str:
    """Return a reply without the thoughts before the answer and the token that ends the turn.

    Some servers leave out the tag that begins the thoughts, so a lone tag that ends them counts if
    it ends or begins a line. The result is empty if no answer follows the thoughts.
    """
    start = 0
    while (tag := _EITHER.search(reply, start)) is not None:
        end = _end_of_thought(reply, start, tag)
        if end is None:
            break
        start = end
    # HTML that strikes a text through also ends with `</s>`.
    token = _ENDS.search(reply, max(start, len(reply) - 200))
    return reply[start : token.start() if token and not (token["s"] and "<s>" in reply) else None]


def _end_of_thought(reply: str, start: int, match: re.Match[str]) -> int | None:
    """Return where the answer begins if there is a thought at ``start``; None if there is none.

    ``match`` is the first tag from there on.
    """
    before = reply[start : match.start()]
    if not match["opening"]:
        begins_line = not before.rpartition("\n")[2].strip()
        is_end = begins_line or _LINE_END.match(reply, match.end())
        return _after_blanks(reply, match.end()) if is_end else None
    if before.strip(_BLANK):
        return None
    depth, last = 0, len(reply)
    for tag in _EITHER.finditer(reply, start):
        depth += 1 if tag["opening"] else -1
        if not tag["opening"]:
            last = tag.end()
        if depth <= 0:
            break
    # A thought may mention the tag that begins it: then its last end counts.
    return _after_blanks(reply, last)


def _after_blanks(reply: str, start: int) -> int:
    match = _BLANKS.match(reply, start)
    return match.end() if match else start


@attrs.frozen
class AnswerBlock:
    """A fenced block, what stands beside its opening fence, and the line before it.

    That line is not blank, and empty if another block is before it, or nothing.
    """

    info: str
    text: str
    before: str


_FENCE = re.compile(r" {0,3}+(?P<run>`{3,}+|~{3,}+)(?P<info>[^`]*+)")


def name_of(info: str) -> str:
    """Return the name beside a fence, however it is decorated."""
    return info.strip(" []*:\"'").casefold()


def blocks(text: str, names: Collection[str] = ()) -> tuple[list[AnswerBlock], bool]:
    """Return the outermost fenced blocks, and whether the last one has no end and is left out.

    Inside a block, a fence with a language opens an inner block; a bare fence that is long
    enough closes the innermost one. CommonMark has no inner blocks, but models write them. They
    also write one block around all others: if ``names`` are what blocks may open with, those in a
    single block without such a name are returned.
    """
    blocks_read: list[AnswerBlock] = []
    open_runs: list[str] = []
    info = before = last = ""
    lines: list[str] = []
    for line in text.lstrip(_UNSEEN).replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        fence = _FENCE.fullmatch(line)
        if not open_runs:
            if fence:
                open_runs.append(fence["run"])
                info, before, lines = fence["info"].strip(), last, []
            # Nothing is said by a line that only begins like a fence.
            last = "" if line.lstrip().startswith(("```", "~~~")) else line.strip() or last
            continue
        if fence and not fence["info"].strip() and fence["run"].startswith(open_runs[-1]):
            open_runs.pop()
            if not open_runs:
                blocks_read.append(AnswerBlock(info, "\n".join(lines), before))
                last = ""
                continue
        elif fence and fence["info"].strip() and fence["run"].startswith(open_runs[0]):
            open_runs.append(fence["run"])
        lines.append(line)
    if names and len(blocks_read) == 1 and name_of(blocks_read[0].info) not in names:
        inner, is_open = blocks(blocks_read[0].text)
        if any(name_of(block.info) in names for block in inner):
            return inner, is_open or bool(open_runs)
    return blocks_read, bool(open_runs)


_WRAPPING = " \t\r\n`*\"'.“”‘’"
_STATED = re.compile(
    r"\b(?:answer|category|label|choice|result|response|classification|output)\b[*_` \t]*"
    r"(?:\bis\b|[:：=])[*_ \t]*:?|\\boxed\{(?:\\text\{)?(?P<boxed>[^{}]*+)\}",
    re.IGNORECASE,
)
_IN_TAG = re.compile(
    r"<((?:final[ _-]?)?answer|output|result)(?:\s[^<>]*+)?>(?P<text>[^<]*+)</\1>", re.IGNORECASE
)
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n")
# English only: in other languages an option counts as named wherever it occurs.
_DENIED_BEFORE = re.compile(
    r"(?:\b(?:not|cannot|neither|nor|never|unable|instead of|rather than)\b|n['’]t\b)"
    r"[^.;:,!?\n]*\Z",
    re.IGNORECASE,
)
_DENIED_AFTER = re.compile(
    r"[\s`*\"'”’]*(?:is|was|does|do|can|could|would|seems|may|might)?\s*"
    r"(?:\bnot\b|\bcannot\b|n['’]t\b)",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"\bI(?:['’]m| am) (?:sorry|unable|not able|not sure)\b|\bas an AI\b"
    r"|\bI (?:can(?:no|['’])t|cannot|won['’]t|could ?n['’]t|do not|don['’]t|refuse|decline)\b",
    re.IGNORECASE,
)


def choice_in(options: Sequence[str], reply: str) -> str:
    """Return the option that a reply chooses.

    It may be decorated, or be stated: after ``Answer:``, in a fence or tag, as the only option
    among the values of a JSON object, or among the lines as the last one or the first paragraph. A
    sentence chooses an option if it names no other and does not deny it.

    Raises:
        DataFormatError: it chooses none of them, or several.
    """
    # A letter with a mark may be written as one character or as two.
    composed = {normalize("NFC", option): option for option in options}
    return composed[_choice_in([*composed], normalize("NFC", answer_text(reply)))]


def _choice_in(options: Sequence[str], text: str) -> str:
    for passage in _statements(text):
        if (option := _option(options, passage)) is not None:
            return option
    for passages, ends in ((_texts_in_data(text), ()), (text.splitlines(), _first_and_last(text))):
        chosen = _options(options, passages)
        if len(chosen) == 1 and (not ends or chosen & _options(options, ends)):
            return chosen.pop()
    stated = _after_marker(text)
    if stated and len(named := _named(options, stated)) == 1 and not _denies(stated, *named):
        return named.pop()
    named = _named(options, text)
    if len(named) != 1:
        problem = "names none of them" if not named else f"names {len(named)} of them"
    elif not _begins(named, text) and (_REFUSAL.search(text) or _denies(text, *named)):
        problem = "refuses or denies"
    else:
        return named.pop()
    raise DataFormatError(
        f"answer: expected one of {', '.join(options)}; found {shown(text)}, which {problem}"
    )


def _statements(text: str) -> Iterator[str]:
    """Yield the passages of a reply that may be a bare answer, the most explicit first."""
    yield text
    if tagged := [*_IN_TAG.finditer(text)]:
        yield tagged[-1]["text"]
    if stated := _after_marker(text):
        yield stated
    fenced, _ = blocks(text)
    if len(fenced) == 1:
        yield fenced[0].text


def _first_and_last(text: str) -> tuple[str, str]:
    """Return the first paragraph and the last line of a text."""
    bare = text.strip()
    return _PARAGRAPH.split(bare, maxsplit=1)[0], bare.rpartition("\n")[2]


def _after_marker(text: str) -> str:
    """Return what is in the last box, or the line after the last ``Answer:``; empty if neither."""
    if not (marks := [*_STATED.finditer(text)]):
        return ""
    lines = text[marks[-1].end() :].strip().splitlines()
    return marks[-1]["boxed"] or next(iter(lines), "")


def _texts_in_data(text: str) -> list[str]:
    """Return the texts in the JSON object or list of an answer; empty if there is none."""
    if "{" not in text and "[" not in text:
        return []
    try:
        data = _lenient().data_in(text)[0]
    except DataFormatError:
        return []
    values = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return [value for value in values if isinstance(value, str)]


def _option(options: Sequence[str], text: str) -> str | None:
    """Return the option that is all of a text, apart from decoration."""
    bare = text.strip(_WRAPPING)
    folds: tuple[Callable[[str], str], ...] = (str, str.casefold)
    for fold in folds:  # exact case first: options may differ only in case
        matches = [option for option in options if fold(option) == fold(bare)]
        if len(matches) == 1:
            return matches[0]
    return None


def _options(options: Sequence[str], passages: Iterable[str]) -> set[str]:
    """Return the options that are all of one of several passages."""
    return {option for each in passages if (option := _option(options, each)) is not None}


def _begins(named: set[str], text: str) -> bool:
    """Return whether a text begins with its only option and a break, as in ``No, not today``."""
    (option,) = named
    bare = text.lstrip(_WRAPPING)
    after = bare[len(option) :].lstrip("`*\"'”’")
    return bare[: len(option)].casefold() == option.casefold() and after[:1] in {*",.;:!–—\n"}


def _denies(text: str, option: str) -> bool:
    """Return whether a text says that an option is not the answer."""
    return any(
        _DENIED_BEFORE.search(text, max(0, match.start() - 80), match.start())
        or _DENIED_AFTER.match(text, match.end())
        for match in _occurrences(option, text)
    )


def _occurrences(option: str, text: str) -> Iterator[re.Match[str]]:
    return re.finditer(rf"(?<![\w-]){re.escape(option)}(?![\w-])", text, re.IGNORECASE)


def _named(options: Sequence[str], text: str) -> set[str]:
    """Return the options that occur in ``text`` as words, but not inside a longer option."""
    occurrences = [
        (match.start(), -match.end(), option)
        for option in options
        if option
        for match in _occurrences(option, text)
    ]
    named: set[str] = set()
    widest = (0, 0)
    # At each start the longest match comes first; shorter ones inside it are not named.
    for start, minus_end, option in sorted(occurrences):
        if -minus_end > widest[1] or (start, -minus_end) == widest:
            widest = (start, -minus_end)
            named.add(option)
    return named


# Whatever may be a number, with its groups and fractions: one that is not understood counts too.
_FIGURE = re.compile(
    r"(?<![\w.,/])[-+−]?\.?\d(?:[eE][-+]\d|[\w.,/])*(?:[ \u00a0\u202f'’]\d[\w.,/]*)*"
)
_NUMBER = re.compile(r"[-+−]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?")


def number_in(reply: str) -> int | float:
    """Return the number that a reply states, or the only one in it or on the last line.

    Digits in groups, such as ``1,234``, are refused.

    Raises:
        DataFormatError: there is none, or several.
    """
    text = answer_text(reply)
    lines = [line.strip(f"{_WRAPPING}#") for line in text.strip().splitlines()]
    bare = [line for line in lines if _NUMBER.fullmatch(line)]
    for passage in (*_statements(text), *(bare if bare == lines[-1:] else ())):
        figures = [figure.rstrip("_.,") for figure in _FIGURE.findall(passage)]
        if len(figures) == 1 and _NUMBER.fullmatch(figures[0]) and not _REFUSAL.search(text):
            number = figures[0].replace("−", "-")
            try:
                value = int(number) if number.lstrip("+-").isdigit() else float(number)
            except ValueError:  # an integer of absurd length
                break
            if math.isfinite(value):
                return value
    raise DataFormatError(f"answer: expected one number, found {shown(text)}")


@attrs.frozen
class Parsed(Generic[T]):
    """A reply as a value of the output type, and notes on what was repaired."""

    output: T | None = attrs.field(hash=False)
    notes: tuple[str, ...] = ()


def read_output(
    output_type: Any,
    reply: str,
    described: Mapping[str, Described] | None = None,
    *,
    repair: bool = True,
) -> Parsed[Any]:
    """Parse a reply into ``output_type``; the output is None without a type.

    A choice is read by :func:`choice_in`. A class is read from a JSON object, see :func:`data_in`;
    its keys may be names or aliases of the fields, in any case and with any of ``_``, ``-`` and
    spaces; unknown keys are ignored.

    Args:
        output_type: the type.
        reply: the text of the model.
        described: descriptions of fields that replace those of their annotations.
        repair: whether what can be meant in one way only is repaired, with a note.

    Raises:
        OutputError: the reply does not fit; the message says what would.
    """
    if output_type is None:
        return Parsed(None)
    try:
        value, notes = _value_in(output_type, reply, described or {}, repair=repair)
        return Parsed(structure(value, output_type, where="answer"), notes)
    except DataFormatError as error:
        raise OutputError(str(error)) from None


def _value_in(
    kind: Any, reply: str, described: Mapping[str, Described], *, repair: bool
) -> tuple[Json, tuple[str, ...]]:
    if kind is str:
        return answer_text(reply), ()
    if options := options_of(kind):
        return choice_in(options, reply), ()
    if kind is bool:
        return BOOL_WORDS[choice_in(tuple(BOOL_WORDS), reply)], ()
    if takes_bare_text(kind):
        return _text_or_data(kind, answer_text(reply), described), ()
    notes: tuple[str, ...] = ()
    if kind in (int, float):
        value: Json = number_in(reply)
    else:
        wants_list = get_origin(kind) in _LISTS or kind in _LISTS
        text = answer_text(reply)
        value, notes = _lenient().data_in(text, repair=repair, wants_list=wants_list)
    value, repairs = own_names(value, kind, described), list[str]()
    value = _lenient().fitted(value, kind, repairs) if repair else value
    return value, (*notes, *repairs)


def _lenient() -> ModuleType:
    from promptgraft.prompt import lenient_json  # few programs have answers in JSON

    return lenient_json


_LISTS = (list, tuple, set, frozenset, Sequence)


def _text_or_data(kind: Any, text: str, described: Mapping[str, Described]) -> Json:
    """Return the value of a union or date that may be a bare text: its JSON where that fits."""
    try:
        value = own_names(parse_json(text.strip(), where="answer"), kind, described)
        structure(value, kind, where="answer")
    except DataFormatError:
        return bare_value(kind, text)
    # Escapes of JSON can spell halves of characters.
    return value if is_unicode(value) else bare_value(kind, text)
