"""A frozen map is a mapping like any other, except that nothing can change it."""

from __future__ import annotations

import copy
import pickle
from collections import UserDict
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.ground.frozenmap import FrozenMap

DATA = st.dictionaries(st.text(max_size=3), st.integers(), max_size=6)


@given(DATA)
def test_it_answers_as_the_dictionary_that_it_was_made_from(data: dict[str, int]) -> None:
    frozen = FrozenMap(data)
    assert list(frozen) == list(data)
    assert list(frozen.items()) == list(data.items())
    assert list(frozen.values()) == list(data.values())
    assert len(frozen) == len(data)
    assert bool(frozen) == bool(data)
    for key in [*data, "missing"]:
        assert (key in frozen) == (key in data)
        assert frozen.get(key, "default") == data.get(key, "default")
    assert {**frozen} == data
    assert FrozenMap(data.items()) == FrozenMap(frozen) == frozen


@given(DATA, DATA)
def test_equality_is_that_of_mappings_and_equal_maps_hash_alike(
    one: dict[str, int], other: dict[str, int]
) -> None:
    assert (FrozenMap(one) == FrozenMap(other)) == (one == other)
    assert (FrozenMap(one) == other) == (one == other)
    assert (other == FrozenMap(one)) == (one == other)

    turned = FrozenMap(reversed(one.items()))
    assert turned == FrozenMap(one)
    assert hash(turned) == hash(FrozenMap(one))
    assert {FrozenMap(one), turned} == {turned}


def test_it_equals_other_mappings_and_nothing_else() -> None:
    frozen = FrozenMap({"a": 1})
    assert frozen == MappingProxyType({"a": 1})
    assert frozen == UserDict({"a": 1})
    assert frozen != [("a", 1)]
    assert frozen != 5
    assert isinstance(frozen, Mapping)


@given(DATA)
def test_it_pickles_and_copies(data: dict[str, int]) -> None:
    frozen = FrozenMap(data)
    again: list[FrozenMap[str, int]] = [
        pickle.loads(pickle.dumps(frozen)),
        copy.copy(frozen),
        copy.deepcopy(frozen),
    ]
    for found in again:
        assert type(found) is FrozenMap
        assert found == frozen
        assert list(found) == list(frozen)
        assert hash(found) == hash(frozen)


def test_nothing_changes_it() -> None:
    data = {"a": 1}
    frozen = FrozenMap(data)
    data["b"] = 2
    assert dict(frozen) == {"a": 1}
    with pytest.raises(TypeError):
        frozen["a"] = 2  # type: ignore[index]
    with pytest.raises(TypeError):
        del frozen["a"]  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        frozen.other = 1  # type: ignore[attr-defined]
    for changing in ("clear", "pop", "popitem", "setdefault", "update", "__ior__"):
        assert not hasattr(frozen, changing)


def test_a_missing_key_is_a_key_error_and_values_that_do_not_hash_say_so() -> None:
    with pytest.raises(KeyError, match="'b'"):
        FrozenMap({"a": 1})["b"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(FrozenMap({"a": [1]}))


def test_it_shows_what_it_holds() -> None:
    assert repr(FrozenMap({"a": 1, "b": 2})) == "FrozenMap({'a': 1, 'b': 2})"
