"""Override files of every kind, made from a seed: whole ones, and damaged ones."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs

from promptgraft.errors import DataFormatError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import HexDigest, Json, digest
from promptgraft.overrides import (
    AddedTaskExample,
    OutputFieldOverride,
    OverrideAddress,
    PromptOverride,
    Provenance,
    RemovedTaskExample,
    Revision,
    SectionOverride,
    SectionVisibility,
    SummaryOverride,
    TaskExampleOverride,
    TaskStepOverride,
    ToolExampleOverride,
    ToolOverride,
    VisibilityOverride,
)
from promptgraft.overrides.codec import make_revision, marked
from promptgraft.overrides.parts import KINDS
from promptgraft.overrides.parts.entry import Entry

Plain = dict[str, Any]
Place = tuple[str | int, ...]

_PIECES = (
    "a", "word ", "läuft", "日本", "😀", "\n", "\r", "\t", "\x00", "\x7f", "\x85", "\u2028",
    "\ufeff", '"', "\\", "/", "$name", "{{ x }}", "../x", "null", "'", "\ud7ff", "\uffff",
)  # fmt: skip
HOSTILE = (
    "../x", "..", ".", "", "/etc/passwd", "a/../b", "a//b", "A", "a b", "a\nb", "a\n", "\x00", "é",
    "~", "-a", ".lock", "x" * 300, "a\\b", "C:", "\ud800", "0" * 63, "G" * 64, "f" * 64 + "\n",
)  # fmt: skip
_WRONG: tuple[Json, ...] = (
    None, True, False, 0, -1, 1, 1.0, 1.5, -0.0, 10**400, 2**63, "", "1", "true", [], {}, [[]],
    [None], {"a": 1}, [1, "a"], "2026-01-01", 1e308,
)  # fmt: skip


def text(rng: random.Random) -> str:
    return "".join(rng.choices(_PIECES, k=rng.randrange(5)))


def identifier(rng: random.Random) -> str:
    return rng.choice("abc09") + "".join(rng.choices("az09_-", k=rng.randrange(6)))


def _hash(rng: random.Random) -> HexDigest:
    return HexDigest(f"{rng.getrandbits(256):064x}")


def _path(rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.choice([identifier, text])(rng) for _ in range(rng.randint(1, 3)))


def _value(rng: random.Random, depth: int = 2) -> Json:
    if depth and rng.random() < 0.4:
        items = [_value(rng, depth - 1) for _ in range(rng.randrange(3))]
        return items if rng.random() < 0.5 else {text(rng): item for item in items}
    return rng.choice([None, True, 3, -2.5, 10**30, text(rng)])


def _json(rng: random.Random) -> str:
    return json.dumps(_value(rng), ensure_ascii=rng.random() < 0.5)


def _steps_json(rng: random.Random) -> str:
    fields = ("input", "output")
    return json.dumps(
        [
            {"tool_name": text(rng), "description": text(rng)} | {f: _value(rng) for f in fields}
            for _ in range(rng.randrange(3))
        ]
    )


def _maybe(rng: random.Random, make: Callable[[random.Random], str]) -> str | None:
    return make(rng) if rng.random() < 0.6 else None


def _score(rng: random.Random) -> float:
    return rng.choice([rng.uniform(-1, 1), rng.randint(-9, 9), -0.0, 5e-324, 1.7e308])


def _texts(rng: random.Random) -> dict[str, str]:
    return {text(rng): text(rng) for _ in range(rng.randrange(3))}


def _step(rng: random.Random, index: int) -> TaskStepOverride:
    return TaskStepOverride(
        step_index=index,
        tool_name=_maybe(rng, text),
        description=_maybe(rng, text),
        input_json=_maybe(rng, _json),
        output_json=_maybe(rng, _json),
    )


def _task_example(rng: random.Random) -> TaskExampleOverride:
    steps_json = _maybe(rng, _steps_json)
    indexes = [] if steps_json else rng.sample(range(9), rng.randrange(3))
    return TaskExampleOverride(
        path=_path(rng),
        expected_hash=_hash(rng),
        objective=_maybe(rng, text),
        outcome_json=_maybe(rng, _json),
        step_overrides={index: _step(rng, index) for index in indexes},
        steps_json=steps_json,
    )


_MAKERS: dict[str, Callable[[random.Random], Entry]] = {
    "sections": lambda rng: SectionOverride(
        path=_path(rng), expected_hash=_hash(rng), body=text(rng)
    ),
    "summaries": lambda rng: SummaryOverride(
        path=_path(rng), expected_hash=_hash(rng), summary=text(rng)
    ),
    "tools": lambda rng: ToolOverride(
        name=text(rng),
        expected_hash=_hash(rng),
        description=_maybe(rng, text),
        param_descriptions=_texts(rng),
    ),
    "tool_examples": lambda rng: ToolExampleOverride(
        tool_name=text(rng),
        example_index=rng.randrange(20),
        expected_hash=_hash(rng),
        description=_maybe(rng, text),
        input_json=_maybe(rng, _json),
        output_json=_maybe(rng, _json),
    ),
    "task_examples": _task_example,
    "added_task_examples": lambda rng: AddedTaskExample(
        container_path=_path(rng),
        example_key=identifier(rng),
        expected_hash=rng.choice([_hash(rng), HexDigest("")]),
        objective=text(rng),
        outcome_json=_json(rng),
        steps_json=_steps_json(rng),
    ),
    "removed_task_examples": lambda rng: RemovedTaskExample(
        path=_path(rng), expected_hash=_hash(rng)
    ),
    "output_fields": lambda rng: OutputFieldOverride(
        field=text(rng),
        expected_hash=_hash(rng),
        description=_maybe(rng, text),
        aliases=rng.choice([None, (), (text(rng), "b")]),
        value_descriptions=_texts(rng),
    ),
    "visibilities": lambda rng: VisibilityOverride(
        path=_path(rng), expected_hash=_hash(rng), visibility=rng.choice([*SectionVisibility])
    ),
}
LISTS = tuple(_MAKERS)
assert tuple(KINDS) == LISTS


def generated_revision(rng: random.Random, share: float = 0.3) -> Revision:
    """Return a revision with one or two entries of each kind that it has: a share of them."""
    address = PromptOverride(
        ns="/".join(identifier(rng) for _ in range(rng.randint(1, 3))),
        prompt_key=identifier(rng),
        tag=f"{identifier(rng)}{rng.choice(['', '.1'])}",
    )
    chosen = [name for name in LISTS if rng.random() < share]
    entries = [_MAKERS[name](rng) for name in chosen for _ in range(rng.randint(1, 2))]
    revision = make_revision(
        number=rng.randint(1, 10**9),
        parent=rng.choice([None, _hash(rng)]),
        time=datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=rng.getrandbits(54)),
        provenance=Provenance(
            run_id=_maybe(rng, text),
            note=text(rng),
            scores=FrozenMap({text(rng): _score(rng) for _ in range(rng.randrange(3))}),
        ),
        override=address.holding(entries),
    )
    return rng.choice([revision, marked([revision, revision])[0]])


def address_of(revision: Revision) -> OverrideAddress:
    override = revision.override
    return OverrideAddress(override.ns, override.prompt_key, override.tag)


def signed(plain: Plain) -> Plain:
    """Return the document with the id of its contents, if they can have one."""
    try:
        contents = digest({key: value for key, value in plain.items() if key != "id"})
    except (DataFormatError, RecursionError):
        return plain
    return {key: contents if key == "id" else value for key, value in plain.items()}


@attrs.frozen
class Generated:
    """A file that a reader is given.

    Attributes:
        how: what was done to it.
        data: its bytes.
        whole: whether it must be read; None when both may be right.
        names: a text that the refusal must hold.
    """

    how: str
    data: bytes
    whole: bool | None = False
    names: str = ""


def generated_file(rng: random.Random, data: bytes) -> Generated:
    """Return a file of the store, or what some damage leaves of it."""
    way = rng.choice(_WAYS)
    found = way(rng, data)
    return attrs.evolve(found, how=way.__name__.strip("_"))


def _dumped(rng: random.Random, plain: Plain, *, sign: bool | None = None) -> bytes:
    if sign or (sign is None and rng.random() < 0.8):
        plain = signed(plain)
    dumped = json.dumps(plain, ensure_ascii=False)
    try:
        return dumped.encode()
    except UnicodeEncodeError:
        return json.dumps(plain).encode()


def _places(value: object, place: Place = ()) -> Iterator[Place]:
    items: list[tuple[str | int, object]] = []
    if isinstance(value, dict):
        # Not the id, which a signature replaces.
        items = [(key, item) for key, item in value.items() if (*place, key) != ("id",)]
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, item in items:
        yield (*place, key)
        yield from _places(item, (*place, key))


def _at(plain: Plain, place: Place) -> Any:
    found: Any = plain
    for key in place:
        found = found[key]
    return found


def _objects(plain: Plain) -> list[Plain]:
    """Return the objects that have fields, not names of the user's."""
    objects = [plain, plain["provenance"]]
    for name in LISTS:
        for entry in plain.get(name, []):
            objects += [entry, *entry.get("step_overrides", [])]
    return objects


