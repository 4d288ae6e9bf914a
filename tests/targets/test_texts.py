"""Named texts of a Python function: what the function is handed, and what becomes of its faults."""

from __future__ import annotations

import asyncio
import json
import pickle
import signal
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forked import forking
from killing import error_text
from optimizers.worlds import answers, config, instruction, judge, propose, scored
from process_pools import process_pool
from programs import Programs
from promptgraft import (
    Case,
    EventBus,
    GepaExample,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    MemoryJournal,
    OfflineAdapter,
    OptimizationContext,
    OptimizationJob,
    PromptResponse,
    ScriptedAdapter,
    Session,
    Texts,
    evaluate,
    load_metrics,
)
from promptgraft.adapters.base import Usage, adapter_identity, evaluated
from promptgraft.errors import (
    CallerError,
    CandidateError,
    ConfigError,
    DeadlineExceededError,
    InvalidIdentifierError,
    OutputError,
    PermanentProviderError,
    PromptDefinitionError,
    PromptgraftError,
    TransientProviderError,
    UnknownPartError,
)
from promptgraft.evals.gate.report import Subject as GateSubject
from promptgraft.search import StopReason
from targets.words_app import TEXTS, Known, KnownAsync, examples, known, optimized, texts_of

APP = Path(__file__).with_name("words_app.py")


def nothing(texts: Mapping[str, str], *params: object) -> str:
    return ""


def asked(texts: Texts, *params: object, example: str = "e1") -> PromptResponse[object]:
    """Return what the function answers with the texts of the source."""
    session = Session(tags={"example": example})
    return evaluated(texts.adapter, texts.prompt.bind(*params), session=session)


class Remembering:
    """Answers as the application does, and remembers every call."""

    identity = "known"

    def __init__(self) -> None:
        self.calls: list[tuple[Mapping[str, str], tuple[object, ...]]] = []

    def __call__(self, texts: Mapping[str, str], *params: Any) -> str:
        self.calls.append((texts, params))
        return known(texts, *params)


def test_the_function_is_handed_the_texts_of_the_candidate_to_the_byte() -> None:
    function = Remembering()
    result = optimized(texts_of(function))
    assert result.found_better
    baseline = [dict(texts) for texts, _ in function.calls[:6]]
    assert baseline == [TEXTS] * 6
    by_candidate = {
        json.dumps(
            {
                **TEXTS,
                **{path[0]: text for path, text in candidate.section_bodies.items()},
            }
        )
        for candidate in result.candidates
    }
    assert len(by_candidate) > 3
    assert by_candidate <= {json.dumps(dict(texts)) for texts, _ in function.calls}
    assert all(texts["rules"].startswith("\ufeff$HOME {{ y }} ") for texts, _ in function.calls)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z0-9][a-z0-9_-]{0,9}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cs"])),
        min_size=1,
    )
)
def test_any_texts_are_handed_over_as_they_are_in_their_order(texts: dict[str, str]) -> None:
    seen: list[Mapping[str, str]] = []

    def function(texts: Mapping[str, str]) -> str:
        seen.append(texts)
        return ""

    asked(Texts(texts, run=function))
    assert list(seen[0].items()) == list(texts.items())


def test_parameters_of_any_kind_are_handed_over() -> None:
    params = ("one", "two", {"a": 1}, {"b": 2}, {3}, Path("x"), None, threading.Lock)
    seen: list[tuple[object, ...]] = []

    def function(texts: Mapping[str, str], *params: object) -> str:
        seen.append(params)
        return "ok"

    settings = {
        "training_examples": [GepaExample(id=str(n), params=params) for n in range(12)],
        "feedback_fn": scored(1.0),
    }
    optimized(Texts(TEXTS, run=function), settings=settings)
    assert seen == [params] * 6


def test_the_function_answers_whatever_adapter_the_surroundings_have() -> None:
    texts = Texts(TEXTS, run=Known())
    proposing = ScriptedAdapter(propose, identity="proposes")
    for context in (
        OptimizationContext(proposing),
        OptimizationContext(ScriptedAdapter(["no"]), reflection_adapter=proposing),
    ):
        found = context.around(texts)
        assert found.task_adapter is texts.adapter
        assert found.proposing_adapter is proposing


