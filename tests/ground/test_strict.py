"""Every file is read by one reader: each fault has its place, what was expected and found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json, unstructure
from promptgraft.ground.strict.checks import (
    ANYTHING,
    COUNT,
    FLAG,
    INTEGER,
    MOMENT,
    NUMBER,
    OBJECT,
    SECONDS,
    SHARE,
    STRING,
    TEXT,
    Check,
    Kind,
    instance,
    integer,
    money,
    number,
    one_of,
)
from promptgraft.ground.strict.kinds import Key, class_of, listed, named, record, record_of
from promptgraft.ground.strict.nodes import Node, Source, read_source


@attrs.frozen(kw_only=True)
class Limits:
    """What a run may use.

    Attributes:
        rollouts: How many, at least 1.
        seconds: How long; None for no limit.
    """

    rollouts: int = attrs.field(validator=COUNT)
    seconds: float | None = attrs.field(default=None, validator=SECONDS.or_none)

    def __attrs_post_init__(self) -> None:
        if self.seconds is not None and self.seconds < self.rollouts:
            raise ConfigError(f"seconds: expected one for each rollout, found {self.seconds:g}")


@attrs.frozen(kw_only=True)
class Settings:
    """Settings."""

    name: str
    limits: Limits
    share: float = attrs.field(default=0.5, validator=SHARE)
    mode: Literal["fast", "safe"] = "safe"
    tags: tuple[str, ...] = ()
    weights: Mapping[str, float] = attrs.field(factory=dict)
    dry: bool = False
    more: tuple[Limits, ...] = ()


SETTINGS = record_of(Settings)


def faults(value: Json, kind: Kind[object], name: str = "") -> tuple[str, ...]:
    source = Source.of(value, name)
    read = kind.read(source.root)
    assert (read is None) or not source.faults
    return source.faults


GOOD: dict[str, Json] = {"name": "triage", "limits": {"rollouts": 4}}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"name": 5}, "name: expected a text, found 5"),
        (
            {"limits": {"rollouts": 0}},
            "limits.rollouts: expected an integer of at least 1, found 0",
        ),
        (
            {"limits": {"rollouts": "four"}},
            "limits.rollouts: expected an integer of at least 1, found 'four'",
        ),
        ({"limits": {}}, "limits: expected the key `rollouts` (How many, at least 1), found none"),
        (
            {"limits": {"rollouts": 4, "seconds": 1.5}},
            "limits.seconds: expected one for each rollout, found 1.5",
        ),
        ({"share": 2}, "share: expected a number from 0 to 1, found 2"),
        ({"shar": 1}, "shar: unknown key (did you mean `share`?)"),
        (
            {"mode": "saf"},
            "mode: expected one of `fast`, `safe`, found 'saf' (did you mean `safe`?)",
        ),
        ({"tags": "x"}, "tags: expected a list, found 'x'"),
        ({"tags": ["x", 1]}, "tags[1]: expected a text, found 1"),
        ({"weights": {"a": True}}, "weights.a: expected a number, found True"),
        ({"dry": 1}, "dry: expected true or false, found 1"),
        ({"more": [{"rollouts": 1}, []]}, "more[1]: expected an object with `rollouts`, found an "),
    ],
)
def test_a_fault_names_its_place_and_what_was_expected_and_found(
    change: dict[str, Json], fault: str
) -> None:
    (found,) = faults({**GOOD, **change}, SETTINGS, "run.json")
    assert found.startswith(f"run.json: {fault}")


def test_all_faults_are_found_at_once_in_the_order_of_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("limits:\n  rollouts: none\n  second: 1\nname: 5\nmode: slow\n", "utf-8")
    source = read_source(path)
    assert SETTINGS.read(source.root) is None
    with pytest.raises(DataFormatError) as caught:
        source.raise_all()
    assert [line.removeprefix(f"{path}:")[:10] for line in caught.value.faults] == [
        "2: limits.",
        "3: limits.",
        "4: name: e",
        "5: mode: e",
    ]


def test_a_file_with_very_many_faults_lists_twenty_and_counts_the_others() -> None:
    source = Source.of(["x"] * 1000, "numbers.json")
    listed(INTEGER).read(source.root)
    with pytest.raises(DataFormatError) as caught:
        source.raise_all()
    assert len(caught.value.faults) == 21
    assert caught.value.faults[-1] == "numbers.json: and 980 more"


@pytest.mark.parametrize(
    ("check", "fitting", "wrong"),
    [
        (integer(), [0, -5, 2**63 - 1], [True, 1.0, "1", None, [], 2**63, 10**400, 10**5000]),
        (COUNT, [1, 2], [0, -1, True, 1.5]),
        (integer(2, 3), [2, 3], [1, 4]),
        (NUMBER, [0, 1.5, -2], [True, float("nan"), float("inf"), 10**400, "1"]),
        (number(above=0, below=1), [0.5], [0, 1, -1, 2]),
        (SHARE, [0, 1, 0.5], [-0.1, 1.1]),
        (money(), [1, 2.5], [0, -1, True, "1", float("nan"), float("inf")]),
        (money(0, texts=True), [0, "2.50"], ["-1", "x", "NaN", "Infinity"]),
        (STRING, ["", "x"], [1, None]),
        (TEXT, ["x"], ["", " ", 1]),
        (FLAG, [True, False], [0, 1, "yes", None]),
        (one_of("a", "b"), ["a"], ["c", 1, ["a"]]),
        (MOMENT, ["2026-01-02T03:04:05Z"], ["2026-01-02", "2026-01-02T03:04:05", 5]),
        (OBJECT, [{}], [[], "x"]),
    ],
)
def test_a_check_is_a_reader_and_a_validator_with_the_same_message(
    check: Check[Any], fitting: list[Any], wrong: list[Any]
) -> None:
    for value in fitting:
        check.hold("size", value)
        assert faults(value, check) == ()
    for value in wrong:
        with pytest.raises(ConfigError, match=f"^size: expected {re.escape(check.what)}, found "):
            check.hold("size", value)
        (fault,) = faults(value, check)
        assert fault.startswith(f"expected {check.what}, found ")
    check.or_none.hold("size", None)


def test_a_class_holds_its_fields_by_the_checks_that_files_are_read_with() -> None:
    with pytest.raises(ConfigError, match=r"^Limits: rollouts: expected an integer of at least 1"):
        Limits(rollouts=0)
    properties = SETTINGS.schema["properties"]
    assert isinstance(properties, dict)
    assert properties["share"] == {"type": "number", "minimum": 0, "maximum": 1}


def test_values_that_are_hidden_are_never_shown() -> None:
    secret = attrs.evolve(TEXT, hidden=True, mend="name a variable")
    with pytest.raises(ConfigError, match=r"^key: .*\(not shown\); name a variable$") as caught:
        secret.hold("key", ["hunter2"])
    assert "hunter2" not in str(caught.value)
    (fault,) = faults(["hunter2"], secret)
    assert fault == "expected a text, found something else (not shown); name a variable"


def test_keys_of_other_tools_are_read_in_both_ways_of_writing() -> None:
    kind: Kind[dict[str, Json]] = record(
        dict, {"max_size": Key(COUNT)}, aliases={"limit": "max_size"}, left_out=("note",)
    )
    for key in ("max_size", "maxSize", "limit"):
        assert kind.read(Source.of({key: 3, "note": "x", "other": None}).root) == {"max_size": 3}
    assert faults({"maxSize": 3, "limit": 4}, kind) == ("limit: repeats `maxSize`; keep one",)


def test_an_object_of_python_is_held_but_not_read() -> None:
    @attrs.frozen
    class Holder:
        limits: Limits = attrs.field(validator=instance(Limits))

    assert record_of(Holder).read(Source.of({"limits": {"rollouts": 1}}).root) == Holder(
        Limits(rollouts=1)
    )
    with pytest.raises(ConfigError, match="Holder: limits: expected a Limits, found 5"):
        Holder(5)  # type: ignore[arg-type]


def test_classes_are_told_apart_by_their_names() -> None:
    kind = class_of(Limits, Settings)
    assert kind.read(Source.of({"limits": {"rollouts": 2}}).root) == Limits(rollouts=2)
    (fault,) = faults({"limit": {}}, kind)
    assert fault.startswith("limit: unknown (did you mean `limits`?); expected one of `limits: {")


NAMES = st.text(st.characters(categories=["Ll"]), min_size=1, max_size=5)
LIMITS = st.builds(Limits, rollouts=st.integers(1, 9), seconds=st.none() | st.floats(9, 99))
WRITTEN = st.builds(
    Settings,
    name=NAMES,
    limits=LIMITS,
    share=st.floats(0, 1),
    mode=st.sampled_from(["fast", "safe"]),
    tags=st.lists(NAMES, max_size=3).map(tuple),
    weights=st.dictionaries(NAMES, st.floats(-1, 1), max_size=3),
    dry=st.booleans(),
    more=st.lists(LIMITS, max_size=2).map(tuple),
)


@given(WRITTEN)
def test_what_is_written_is_read_back(settings: Settings) -> None:
    assert SETTINGS.read(Source.of(unstructure(settings)).root) == settings


JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from([field.name for field in attrs.fields(Settings)])


@given(JSON | st.dictionaries(FIELDS, JSON))
def test_any_data_is_read_or_refused_with_a_line_for_each_fault(value: Json) -> None:
    source = Source.of(value, "any.json")
    read = SETTINGS.read(source.root)
    assert (read is None) == bool(source.faults)
    for line in source.faults:
        assert re.match(r"any\.json: ([\w\[\].]+: )?(expected|unknown)", line)
        assert len(line.splitlines()) == 1


def _deep(depth: int) -> Json:
    value: Json = {}
    for _ in range(depth):
        value = {"a": [value]}
    return value


def test_size_and_depth_are_no_matter() -> None:
    assert faults({"x": _deep(10_000)}, named(ANYTHING)) == ()
    assert len(faults({f"k{n}": 1 for n in range(20_000)}, OBJECT)) == 0
    assert len(faults(["x"] * 20_000, listed(INTEGER))) == 20_000
    assert all(len(line) < 1_000 for line in faults({"k" * 100_000: _deep(10_000)}, SETTINGS))


def test_a_node_below_nothing_is_nothing() -> None:
    node = Node(None, (), Source("x")).member("a").member("b")
    assert (node.value, node.path, node.items(), node.members()) == (None, ("a", "b"), [], {})
