"""Comparison of JSON place by place, and the metrics of JSON answers and of tool calls."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import ClassVar, Literal, TypeVar

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.evals.metrics.base import BaseMetric, Needed, ReferenceMetric, each_of, texts_in
from promptgraft.evals.metrics.reading import (
    Folding,
    Path,
    answer_data,
    brief,
    difference,
    only,
    parse_path,
    places,
    spelled,
    without,
)
from promptgraft.evals.metrics.values import Tolerance, decimal
from promptgraft.evals.types import Answer, Case, ToolUse, Verdict
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json, canonical_json, did_you_mean, parse_json, shown
from promptgraft.ground.strict.checks import FLAG, one_of
from promptgraft.ground.text import listed
from promptgraft.prompt.fields import fields_of, inner_of, members_of, without_annotation

T = TypeVar("T")

Fits = Callable[[T, T], bool]

_SHOWN_FAULTS = 4
_SHOWN_CALLS = 6


# Taking the first that fits would pair too few: one item may fit several others.
def pair(expected: Sequence[T], found: Sequence[T], fits: Fits[T]) -> Mapping[int, int]:
    """Return a largest matching of indices of ``expected`` to indices of ``found``."""
    edges = [[j for j, b in enumerate(found) if fits(a, b)] for a in expected]
    partner: dict[int, int] = {}
    for start in range(len(edges)):
        owner = {b: a for a, b in partner.items()}
        reached: dict[int, int] = {}
        waiting = [start]
        # Breadth first, along those that could take another partner, to the nearest free one
        # (an augmenting path).
        for a in waiting:
            new = [b for b in edges[a] if b not in reached]
            reached |= dict.fromkeys(new, a)
            waiting += [owner[b] for b in new if b in owner]
            if (free := next((b for b in new if b not in owner), None)) is not None:
                while free is not None:
                    taker = reached[free]
                    partner[taker], free = free, partner.get(taker)
                break
    return dict(sorted(partner.items()))


def chain(expected: Sequence[T], found: Sequence[T], fits: Fits[T]) -> Mapping[int, int]:
    """Return a largest matching that keeps the order of both sides."""
    rows, columns = len(expected), len(found)
    fit = [[fits(a, b) for b in found] for a in expected]
    # `best[a][b]` is the size of the largest matching of `expected[a:]` and `found[b:]`.
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for a in reversed(range(rows)):
        for b in reversed(range(columns)):
            skip = max(best[a + 1][b], best[a][b + 1])
            best[a][b] = max(skip, 1 + best[a + 1][b + 1]) if fit[a][b] else skip
    pairs: dict[int, int] = {}
    a = b = 0
    while a < rows and b < columns:
        if fit[a][b] and best[a][b] == 1 + best[a + 1][b + 1]:
            pairs[a] = b
            a, b = a + 1, b + 1
        elif best[a + 1][b] >= best[a][b + 1]:
            a += 1
        else:
            b += 1
    return pairs


# Without slots, so that metrics can inherit it beside their own base.
@attrs.frozen(kw_only=True, slots=False)
class JsonRules(Tolerance, Folding):
    """The rules by which two JSON values are equal; options of the metrics that compare JSON.

    Numbers are compared by value: ``5`` equals ``5.0``. Booleans are not numbers. A key whose
    value is null equals a missing key, since answers of a type have all of its fields.

    Attributes:
        ignore_order: the items of a list may be in any order.
        extra_keys: objects of the answer may have keys that were not expected.
    """

    ignore_order: bool = attrs.field(default=False, validator=FLAG)
    extra_keys: bool = attrs.field(default=False, validator=FLAG)


@attrs.frozen
class Found:
    """The number of values at one place, and how they differ; empty if they do not."""

    weight: int
    fault: str = ""


def compare(expected: Json, found: Json, rules: JsonRules, path: Path = ()) -> Iterator[Found]:
    """Yield the result of the comparison at each place of two values."""
    expected_members, there = _members(expected, path), _members(found, path)
    if type(expected) is not type(found) or not (expected_members or there):
        fault = "" if _same(expected, found, rules) else _differing(expected, found, path)
        yield Found(max(_size(expected), _size(found)), fault)
    elif isinstance(expected, list) and isinstance(found, list) and rules.ignore_order:
        yield from _unordered(expected, found, rules, path)
    else:
        if rules.extra_keys and isinstance(found, dict):
            there = {place: value for place, value in there.items() if place in expected_members}
        at_each = _at_each(expected_members, there, rules)
        yield from _reordered(at_each, path) if _is_reordered(expected, found) else at_each


def _is_reordered(expected: Json, found: Json) -> bool:
    """Return whether two lists have the same items in another order."""
    if not isinstance(expected, list) or not isinstance(found, list) or expected == found:
        return False
    return sorted(map(canonical_json, expected)) == sorted(map(canonical_json, found))


def _reordered(at_each: Iterable[Found], path: Path) -> Iterator[Found]:
    """Yield what is right and what is wrong in two lists of the same items, with one fault."""
    compared = list(at_each)
    wrong = sum(place.weight for place in compared if place.fault)
    yield Found(sum(place.weight for place in compared) - wrong)
    yield Found(wrong, f"`{spelled(path)}` has the right items in another order" if wrong else "")


def _members(value: Json, path: Path) -> dict[Path, Json]:
    if isinstance(value, dict):
        return {(*path, key): member for key, member in value.items()}
    return {(*path, at): item for at, item in enumerate(value if isinstance(value, list) else ())}


def _at_each(
    expected: Mapping[Path, Json], found: Mapping[Path, Json], rules: JsonRules
) -> Iterator[Found]:
    for place, value in expected.items():
        if place in found:
            yield from compare(value, found[place], rules, place)
        elif not _is_absent(place, value):
            fault = f"`{spelled(place)}` is missing (expected {brief(value)})"
            yield Found(_size(value), fault)
    for place, value in found.items():
        if place not in expected and not _is_absent(place, value):
            fault = f"`{spelled(place)}` was not expected (found {brief(value)})"
            yield Found(_size(value), fault)


def _is_absent(place: Path, value: Json) -> bool:
    """Return whether a value says the same as no value: null below a key."""
    return value is None and isinstance(place[-1], str)


def _unordered(
    expected: list[Json], found: list[Json], rules: JsonRules, path: Path
) -> Iterator[Found]:
    def same(one: Json, other: Json) -> bool:
        return not any(place.fault for place in compare(one, other, rules))

    pairs = pair(expected, found, same)
    for index in pairs:
        yield Found(_size(expected[index]))
    for item in (item for index, item in enumerate(expected) if index not in pairs):
        yield Found(_size(item), f"`{spelled(path)}` lacks the item {brief(item)}")
    places_taken = set(pairs.values())
    for item in (item for index, item in enumerate(found) if index not in places_taken):
        yield Found(_size(item), f"`{spelled(path)}` has the item {brief(item)} too many")


def _same(expected: Json, found: Json, rules: JsonRules) -> bool:
    # Before numbers, of which a bool is one.
    if isinstance(expected, bool) or isinstance(found, bool):  # to Python, True equals 1
        return expected is found
    if isinstance(expected, (int, float)) and isinstance(found, (int, float)):
        return rules.close(decimal(expected), decimal(found))
    if isinstance(expected, str) and isinstance(found, str):
        return rules.fold(expected) == rules.fold(found)
    return type(expected) is type(found) and expected == found


def _differing(expected: Json, found: Json, path: Path) -> str:
    place = f"`{spelled(path)}`: "
    if isinstance(expected, str) and isinstance(found, str):
        return place + difference(expected, found)
    return f"{place}expected {brief(expected)}, found {brief(found)}"


def _size(value: Json) -> int:
    if isinstance(value, dict):
        value = list(value.values())
    # An empty list or object is a value too, which may be missing or wrong.
    return sum(_size(item) for item in value) or 1 if isinstance(value, list) else 1


paths_only: Callable[..., None] = each_of("paths", parse_path)


@attrs.frozen(kw_only=True)
class JsonMatch(ReferenceMetric, JsonRules):
    """The share of the values that are the same in the answer and in ``expected``.

    A text in ``expected`` is parsed as JSON. An answer that is not JSON scores 0.

    Attributes:
        paths: the places that are compared; empty for all.
        ignore: the places that are not compared.
        fenced: the JSON of the answer may be in a Markdown code fence.
    """

    kind: ClassVar[str] = "json_match"

    paths: tuple[str, ...] = attrs.field(default=(), converter=texts_in, validator=paths_only)
    ignore: tuple[str, ...] = attrs.field(default=(), converter=texts_in, validator=paths_only)
    fenced: bool = attrs.field(default=False, validator=FLAG)

    def reference(self, case: Case) -> Json:
        value = self.expected(case)
        if isinstance(value, str):
            try:
                value = parse_json(value, where="expected")
            except DataFormatError as error:
                raise self.lacking(case, f"needs JSON as `expected`: {error}") from None
        for text in self.paths:
            if not any(places(value, parse_path(text))):
                raise self.lacking(
                    case, f"compares `{text}`, which `expected` lacks: {shown(value)}"
                )
        return value

    def needed(self, case: Case) -> Iterator[Needed]:
        reference, begin = pruned(self.reference(case), self.ignore), parse_path(self.answer_path)
        for path in map(parse_path, self.paths or ("",)):
            for place, value in places(reference, path):
                for inner, leaf in _leaves(value):
                    yield TypedValue((*begin, *place, *inner), (leaf,))

    def found(self, answer: Answer) -> Json:
        return only(answer_data(answer, fenced=self.fenced), parse_path(self.answer_path))

    def assess(self, case: Case, answer: Answer) -> Verdict:
        reference, answer_value = self.reference(case), self.found(answer)
        expected, there = pruned(reference, self.ignore), pruned(answer_value, self.ignore)
        if self.paths:
            compared = [
                comparison
                for path in map(parse_path, self.paths)
                for comparison in _at_each(
                    dict(places(expected, path)), dict(places(there, path)), self
                )
            ]
        else:
            compared = list(compare(expected, there, self))
        total = sum(place.weight for place in compared)
        wrong = sum(place.weight for place in compared if place.fault)
        if not wrong:
            return self.verdict(1.0, "found the expected JSON")
        head = f"{wrong} of {total} values differ: " if total > 1 else ""
        faults = some([place.fault for place in compared if place.fault])
        return self.verdict((total - wrong) / total, head + faults)


@attrs.frozen
class TypedValue(Needed):
    """A value that is another one than its text: ``"5"`` does not equal ``5``."""

    def misfit(self, output_type: object) -> str:
        """Return why no answer of a type has the value; empty if one may have."""
        keys = [key for key in self.place if isinstance(key, str)]
        [value], kind = self.values, output_type
        for key in keys:
            fields = {field.name: field.kind for field in fields_of(inner_of(kind))}
            if fields and key not in fields:
                near = did_you_mean(key, list(fields)) or f" (it has {listed(fields)})"
                return (
                    f"`expected` has {shown(key)}, a field that no answer of the prompt has{near}"
                )
            kind = fields.get(key)
        if not keys and str in map(without_annotation, members_of(kind)):
            return ""  # metrics read an answer that is a text as JSON
        place = f" at {shown('.'.join(keys))}" if keys else ""
        if isinstance(value, str) and inner_of(kind) in (date, datetime):
            try:
                inner_of(kind).fromisoformat(value)
            except ValueError:
                return f"`expected` has {shown(value)}{place}, which is no ISO 8601 date"
        members = map(without_annotation, members_of(inner_of(kind)))
        allowed = [_JSON_KINDS.get(member, "") for member in members]
        expected = _JSON_KINDS.get(type(value), "")
        if "" in (expected, *allowed) or expected in allowed:
            return ""
        return (
            f"`expected` has {shown(value)}{place}, {expected}, where the prompt's answer has "
            f"{' or '.join(allowed)}; write the value as the answer has it"
        )


_JSON_KINDS: Mapping[object, str] = {
    str: "a text",
    bool: "true or false",
    **dict.fromkeys((int, float), "a number"),
}


def _leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """Yield the texts, numbers, truth values and what is empty in a value, with their places."""
    if value is not None and not _members(value, path):
        yield path, value
    for place, member in _members(value, path).items():
        yield from _leaves(member, place)


def pruned(value: Json, ignore: tuple[str, ...]) -> Json:
    """Return ``value`` without the ignored places."""
    return functools.reduce(without, (parse_path(text) for text in ignore), value)


def some(faults: list[str]) -> str:
    """Return the first faults, and the number of the others."""
    more = len(faults) - _SHOWN_FAULTS
    return "; ".join(faults[:_SHOWN_FAULTS]) + (f"; and {more} more" if more > 0 else "")


@attrs.frozen(kw_only=True)
class ToolRule(JsonRules):
    """The rules by which a call matches an expected one; the name of the tool always counts.

    Attributes:
        arguments: ``exact``, ``subset`` (additional arguments are allowed) or ``ignore``.
        results: the result is compared too, if one is expected.
        ignore: places in arguments and results that are not compared.
    """

    arguments: Literal["exact", "subset", "ignore"] = attrs.field(
        default="exact", validator=one_of("exact", "subset", "ignore")
    )
    results: bool = attrs.field(default=False, validator=FLAG)
    ignore: tuple[str, ...] = attrs.field(default=(), converter=texts_in, validator=paths_only)

    def faults(self, expected: ToolUse, found: ToolUse) -> list[str]:
        """Return how a call of the right tool differs from the expected one."""
        faults: list[str] = []
        if self.arguments != "ignore":
            rules = attrs.evolve(self, extra_keys=self.extra_keys or self.arguments == "subset")
            faults += self._differences(dict(expected.arguments), dict(found.arguments), rules)
        if self.results and expected.result is not None:
            differing = self._differences(expected.result, found.result, self)
            faults += [f"in its result {fault}" for fault in differing]
        return faults

    def _differences(self, expected: Json, found: Json, rules: JsonRules) -> list[str]:
        compared = compare(pruned(expected, self.ignore), pruned(found, self.ignore), rules)
        return [place.fault for place in compared if place.fault]


@attrs.frozen(kw_only=True)
class ToolTrajectory(BaseMetric):
    """The share of tool calls that match the expected ones, under the best assignment.

    Each call matches one expected call at most, and the assignment with the most pairs counts. An
    empty list of expected tools means that no tool should be called.

    Attributes:
        ordered: the calls must be in the expected order.
        subset: additional calls do not lower the score.
        rule: the rule by which calls match.
        tools: other rules for single tools, by name.
    """

    kind: ClassVar[str] = "tool_trajectory"
    judges_tools: ClassVar[bool] = True

    ordered: bool = attrs.field(default=False, validator=FLAG)
    subset: bool = attrs.field(default=False, validator=FLAG)
    rule: ToolRule = ToolRule()
    tools: Mapping[str, ToolRule] = attrs.field(factory=dict, converter=FrozenMap[str, ToolRule])

    def check(self, case: Case) -> None:
        self._expected(case)

    def _expected(self, case: Case) -> tuple[ToolUse, ...]:
        if case.tools is None:
            raise self.lacking(
                case,
                "needs the expected `tools`, found none; an empty list means "
                "that no tool should be called",
            )
        return case.tools

    def assess(self, case: Case, answer: Answer) -> Verdict:
        expected_calls, called = self._expected(case), answer.tools
        pairs = (chain if self.ordered else pair)(expected_calls, called, self._fits)
        total = len(expected_calls) if self.subset else max(len(expected_calls), len(called))
        if len(pairs) == total:
            return self.verdict(1.0, f"the calls are the expected ones: {_calls(expected_calls)}")
        why = "; ".join(self._faults(expected_calls, called, pairs))
        return self.verdict(
            len(pairs) / total, f"expected {_calls(expected_calls)}, found {_calls(called)}: {why}"
        )

    def _fits(self, expected: ToolUse, found: ToolUse) -> bool:
        return expected.name == found.name and not self._rule(expected).faults(expected, found)

    def _rule(self, tool: ToolUse) -> ToolRule:
        return self.tools.get(tool.name, self.rule)

    def _faults(
        self, wanted: Sequence[ToolUse], called: Sequence[ToolUse], pairs: Mapping[int, int]
    ) -> list[str]:
        spare = [call for index, call in enumerate(called) if index not in set(pairs.values())]
        faults: list[str] = []
        for tool in (tool for index, tool in enumerate(wanted) if index not in pairs):
            near = next((call for call in spare if call.name == tool.name), None)
            if near is None:
                faults.append(f"`{tool.name}` was not called with {brief(dict(tool.arguments))}")
                continue
            spare.remove(near)
            differing = self._rule(tool).faults(tool, near)
            faults.append(f"`{tool.name}`: {', '.join(differing) or 'called out of order'}")
        surplus = [] if self.subset else spare
        return faults + [f"`{call.name}` was called and not expected" for call in surplus]


def _calls(tools: Sequence[ToolUse]) -> str:
    calls = [f"{tool.name}({brief(dict(tool.arguments))})" for tool in tools[:_SHOWN_CALLS]]
    more = [f"and {len(tools) - _SHOWN_CALLS} more"] if len(tools) > _SHOWN_CALLS else []
    return ", ".join([*calls, *more]) or "no call"