def test_the_function_cannot_change_the_texts() -> None:
    def function(texts: Any) -> str:
        texts["rules"] = "mine"
        return ""

    with pytest.raises(CallerError, match=r"raised TypeError: .* does not support item assignment"):
        asked(Texts(TEXTS, run=function))


def test_the_reflector_sees_the_parameters_the_answer_and_the_other_texts() -> None:
    def function(texts: Mapping[str, str], word: str, place: int) -> dict[str, object]:
        return {"word": word, "known": False}

    writer = ScriptedAdapter(propose, identity="writer")
    optimized(
        Texts(TEXTS, run=function),
        reflection_adapter=writer,
        settings={"feedback_fn": scored(0.0), "max_reflections": 1},
    )
    question = writer.requests[0].text
    assert '"w' in question
    assert '{"known":false,"word":"w' in question
    assert "$HOME {{ y }} {word}" in question


class Team(StrEnum):
    ROADS = "roads"


@attrs.frozen
class Reply:
    b: int = 2
    a: str = "ä"


class Opaque:
    def __str__(self) -> str:
        return "opaque"


OPAQUE = Opaque()


@pytest.mark.parametrize(
    ("returned", "text", "output"),
    [
        ("text\r\n", "text\r\n", None),
        (Team.ROADS, "roads", Team.ROADS),
        (Reply(), '{"a":"ä","b":2}', Reply()),
        ({"b": [1, None]}, '{"b":[1,null]}', {"b": [1, None]}),
        (False, "false", False),
        (OPAQUE, "opaque", OPAQUE),
    ],
)
def test_a_function_returns_a_text_or_an_object(
    returned: object, text: str, output: object
) -> None:
    response = asked(Texts(TEXTS, run=lambda texts: returned, key="k"))
    assert (response.text, response.output) == (text, output)


def test_a_response_is_taken_as_it_is() -> None:
    own = PromptResponse[object](text="x", output=3, usage=Usage(input_tokens=7))
    assert asked(Texts(TEXTS, run=lambda texts: own, key="k")) is own


async def yielding(texts: Mapping[str, str]) -> Any:
    yield "ok"


@pytest.mark.parametrize(
    "function",
    [
        lambda texts: None,
        lambda texts: (part for part in "ok"),
        lambda texts: nothing,
        lambda texts: b"ok",
        yielding,
    ],
)
def test_what_cannot_be_an_answer_is_refused_in_one_line(function: Callable[..., object]) -> None:
    with pytest.raises(CallerError) as caught:
        asked(Texts(TEXTS, run=function, key="k"))
    assert "on example `e1` returned " in str(caught.value)
    assert str(caught.value).endswith("; return a text, an object or a PromptResponse")
    assert "\n" not in str(caught.value)


def raising(error: Exception, *, when: Callable[[int], bool] = lambda place: True) -> Any:
    """Return a function that raises an error for some of the examples."""

    def function(texts: Mapping[str, str], word: str, place: int) -> str:
        if when(place):
            raise error
        return known(texts, word, place)

    return function


@pytest.mark.parametrize("error", [ValueError("no number"), OutputError("no number")])
def test_the_fault_of_a_candidate_scores_zero_and_the_reflector_is_told_why(
    error: Exception,
) -> None:
    writer = ScriptedAdapter(propose, identity="writer")
    result = optimized(
        texts_of(raising(error, when=lambda place: place == 6), candidate_errors=ValueError),
        reflection_adapter=writer,
        settings={"pareto_set_size": 6, "minibatch_size": 6, "max_reflections": 2},
    )
    assert result.total_rollouts > 6
    assert "no number" in writer.requests[0].text
    assert "The answer could not be used: " in writer.requests[0].text


def test_a_transient_fault_of_a_provider_stays_unscored_and_a_permanent_one_ends_the_run() -> None:
    busy = TransientProviderError("429: overloaded")
    result = optimized(
        texts_of(raising(busy, when=lambda place: place == 0), candidate_errors=(Exception,))
    )
    assert result.scores_matrix[0][0] is None
    assert result.scores_matrix[0][1] == 0.0
    refused = raising(PermanentProviderError("401"))
    result = optimized(texts_of(refused, candidate_errors=(Exception,)))
    assert result.stop_reason is StopReason.PROVIDER_FAILED


@pytest.mark.parametrize("error", [OutputError("x"), DeadlineExceededError("y")])
def test_errors_of_promptgraft_keep_their_meaning(error: PromptgraftError) -> None:
    with pytest.raises(type(error)) as caught:
        asked(texts_of(raising(error), candidate_errors=(Exception,)), "w", 1)
    assert caught.value is error