def _named(place: Place) -> str:
    """Return the part of a place that every message about it holds."""
    return next(str(key) for key in place if isinstance(key, str))


def _whole(rng: random.Random, data: bytes) -> Generated:
    return Generated("", data, whole=True)


def _in_other_spelling(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    items = rng.sample(list(plain.items()), len(plain))
    spelled = json.dumps(dict(items), indent=rng.choice([None, None, 3]), ensure_ascii=True)
    return Generated("", spelled.replace("\n", "\r\n").encode(), whole=True)


def _other_type(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    place = rng.choice(list(_places(plain)))
    parent, old = _at(plain, place[:-1]), _at(plain, place)
    parent[place[-1]] = new = rng.choice([w for w in _WRONG if type(w) is not type(old)])
    nullable = new is None or old is None
    # Scores may be 1 in JSON where a file holds 1.0; the store would not write it so.
    whole = None if nullable else False
    return Generated("", _dumped(rng, plain), whole, "" if nullable else _named(place))


def _other_value(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    place = rng.choice([p for p in _places(plain) if isinstance(_at(plain, p), str)])
    _at(plain, place[:-1])[place[-1]] = text(rng)
    return Generated("", _dumped(rng, plain), None)


def _bool_for_int(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    place = rng.choice([p for p in _places(plain) if type(_at(plain, p)) is int])
    _at(plain, place[:-1])[place[-1]] = rng.random() < 0.5
    return Generated("", _dumped(rng, plain), names=_named(place))


def _absurd_number(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    place = rng.choice(list(_places(plain)))
    _at(plain, place[:-1])[place[-1]] = "ABSURD"
    numbers = ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000, "-" + "1" * 4301]
    dumped = _dumped(rng, plain, sign=False).replace(b'"ABSURD"', rng.choice(numbers).encode())
    return Generated("", dumped)


def _nested(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    place = rng.choice(list(_places(plain)))
    _at(plain, place[:-1])[place[-1]] = "DEEP"
    levels = rng.choice([1, 50, 50, rng.randint(200, 1000), rng.choice([500, 20_000])])
    opened, closed = rng.choice([("[", "]"), ('{"a":', "}")])
    deep = f"{opened * levels}0{closed * levels}"
    dumped = _dumped(rng, plain, sign=False)
    return Generated("", dumped.replace(b'"DEEP"', deep.encode()))


def _nested_inside(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    levels = rng.choice([50, rng.randint(200, 1000), 20_000])
    places = [p for p in _places(plain) if str(p[-1]).endswith("_json")]
    for place in rng.sample(places, min(len(places), 1)):
        _at(plain, place[:-1])[place[-1]] = "[" * levels + "]" * levels
    return Generated("", _dumped(rng, plain, sign=True), None)


def _no_json_inside(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    places = [p for p in _places(plain) if str(p[-1]).endswith("_json")]
    for place in rng.sample(places, min(len(places), 1)):
        wrong = ["", "{", "nul", '{"a": 1, "a": 2}', "NaN", "1e999", "9" * 5000, "[1,]"]
        _at(plain, place[:-1])[place[-1]] = rng.choice(wrong)
    return Generated("", _dumped(rng, plain, sign=True), not places, _json_part(places))


def _json_part(places: list[Place]) -> str:
    return "" if not places else "_json"


def _lone_surrogate(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    place = rng.choice([p for p in _places(plain) if isinstance(_at(plain, p), str)])
    _at(plain, place[:-1])[place[-1]] += rng.choice(["\ud800", "\udfff"])
    return Generated("", _dumped(rng, plain))


def _missing_key(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    fields = rng.choice(_objects(plain))
    key = rng.choice([key for key in fields if key not in (*LISTS, "step")])
    del fields[key]
    return Generated("", _dumped(rng, plain), names=f".{key}" if key != "id" else "id")


def _unknown_key(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    fields = rng.choice(_objects(plain))
    fields[rng.choice(["x", "Version", "__class__", "body2", *HOSTILE])] = rng.choice(_WRONG)
    return Generated("", _dumped(rng, plain), names="unknown key")


def _key_twice(rng: random.Random, data: bytes) -> Generated:
    spelled = json.dumps(json.loads(data))
    key = rng.choice(list(json.loads(data)))
    twice = spelled.replace(f'"{key}": ', f'"{key}": 0, "{key}": ', 1)
    return Generated("", twice.encode(), names="occurs twice")


def _other_version(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    plain["version"] = rng.choice([0, 2, -1, 10**30, True, False, 1.0, "1", None, [1]])
    return Generated("", _dumped(rng, plain), names="version")


def _hostile(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    key = rng.choice(["ns", "prompt_key", "tag", "id", "parent"])
    plain[key] = rng.choice(HOSTILE)
    sign = None if key != "id" else False
    return Generated("", _dumped(rng, plain, sign=sign))


def _hostile_entry(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    fields = {"expected_hash", "example_key"}
    places = [p for p in _places(plain) if p[-1] in fields and len(p) == 3]
    for place in rng.sample(places, min(len(places), 1)):
        hostile = [found for found in HOSTILE if found and not found.isdigit()]
        _at(plain, place[:-1])[place[-1]] = rng.choice(hostile)
    return Generated("", _dumped(rng, plain, sign=True), not places)


def _fields_of_another_kind(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    present = [name for name in LISTS if name in plain]
    other = rng.choice(LISTS)
    if len(present) < 1 or other in present:
        return _unknown_key(rng, data)
    plain[other] = plain.pop(rng.choice(present))
    return Generated("", _dumped(rng, plain), names=other)


def _odd_list(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    present = [name for name in LISTS if name in plain]
    name = rng.choice(present or LISTS)
    entries = plain.get(name, [])
    if len(entries) == 2 and rng.random() < 0.5:
        entries.reverse()
    elif entries:
        entries.append(copy.deepcopy(rng.choice(entries)))
    plain[name] = entries
    return Generated("", _dumped(rng, plain))


def _other_time(rng: random.Random, data: bytes) -> Generated:
    plain = json.loads(data)
    plain["time"] = rng.choice(
        [
            "2026-01-01T00:00:00Z", "2026-01-01T00:00+00:00", "2026-01-01T00:00:00+01:00",
            "0001-01-01T00:00:00+10:00", "9999-12-31T23:59:59-10:00", "2026-01-01 00:00:00+00:00",
            "20260101T000000+0000", "2026-02-30T00:00:00+00:00", "2026-01-01T00:00:00",
            "2026-W01-1T00:00:00+00:00", "2026-01-01T00:00:00.5+00:00", "now", "",
        ]
    )  # fmt: skip
    return Generated("", _dumped(rng, plain), names="time")


def _truncated(rng: random.Random, data: bytes) -> Generated:
    return Generated("", data[: rng.randrange(len(data) - 1)])


def _flipped(rng: random.Random, data: bytes) -> Generated:
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return Generated("", bytes(damaged), None)


def _garbage(rng: random.Random, data: bytes) -> Generated:
    pieces = [rng.randbytes(8), b"{", b"}", b'"', b"[", b"]", b":", b",", b"null", b"\\u", b"\xff"]
    chosen = rng.choices(pieces, k=rng.randrange(20))
    value = json.dumps(_value(rng)).encode()
    return Generated("", rng.choice([b"".join(chosen), value]))


_WAYS = (
    _whole, _in_other_spelling, _other_type, _other_type, _other_type, _other_value,
    _bool_for_int, _absurd_number, _nested, _nested_inside, _no_json_inside, _lone_surrogate,
    _missing_key, _unknown_key, _key_twice, _other_version, _hostile, _hostile_entry,
    _fields_of_another_kind, _odd_list, _other_time, _truncated, _flipped, _garbage,
)  # fmt: skip
WAYS = frozenset(way.__name__.strip("_") for way in _WAYS)
"""What is done to files, by name."""
