"""Regular expressions of users: the metric, and how they are matched with a time limit.

They have the syntax of ``re`` and are matched by the library ``regex``.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, ClassVar

import attrs

from promptgraft.errors import ConfigError
from promptgraft.evals.metrics.base import ReferenceMetric, held
from promptgraft.evals.metrics.reading import quoted
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import FLAG

if TYPE_CHECKING:
    import regex

MATCH_SECONDS = 1.0
"""Seconds after which a match is aborted."""

MOST_ITEMS = 100_000
"""The maximum size of a pattern: characters, sets and groups, with repetitions written out."""

_SET = r"(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])"
_COUNT = r"\{(?:(?P<least>\d+)(?P<range>,\d*)?|,\d*)\}"
_TOKEN = rf"(?P<times>[*+?]|{_COUNT})|\\.|{_SET}|\(\?#[^)]*\)|(?P<open>\()|(?P<close>\))|."
_TOKENS = re.compile(_TOKEN, re.DOTALL)
_VERBOSE_TOKENS = re.compile(rf"#[^\n]*|{_TOKEN}", re.DOTALL)
_BRACKET = re.compile(r"(\\.)|\[", re.DOTALL)

# Letters and digits of a pattern that stand for themselves.
_ESCAPE = re.compile(r"\\[A-Za-z]|\[[^\]]*\]|\{[^}]*\}|\(\?[a-zA-Z:<=!]*|\\")
_LITERAL = re.compile(r"\w[\w ]{2,}")


class StuckPatternError(Exception):
    """A match was aborted after ``MATCH_SECONDS``."""


def hold_pattern(source: object) -> None:
    """Raise a ``ConfigError`` unless ``source`` is a regular expression of acceptable size."""
    message = f"expected a regular expression, found {shown(source)}"
    if not isinstance(source, str):
        raise ConfigError(message)
    try:
        _compiled(source, 0)
    except RecursionError:
        raise ConfigError(f"{message}: it is nested too deeply") from None
    except (re.error, OverflowError) as error:
        raise ConfigError(f"{message}: {error}") from None


def search(
    source: str, text: str, *, flags: int = 0, whole: bool = False
) -> tuple[int, str] | None:
    """Return the position and the text of the first match, if there is one.

    With ``whole``, the pattern must match all of the text.

    Raises:
        StuckPatternError: the match took too long.
    """
    pattern = _compiled(source, flags)
    try:
        match = pattern.fullmatch if whole else pattern.search
        # `concurrent` releases the GIL, so that a slow match does not stop other threads.
        matched = match(text, timeout=MATCH_SECONDS, concurrent=True)
    except TimeoutError:
        raise StuckPatternError(
            f"the pattern {shown(source)} took longer than {MATCH_SECONDS:g} s on "
            f"{len(text):,} characters; avoid repetitions inside repetitions"
        ) from None
    return None if matched is None else (matched.start(), matched[0])


@functools.lru_cache(maxsize=256)
def _compiled(source: str, flags: int) -> regex.Pattern[str]:
    import regex

    # `re` decides what a valid pattern is, because `regex` accepts more.
    is_verbose = bool(re.compile(source, flags).flags & re.VERBOSE)
    try:
        return regex.compile(_spelled(source, is_verbose=is_verbose), flags | regex.VERSION0)
    except regex.error as error:
        raise re.error(str(error)) from None


def _spelled(source: str, *, is_verbose: bool) -> str:
    """Return a pattern that means to ``regex`` what ``source`` means to ``re``.

    To ``regex``, ``{e}`` allows an error and ``[[:alpha:]]`` is a character class. It also writes
    repetitions out, and needs too much memory for many of them.

    Raises:
        OverflowError: the pattern repeats too much.
    """
    spelled: list[str] = []
    sizes, last = [0], 0  # of each open group, and of the item that a repetition would repeat
    for token in (_VERBOSE_TOKENS if is_verbose else _TOKENS).finditer(source):
        text, kind = token[0], token.lastgroup
        if kind == "times":
            # `regex` writes out the required repetitions, and one more if there may be others.
            last *= _copies(token)
        else:
            sizes[-1] += last
            last = 1
        if kind == "open":
            sizes.append(0)
            last = 0
        elif kind == "close" and len(sizes) > 1:
            last = sizes.pop()
        elif kind == "set":
            text = f"[{_BRACKET.sub(_escaped, text[1:])}"
        spelled.append(r"\{" if text == "{" else text)
        if sizes[-1] + last > MOST_ITEMS:
            raise OverflowError(f"it repeats more than {MOST_ITEMS:,} items")
    return "".join(spelled)


def _copies(times: re.Match[str]) -> int:
    if times[0] == "+":
        return 2
    least = int(times["least"] or 0)
    return least + (times["range"] is not None) if least else 1


def _escaped(found: re.Match[str]) -> str:
    return found[1] or r"\["


@attrs.frozen(kw_only=True)
class Regex(ReferenceMetric):
    """1 if a regular expression (Python's) matches, else 0.

    Attributes:
        pattern: the expression; empty for the ``expected`` of each case.
        ignore_case: upper and lower case are the same; the pattern itself is never changed.
        multiline: ``^`` and ``$`` match at every line.
        dot_all: ``.`` also matches line breaks.
        whole: the whole answer must match, not a part of it.
    """

    kind: ClassVar[str] = "regex"
    is_whole: ClassVar[bool] = False

    pattern: str = attrs.field(default="", validator=held(hold_pattern))
    ignore_case: bool = attrs.field(default=False, validator=FLAG)
    multiline: bool = attrs.field(default=False, validator=FLAG)
    dot_all: bool = attrs.field(default=False, validator=FLAG)
    whole: bool = attrs.field(default=False, validator=FLAG)

    @property
    def wording(self) -> tuple[str, ...]:
        return tuple(_LITERAL.findall(_ESCAPE.sub(" ", self.pattern)))

    def reference(self, case: Case) -> str:
        source = self.pattern or self.expected(case)
        if not isinstance(source, str) or not source:
            raise self.lacking(case, f"needs a pattern as `expected`, found {shown(source)}")
        try:
            hold_pattern(source)
        except ConfigError as error:
            raise self.lacking(case, f"needs a pattern as `expected`: {error}") from None
        return source

    def assess(self, case: Case, answer: Answer) -> Verdict:
        pattern, text = self.reference(case), self.found_text(answer)
        flags = (
            re.IGNORECASE * self.ignore_case
            | re.MULTILINE * self.multiline
            | re.DOTALL * self.dot_all
        )
        try:
            match = search(pattern, text, flags=flags, whole=self.whole)
        except StuckPatternError as error:
            return self.unscored(str(error))
        shape = quoted(pattern)
        if match:
            start, part = match
            return self.verdict(
                1.0, f"found {quoted(part)} at character {start + 1}, which {shape} matches"
            )
        what = "the whole answer" if self.whole else "a part of the answer"
        return self.verdict(0.0, f"expected {what} to match {shape}, found {quoted(text)}")