@pytest.mark.parametrize("workers", [None, 4])
def test_any_other_error_ends_the_run_in_one_line_with_its_cause(workers: int | None) -> None:
    error = KeyError("two\nlines")
    function = raising(error, when=lambda place: place == 3)
    pool = nullcontext() if workers is None else ThreadPoolExecutor(workers)
    with pool as executor, pytest.raises(CallerError) as caught:
        optimized(texts_of(function, candidate_errors=(ValueError,)), executor=executor)
    assert str(caught.value) == (
        "function test_texts.raising.<locals>.function on example `e3` raised KeyError: "
        r"'two\nlines'; at `baseline/3` of the run"
    )
    assert caught.value.__cause__ is error
    assert not isinstance(caught.value, CandidateError)


@pytest.mark.parametrize("fitting", [0, 5])
def test_a_function_that_wants_other_parameters_is_refused_before_any_call(fitting: int) -> None:
    unfit = [
        example if number < fitting else attrs.evolve(example, params=())
        for number, example in enumerate(examples())
    ]
    fault = r"words_app\.known: known\(\) cannot be called with \(texts\): its arguments are"
    events: list[object] = []
    bus = EventBus()
    bus.subscribe(object, events.append)
    with pytest.raises(ConfigError, match=fault):
        optimized(texts_of(), event_bus=bus, settings={"training_examples": unfit})
    assert not events


def test_the_adapter_of_other_texts_is_refused_before_any_call() -> None:
    other = Texts({"rule": "Name the word.", "hints": "None yet."}, run=known)
    context = OptimizationContext(
        other.adapter, reflection_adapter=ScriptedAdapter(propose, identity="writer")
    )
    settings = config(target_section_paths=(), training_examples=examples())
    with pytest.raises(ConfigError, match="expected the texts rule, hints, found the prompt"):
        GepaOptimizer(context, settings).plan(texts_of().prompt)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"texts": {}}, ConfigError, "texts: expected texts by name"),
    ({"texts": "rules"}, ConfigError, "texts: expected texts by name"),
    ({"texts": {"a": 1}}, ConfigError, "texts: 'a': expected a text, found 1"),
    ({"texts": {"A b": "{word}"}}, InvalidIdentifierError, "section key: .*; found 'A b'"),
    ({"run": "known"}, ConfigError, "run: expected a function, found 'known'"),
    ({"key": "A b"}, InvalidIdentifierError, "prompt key: expected"),
    ({"ns": "A b"}, InvalidIdentifierError, "ns: expected"),
    ({"frozen": ["note"]}, ConfigError, "frozen: there is no text 'note' \\(did you mean `notes`"),
    ({"frozen": ["rules", "notes"]}, ConfigError, "frozen: all texts are named"),
    ({"placeholders": "{word}"}, ConfigError, r"placeholders: expected a list, found a text; w"),
    ({"placeholders": ["{wort}"]}, ConfigError, r"placeholders: no text holds '\{wort\}'; write"),
    ({"placeholders": {"rule": ["{word}"]}}, ConfigError, "placeholders: there is no text 'rule'"),
    (
        {"placeholders": {"notes": ["{word}"]}},
        PromptDefinitionError,
        r"section `notes`: the text does not hold the placeholder `\{word\}`",
    ),
    ({"candidate_errors": ["x"]}, ConfigError, "candidate_errors: expected .*, found 'x'"),
    ({"candidate_errors": BaseException}, ConfigError, "candidate_errors: expected exception clas"),
]


@pytest.mark.parametrize(("settings", "kind", "fault"), REFUSED)
def test_what_texts_cannot_be_is_refused_by_name(
    settings: dict[str, Any], kind: type[Exception], fault: str
) -> None:
    with pytest.raises(kind, match=f"^{fault}") as caught:
        texts_of(**settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "key", "identity"),
    [
        (known, "known", "function words_app.known"),
        (partial(known, word="w0"), "known", "function words_app.known"),
        (Remembering, "remembering", "known"),
        (lambda texts: "", None, None),
    ],
)
def test_key_and_identity_come_from_the_function(
    function: Any, key: str | None, identity: str | None
) -> None:
    if key is None:
        with pytest.raises(InvalidIdentifierError, match="by default the name of the function"):
            Texts(TEXTS, run=function)
        return
    texts = Texts(TEXTS, run=function)
    descriptor = texts.prompt.descriptor
    found = adapter_identity(texts.adapter)
    assert (descriptor.ns, descriptor.key, found) == ("texts", key, identity)


