"""What comes from outside is taken as it is or refused with its place; nothing is coerced."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import DataFormatError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import unstructure
from promptgraft.ground.strict import check_readable, structure
from promptgraft.ground.text import clip

T = TypeVar("T")
WHERE = "run.json"


class Queue(StrEnum):
    BILLING = "billing"
    LOGIN = "login"


class Mixed(Enum):
    ONE = 1
    TWO = "2"


class Level(IntEnum):
    LOW = 0
    HIGH = 1


def positive(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value < 1:
        raise ValueError(f"{attribute.name}: expected at least 1,\nfound {value}")


class Name(str):
    __slots__ = ()


class Speed(str, Enum):  # noqa: UP042 - the old way to write it works too
    FAST = "fast"


@attrs.frozen
class Limits:
    size: int = attrs.field(validator=positive)
    ratio: float = 0.5


@attrs.frozen
class Settings:
    name: str
    limits: Limits
    queues: tuple[Queue, ...] = ()
    labels: list[str] = attrs.field(factory=list)
    weights: FrozenMap[str, float] = attrs.field(factory=FrozenMap[str, float])
    notes: Mapping[str, str] = attrs.field(factory=dict)
    mode: Literal["fast", "safe"] = "safe"
    dry: bool = False
    parent: Settings | None = None
    pair: tuple[int, str] = (0, "")
    tags: frozenset[str] = frozenset()


@dataclasses.dataclass
class Ticket:
    VERSION: ClassVar[int] = 1
    text: str
    seen: int = 0
    scale: dataclasses.InitVar[int] = 1

    def __post_init__(self, scale: int) -> None:
        self.seen *= scale


@attrs.frozen
class Box(Generic[T]):
    content: T


@attrs.frozen
class Node:
    value: int
    children: tuple[Node, ...] = ()
    named: dict[str, Node] = attrs.field(factory=dict)
    pair: tuple[int, Node] | None = None


@attrs.frozen
class Stamped:
    at: datetime
    day: date


@attrs.frozen
class Waiting:
    delay: timedelta


def fault(data: object, kind: Any) -> str:
    with pytest.raises(DataFormatError) as caught:
        structure(data, kind, where=WHERE)
    (line,) = caught.value.faults
    assert str(caught.value) == clip(line, 500, around=" ")
    assert len(line.splitlines()) == 1
    return line.removeprefix(f"{WHERE}: ")


GOOD = {"name": "triage", "limits": {"size": 4}}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 5}, "expected a string, found 5 @ $.name"),
        ({"name": None}, "expected a string, found None @ $.name"),
        ({"name": b"x"}, "expected a string, found b'x' @ $.name"),
        ({"limits": []}, "expected an object, found [] @ $.limits"),
        ({"limits": None}, "expected an object, found None @ $.limits"),
        ({"limits": {}}, "required key missing @ $.limits.size"),
        ({"limits": {"size": "four"}}, "expected an integer, found 'four' @ $.limits.size"),
        ({"limits": {"size": 4.0}}, "expected an integer, found 4.0 @ $.limits.size"),
        ({"limits": {"size": True}}, "expected an integer, found True @ $.limits.size"),
        ({"limits": {"size": 0}}, "size: expected at least 1, found 0 @ $.limits"),
        (
            {"limits": {"size": 4, "ratio": "0.5"}},
            "expected a number, found '0.5' @ $.limits.ratio",
        ),
        ({"limits": {"size": 4, "ratio": True}}, "expected a number, found True @ $.limits.ratio"),
        (
            {"limits": {"size": 4, "ratio": float("nan")}},
            "expected a finite number, found nan @ $.limits.ratio",
        ),
        (
            {"limits": {"size": 4, "ratio": float("-inf")}},
            "expected a finite number, found -inf @ $.limits.ratio",
        ),
        (
            {"limits": {"sise": 4, "size": 4}},
            "unknown key `sise` (did you mean `size`?) @ $.limits",
        ),
        ({"qqq": 1}, "unknown key `qqq` @ $"),
        ({"z" * 1000: 1}, f"unknown key `{'z' * 80}` @ $"),
        ({"dry": 1}, "expected true or false, found 1 @ $.dry"),
        ({"dry": "yes"}, "expected true or false, found 'yes' @ $.dry"),
        ({"mode": "Fast"}, "expected one of 'fast', 'safe', found 'Fast' @ $.mode"),
        ({"mode": ["fast"]}, "expected one of 'fast', 'safe', found ['fast'] @ $.mode"),
        ({"queues": "billing"}, "expected a list, found 'billing' @ $.queues"),
        ({"queues": {"billing": 1}}, "expected a list, found {'billing': 1} @ $.queues"),
        ({"queues": ["login", "x"]}, "expected one of 'billing', 'login', found 'x' @ $.queues[1]"),
        ({"labels": "abc"}, "expected a list, found 'abc' @ $.labels"),
        ({"labels": {"a": 1}}, "expected a list, found {'a': 1} @ $.labels"),
        ({"labels": None}, "expected a list, found None @ $.labels"),
        ({"labels": ["a", 1]}, "expected a string, found 1 @ $.labels[1]"),
        ({"tags": "abc"}, "expected a list, found 'abc' @ $.tags"),
        ({"weights": [["a", 1]]}, "expected an object, found [['a', 1]] @ $.weights"),
        ({"weights": {"a": "1"}}, "expected a number, found '1' @ $.weights['a']"),
        ({"notes": []}, "expected an object, found [] @ $.notes"),
        ({"notes": {"a": 1}}, "expected a string, found 1 @ $.notes['a']"),
        ({"pair": "ab"}, "expected a list, found 'ab' @ $.pair"),
        ({"pair": [1]}, "expected 2 items, found 1 @ $.pair"),
        ({"pair": [1, 2]}, "expected a string, found 2 @ $.pair[1]"),
        ({"parent": {"limits": {"size": 1}}}, "required key missing @ $.parent.name"),
        ({"parent": 0}, "expected an object, found 0 @ $.parent"),
    ],
)
def test_a_wrong_shape_is_refused_with_its_path(change: dict[str, object], message: str) -> None:
    assert fault({**GOOD, **change}, Settings) == message


@pytest.mark.parametrize(
    ("data", "kind", "message"),
    [
        ([], Settings, "expected an object, found [] @ $"),
        (
            {"size": 1, 1: 2, "qq\nqq": 3},
            Limits,
            "unknown key `1`, unknown key `qq qq` @ $",
        ),
        ("4", int, "expected an integer, found '4' @ $"),
        (True, int, "expected an integer, found True @ $"),
        (1, bool, "expected true or false, found 1 @ $"),
        (1, str, "expected a string, found 1 @ $"),
        (10**400, float, "expected a finite number, found an integer of 401 digits @ $"),
        (5, list[int], "expected a list, found 5 @ $"),
        ("abc", list[str], "expected a list, found 'abc' @ $"),
        ("abc", Sequence[str], "expected a list, found 'abc' @ $"),
        ("abc", set[str], "expected a list, found 'abc' @ $"),
        ("abc", tuple[str, ...], "expected a list, found 'abc' @ $"),
        ("abc", list, "expected a list, found 'abc' @ $"),
        ([], dict[str, int], "expected an object, found [] @ $"),
        ([], dict, "expected an object, found [] @ $"),
        ([], FrozenMap, "expected an object, found [] @ $"),
        ({1: 2}, dict[str, int], "expected a string, found 1 @ $[1]"),
        ({"a": True}, dict[str, int], "expected an integer, found True @ $['a']"),
        ([1, None], list[int], "expected an integer, found None @ $[1]"),
        ("x", int | None, "expected an integer, found 'x' @ $"),
        (True, Mixed, "expected one of 1, '2', found True @ $"),
        (2, Mixed, "expected one of 1, '2', found 2 @ $"),
        ("ONE", Mixed, "expected one of 1, '2', found 'ONE' @ $"),
        ("slow", Speed, "expected one of 'fast', found 'slow' @ $"),
        (1, Name, "expected a string, found 1 @ $"),
        (True, Level, "expected one of 0, 1, found True @ $"),
        (Queue.LOGIN, Mixed, "expected one of 1, '2', found <Queue.LOGIN: 'login'> @ $"),
        (True, Literal[1], "expected one of 1, found True @ $"),
        (5, Box[int], "expected an object, found 5 @ $"),
        ({"content": "x"}, Box[int], "expected an integer, found 'x' @ $.content"),
        ({"text": "x", "VERSION": 1}, Ticket, "unknown key `VERSION` @ $"),
        (
            "2026-01-01",
            datetime,
            "expected an ISO 8601 time with its offset, found '2026-01-01' @ $",
        ),
        (
            "2026-01-01T10:00:00",
            datetime,
            "expected an ISO 8601 time with its offset, found '2026-01-01T10:00:00' @ $",
        ),
        ("today", date, "expected an ISO 8601 date, found 'today' @ $"),
        (0, date, "expected an ISO 8601 date, found 0 @ $"),
        (True, Decimal, "expected a number, found True @ $"),
    ],
)
def test_nothing_is_coerced(data: object, kind: Any, message: str) -> None:
    assert fault(data, kind) == message


def test_all_faults_are_named_at_once() -> None:
    data = {"name": 1, "limits": {"size": "x", "rato": 1}, "labels": ["a", 2, "b", 3]}
    with pytest.raises(DataFormatError) as caught:
        structure(data, Settings, where=WHERE)
    assert sorted(caught.value.faults) == [
        "run.json: expected a string, found 1 @ $.name",
        "run.json: expected a string, found 2 @ $.labels[1]",
        "run.json: expected a string, found 3 @ $.labels[3]",
        "run.json: expected an integer, found 'x' @ $.limits.size",
        "run.json: unknown key `rato` (did you mean `ratio`?) @ $.limits",
    ]
    assert str(caught.value) == "; ".join(caught.value.faults)


def test_a_long_value_is_shown_in_part() -> None:
    assert fault("x" * 1000, int) == f"expected an integer, found '{'x' * 79}… @ $"


def test_good_data_becomes_the_class() -> None:
    data = {
        **GOOD,
        "limits": {"size": 4, "ratio": 1},
        "queues": ["login", "billing"],
        "labels": ["a"],
        "weights": {"a": 1},
        "mode": "fast",
        "dry": True,
        "parent": GOOD,
        "pair": [3, "x"],
        "tags": ["b", "a", "b"],
    }
    found = structure(data, Settings, where=WHERE)
    assert found == Settings(
        name="triage",
        limits=Limits(4, 1.0),
        queues=(Queue.LOGIN, Queue.BILLING),
        labels=["a"],
        weights=FrozenMap({"a": 1.0}),
        mode="fast",
        dry=True,
        parent=Settings("triage", Limits(4)),
        pair=(3, "x"),
        tags=frozenset({"a", "b"}),
    )
    assert isinstance(found.weights, FrozenMap)
    assert isinstance(found.limits.ratio, float)


@pytest.mark.parametrize(
    ("data", "kind", "value"),
    [
        ([1, 2], tuple[int, ...], (1, 2)),
        ((1, 2), list[int], [1, 2]),
        ([1], Sequence[int], (1,)),
        ([1, "x"], list, [1, "x"]),
        ({"a": [1]}, dict, {"a": [1]}),
        ({"a": 1}, FrozenMap, FrozenMap({"a": 1})),
        ({"a": 1}, Mapping[str, int], {"a": 1}),
        ([1], Annotated[list[int], "a note"], [1]),
        (None, int | None, None),
        (1, Mixed, Mixed.ONE),
        (1, Level, Level.HIGH),
        ("fast", Speed, Speed.FAST),
        ("fast", Name, Name("fast")),
        (2, float, 2.0),
        ("login", Queue, Queue.LOGIN),
        ("login", Literal[Queue.LOGIN], Queue.LOGIN),
        ({"content": [1]}, Box[list[int]], Box([1])),
        ({"anything": [1, None]}, Any, {"anything": [1, None]}),
        ("2026-01-02T03:04:05Z", datetime, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        ("2026-01-02", date, date(2026, 1, 2)),
    ],
)
def test_what_fits_is_taken(data: object, kind: Any, value: object) -> None:
    found = structure(data, kind, where=WHERE)
    assert found == value
    assert type(found) is type(value)


def test_dataclasses_have_their_fields_and_no_others() -> None:
    ticket = structure({"text": "x", "seen": 2}, Ticket, where=WHERE)
    assert ticket == Ticket("x", 2)
    assert unstructure(ticket) == {"text": "x", "seen": 2}


def test_classes_may_contain_themselves() -> None:
    leaf = {"value": 2}
    data = {"value": 1, "children": [leaf], "named": {"a": leaf}, "pair": [0, leaf]}
    assert structure(data, Node, where=WHERE) == Node(1, (Node(2),), {"a": Node(2)}, (0, Node(2)))
    wrong = {"value": 1, "pair": [0, {"value": 1, "named": {"a": {"value": "x"}}}]}
    assert fault(wrong, Node) == "expected an integer, found 'x' @ $.pair[1].named['a'].value"


def test_data_that_is_nested_too_deeply_is_refused() -> None:
    data: dict[str, object] = {"value": 1}
    for _ in range(5000):
        data = {"value": 1, "children": [data]}

    def check(depth: int) -> None:
        """Call ``fault`` from so many frames further down, which moves the end of the stack."""
        if depth:
            check(depth - 1)
        else:
            said = fault(data, Node)
            assert said.startswith("the data is nested too deeply @ $.children[0].children[0]")

    for depth in range(0, 40, 5):
        check(depth)


def test_a_class_that_no_data_can_become_is_known_before_there_is_data() -> None:
    for kind in (Settings, Ticket, Node, Stamped, Box[int]):
        check_readable(kind, where="output")
    with pytest.raises(DataFormatError, match=r"^output: no plain data can become <class 'datetim"):
        check_readable(Waiting, where="output")

    @attrs.frozen
    class Local:
        pass

    @attrs.frozen
    class Lost:
        local: Local

    with pytest.raises(DataFormatError, match="output: name 'Local' is not defined"):
        check_readable(Lost, where="output")


TEXTS = st.text(max_size=5)
LIMITS = st.builds(Limits, st.integers(1), st.floats(allow_nan=False, allow_infinity=False))
SETTINGS: st.SearchStrategy[Settings] = st.deferred(
    lambda: st.builds(
        Settings,
        name=TEXTS,
        limits=LIMITS,
        queues=st.lists(st.sampled_from(Queue)).map(tuple),
        labels=st.lists(TEXTS, max_size=3),
        weights=st.dictionaries(TEXTS, st.floats(-1, 1), max_size=3).map(FrozenMap),
        notes=st.dictionaries(TEXTS, TEXTS, max_size=3),
        mode=st.sampled_from(["fast", "safe"]),
        dry=st.booleans(),
        parent=st.none() | SETTINGS,
        pair=st.tuples(st.integers(), TEXTS),
        tags=st.frozensets(TEXTS, max_size=3),
    )
)


@given(SETTINGS)
def test_what_is_written_is_read_back(settings: Settings) -> None:
    assert structure(unstructure(settings), Settings, where=WHERE) == settings


@given(st.datetimes(timezones=st.timezones()), st.dates())
def test_times_and_days_are_read_back(at: datetime, day: date) -> None:
    found = structure(unstructure(Stamped(at, day)), Stamped, where=WHERE)
    assert found.day == day
    assert found.at.replace(tzinfo=None) == at.replace(tzinfo=None)
    assert found.at.utcoffset() == at.utcoffset()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from([field.name for field in attrs.fields(Settings)])


@given(JSON | st.dictionaries(KEYS, JSON))
def test_any_data_is_taken_or_refused_with_one_line_a_fault(data: object) -> None:
    faults: tuple[str, ...] = ()
    try:
        assert isinstance(structure(data, Settings, where=WHERE), Settings)
    except DataFormatError as error:
        faults = error.faults
    assert all(line.startswith("run.json: ") for line in faults)
    assert all(" @ $" in line and len(line.splitlines()) == 1 for line in faults)


def test_a_fault_carries_no_error_that_cannot_be_sent_to_another_process() -> None:
    with pytest.raises(DataFormatError) as caught:
        structure("four", int, where="answer")
    assert caught.value.__context__ is None
