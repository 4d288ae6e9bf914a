"""What a search must never do: tell what it hides, believe what was copied, call a ruin a gain."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from evals.judging import category
from evals.judging import failing as dead_judge
from further import thorough
from json_replies import json_reply
from optimizers.worlds import (
    OVERLOADED,
    PROMPT,
    QUESTION,
    REFUSED,
    RULES,
    CountingStore,
    Run,
    answer,
    asked,
    bound,
    config,
    current_text,
    instruction,
    numbered,
    propose,
    section,
)
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.algorithms.gepa import (
    GepaConfig,
    GepaMergeAttempted,
    GepaResult,
    MinGain,
    Paired,
    Strict,
)
from promptgraft.algorithms.gepa.select import MinibatchChoice
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.summary import exit_code_for
from promptgraft.errors import ConfigError, OutputError, TransientProviderError
from promptgraft.evals.dataset import Dataset
from promptgraft.evals.evaluate import evaluate
from promptgraft.evals.gains import Gain, Outcome, gain
from promptgraft.evals.judges import LlmFinalResponse
from promptgraft.evals.metrics import Contains, Exact, Python
from promptgraft.evals.types import Answer, Case, Metric
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    RenderedPrompt,
    TaskExample,
    TaskExamplesSection,
)
from promptgraft.runtime import EventBus
from promptgraft.search import RejectionReason, RequiredObjectives, StopReason
from promptgraft.search.frontier import FrontierPruning, FrontierType
from promptgraft.targets.judging import examples_from, feedback_from

Rendered = RenderedPrompt[object]


def knows(case: Case, answer: Answer) -> tuple[bool, str]:
    """Score 1 for an answer that knows the word; the reason has the whole expected answer."""
    word = str(case.expected).split()[0]
    return answer.text.endswith("ok"), f"missing {word}; expected {case.expected!r}"


KNOWS = Python(function=knows)


def over(validation: Iterable[Case], train: Iterable[Case], *metrics: Metric) -> dict[str, Any]:
    """Return the settings of a search over cases."""
    first, rest = tuple(validation), tuple(train)
    return {
        "training_examples": examples_from(PROMPT, (*first, *rest), metrics),
        "feedback_fn": feedback_from(metrics),
        "pareto_set_size": len(first),
        "minibatch_size": min(4, len(rest)),
        "target_section_paths": (RULES,),
    }


def words(*names: str, split: str, **changes: Any) -> tuple[Case, ...]:
    """Return a case for each word."""
    return tuple(
        Case(id=f"{split}-{name}", input=name, expected=name, state={"split": split}, **changes)
        for name in names
    )


# Nothing of validation or test reaches a reflector

MARK = re.compile(r"mk\d+x")
TOLD = PromptTemplate[object](
    ns="toy",
    key="marked",
    sections=(
        MarkdownSection(title="Rules", key="rules", template="Known words:"),
        MarkdownSection(title="Question", key="question", template="Do you know $word?"),
        MarkdownSection(title="Notes", key="notes", template="More words:"),
        TaskExamplesSection(
            title="Examples",
            key="examples",
            examples=(TaskExample(key="one", objective="Know a word.", steps=(), outcome="yes"),),
        ),
    ),
)


def marked(number: int, word: str) -> Case:
    """Return a case whose every text carries its own marker."""
    mark = f"mk{number}x"
    return Case(
        id=f"id-{mark}",
        input=f"{word} {mark}-input",
        expected=f"{word} {mark}-expected",
        hints={"": f"{mark}-hint", "knows": f"{mark}-hint-of-metric"},
        critical=number % 5 == 4,
    )


def echo(rendered: Rendered) -> str:
    """Repeat the question, with what it comes to; some questions break the model."""
    question = asked(rendered)
    number = int(re.findall(r"\d+", question)[-1])
    if number % 7 == 3:
        raise TransientProviderError(f"503 for {question}")
    if number % 7 == 5:
        raise OutputError(f"no sense in {question}")
    known = " ".join(found.text for found in rendered.sections if found.path != QUESTION).split()
    return f"{question} {'ok' if question.split()[0] in known else 'no'}"


def gossip(rendered: Rendered) -> str:
    """Judge, and repeat every marked text that a judge is shown."""
    seen = " ".join(re.findall(r"mk\d+x-\w+", rendered.text))
    return category("correct" if "-input ok" in rendered.text else "partly", f"saw {seen}")


def whims(chance: random.Random) -> Reply:
    """Return a reflector that helps, copies, babbles and runs on."""

    def reply(rendered: Rendered) -> str:
        whim = chance.random()
        if whim < 0.1:
            return "Sorry?"
        missing = chance.choice(re.findall(r"missing (w\d)", bound(rendered, "examples")) or ["w9"])
        if rendered.key == "generate-task-example":
            key = f"e{chance.randrange(1_000)}"
            return json_reply(key=key, objective=f"Know {missing} .", steps=[], outcome="yes")
        more = "more " * 300 if whim < 0.2 else ""
        return instruction(f"{current_text(rendered)} {more}{missing}")

    return reply


def some_settings(chance: random.Random) -> dict[str, Any]:
    return {
        "minibatch_size": chance.choice((1, 2, 3, 4, 6)),
        "enable_merge": chance.random() < 0.6,
        "enable_example_generation": chance.random() < 0.5,
        "history_top_k": chance.choice((0, 1, 3)),
        "shuffle": chance.random() < 0.5,
        "weights": chance.choice(({}, {"knows": 1}, {"score": 3, "knows": 1, "tokens": 1})),
        "max_prompt_chars": chance.choice((None, 600)),
        "on_error": chance.choice(("unscored", "zero")),
        "minibatches": chance.choice(get_args(MinibatchChoice)),
        "frontier_pruning": chance.choice(get_args(FrontierPruning)),
        "seed": chance.randrange(1_000),
    }


@attrs.frozen
class Told:
    """A run, and what its models were asked."""

    result: GepaResult
    shown: str
    secret: frozenset[str]
    asked: str
    events: tuple[object, ...]


def told(number: int) -> Told:
    """Run a random small search between two evaluations on test."""
    chance = random.Random(number)
    cases = [marked(10 + n, f"w{n % 6}") for n in range(12)]
    test = [
        attrs.evolve(marked(50 + n, f"w{n % 6}"), id=cases[n].id) for n in range(0, 12, 3)
    ]  # the same ids as cases of train and validation
    judge = LlmFinalResponse(judges=[ScriptedAdapter(gossip)])
    metrics = (KNOWS, judge) if number // 4 % 2 else (KNOWS,)
    prompt = Prompt(TOLD)
    policies = (Strict(), MinGain(0.1), Paired(level=0.4, max_repeats=2))
    store, bus, events = InMemoryPromptOverridesStore(), EventBus(), list[object]()
    bus.subscribe(object, events.append)
    settings = config(
        training_examples=examples_from(prompt, cases, metrics),
        feedback_fn=feedback_from(metrics),
        acceptance=policies[number % 3],
        frontier_type=get_args(FrontierType)[number % 4],
        rollout_budget=70 if number % 3 < 2 else 110,
        max_unscored_share=1.0,
        max_failed_reflections=20,
        **some_settings(chance),
    )
    run = Run(
        settings,
        task=echo,
        reflection=whims(chance),
        prompt=prompt,
        overrides_store=store,
        event_bus=bus,
    )
    evaluate(prompt, test, metrics, adapter=run.task)
    result = run.start()
    evaluate(attrs.evolve(prompt, overrides_store=store), test, metrics, adapter=run.task)
    hidden = [*result.pareto_ids, *(str(case.expected) for case in test)]
    return Told(
        result=result,
        shown="\n".join(map(repr, run.reflection.requests)),
        secret=frozenset(MARK.findall(" ".join(hidden))),
        asked="\n".join(request.text for request in run.task.requests),
        events=tuple(events),
    )


@pytest.fixture(scope="module")
def runs() -> Sequence[Told]:
    return [told(number) for number in range(15)]


def test_no_reflection_request_has_anything_of_validation_or_test(runs: Sequence[Told]) -> None:
    for number, run in enumerate(runs):
        assert len(run.secret) == 6 + 4
        assert run.secret <= set(MARK.findall(run.asked)), number  # they were really asked
        assert not run.secret & set(MARK.findall(run.shown)), number


def test_the_runs_above_show_training_texts_and_use_all_that_could_tell(
    runs: Sequence[Told],
) -> None:
    shown = "\n".join(run.shown for run in runs)
    for text in ("input", "expected", "hint", "hint-of-metric"):
        assert re.search(rf"mk\d+x-{text}\b", shown), text
    for text in ("saw mk", "no sense in", "the whole prompt has", "better answer of another"):
        assert text in shown, text
    results = [run.result for run in runs]
    assert any(result.found_better for result in results)
    assert any(result.generated_task_examples for result in results)
    assert any(result.unscored_rollouts for result in results)
    assert any(isinstance(event, GepaMergeAttempted) for run in runs for event in run.events)


def test_validation_and_train_cannot_share_an_id() -> None:
    shared = (*words("w0", split="a"), *words("w0", split="a"))
    with pytest.raises(ConfigError, match="a-w0"):
        config(**over(shared[:1], shared[1:], KNOWS))


# A reflector that copies answers

ANSWERS = {f"q{n}": " ".join(f"k{n}{letter}" for letter in "abcdefghij") for n in range(4)}


def recite(rendered: Rendered) -> str:
    """Say the line of the rules that belongs to the question, or guess by the rule."""
    text, question = section(rendered, RULES).text, asked(rendered)
    if ANSWERS[question] in text or "think" in text:
        return ANSWERS[question]
    return "no idea"


def copying(rendered: Rendered) -> str:
    [copied, *_] = re.findall(r"k\da(?: k\d\w){9}", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)}\n{copied}")


def relenting(rendered: Rendered) -> str:
    """Copy first, and think when that was refused."""
    if "carries 10 words" in repr(rendered):
        return instruction(f"{current_text(rendered)} think")
    return copying(rendered)


def copied_run(reflection: Reply, **changes: Any) -> tuple[Run, CountingStore]:
    store = CountingStore()
    data = [
        Case(id=f"{split}-{q}", input=q, expected=a, state={"split": split})
        for split in "vt"
        for q, a in ANSWERS.items()
    ]
    guard = {"max_copied_words": 8}
    settings = config(**(over(data[:4], data[4:], Exact()) | guard | changes))
    return Run(settings, task=recite, reflection=reflection, overrides_store=store), store


def holds_answers(held: object) -> bool:
    return any(text in repr(held) for text in ANSWERS.values())


def test_a_reflector_that_copies_answers_is_caught_and_told_and_gets_nothing_in() -> None:
    run, store = copied_run(copying)
    result = run.start()
    assert (result.stop_reason, result.found_better) == (StopReason.REFLECTION_FAILED, False)
    assert {one.reason for one in result.rejections} == {RejectionReason.COPIED_ANSWER}
    repairs = run.reflection.requests[1::2]
    assert repairs
    for request in repairs:
        assert re.search(
            r"carries 10 words of the answer to training example `t-q\d`", request.text
        )
    assert not holds_answers(result.candidates)
    assert store.writes == []


def test_a_reflector_that_relents_wins_without_an_answer_in_the_pool_or_the_store() -> None:
    run, store = copied_run(relenting)
    result = run.start()
    assert (result.found_better, result.persisted) == (True, True)
    assert not holds_answers(result.candidates)
    held = store.resolve(PROMPT.descriptor)
    assert "think" in repr(held)
    assert not holds_answers(held)


def test_without_the_guard_the_copied_answers_win() -> None:
    run, store = copied_run(copying, max_copied_words=0)
    assert run.start().found_better
    assert holds_answers(store.resolve(PROMPT.descriptor))


@pytest.mark.parametrize(("preset", "improved"), [("lean", False), ("paper", True)])
def test_the_guard_is_there_by_default_and_not_in_the_published_algorithm(
    preset: str, improved: bool
) -> None:
    run, _ = copied_run(copying, max_copied_words=None, preset=preset)
    assert run.start().found_better is improved


# A metric that was gamed


def on_test(prompt: Prompt[object], store: Any, cases: Sequence[Case], task: Reply) -> Gain:
    """Return what a winner gains on cases that the search has not seen."""
    scores: list[Mapping[str, list[float | None]]] = []
    for tried in (prompt, attrs.evolve(prompt, overrides_store=store)):
        found = evaluate(tried, cases, [Contains()], adapter=ScriptedAdapter(task))
        scores.append({case.case_id: [case.score.mean] for case in found.cases})
    return gain(*scores)


def all_it_has_heard(rendered: Rendered) -> str:
    """Answer with every word of the rules, which `contains` takes for knowledge."""
    return section(rendered, RULES).text


def all_it_has_heard_or_sense(rendered: Rendered) -> str:
    """Think about words with `t`, until the rules say what to answer."""
    rules, word = section(rendered, RULES).text, asked(rendered)
    return word if word.startswith("t") and rules == "Known words:" else rules


@pytest.mark.parametrize(
    ("task", "verdict"),
    [
        (all_it_has_heard, Outcome.NOT_SHOWN),
        (all_it_has_heard_or_sense, Outcome.WORSE),
    ],
)
def test_a_metric_gamed_in_the_search_does_not_survive_test(task: Reply, verdict: Outcome) -> None:
    def hear(rendered: Rendered) -> str:
        [word, *_] = re.findall(r"expected '?[`\"“']?(w\d)", bound(rendered, "examples"))
        return instruction(f"{current_text(rendered)} {word}")

    names = [f"w{n}" for n in range(6)]
    store = InMemoryPromptOverridesStore()
    data = over(words(*names, split="v"), words(*names, split="t"), Contains())
    result = Run(config(**data), task=task, reflection=hear, overrides_store=store).start()
    assert result.found_better
    assert result.best_pareto_mean == 1.0
    unseen = words(*(f"t{n}" for n in range(8)), split="test")
    found = on_test(PROMPT, store, unseen, task)
    assert found.verdict is verdict
    assert not found.won


# Cases that raise

NO_SENSE = OutputError("no JSON")


def reckless(*fine: str, error: Exception = NO_SENSE) -> Reply:
    """Know two of four words; with new rules know the ``fine`` ones and break on the others."""

    def reply(rendered: Rendered) -> str:
        word = asked(rendered)
        if "bold" not in section(rendered, RULES).text:
            return "ok" if word in {"w0", "w1"} else "no"
        if word in fine:
            return "ok"
        raise error

    return reply


def be_bold(rendered: Rendered) -> str:
    return instruction(f"{current_text(rendered)} bold")


FOUR = ("w0", "w1", "w2", "w3")


def bold_run(task: Reply, *, train: Sequence[str] = FOUR, **changes: Any) -> tuple[GepaResult, Any]:
    store = CountingStore()
    data = over(words(*FOUR, split="v"), words(*train, split="t"), KNOWS)
    settings = config(**(data | {"max_failed_reflections": 2} | changes))
    run = Run(settings, task=task, reflection=be_bold, overrides_store=store)
    return run.start(), store


@pytest.mark.parametrize("weights", [{}, {"knows": 1}])
@pytest.mark.parametrize("kind", ["instance", "objective", *thorough(["hybrid", "cartesian"])])
def test_a_candidate_that_raises_on_three_of_four_cases_is_no_success(
    kind: FrontierType, weights: Any
) -> None:
    settings = {"frontier_type": kind, "weights": weights}
    result, _ = bold_run(reckless("w2"), **settings)
    assert not result.found_better
    assert "0.250 on its cases, the text before had 0.500" in {r.detail for r in result.rejections}

    # One that looks well on its minibatch gets into the pool, and no further.
    result, store = bold_run(reckless("w2"), train=("w2",), **settings)
    assert len(result.candidates) > 1
    assert result.scores_matrix[1] == (0.0, 0.0, 1.0, 0.0)
    assert result.objectives[1]["knows"] == 0.25
    assert result.pick("knows=1") == result.best_index == 0
    assert (result.found_better, store.writes) == (False, [])


@pytest.mark.parametrize("train", [FOUR, ("w2",)])
def test_a_candidate_that_stays_unscored_on_three_of_four_cases_is_no_success(
    train: Sequence[str],
) -> None:
    result, store = bold_run(reckless("w2", error=OVERLOADED), train=train)
    assert result.scores_matrix[1] == (None, None, 1.0, None)
    assert result.best_pareto_mean == 0.5
    assert (result.found_better, store.writes) == (False, [])


def test_an_evaluation_counts_three_raising_cases_as_failed() -> None:
    others = PROMPT.template.sections[1:]
    rules = MarkdownSection(title="Rules", key="rules", template="bold")
    prompt = Prompt(attrs.evolve(PROMPT.template, sections=(rules, *others)))
    found = evaluate(
        prompt, words(*FOUR, split="v"), [KNOWS], adapter=ScriptedAdapter(reckless("w2"))
    )
    assert (found.report.pass_rate, found.report.mean_score) == (0.25, 0.25)


def test_required_objectives_count_a_raising_case_as_zero() -> None:
    three_of_four = reckless("w0", "w1", "w2")
    assert bold_run(three_of_four, train=("w2",))[0].found_better
    result, store = bold_run(three_of_four, train=("w2",), required={"knows": 0.9})
    assert len(result.candidates) > 1
    assert (result.found_better, store.writes) == (False, [])
    stopper = RequiredObjectives({"knows": 0.9})
    result, _ = bold_run(three_of_four, train=("w2",), stoppers=(stopper,))
    assert result.stop_reason is not StopReason.OBJECTIVES


def test_a_raising_case_is_no_cheap_one() -> None:
    result, _ = bold_run(reckless("w2"), train=("w2",), weights={"score": 1, "tokens": 3})
    assert result.objectives[0]["tokens"] == 0.5
    assert result.objectives[1]["tokens"] == 0.5 / 4


# Judges and reflectors that are dead


@pytest.mark.parametrize(
    ("error", "calls", "detail"),
    [
        (REFUSED, 1, r"judge `failing`: 401: the key is not valid"),
        (OVERLOADED, 6, r"6 of the latest 6 rollouts stayed unscored; the last: .*429: overloaded"),
    ],
)
def test_a_dead_judge_ends_the_run_with_that_reason_and_keeps_nothing(
    error: Exception, calls: int, detail: str
) -> None:
    metric = LlmFinalResponse(judges=[dead_judge(error)])
    names = [f"w{n}" for n in range(6)]
    store = CountingStore()
    settings = config(**over(words(*names, split="v"), words(*names, split="t"), metric))
    run = Run(settings, overrides_store=store)
    result = run.start()
    assert result.stop_reason is StopReason.PROVIDER_FAILED
    assert re.search(detail, result.stop_detail)
    assert (run.task.calls, run.reflection.calls) == (calls, 0)
    assert (result.found_better, store.writes) == (False, [])
    assert (result.baseline_pareto_mean, result.best_pareto_mean) == (None, None)
    assert (
        exit_code_for(result.stop_reason, improved=result.found_better) is ExitCode.PROVIDER_FAILED
    )


@pytest.mark.parametrize("helped", [0, 2])
@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (OVERLOADED, StopReason.REFLECTION_FAILED, ExitCode.STOPPED_EARLY),
        (REFUSED, StopReason.PROVIDER_FAILED, ExitCode.PROVIDER_FAILED),
    ],
)
def test_a_dead_reflector_ends_the_run_with_the_best_so_far(
    error: Exception, reason: StopReason, code: ExitCode, helped: int
) -> None:
    def reply(number: int, rendered: Rendered) -> str:
        if number < helped:
            return propose(rendered)
        raise error

    names = [f"w{n}" for n in range(6)]
    store = CountingStore()
    settings = config(**over(words(*names, split="v"), words(*names, split="t"), KNOWS))
    result = Run(settings, reflection=numbered(reply), overrides_store=store).start()
    assert result.stop_reason is reason
    assert str(error) in result.stop_detail
    assert exit_code_for(result.stop_reason, improved=result.found_better) is code
    assert result.found_better is result.persisted is bool(helped)
    assert len(result.candidates) == 1 + helped
    assert result.best_pareto_mean == pytest.approx(helped / 6)
    assert len(store.writes) == min(helped, 1)


# Critical cases and required objectives of a file


def forgetful(rendered: Rendered) -> str:
    """Propose rules with a missing word, and without what was known at first."""
    missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)} {missing[1] if missing else 'w1'} not-w0")


def knows_w0_at_first(rendered: Rendered) -> str:
    if asked(rendered) == "w0":
        return "no" if "not-w0" in section(rendered, RULES).text else "ok"
    return answer(rendered)


def from_file(folder: Path, *critical: str, **changes: Any) -> GepaConfig:
    """Return the settings of a search over a file in which these cases are critical."""
    rows = [
        {"id": f"{split}-{n}", "input": f"w{n}", "expected": f"w{n}", "state": {"split": split}}
        | ({"critical": True} if f"{split}-{n}" in critical else {})
        for split in ("validation", "train")
        for n in range(6)
    ]
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    cases = tuple(Dataset.load(path))
    brief = Python(name="brief", function=lambda case, given: float(given.text == "no"))
    return config(
        **(over(cases[:6], cases[6:], KNOWS, brief) | {"weights": {"knows": 1}} | changes)
    )


def lossy(settings: GepaConfig) -> GepaResult:
    return Run(settings, task=knows_w0_at_first, reflection=forgetful).start()


def test_critical_cases_of_a_file_are_not_lost_by_a_winner(tmp_path: Path) -> None:
    assert lossy(from_file(tmp_path)).found_better
    result = lossy(from_file(tmp_path, "validation-0"))
    assert (result.found_better, len(result.candidates) > 1) == (False, True)


def test_critical_cases_of_a_file_are_not_lost_in_a_minibatch(tmp_path: Path) -> None:
    result = lossy(from_file(tmp_path, "train-0", minibatch_size=6))
    assert len(result.candidates) == 1
    lost = "worse than the text before on the critical case `train-0`"
    assert lost in {rejection.detail for rejection in result.rejections}


def test_objectives_are_required_of_a_winner_over_a_file(tmp_path: Path) -> None:
    assert not lossy(from_file(tmp_path, required={"brief": 0.8})).found_better
    assert lossy(from_file(tmp_path, required={"brief": 0.01})).found_better