def test_a_text_keeps_those_placeholders_that_it_holds() -> None:
    found = Texts(
        {"a": "$id_of", "b": "$id $id_of", "c": ""}, run=nothing, placeholders=["$id", "$id_of"]
    )
    kept = {one.path[0]: one.placeholders for one in found.prompt.descriptor.sections}
    assert {name: set(names) for name, names in kept.items()} == {
        "a": {"$id_of"},
        "b": {"$id", "$id_of"},
        "c": set(),
    }


def test_a_proposal_that_loses_a_placeholder_never_reaches_the_function() -> None:
    function = Remembering()
    writer = ScriptedAdapter(lambda rendered: instruction("Known words: w0 w1 w2"))
    result = optimized(
        texts_of(function),
        reflection_adapter=writer,
        settings={"target_section_paths": (("rules",),), "max_reflections": 4},
    )
    assert not result.found_better
    assert writer.calls == 4
    assert "the text lost the placeholders {word}" in writer.requests[1].text
    assert all(dict(texts) == TEXTS for texts, _ in function.calls)


def test_frozen_texts_are_handed_over_and_never_change() -> None:
    function = Remembering()
    texts = texts_of(function, frozen=["rules"])
    store = InMemoryPromptOverridesStore()
    result = optimized(texts, overrides_store=store)
    assert result.found_better
    assert {texts["rules"] for texts, _ in function.calls} == {TEXTS["rules"]}
    assert texts.current(store)["notes"] != TEXTS["notes"]
    with pytest.raises(UnknownPartError):
        store.set_section_override(texts.prompt, path=("rules",), body="x {word}")
    with pytest.raises(UnknownPartError):
        optimized(texts, settings={"target_section_paths": (("rules",),)})


def test_the_winner_is_in_force_in_another_process_until_the_source_changes(
    tmp_path: Path, programs: Programs
) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    assert optimized(texts_of(), overrides_store=store, overrides_tag="canary").persisted
    (line,) = error_text(programs, APP, tmp_path, "--texts", "canary")
    now = json.loads(line)
    assert now == dict(texts_of().current(store, "canary"))
    assert {f"w{n}" for n in range(6)} <= set(f"{now['rules']} {now['notes']}".split())
    assert dict(texts_of().current(store)) == TEXTS

    changed = texts_of(texts={**TEXTS, "rules": "Other words: {word}"})
    assert dict(changed.current(store, "canary")) == {**now, "rules": "Other words: {word}"}
    skipped = changed.prompt_in(store, "canary").render().skipped
    assert [one.part for one in skipped] == ["section rules"]


@pytest.fixture(scope="module")
def expected() -> tuple[Any, Any]:
    """Return result and journal of a plain function that is called in turn."""
    journal = MemoryJournal()
    return optimized(texts_of(Known()), journal=journal), answers(journal)


@pytest.mark.parametrize("function", [Known(), KnownAsync()])
@pytest.mark.parametrize("workers", [1, 4, 16])
def test_plain_and_async_functions_give_the_same_run_with_any_number_of_workers(
    function: Any, workers: int, expected: tuple[Any, Any]
) -> None:
    journal = MemoryJournal()
    with ThreadPoolExecutor(workers) as executor:
        result = optimized(texts_of(function), journal=journal, executor=executor)
    assert (result, answers(journal)) == expected


def test_an_async_function_is_called_in_the_loop_that_the_run_was_begun_in(
    expected: tuple[Any, Any],
) -> None:
    async def main() -> tuple[Any, set[asyncio.AbstractEventLoop], asyncio.AbstractEventLoop]:
        loops: set[asyncio.AbstractEventLoop] = set()

        async def function(texts: Mapping[str, str], word: str, place: int) -> str:
            loops.add(asyncio.get_running_loop())
            return known(texts, word, place)

        context = OptimizationContext(reflection_adapter=ScriptedAdapter(propose))
        settings = config(target_section_paths=(), training_examples=examples())
        result = await GepaOptimizer(context, settings).aoptimize(texts_of(function))
        return result, loops, asyncio.get_running_loop()

    result, loops, own = asyncio.run(main())
    assert result.candidates == expected[0].candidates
    assert loops == {own}


