"""Two JSON values compared place by place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from promptgraft.evals.metrics.folding import Folding
from promptgraft.evals.metrics.matching import pair
from promptgraft.evals.metrics.numbers import Tolerance, decimal
from promptgraft.evals.metrics.paths import Path, places, spelled
from promptgraft.evals.metrics.reasons import brief, difference
from promptgraft.serde import Json


# Without slots, so that metrics can inherit it beside their own base.
@attrs.frozen(kw_only=True, slots=False)
class JsonRules(Tolerance, Folding):
    """When two JSON values are the same; options of the metrics that compare JSON.

    Numbers are compared by value: ``5`` is ``5.0``. Truth values are not numbers.

    Attributes:
        ignore_order: the items of a list may stand in any order.
        extra_keys: objects of the answer may have keys that were not expected.
    """

    ignore_order: bool = False
    extra_keys: bool = False


@attrs.frozen
class Found:
    """What a comparison found at one place.

    Attributes:
        weight: how many values stand there.
        fault: how they differ; empty when they are the same.
    """

    weight: int
    fault: str = ""


def compare(expected: Json, found: Json, rules: JsonRules, path: Path = ()) -> Iterator[Found]:
    """Yield what each place of two values comes to."""
    if isinstance(expected, dict) and isinstance(found, dict) and (expected or found):
        yield from _objects(expected, found, rules, path)
    elif isinstance(expected, list) and isinstance(found, list) and (expected or found):
        compared = _unordered if rules.ignore_order else _ordered
        yield from compared(expected, found, rules, path)
    else:
        same = _same(expected, found, rules)
        yield Found(
            max(_size(expected), _size(found)),
            "" if same else _differing(expected, found, path),
        )


def compare_at(expected: Json, found: Json, rules: JsonRules, path: Path) -> Iterator[Found]:
    """Yield what the places come to that a path leads to in either value."""
    wanted, there = dict(places(expected, path)), dict(places(found, path))
    for place, value in wanted.items():
        if place in there:
            yield from compare(value, there[place], rules, place)
        else:
            yield _absent(value, place)
    for place, value in there.items():
        if place not in wanted:
            yield _extra(value, place)


def equal(expected: Json, found: Json, rules: JsonRules) -> bool:
    """Return whether two values are the same under the rules."""
    return not any(place.fault for place in compare(expected, found, rules))


def _objects(
    expected: dict[str, Json], found: dict[str, Json], rules: JsonRules, path: Path
) -> Iterator[Found]:
    for key, value in expected.items():
        place = (*path, key)
        if key in found:
            yield from compare(value, found[key], rules, place)
        else:
            yield _absent(value, place)
    for key, value in found.items():
        if key not in expected and not rules.extra_keys:
            yield _extra(value, (*path, key))


def _absent(value: Json, place: Path) -> Found:
    return Found(_size(value), f"`{spelled(place)}` is missing (expected {brief(value)})")


def _extra(value: Json, place: Path) -> Found:
    return Found(_size(value), f"`{spelled(place)}` was not expected (found {brief(value)})")


def _ordered(
    expected: list[Json], found: list[Json], rules: JsonRules, path: Path
) -> Iterator[Found]:
    for index, (one, other) in enumerate(zip(expected, found, strict=False)):
        yield from compare(one, other, rules, (*path, index))
    shared = min(len(expected), len(found))
    yield from _missing(expected[shared:], path)
    yield from _surplus(found[shared:], path)


def _unordered(
    expected: list[Json], found: list[Json], rules: JsonRules, path: Path
) -> Iterator[Found]:
    pairs = pair(expected, found, lambda one, other: equal(one, other, rules))
    for index in pairs:
        yield Found(_size(expected[index]))
    missing = [item for index, item in enumerate(expected) if index not in pairs]
    taken = set(pairs.values())
    surplus = [item for index, item in enumerate(found) if index not in taken]
    yield from _missing(missing, path)
    yield from _surplus(surplus, path)


def _missing(items: Iterable[Json], path: Path) -> Iterator[Found]:
    for item in items:
        yield Found(_size(item), f"`{spelled(path)}` lacks the item {brief(item)}")


def _surplus(items: Iterable[Json], path: Path) -> Iterator[Found]:
    for item in items:
        yield Found(_size(item), f"`{spelled(path)}` has the item {brief(item)} too many")


def _same(expected: Json, found: Json, rules: JsonRules) -> bool:
    if isinstance(expected, bool) or isinstance(found, bool):
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
    if isinstance(value, dict) and value:
        return sum(_size(item) for item in value.values())
    if isinstance(value, list) and value:
        return sum(_size(item) for item in value)
    return 1
