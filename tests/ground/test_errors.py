"""The tree of errors: drawn as it is, and every error survives a trip between processes."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from subprocess import CalledProcessError

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft import errors
from promptgraft.errors import (
    LONGEST_MESSAGE,
    ConfigError,
    DataFormatError,
    FlowError,
    PromptgraftError,
    WinnerNotStoredError,
)
from promptgraft.ground.text import raised

_NODE = re.compile(r"^ {4}(?P<rails>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s+\((?P<builtin>\w+)\))?")


@attrs.frozen
class Drawn:
    """One line of the tree in the docstring of ``promptgraft.errors``."""

    name: str
    parent: str | None
    builtin: str | None


def drawn() -> list[Drawn]:
    found: list[Drawn] = []
    above: dict[int, str] = {}
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        if match := _NODE.match(line):
            depth = len(match["rails"]) // 4
            above[depth] = match["name"]
            found.append(Drawn(match["name"], above.get(depth - 1), match["builtin"]))
    return found


def classes() -> list[type[PromptgraftError]]:
    """Return every error class of the module, base first."""
    members = [member for _, member in inspect.getmembers(errors, inspect.isclass)]
    return [member for member in members if issubclass(member, PromptgraftError)]


def made(kind: type[PromptgraftError]) -> PromptgraftError:
    if issubclass(kind, WinnerNotStoredError):
        return kind("the disk is full", {"best": 0.5})
    if issubclass(kind, DataFormatError):
        return kind("two faults", ("one", "two"))
    if issubclass(kind, FlowError):
        return kind("it raised", graph="desk", case="c1", step="2", node="reply")
    return kind("what happened", 5)


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    real = []
    for kind in classes():
        own = [base.__name__ for base in kind.__bases__ if issubclass(base, PromptgraftError)]
        builtin = [base.__name__ for base in kind.__bases__ if base.__module__ == "builtins"]
        parent = None if kind is PromptgraftError else own[0]
        real.append(Drawn(kind.__name__, parent, builtin[0] if parent and builtin else None))
        assert len(own) + len(builtin) == len(kind.__bases__) <= 2
    assert len(real) > 20
    assert sorted(drawn(), key=str) == sorted(real, key=str)


def test_every_error_says_what_it_is() -> None:
    assert [kind.__name__ for kind in classes() if not kind.__dict__.get("__doc__")] == []


@pytest.mark.parametrize("kind", classes(), ids=lambda kind: kind.__name__)
def test_every_error_pickles_and_copies_with_all_it_carries(kind: type[PromptgraftError]) -> None:
    error = made(kind)
    error.add_note("while testing")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is kind
        assert again is not error
        assert again.args == error.args
        assert str(again) == str(error)
        assert vars(again) == vars(error)


def test_a_data_format_error_with_one_fault_names_it() -> None:
    assert DataFormatError("a.json: expected a list").faults == ("a.json: expected a list",)


def test_one_handler_catches_every_prompt_without_a_usable_answer() -> None:
    kinds = {kind for kind in classes() if issubclass(kind, errors.PromptEvaluationError)}
    faults = (errors.CandidateError, errors.ProviderError)
    assert kinds == {errors.PromptEvaluationError} | {
        kind for kind in classes() if issubclass(kind, faults)
    }


def test_builtin_handlers_catch_what_a_user_would_expect() -> None:
    for kind, builtin in (
        (errors.ConfigError, ValueError),
        (errors.UnknownPartError, LookupError),
        (errors.DeadlineExceededError, TimeoutError),
    ):
        with pytest.raises(builtin):
            raise kind("x")


@given(st.text(max_size=30), st.integers(0, 200_000))
def test_a_message_is_one_line_of_bounded_length_with_its_beginning_and_its_end(
    text: str, longer: int
) -> None:
    message = f"a.yaml:3: {text}{'x' * longer}; mend it"
    error = pickle.loads(pickle.dumps(ConfigError(message)))

    said = str(error)
    assert error.args == (message,)
    assert len(said) <= LONGEST_MESSAGE
    assert len(said.splitlines()) == 1
    assert said.startswith("a.yaml:3: ")
    assert said.endswith("; mend it")
    assert str(error.at("step/1")).endswith("; mend it; at `step/1` of the run")


@given(st.lists(st.integers(1, 400), min_size=1, max_size=60))
def test_an_error_of_many_faults_tells_the_first_and_counts_the_others(lengths: list[int]) -> None:
    faults = [f"{at}: {'x' * length}" for at, length in enumerate(lengths)]
    error = DataFormatError.of(faults)

    assert error.faults == tuple(faults)
    said, _, more = str(error).partition("; and ")
    told = said.split("; ")
    assert told == faults[: len(told)]
    assert len(told) + int(more.removesuffix(" more") or 0) == len(faults)
    assert len(str(error)) <= LONGEST_MESSAGE


class QuotaError(ConfigError):
    """An error of a user, whose constructor takes no message."""

    def __init__(self, used: int, *, most: int) -> None:
        super().__init__(f"{used} of {most} are used")
        self.most = most


def test_an_error_of_a_user_with_a_constructor_of_its_own_pickles_and_copies() -> None:
    error = QuotaError(7, most=5)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is QuotaError
        assert (str(again), again.most) == ("7 of 5 are used", 5)


@pytest.mark.parametrize("before", range(195, 235, 8))
def test_what_a_program_printed_is_cut_after_its_secrets_are_gone(
    before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DESK_TOKEN", "0123456789" * 3)
    printed = f"{'x' * before}{'0123456789' * 3}{'y' * 800}"
    told = raised(CalledProcessError(2, "tool", stderr=printed.encode()))
    assert "xxx" in told
    assert "0123" not in told