def test_a_function_that_pickles_runs_in_other_processes(expected: tuple[Any, Any]) -> None:
    journal = MemoryJournal()
    with process_pool(2) as executor:
        result = optimized(texts_of(KnownAsync()), journal=journal, executor=executor)
    assert (result, answers(journal)) == expected
    copy = pickle.loads(pickle.dumps(texts_of()))
    assert asked(copy, "words:", 1).text == "ok"


def test_runs_side_by_side_never_see_the_texts_of_each_other() -> None:
    meeting = threading.Barrier(2, timeout=60)
    wrong: list[str] = []

    def run(mark: str) -> None:
        first = True

        def function(texts: Mapping[str, str], word: str, place: int) -> str:
            nonlocal first
            if first:
                first = False
                meeting.wait()
            if mark not in texts["notes"] or mark not in texts["rules"]:
                wrong.append(mark)
            return known(texts, word, place)

        texts = {name: f"{text} {mark}" for name, text in TEXTS.items()}
        with ThreadPoolExecutor(4) as executor:
            optimized(texts_of(function, texts=texts), executor=executor)

    with ThreadPoolExecutor(2) as both:
        for done in [both.submit(run, mark) for mark in ("first!", "second!")]:
            done.result()
    assert wrong == []


def test_a_run_that_is_killed_resumes_to_the_same_end_and_pays_for_nothing_twice(
    tmp_path: Path,
) -> None:
    def paid(folder: Path) -> int:
        return len((folder / "calls").read_bytes())

    whole = tmp_path / "whole"
    whole.mkdir()
    with forking(APP) as run:
        ended = run(whole)
        assert ended[0] == 0
        for fatal in ("1", "25"):
            killed = tmp_path / fatal
            killed.mkdir()
            assert run(killed, fatal)[0] == -signal.SIGKILL
            assert run(killed) == ended
            assert paid(killed) == paid(whole) + 1  # the call in flight


def test_cases_are_evaluated_and_gated_with_texts() -> None:
    texts = texts_of(KnownAsync(), texts={**TEXTS, "notes": "More words: w1"})
    cases = tuple(Case(id=f"c{n}", input=f"w{n}", expected="ok") for n in range(4))
    metrics = load_metrics([{"name": "exact"}])

    def params(case: Case) -> object:
        return case.input, 1

    found = evaluate(texts.prompt, cases, metrics, adapter=texts.adapter, params=params)
    assert found.score.mean == 0.25
    gate = GateSubject(
        prompt=texts.prompt,
        tried="the source",
        split="test",
        cases=cases,
        metrics=tuple(metrics),
        adapter=texts.adapter,
        params=params,
    )
    assert gate.evaluate().score.mean == 0.25


def test_a_job_of_texts_plans_and_has_a_dry_run_of_the_same_function() -> None:
    function = Remembering()
    context = OptimizationContext(reflection_adapter=ScriptedAdapter(propose, identity="writer"))
    settings = config(target_section_paths=(), training_examples=examples(), feedback_fn=judge)
    job = OptimizationJob(texts_of(function), context, settings)
    assert job.plan() == GepaOptimizer(context, settings).plan(texts_of(function))
    assert [role.model for role in job.plan().roles] == ["known", "writer"]
    assert function.calls == []
    dry = job.dry()
    assert [role.model for role in dry.plan().roles] == ["known", OfflineAdapter().identity]
    assert dry.run().total_rollouts == len(function.calls)


def test_texts_need_something_that_proposes_new_ones() -> None:
    with pytest.raises(ConfigError, match=r"^reflection_adapter: expected a model that proposes"):
        optimized(texts_of(), reflection_adapter=None)
    alone = OptimizationContext(texts_of().adapter)
    with pytest.raises(ConfigError, match=r"^function .* found the prompt `promptgraft/gepa/refl"):
        GepaOptimizer(alone, config(training_examples=examples())).optimize(texts_of().prompt)


def test_a_reflector_is_told_nothing_of_answers_that_nothing_is_known_of() -> None:
    reflector = ScriptedAdapter(propose)
    optimized(texts_of(), reflection_adapter=reflector)
    assert reflector.requests
    assert not any("Expected answers" in question.text for question in reflector.requests)
