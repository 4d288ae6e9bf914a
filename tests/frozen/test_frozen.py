"""Searches do what they did when they were frozen, whatever executor they have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frozen import earlier_graphs
from frozen.combinations import COMBINATIONS
from frozen.describe import FRONTIER_TYPES, KINDS, PRESETS, REJECTION_REASONS, STOP_REASONS
from frozen.earlier_runs import JOURNALS, SETTINGS, run_of
from frozen.equality import recorded, worlds
from frozen.freeze import DATA, differences, frozen, made
from further import thorough
from optimizers.worlds import NOTES, RULES
from promptgraft.algorithms.gepa import GepaConfig, History, Strategy, ToolExampleTarget
from promptgraft.errors import JournalMismatchError
from promptgraft.evals.aggregate import metrics_identity
from promptgraft.evals.metrics import load_metrics
from promptgraft.journal import FileJournal

Data = dict[str, Any]

ALL: dict[str, Data] = {name: frozen(name) for name in COMBINATIONS}


WITH_WORKERS = (
    "paper-4-proposals-4-steps",
    "lean-8-proposals-1-steps",
    "lean-1-proposals-4-steps",
    "merge-racing-beside-steps",
    "parts-mixed-merged-woven",
    "end-task-faulty",
    "budget-paper-2-3-merging",
    "budget-lean-1-6",
)
"""Searches with several proposals or steps at once, of each kind."""

QUICK_WITH_WORKERS = ("merge-racing-beside-steps", "end-task-faulty")

AGAIN = {
    *("paper-seed-2-shuffled", "race-0", "race-1", "race-2", "strange-texts", "merge-noisy"),
    *("merge-full", "merge-narrow", "merge-racing", "merge-beside-steps", "paired-racing"),
    *("parts-mixed-lean", "parts-mixed-paper", "parts-mixed-merged", "parts-mixed-unparsable"),
    *(f"paper-{shape}-steps" for shape in ("1-proposals-2", "1-proposals-4", "2-proposals-1")),
    *(f"paper-{shape}-steps" for shape in ("4-proposals-1", "4-proposals-4", "8-proposals-1")),
    *(f"lean-{shape}-steps" for shape in ("1-proposals-2", "1-proposals-4", "2-proposals-1")),
    *(f"lean-{shape}-steps" for shape in ("2-proposals-2", "4-proposals-1", "8-proposals-1")),
    *("budget-lean-1-6", "budget-lean-1-3-merging", "budget-lean-2-3", "budget-paper-1-3"),
    *("budget-paper-1-6-merging", "budget-lean-3-2-merging", "budget-paper-3-2"),
    *("lean-moody", "lean-as-it-comes", "faults-of-every-kind", "held-out-racing"),
    *("critical-racing", "frontier-hybrid", "paired-not-confirmed", "weights-of-amounts"),
}
"""What these searches do, others do as well."""


@pytest.mark.parametrize(
    ("name", "workers"),
    [
        *((name, 0) for name in COMBINATIONS if name not in AGAIN),
        *((name, 4) for name in QUICK_WITH_WORKERS),
        *thorough((name, 0) for name in COMBINATIONS if name in AGAIN),
        *thorough((name, 4) for name in WITH_WORKERS if name not in QUICK_WITH_WORKERS),
    ],
)
def test_a_search_does_what_it_did_when_it_was_frozen(name: str, workers: int) -> None:
    found = list(differences(ALL[name], made(COMBINATIONS[name], workers=workers)))
    assert not found, "\n".join(
        [f"{name}, {workers} workers, differs in {len(found)} places; the first:", *found[:5]]
    )


def test_every_file_of_the_data_is_of_a_combination() -> None:
    assert {path.stem for path in DATA.glob("*.json")} == {*COMBINATIONS}
    assert len(COMBINATIONS) >= 40


# What the data covers


def having(condition: Callable[[Data], object]) -> list[str]:
    """Return the names of the frozen searches that a condition holds of."""
    return [name for name, data in ALL.items() if condition(data)]


def of_settings(name: str, default: object = None) -> list[Any]:
    return [data["settings"].get(name, default) for data in ALL.values()]


def kinds_of(data: Data) -> Iterator[set[str]]:
    """Yield the kinds of parts that each accepted candidate has changed."""
    return (set(one["kinds"]) for one in data["candidates"] if one["kinds"])


def is_racing(data: Data) -> bool:
    settings = data["settings"]
    return bool(settings.get("validation", settings["preset"] == "lean"))


def test_every_preset_frontier_and_reason_to_stop_is_frozen() -> None:
    assert set(of_settings("preset")) == PRESETS
    assert set(of_settings("frontier_type", "instance")) == FRONTIER_TYPES
    # When this was frozen, no run could pause, end on its own or at a plateau, be found in an
    # error or find its answers unreadable.
    later = {"PAUSED", "DONE", "FAILED", "UNREADABLE", "PLATEAU"}
    assert {data["stop"] for data in ALL.values()} == STOP_REASONS - later


def test_every_reason_to_reject_is_frozen_but_one_that_no_text_of_this_prompt_can_have() -> None:
    reasons = {one["reason"] for data in ALL.values() for one in data["rejections"]}
    assert REJECTION_REASONS - reasons == {"DOES_NOT_RENDER"}


def test_every_kind_of_part_is_changed_alone_and_with_others() -> None:
    changed = {name: set[str]().union(*kinds_of(data)) for name, data in ALL.items()}
    assert set().union(*changed.values()) == KINDS
    for kind in KINDS:
        assert {kind} in changed.values()
    assert KINDS in changed.values()
    assert having(lambda data: any(len(kinds) > 1 for kinds in kinds_of(data)))


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_proposals_and_steps_at_once_are_frozen_alone_and_together(preset: str) -> None:
    shapes = {
        (settings.get("proposals_per_step", 1), settings.get("steps_at_once", 1))
        for data in ALL.values()
        for settings in [data["settings"]]
        if settings["preset"] == preset
    }
    assert shapes >= {(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (4, 4)}


@pytest.mark.parametrize("racing", [False, True])
def test_merges_are_tried_kept_and_refused(racing: bool) -> None:
    outcomes = {
        merge["what"]
        for data in ALL.values()
        if is_racing(data) == racing
        for merge in data["merges"]
    }
    assert outcomes == {"tried", "kept", "refused"}


@pytest.mark.parametrize("racing", [False, True])
def test_winners_are_measured(racing: bool) -> None:
    same = [data for data in ALL.values() if is_racing(data) == racing]
    assert any(data["held out"] and data["held out"]["winner"] for data in same)
    assert having(lambda data: not data["improved"])


@pytest.mark.parametrize(
    "setting",
    [
        "auto",
        "history_top_k",
        "max_copied_words",
        "max_part_chars",
        "max_prompt_chars",
        "max_rollout_cost",
        "pick",
        "required_objectives",
        "shuffle_examples",
        "weights",
    ],
)
def test_a_setting_that_is_off_by_default_is_frozen(setting: str) -> None:
    assert any(of_settings(setting))


def test_policies_and_choices_are_frozen() -> None:
    acceptance = {name for given in of_settings("acceptance", {"strict": {}}) for name in given}
    assert acceptance == {"strict", "min gain", "paired"}
    assert {"blamed", "turns", None} == set(of_settings("module_choice"))
    assert {"random", None} == set(of_settings("minibatches"))
    assert {"dominated", "redundant", None} == set(of_settings("frontier_pruning"))


def test_critical_examples_are_among_those_compared_on_and_those_learned_from() -> None:
    critical = {name[0] for data in ALL.values() for name in data["world"]["critical"]}
    assert critical == {"v", "l"}


def test_faults_are_frozen_within_and_beyond_what_is_allowed() -> None:
    def unscored(data: Data) -> bool:
        return bool(data["ledger"]["unscored"])

    assert having(lambda data: unscored(data) and data["stop"] == "PERFECT")
    assert having(lambda data: unscored(data) and data["stop"] == "PROVIDER_FAILED")
    assert having(lambda data: not unscored(data) and data["stop"] == "PROVIDER_FAILED")
    assert having(lambda data: not unscored(data) and data["world"]["task_fault"] == "transient")
    assert having(lambda data: data["world"]["task_fault"] not in ("", "transient", "permanent"))
    assert having(lambda data: data["world"]["reflection_fault"] and data["improved"])


def test_every_search_keeps_its_budget_and_stores_only_what_improves() -> None:
    assert not having(lambda data: not data["ledger"]["budget kept"])
    assert having(lambda data: data["stored"] is None)
    for name, data in ALL.items():
        assert data["persisted"] == data["improved"], name
        if data["improved"]:
            winner = data["candidates"][data["best"]]["contents"]
            assert data["stored"].items() >= winner.items(), name


# Random worlds, of which only digests are kept

RECORDED = recorded()
WORLDS = {world.name: world for world in worlds()}
QUICK = ("paper-0", "paper-23", "lines-28", "choices-0", "choices-11")
"""Random worlds that ``make test`` tries, and those of the other strategy."""


def is_quick(name: str) -> bool:
    return name in QUICK or name.startswith("gradient")


def test_every_random_world_is_recorded_and_no_other() -> None:
    assert [*RECORDED] == [*WORLDS]
    assert len(WORLDS) >= 39


@pytest.mark.filterwarnings("ignore:there are only")
@pytest.mark.parametrize(
    ("name", "workers"),
    [
        *((name, 0) for name in WORLDS if is_quick(name)),
        ("lines-28", 4),
        *thorough((name, 0) for name in WORLDS if not is_quick(name)),
        *thorough([("lines-3", 4)]),
    ],
)
def test_a_search_of_a_random_world_gives_every_answer_that_was_recorded(
    name: str, workers: int
) -> None:
    assert WORLDS[name].outcome(workers=workers) == RECORDED[name]


def test_random_worlds_end_for_several_reasons_and_in_either_way_of_tracing_back() -> None:
    assert {one["stop"] for one in RECORDED.values()} >= {"BUDGET", "PERFECT", "NO_PROGRESS"}
    assert {name.split("-")[1] for name in RECORDED if "gradient" in name} == {"steps", "trace"}


# Journals of an earlier version

EARLIER: dict[str, dict[str, Any]] = {
    "paper": {"strategy": {"preset": "paper"}},
    "history": {"strategy": {"preset": "paper"}, "additions": [History(most=2)]},
}
DIVIDED: dict[str, dict[str, Any]] = {
    "turns": {"strategy": {"module_choice": "turns"}},
    "single": {"additions": ["blame"]},
}


@pytest.mark.filterwarnings("ignore:there are only")
@pytest.mark.parametrize("name", EARLIER)
def test_a_run_of_an_earlier_version_is_continued_without_a_call(name: str, tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    shutil.copy(JOURNALS / f"{name}.jsonl", file)
    settings = dict(EARLIER[name])
    strategy = Strategy(**{"published_question": False, **settings.pop("strategy", {})})
    with FileJournal(file) as journal:
        run = run_of(journal, strategy=strategy, **settings)
        result = run.start()
    assert len(result.candidates) > 1
    assert run.task.calls == run.reflection.calls == 0
    assert file.read_bytes() == (JOURNALS / f"{name}.jsonl").read_bytes()


@pytest.mark.filterwarnings("ignore:there are only")
def test_a_gradient_search_whose_questions_showed_less_is_continued_without_a_call(
    tmp_path: Path,
) -> None:
    # Written before texts beside those of a graph had the names of their nodes.
    file = tmp_path / "journal.jsonl"
    shutil.copy(JOURNALS / "trace.jsonl", file)
    task, reflection = earlier_graphs.adapters()
    with FileJournal(file) as journal:
        result = earlier_graphs.run(journal, task, reflection)
    assert len(result.candidates) > 1
    assert task.calls == reflection.calls == 0
    assert file.read_bytes() == (JOURNALS / "trace.jsonl").read_bytes()


@pytest.mark.filterwarnings("ignore:there are only")
@pytest.mark.parametrize("name", DIVIDED)
def test_a_run_that_divided_failures_is_refused_by_name(name: str, tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    shutil.copy(JOURNALS / f"{name}.jsonl", file)
    settings = dict(DIVIDED[name])
    strategy = Strategy(**{"published_question": False, **settings.pop("strategy", {})})
    with FileJournal(file) as journal:
        run = run_of(journal, strategy=strategy, **settings)
        with pytest.raises(JournalMismatchError, match=r"^strategy\.reflections_per_module: .* 2,"):
            run.start()
    assert file.read_bytes() == (JOURNALS / f"{name}.jsonl").read_bytes()


def test_a_run_whose_additions_decided_otherwise_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    shutil.copy(JOURNALS / "lean.jsonl", file)
    with FileJournal(file) as journal:
        run = run_of(journal, strategy=Strategy(published_question=False))
        with pytest.raises(JournalMismatchError, match="version 1 of `lines`"):
            run.start()
    assert file.read_bytes() == (JOURNALS / "lean.jsonl").read_bytes()


@pytest.mark.filterwarnings("ignore:there are only")
@pytest.mark.parametrize(("name", "parts"), [("one-part", (RULES,)), ("two-parts", (RULES, NOTES))])
def test_a_run_whose_questions_told_otherwise_what_was_tried_is_refused(
    name: str, parts: tuple[tuple[str, ...], ...], tmp_path: Path
) -> None:
    file = tmp_path / "journal.jsonl"
    shutil.copy(JOURNALS / f"{name}.jsonl", file)
    with FileJournal(file) as journal:
        run = run_of(journal, target_section_paths=parts)
        with pytest.raises(JournalMismatchError, match="version 2 of `whole_prompt`"):
            run.start()
    assert file.read_bytes() == (JOURNALS / f"{name}.jsonl").read_bytes()


@pytest.mark.parametrize("version", [3, 4])
def test_a_run_of_a_former_question_on_the_whole_prompt_is_refused(version: int) -> None:
    header, *_ = (JOURNALS / "two-parts.jsonl").read_text("utf-8").splitlines()
    fingerprint = json.loads(header)["fingerprint"]
    versions = {**fingerprint["addition_versions"], "whole_prompt": version}
    with pytest.raises(JournalMismatchError, match=f"version {version} of `whole_prompt`"):
        GepaConfig(**SETTINGS).translated({**fingerprint, "addition_versions": versions})


@pytest.mark.parametrize(
    "examples",
    [
        {"enable_example_generation": True},
        {"target_task_examples": [("examples", "first")]},
        {"target_tool_examples": [ToolExampleTarget(tool_name="look_up", example_index=0)]},
    ],
    ids=lambda examples: next(iter(examples)),
)
def test_only_a_run_that_changed_examples_decided_otherwise(examples: dict[str, Any]) -> None:
    header, *_ = (JOURNALS / "two-parts.jsonl").read_text("utf-8").splitlines()
    fingerprint = json.loads(header)["fingerprint"]
    today = GepaConfig(**SETTINGS)
    recorded = {**fingerprint, "addition_versions": today.decisive["addition_versions"]}
    assert today.translated(recorded)
    changing = GepaConfig(**{**SETTINGS, **examples})
    with pytest.raises(JournalMismatchError, match="version 5 of `whole_prompt`"):
        changing.translated(recorded)
    anew = {**recorded, "addition_versions": changing.decisive["addition_versions"]}
    assert changing.translated(anew)


@pytest.mark.parametrize(
    ("prompts", "is_refused"),
    [(["toy/a", "toy/b"], True), (["toy/a", "toy/a"], False), ([], False)],
)
def test_which_runs_on_graphs_showed_a_part_only_cases_that_asked_its_prompt(
    prompts: list[str], is_refused: bool
) -> None:
    header, *_ = (JOURNALS / "paper.jsonl").read_text("utf-8").splitlines()
    recorded = json.loads(header)["fingerprint"]
    nodes = {f"node{number}": prompt for number, prompt in enumerate(prompts)}
    before = {**recorded, "nodes": nodes} if nodes else recorded
    config = GepaConfig(**SETTINGS, strategy=Strategy(preset="paper", published_question=False))
    if is_refused:
        with pytest.raises(JournalMismatchError, match="graph: in the journal, questions on one"):
            config.translated(before)
    else:
        assert config.translated(before)["reflection_version"] == 2
    today = {**before, "reflection_version": 2}
    assert config.translated(today)["reflection_version"] == 2


def test_a_run_with_other_additions_is_refused_by_their_names(tmp_path: Path) -> None:
    file = tmp_path / "journal.jsonl"
    shutil.copy(JOURNALS / "paper.jsonl", file)
    strategy = Strategy(preset="paper", published_question=False)
    with FileJournal(file) as journal, pytest.raises(JournalMismatchError, match="`additions` is"):
        run_of(journal, strategy=strategy, additions=["blame"]).start()


METRICS = Path(__file__).with_name("metrics.jsonl").read_text("utf-8").splitlines()


@pytest.mark.parametrize(
    "line", METRICS, ids=lambda line: str(json.loads(line)["settings"]["kind"])
)
def test_a_metric_is_no_other_one_for_an_option_that_came_later(line: str, tmp_path: Path) -> None:
    # Written by an earlier version. Give a new option `repr=False`, and name what decides scores.
    kept = json.loads(line)
    file = tmp_path / "metrics.json"
    file.write_text(json.dumps({"metrics": [kept["settings"]]}), "utf-8")
    assert metrics_identity(load_metrics(file), code=False) == kept["identity"]
