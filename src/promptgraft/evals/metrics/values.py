"""Metrics of single values: a number or a label in the answer, its length, and what it costs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import ClassVar, Literal, TypeVar
from unicodedata import normalize

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.metrics.base import BaseMetric, Needed, ReferenceMetric, each_of, texts_in
from promptgraft.evals.metrics.reading import (
    UnusableAnswerError,
    as_text,
    parse_path,
    quoted,
    says,
)
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.serde import Json, did_you_mean, parse_json, shown
from promptgraft.ground.strict.checks import FLAG, integer, number, one_of
from promptgraft.ground.text import SPACELESS

# In scripts without spaces a number may follow a letter (`計1,234円`); elsewhere `v2` is a name,
# and so is all of `USD1,234`. Three parts between points are a date or a version. Exponents of
# more than three digits are not numbers: arithmetic with them would not end. A number has at most
# 20 commas, or a list of thousands would be read again from each of its items.
_LETTER = rf"[^\W{SPACELESS}]"
_NUMBER = re.compile(
    rf"(?<!{_LETTER})(?=[^\W\d]){_LETTER}+(?<=\d)(?:,\d{{3}}){{1,20}}(?!\d)"
    rf"|(?P<number>(?<!{_LETTER})(?<!\.)[-+−–]?(?:(?P<points>\d{{1,3}}(?:(?:\.\d{{3}}){{1,20}},\d+"
    r"|(?:\.\d{3}){2,20})(?![\d,.]\d))"
    r"|(?:\d{1,3}(?:,\d{3}){1,20}(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?:[eE][-+]?\d{1,3})?)(?!\d|[._]\d))"
)
# Full-width, Arabic and typographic signs.
_SIGNS = str.maketrans("，．－＋٫٬−–", ",.-+.,--")
_GROUP = re.compile(r"(?<=\d)['’\u00a0\u2009\u202f](?=\d{3}(?!\d))")

T = TypeVar("T")

_BETWEEN = re.compile(r"[,;\n，；、،؛]")
# The reason that `Classification.assess` writes, for `labels_in`.
_LISTED = r"`[^`\n]{1,80}`(?:, `[^`\n]{1,80}`){0,20}"
_COMPARED = re.compile(
    rf"^\[(?:passed|failed)\] ([^\n]{{1,160}}?) \S{{1,24}}(?: \(output of [^\n]{{1,160}}\))?: "
    rf"(?:expected ({_LISTED}), )?found ({_LISTED}|no label)$",
    re.MULTILINE,
)


# Without slots, so that metrics can inherit it beside their own base.
@attrs.frozen(kw_only=True, slots=False)
class Tolerance:
    """The tolerance within which two numbers are equal: the wider of two limits.

    Attributes:
        tolerance: absolute.
        relative_tolerance: as a share of the greater magnitude.
    """

    tolerance: float = attrs.field(default=0.0, validator=number(0))
    relative_tolerance: float = attrs.field(default=0.0, validator=number(0))

    def close(self, one: Decimal, other: Decimal) -> bool:
        """Return whether two finite numbers are equal; symmetric."""
        if not (one.is_finite() and other.is_finite()):
            return False
        # `repr`, so that a tolerance of 0.1 is a tenth and its limit is included.
        relative = Decimal(repr(self.relative_tolerance)) * max(abs(one), abs(other))
        return abs(one - other) <= max(Decimal(repr(self.tolerance)), relative)


_FROM_POINTS = str.maketrans(",", ".", ".")
# Between digits, and not before a group of three.
_ONE_COMMA = re.compile(r"[^\d,.]*\d+,(?!\d{3}(?!\d))\d+[^\d,]*")


def decimal(number: float) -> Decimal:
    """Return a finite number as the decimal that it is written as: 0.1 is a tenth."""
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


def numbers_in(text: str) -> list[Decimal]:
    """Return the numbers in a text: ``1,234.5``, ``1.234,50``, ``-3``, ``.5``, ``6e23``."""
    text = _GROUP.sub("", text.translate(_SIGNS))
    numbers = [match for match in _NUMBER.finditer(text) if match["number"]]
    return [
        Decimal(match[0].translate(_FROM_POINTS) if match["points"] else match[0].replace(",", ""))
        for match in numbers
    ]


@attrs.frozen(kw_only=True)
class Number(ReferenceMetric, Tolerance):
    """1 if the number in the answer is the expected one, within a tolerance; else 0.

    Attributes:
        which: the number of a text, answer or ``expected``, that counts; with ``only`` it must be
            the only one.
    """

    kind: ClassVar[str] = "number"

    which: Literal["only", "first", "last"] = attrs.field(
        default="only", validator=one_of("only", "first", "last")
    )

    def reference(self, case: Case) -> Decimal:
        value = self.expected(case)
        is_bool = isinstance(value, bool)
        if isinstance(value, (int, float)) and not is_bool and decimal(value).is_finite():
            return decimal(value)
        words = value.split() if isinstance(value, str) else []
        words = [word for word in words if numbers_in(word)]
        numbers = [number for word in words for number in numbers_in(word)]
        # Commas elsewhere, as between the items of a list, do not change the number that counts.
        word = self._chosen(words) if words else ""
        has_comma = "," in word.rstrip(",") and len(numbers_in(word)) > 1
        if has_comma or not numbers or (len(numbers) > 1 and self.which == "only"):
            mend = "; `which: last` takes the last one" if len(numbers) > 1 else ""
            mend = "; write a point before decimals" if has_comma else mend
            raise self.lacking(case, f"needs one number as `expected`, found {shown(value)}{mend}")
        return self._chosen(numbers)

    def assess(self, case: Case, answer: Answer) -> Verdict:
        expected = self.reference(case)
        number_found = self._number(self.found_text(answer), expected)
        reason = f"expected {expected}{self._limits()}, found {number_found}"
        if self.close(expected, number_found):
            return self.verdict(1.0, reason)
        way = "too much" if number_found > expected else "too little"
        return self.verdict(0.0, f"{reason}: {abs(number_found - expected)} {way}")

    def _number(self, text: str, wanted: Decimal) -> Decimal:
        numbers = numbers_in(text)
        if not numbers:
            raise UnusableAnswerError(f"expected the number {wanted}, found none in {quoted(text)}")
        words = text.split() if self.which == "first" else reversed(text.split())
        word = next((word for word in words if numbers_in(word)), "")
        if _ONE_COMMA.fullmatch(word):
            raise UnusableAnswerError(
                f"expected {wanted}, found {quoted(word)}: two numbers, or one with a decimal "
                "comma; write a point before decimals"
            )
        if len(numbers) > 1 and self.which == "only":
            listed = ", ".join(str(number) for number in numbers[:5])
            raise UnusableAnswerError(
                f"expected {wanted} as the only number, found {len(numbers)} numbers ({listed}) "
                f"in {quoted(text)}"
            )
        return self._chosen(numbers)

    def _chosen(self, numbers: Sequence[T]) -> T:
        return numbers[0] if self.which == "first" else numbers[-1]

    def _limits(self) -> str:
        limits = [f"{self.tolerance:g}"] if self.tolerance else []
        limits += [f"{self.relative_tolerance:.6g} of it"] if self.relative_tolerance else []
        return f" (give or take {' or '.join(limits)})" if limits else ""


@attrs.frozen(kw_only=True)
class _AmountMetric(BaseMetric):
    """1 up to the limit, then limit / amount; unscored if the amount is unknown.

    Attributes:
        limit: the highest amount with a score of 1.
    """

    unit: ClassVar[str]

    limit: float = attrs.field(validator=number(above=0))

    @property
    def measure(self) -> str:
        return self.kind

    def assess(self, case: Case, answer: Answer) -> Verdict:
        amount = usage_of(answer)[self.measure]
        if amount is None:
            return self.unscored(f"the number of {self.unit} that the answer took is unknown")
        score = 1.0 if amount <= self.limit else self.limit / amount
        over = "" if amount <= self.limit else f": {amount - self.limit:.6g} over the limit"
        reason = f"expected at most {self.limit:.6g} {self.unit}, found {amount:.6g}{over}"
        return self.verdict(score, reason, amount=amount)


@attrs.frozen(kw_only=True)
class Cost(_AmountMetric):
    """The cost of an answer, against a limit in US dollars."""

    kind: ClassVar[str] = "cost"
    unit: ClassVar[str] = "US dollars"


@attrs.frozen(kw_only=True)
class Tokens(_AmountMetric):
    """The tokens of an answer, against a limit.

    Attributes:
        count: the tokens that count.
    """

    kind: ClassVar[str] = "tokens"
    unit: ClassVar[str] = "tokens"

    count: Literal["all", "input", "output"] = attrs.field(
        default="all", validator=one_of("all", "input", "output")
    )

    @property
    def measure(self) -> str:
        return "tokens" if self.count == "all" else f"{self.count}_tokens"


@attrs.frozen(kw_only=True)
class Latency(_AmountMetric):
    """The wall time of an answer, against a limit in seconds."""

    kind: ClassVar[str] = "latency"
    unit: ClassVar[str] = "seconds"

    @property
    def measure(self) -> str:
        return "seconds"


def _labels(_: object, attribute: attrs.Attribute[tuple[str, ...]], value: Sequence[str]) -> None:
    folded = [_fold(label) for label in value]
    if not folded or "" in folded or len(set(folded)) < len(folded):
        raise ConfigError(
            f"{attribute.name}: expected labels that differ in more than case and white space, "
            f"found {shown(value)}"
        )


def _fold(label: str) -> str:
    return " ".join(normalize("NFKC", label).split()).casefold()


@attrs.frozen(kw_only=True)
class Classification(ReferenceMetric):
    """The overlap of the answer's labels with the expected ones: shared labels over all labels.

    Letter case, full-width forms and white space do not count. An unknown label scores 0.

    Attributes:
        labels: all possible labels.
        several: a case may have several labels; in texts they are separated by commas, semicolons
            or line breaks, or are a list in JSON. Without it, exactly one label is expected.
        within_text: the label is searched for as a word in a longer answer; in scripts without
            spaces, marks such as quotes have to set it off.
    """

    kind: ClassVar[str] = "classification"

    labels: tuple[str, ...] = attrs.field(
        converter=texts_in, validator=[each_of("texts", str), _labels]
    )
    several: bool = attrs.field(default=False, validator=FLAG)
    within_text: bool = attrs.field(default=False, validator=FLAG)

    def reference(self, case: Case) -> frozenset[str]:
        named = self._named(self.expected(case))
        if not named or (len(named) > 1 and not self.several):
            count = "labels" if self.several else "one label"
            mend = "; add a label such as `none`, or use `json_match`" if self.several else ""
            what = f"needs {count} as `expected`, found {shown(case.expected)}{mend}"
            raise self.lacking(case, what)
        try:
            return frozenset(self._known(name) for name in named)
        except UnusableAnswerError as error:
            raise self.lacking(case, f"has an unknown label as `expected`: {error}") from None

    def needed(self, case: Case) -> Iterator[Needed]:
        # Otherwise the whole text of an answer is not one of the labels.
        if not self.several and not self.within_text:
            yield Needed(parse_path(self.answer_path), tuple(self.reference(case)))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        expected = self.reference(case)
        try:
            amount = self._found(answer)
        except UnusableAnswerError as error:
            form = str(error).removeprefix("expected ")
            raise UnusableAnswerError(f"expected {self._listed(expected)}, {form}") from None
        if expected == amount:
            return self.verdict(1.0, f"found {self._listed(expected)}")
        score = len(expected & amount) / len(expected | amount)
        return self.verdict(
            score, f"expected {self._listed(expected)}, found {self._listed(amount) or 'no label'}"
        )

    def _found(self, answer: Answer) -> frozenset[str]:
        if self.within_text:
            return self._inside(self.found_text(answer))
        if isinstance(answer.output, bool) and not self.answer_path:
            labels = frozenset(label for label in self.labels if says(label, answer.output))
            return labels if len(labels) == 1 else frozenset((self._known(answer.text),))
        whole = answer.output if isinstance(answer.output, (str, list)) else answer.text
        value: Json = self.found(answer) if self.answer_path else whole
        named = self._named(value)
        if len(named) > 1 and not self.several:
            raise UnusableAnswerError(f"expected one label, found {len(named)} in {shown(value)}")
        return frozenset(self._known(name) for name in named)

    def _named(self, value: Json) -> list[str]:
        if isinstance(value, list):
            return [as_text(item) for item in value]
        text = as_text(value)
        if self.several and text.lstrip().startswith("["):
            with contextlib.suppress(DataFormatError):
                return self._named(parse_json(text, where="labels"))
        parts = _BETWEEN.split(text) if self.several else [text]
        return [part for part in parts if part.strip()]

    def _known(self, name: str) -> str:
        for label in self.labels:
            if _fold(label) == _fold(name):
                return label
        near = did_you_mean(name, list(self.labels))
        raise UnusableAnswerError(
            f"expected one of {self._listed(frozenset(self.labels))}, found {quoted(name)}{near}"
        )

    def _inside(self, text: str) -> frozenset[str]:
        folded = _fold(text)
        words = {label: rf"(?<!\w){re.escape(_fold(label))}(?!\w)" for label in self.labels}
        labels = [label for label, word in words.items() if re.search(word, folded)]
        # `not urgent` contains `urgent`: the longer label is the one that was meant. As a word:
        # `party` does not contain `art`.
        inner = {a for a in labels for b in labels if a != b and re.search(words[a], _fold(b))}
        meant = frozenset(labels) - inner
        if not meant or (len(meant) > 1 and not self.several):
            what = "none" if not meant else self._listed(meant)
            raise UnusableAnswerError(
                f"expected one of {self._listed(frozenset(self.labels))} in the answer, "
                f"found {what} in {quoted(text)}"
            )
        return meant

    def _listed(self, labels: frozenset[str]) -> str:
        return ", ".join(f"`{label}`" for label in self.labels if label in labels)


def labels_in(feedback: str, metric: str) -> tuple[str, str] | None:
    """Return the labels that ``metric``, a :class:`Classification`, expected and found.

    ``feedback`` is the text of :func:`feedback_text`. None if that metric compared no labels, or
    found none that it knows.
    """
    for name, expected, label in _COMPARED.findall(feedback):
        if name == metric:
            return (expected or label).replace("`", ""), label.replace("`", "")
    return None


def usage_of(answer: Answer) -> dict[str, float | int | None]:
    """Return the amounts of an answer by name; None for unknown ones."""
    usage = answer.usage
    is_known = usage.input_tokens + usage.output_tokens > 0
    return {
        "input_tokens": usage.input_tokens if is_known else None,
        "output_tokens": usage.output_tokens if is_known else None,
        "cached_tokens": usage.cached_tokens if is_known else None,
        "reasoning_tokens": usage.reasoning_tokens if is_known else None,
        "tokens": usage.input_tokens + usage.output_tokens if is_known else None,
        "cost": None if answer.cost is None else float(answer.cost),
        "seconds": answer.seconds,
    }


@attrs.frozen(kw_only=True)
class Length(BaseMetric):
    """1 if the length of the answer is within limits; outside, less the farther it is from them.

    Attributes:
        min: the minimum length.
        max: the maximum length; None for no limit.
        unit: the unit of length: characters, words (separated by white space) or lines.
    """

    kind: ClassVar[str] = "length"

    min: int = attrs.field(default=0, validator=integer(0))
    max: int | None = attrs.field(default=None, validator=integer(0).or_none)
    unit: Literal["characters", "words", "lines"] = attrs.field(
        default="characters", validator=one_of("characters", "words", "lines")
    )

    def __attrs_post_init__(self) -> None:
        if self.max is None and self.min == 0:
            raise ConfigError("expected `min` or `max`, found neither")
        if self.max is not None and self.max < self.min:
            raise ConfigError(f"max: expected at least min={self.min}, found {self.max}")

    def assess(self, case: Case, answer: Answer) -> Verdict:
        text = answer.text
        counted = {"characters": text, "words": text.split(), "lines": text.splitlines()}
        count = len(counted[self.unit])
        reason = f"expected {self._limits()} {self.unit}, found {count}"
        if count < self.min:
            return self.verdict(count / self.min, f"{reason}: {self.min - count} too few")
        if self.max is not None and count > self.max:
            return self.verdict(self.max / count, f"{reason}: {count - self.max} too many")
        return self.verdict(1.0, reason)

    def _limits(self) -> str:
        if self.max is None:
            return f"at least {self.min}"
        return f"{self.min} to {self.max}" if self.min else f"at most {self.max}"
