"""The published schema of override files: what stores write has its form, damage has not."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agent_prompts import ADDRESS, SOURCE, WRITES, write_all
from override_files import LISTS, Plain, address_of, generated_revision, signed
from promptgraft.errors import StoreError
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    Provenance,
    file_schema,
)
from promptgraft.overrides.codec import decode_revision, encode_revision
from promptgraft.overrides.parts.entry import Entry
from promptgraft.testing import FakeClock

SCHEMA = Draft202012Validator(file_schema())
OPTIONAL = {*LISTS, "step"}
SAMPLE = Path(__file__).with_name("revision.json")


def faults(plain: object) -> list[str]:
    return [f"{fault.json_path}: {fault.message}" for fault in SCHEMA.iter_errors(plain)]


def test_the_schema_is_one_and_each_caller_has_a_copy() -> None:
    Draft202012Validator.check_schema(file_schema())
    file_schema().clear()

    assert file_schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_object_in_the_schema_says_all_of_its_keys() -> None:
    def objects(value: Any) -> list[Any]:
        inner = value.values() if isinstance(value, dict) else value
        found = [each for item in inner if isinstance(item, (dict, list)) for each in objects(item)]
        return [value, *found] if isinstance(value, dict) and "properties" in value else found

    found = [each for each in objects(file_schema()) if "type" in each]
    assert len(found) == 13
    for each in found:
        assert each["additionalProperties"] is False
    for each in found:
        assert each["required"] == [name for name in each["properties"] if name not in OPTIONAL]


# What stores write


@pytest.mark.parametrize("kind", WRITES, ids=lambda kind: kind.__name__)
def test_every_file_that_a_store_writes_has_the_published_form(
    kind: type[Entry], tmp_path: Path
) -> None:
    store = LocalPromptOverridesStore(tmp_path, clock=FakeClock())
    WRITES[kind](store, SOURCE.prompt(store))
    write_all(store, SOURCE.prompt(store))
    store.delete(**attrs.asdict(ADDRESS))
    store.seed(SOURCE.prompt(store))

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    documents = [path for path in files if path.suffix == ".json"]
    assert len(documents) == 3
    assert [(path.name, path.read_bytes()) for path in files if path not in documents] == [
        (".lock", b"")
    ]
    for path in documents:
        assert faults(json.loads(path.read_bytes())) == []


def test_a_file_of_a_run_has_the_published_form(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    override = write_all(store, SOURCE.prompt())
    store.delete(**attrs.asdict(ADDRESS))
    scores = {"baseline": 0, "best": 1.0}
    provenance = Provenance(run_id="r", note="GEPA", scores=scores)  # type: ignore[arg-type]
    store.upsert(SOURCE.template().descriptor, override, provenance=provenance)

    for path in tmp_path.rglob("*.json"):
        assert faults(json.loads(path.read_bytes())) == []


@settings(max_examples=100)
@given(st.integers(0, 2**64))
def test_whatever_is_written_has_the_published_form(seed: int) -> None:
    revision = generated_revision(random.Random(seed), 0.5)

    assert faults(json.loads(encode_revision(revision))) == []


# What neither a reader nor the schema takes


def whole() -> tuple[Plain, OverrideAddress]:
    """Return a document with two entries of each kind, every field filled."""
    for seed in range(1000):
        revision = generated_revision(random.Random(seed), 1)
        plain: Plain = json.loads(encode_revision(revision))
        tasks, fields = plain["task_examples"], plain["output_fields"]
        filled = len(tasks) == 2 and {bool(task["step_overrides"]) for task in tasks} == {
            True,
            False,
        }
        filled &= "step" in plain and bool(plain["provenance"]["scores"])
        if filled and any(each["aliases"] for each in fields):
            return plain, address_of(revision)
    raise AssertionError


WHOLE, WHERE = whole()


def is_refused_twice(plain: Plain) -> str:
    """Check that reader and schema refuse a document, whose id fits; return what is said."""
    with pytest.raises(StoreError) as caught:
        decode_revision(json.dumps(signed(plain)).encode(), WHERE, where="the file")
    assert not SCHEMA.is_valid(plain), plain
    return str(caught.value)


def places(value: object, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items: list[Any] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [place, *(deep for key, item in items for deep in places(item, (*place, key)))]


def at(plain: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        plain = plain[key]
    return plain


def replaced(place: tuple[Any, ...], value: object) -> Plain:
    plain = copy.deepcopy(WHOLE)
    at(plain, place[:-1])[place[-1]] = value
    return plain


def test_the_whole_document_is_taken() -> None:
    assert faults(WHOLE) == []
    assert decode_revision(json.dumps(WHOLE).encode(), WHERE, where="").override.entries()


def test_a_value_of_another_type_is_refused_by_both_at_every_place() -> None:
    for place in places(WHOLE)[1:]:
        old = at(WHOLE, place)
        if place == ("id",):
            continue
        for wrong in (True, 1.5, "", [0], {"a": 1}):
            number = isinstance(old, float) and isinstance(wrong, float)
            nullable = old is None and isinstance(wrong, str)
            if type(wrong) is not type(old) and not number and not nullable:
                is_refused_twice(replaced(place, wrong))


def test_a_key_too_many_or_too_few_is_refused_by_both_in_every_object() -> None:
    free = {"scores", "param_descriptions", "value_descriptions"}
    for place in places(WHOLE):
        fields = at(WHOLE, place)
        if not isinstance(fields, dict) or free & set(place):
            continue
        plain = copy.deepcopy(WHOLE)
        at(plain, place)["extra"] = "x"
        assert "unknown key `extra`" in is_refused_twice(plain)
        for key in fields.keys() - OPTIONAL - {"id"}:
            plain = copy.deepcopy(WHOLE)
            del at(plain, place)[key]
            assert "required key missing @ $" in is_refused_twice(plain)


HASH = "0" * 64
BROKEN: Mapping[str, tuple[Any, ...]] = {
    "version": (0, 2, True, "1"),
    "number": (0, -1, False),
    "step": (None, "", "../x", HASH[1:], HASH + "0", HASH + "\n", "A" * 64),
    "parent": ("", "../x", HASH[1:], HASH + "0", HASH + "\n", "A" * 64),
    "time": ("now", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00", "2026-01-01T00:00:00"),
    "ns": ("", "../x", "/a", "a/", "a//b", "A", "a\n", "a/" * 100 + "a"),
    "prompt_key": ("", "..", "a/b", "a.b", "-a", "a\n", "a" * 65),
    "tag": ("", "..", ".a", "a/b", "a\n", "a" * 65),
    "example_key": ("", "../x", "a.b", "a\n", "a" * 65),
    "expected_hash": ("0", HASH[1:], HASH + "\n", "g" * 64),
    "example_index": (-1, True),
    "step_index": (-1, True),
    "path": ([], "a", ["a", 1]),
    "container_path": ([], "a", [None]),
    "body": (None, "x" * 1_000_001),
    "aliases": ("a", [1]),
    "scores": ({"a": "1"}, {"a": True}, {"a": None}),
    "note": (None, "x" * 1_000_001),
}


@pytest.mark.parametrize("field", BROKEN)
def test_a_field_that_breaks_its_rule_is_refused_by_both(field: str) -> None:
    found = [place for place in places(WHOLE)[1:] if place[-1] == field]
    assert found
    for place in found:
        for wrong in BROKEN[field]:
            is_refused_twice(replaced(place, wrong))


def test_an_id_that_is_none_is_refused_by_both() -> None:
    for wrong in ("", HASH[1:], HASH + "\n", "G" * 64, None, 1):
        plain = {**WHOLE, "id": wrong}
        assert faults(plain) != []
        with pytest.raises(StoreError, match=r"the file: .*(id: expected 64|a string, found)"):
            decode_revision(json.dumps(plain).encode(), WHERE, where="the file")


CHANGES: Mapping[str, Callable[[Plain], object]] = {
    "an empty list": lambda plain: plain.update(tools=[]),
    "the fields of another kind": lambda plain: plain.update(tools=plain["sections"]),
    "steps in two ways": lambda plain: [
        task.update(steps_json="[]") for task in plain["task_examples"]
    ],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_document_that_breaks_a_rule_is_refused_by_both(change: str) -> None:
    plain = copy.deepcopy(WHOLE)
    CHANGES[change](plain)
    is_refused_twice(plain)


# The sample


def test_the_sample_with_an_entry_of_every_kind_is_a_file() -> None:
    sample = SAMPLE.read_text("utf-8")
    plain = json.loads(sample)
    address = OverrideAddress(plain["ns"], plain["prompt_key"], plain["tag"])
    revision = decode_revision(sample.encode(), address, where="the sample")

    assert set(LISTS) <= set(plain)
    assert faults(plain) == []
    assert encode_revision(revision).decode() == sample
