"""Prompts that answer together are improved together, through public names only."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from black_box.records import leave_record
from cli.console import Console, Ended
from process_pools import process_pool
from promptgraft import (
    FileJournal,
    GepaOptimizer,
    GepaResult,
    Guards,
    LocalPromptOverridesStore,
    OfflineAdapter,
    Prompt,
    ScriptedAdapter,
    Session,
)
from promptgraft.algorithms.gepa import GepaMutationRejected, GepaRolloutCompleted
from promptgraft.errors import ConfigError, JournalMismatchError, PromptgraftError
from promptgraft.overrides import SectionOverride
from promptgraft.targets import Prompts, RejectionReason, SectionModule
from targets.team import DESKS, ROUTER, TEAM, WRITER, Draft, Ticket, context, reply, settings

BOTH = {"team/router", "team/writer"}


def optimize(*, budget: int = 70, **changes: Any) -> GepaResult:
    config = settings(rollout_budget=budget)
    return GepaOptimizer(context(**changes), config).optimize(TEAM)


def bodies(override: Any) -> dict[tuple[str, ...], str]:
    return {path: section.body for path, section in override.sections.items()}


def test_both_prompts_are_improved_and_the_result_has_both_by_address(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(root_path=tmp_path)
    result = optimize(overrides_store=store, overrides_tag="live")
    assert result.baseline_pareto_mean == 0
    assert result.best_pareto_mean == 1
    assert list(result.best_overrides) == ["team/router", "team/writer"]
    assert bodies(result.best_overrides["team/writer"]) == {("rules",): "Answer. politely"}
    assert set(bodies(result.best_overrides["team/router"])[("rules",)].split()) >= {*DESKS}
    with pytest.raises(ConfigError, match="team/router, team/writer"):
        _ = result.best_override
    assert "team/writer#section rules" in str(result._repr_html_())


def test_both_are_kept_in_one_atomic_write(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(root_path=tmp_path)
    result = optimize(overrides_store=store, overrides_tag="live")
    assert result.persisted
    kept = [store.current(ns="team", prompt_key=key, tag="live") for key in ("router", "writer")]
    assert all(one is not None and one.step is not None for one in kept)
    assert len({one.step for one in kept if one is not None}) == 1
    assert [one.override for one in kept if one is not None] == [*result.best_overrides.values()]


def test_a_store_that_refuses_one_prompt_keeps_neither(tmp_path: Path) -> None:
    class Refusing(LocalPromptOverridesStore):
        def mutate_all(self, changes: Any, **more: Any) -> Any:
            raise PromptgraftError("the disk is full")

    store = Refusing(root_path=tmp_path)
    with pytest.raises(PromptgraftError, match="the disk is full"):
        optimize(overrides_store=store)
    assert store.resolve(ROUTER.descriptor) is store.resolve(WRITER.descriptor) is None


def test_what_the_store_holds_of_each_is_part_of_the_baseline(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(root_path=tmp_path)
    store.set_section_override(WRITER, path=("rules",), body="Answer politely")
    result = optimize(overrides_store=store)
    assert result.baseline_pareto_mean == 0.5
    assert not result.best_overrides["team/writer"]


def test_cut_anywhere_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(root_path=tmp_path)
    path = tmp_path / "journal.jsonl"
    with FileJournal(path) as journal:
        whole = optimize(budget=36, journal=journal, overrides_store=store)
    assert whole.found_better
    assert len(whole.candidates) > 2
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (1, 2, *range(3, len(lines), 9), len(lines)):
        path.write_bytes(b"".join(lines[:kept]))
        with FileJournal(path) as journal:
            # The winner is in the store by now, and the run still starts from what it saw first.
            known = store if kept > 1 else None
            again = optimize(budget=36, journal=journal, overrides_store=known)
        assert again.candidates == whole.candidates
        assert again.best_overrides == whole.best_overrides
        assert path.read_bytes() == b"".join(lines)


def test_prompts_of_stores_with_other_tags_are_resumed(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(root_path=tmp_path)
    prompts = {
        name: attrs.evolve(prompt, overrides_store=store, overrides_tag=f"{name}-tag")
        for name, prompt in (("writer", WRITER), ("router", ROUTER))
    }
    team = Prompts(prompts, run=reply, name="team/support")
    with FileJournal(tmp_path / "journal.jsonl") as journal:
        first, again = (
            GepaOptimizer(context(journal=journal), settings()).optimize(team) for _ in range(2)
        )
    assert again.best_overrides == first.best_overrides
    assert {one.tag for one in again.best_overrides.values()} == {"writer-tag", "router-tag"}


@pytest.mark.parametrize("workers", [1, 4])
def test_the_result_does_not_depend_on_workers(workers: int) -> None:
    with ThreadPoolExecutor(workers) as executor:
        assert optimize(executor=executor).candidates == optimize().candidates


def test_a_journal_of_one_prompt_less_is_refused(tmp_path: Path) -> None:
    def alone(ask: Any, ticket: Any) -> Any:
        return ask("router", ticket)

    with FileJournal(tmp_path / "journal.jsonl") as journal:
        optimize(journal=journal)
        fewer = Prompts({"router": ROUTER}, run=alone, name="team/support")
        with pytest.raises(JournalMismatchError, match="targets"):
            GepaOptimizer(context(journal=journal), settings()).optimize(fewer)


def test_the_parts_of_prompts_may_be_chosen() -> None:
    rules = SectionModule(("rules",))
    chosen = Prompts(
        TEAM.prompts, run=reply, name="team/support", modules={"router": [rules], "writer": []}
    )
    result = GepaOptimizer(context(), settings()).optimize(chosen)
    changed = {module.name for one in result.candidates for module in one.modules}
    assert changed == {"team/router#section rules"}


def test_settings_that_name_parts_of_one_prompt_are_refused() -> None:
    with pytest.raises(ConfigError, match="no single prompt"):
        GepaOptimizer(context(), settings(target_section_paths=(("rules",),))).plan(TEAM)


def test_a_plan_says_that_the_calls_of_a_function_are_not_known() -> None:
    plan = GepaOptimizer(context(), settings()).plan(TEAM)
    assert (plan.rollouts, plan.roles[0].calls, plan.tokens) == (70, None, None)
    assert plan.roles[1].calls is not None
    assert (plan.answer_tokens, plan.answer_from) == (None, "")


JOB = """
from targets.team import job
from promptgraft import LocalPromptOverridesStore

def made():
    return job(overrides_store=LocalPromptOverridesStore())

def unstored():
    import attrs
    found = made()
    return attrs.evolve(found, config=attrs.evolve(found.config, persist=False))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("jobs.py").write_text(JOB)
    return tmp_path


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    console = Console(capsys)

    def called(*arguments: str, code: int = 0) -> Ended:
        ended = console(*arguments)
        assert ended.code == code, ended.err
        return ended

    return called


def test_the_command_line_runs_shows_and_reports_it(
    folder: Path, call: Callable[..., Ended]
) -> None:
    done = json.loads(call("optimize", "jobs.py:made", "--json", code=1).out.splitlines()[-1])
    assert done["prompt"] == "team/support"
    assert set(done["winner"]["entries"]) == BOTH
    named = {part["part"] for part in done["parts"]}
    assert named == {"team/router#section rules", "team/writer#section rules"}
    assert "+Answer. politely" in "".join(part["diff"] for part in done["parts"])

    (run,) = (folder / "runs").iterdir()
    assert json.loads((run / "result.json").read_text())["parts"] == done["parts"]
    best = (run / "candidates" / f"{done['best']}.md").read_text()
    assert "team/writer#section rules" in best
    assert "team/router#section rules" in (run / "report.html").read_text()
    shown = call("show", "latest").out
    assert "team/support" in shown
    assert "team/router#section rules" in shown
    assert "politely" in call("show", "latest", "--candidate", str(done["best"])).out
    call("report")
    call("resume", run.name, code=1)


def test_apply_stores_all_prompts_of_a_winner_or_none(
    folder: Path, call: Callable[..., Ended]
) -> None:
    call("optimize", "jobs.py:unstored", "--quiet", code=1)
    store = LocalPromptOverridesStore()
    assert store.addresses() == ()
    call("apply", "--keep-anyway", "--dry-run")
    assert store.addresses() == ()

    applied = json.loads(call("apply", "--keep-anyway", "--json").out)
    assert {row["prompt"] for row in applied["prompts"]} == BOTH
    steps = {
        store.current(ns="team", prompt_key=key).step  # type: ignore[union-attr]
        for key in ("router", "writer")
    }
    assert len(steps) == 1
    assert None not in steps
    assert "already applied" in call("apply", "--keep-anyway").out

    store.set_section_override(WRITER, path=("rules",), body="Be brief.")
    before = store.resolve(ROUTER.descriptor)
    refused = call("apply", "--keep-anyway", code=2)
    assert "team/writer#section rules" in refused.err
    assert store.resolve(ROUTER.descriptor) == before


def test_a_winner_of_several_prompts_is_not_written_into_files(
    folder: Path, call: Callable[..., Ended]
) -> None:
    call("optimize", "jobs.py:unstored", "--quiet", code=1)
    assert "written in Python" in call("apply", "--keep-anyway", "--to-source", code=2).err


MARKDOWN = """---
ns: team
key: {key}
---

# Rules

{rules}

# Ask {{#ask .frozen}}

{ask}
"""
TEXTS = {
    "router.md": MARKDOWN.format(key="router", rules="Name a desk.", ask="$text"),
    "writer.md": MARKDOWN.format(key="writer", rules="Answer.", ask="$desk: $text"),
}
IN_FILES = """
from targets.team import context, reply, settings
from promptgraft import LocalPromptOverridesStore, OptimizationJob
from promptgraft.project import open_project
from promptgraft.targets import Prompts

def made():
    project = open_project("promptgraft.yaml")
    prompts = {name: project.prompt(name).prompt for name in project.names}
    team = Prompts(prompts, run=reply, name="team/support")
    kept = context(overrides_store=LocalPromptOverridesStore())
    return OptimizationJob(team, kept, settings(persist=False))
"""


@pytest.fixture
def in_files(folder: Path, call: Callable[..., Ended]) -> Path:
    """A job of two prompts of a project, and a run of it."""
    for name, text in TEXTS.items():
        (folder / name).write_text(text, "utf-8")
    project = {
        "version": 1,
        "prompts": {"router": "router.md", "writer": "writer.md"},
        "dataset": {"path": "cases.jsonl"},
        "splits": {"ratio": {"train": 0.5, "validation": 0.5}},
        "metrics": [{"name": "exact"}],
        "models": {"task": {"provider": "offline"}},
    }
    (folder / "promptgraft.yaml").write_text(json.dumps(project), "utf-8")
    (folder / "jobs.py").write_text(IN_FILES, "utf-8")
    call("optimize", "jobs.py:made", "--quiet", "--runs", "runs", code=1)
    return folder


def texts_in(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text("utf-8") for name in TEXTS}


APPLY = ("apply", "--keep-anyway", "--runs", "runs")


def test_a_winner_of_several_prompts_is_written_into_the_files_of_all_of_them(
    in_files: Path, call: Callable[..., Ended]
) -> None:
    patch = call(*APPLY, "--patch").out
    call(*APPLY, "--to-source", "--dry-run")
    assert texts_in(in_files) == TEXTS
    done = json.loads(call(*APPLY, "--to-source", "--json").out)
    assert done["files"] == ["router.md", "writer.md"]
    assert [part["part"] for part in done["parts"]] == [
        "team/router#section rules",
        "team/writer#section rules",
    ]
    written = texts_in(in_files)
    assert "Answer. politely" in written["writer.md"]
    assert all(desk in written["router.md"] for desk in DESKS)
    assert "already applied" in call(*APPLY, "--to-source").out

    for name, text in TEXTS.items():
        (in_files / name).write_text(text, "utf-8")
    subprocess.run(["git", "apply", "-"], input=patch.encode(), cwd=in_files, check=True)
    assert texts_in(in_files) == written


def test_a_file_that_has_changed_keeps_a_winner_out_of_all_of_them(
    in_files: Path, call: Callable[..., Ended]
) -> None:
    changed = TEXTS["writer.md"].replace("Answer.", "Answer soon.")
    (in_files / "writer.md").write_text(changed, "utf-8")
    refused = call(*APPLY, "--to-source", code=2)
    assert refused.err.startswith("promptgraft: team/writer#section rules: stale: the winner was ")
    assert texts_in(in_files) == {**TEXTS, "writer.md": changed}


def test_a_half_written_winner_of_several_prompts_is_completed(
    in_files: Path, call: Callable[..., Ended]
) -> None:
    call(*APPLY, "--to-source")
    written = texts_in(in_files)
    files = [{"name": n, "path": n, "old": TEXTS[n], "new": [written[n]]} for n in TEXTS]
    leave_record(in_files, {"by": "the write", "goal": "new", "texts": files})
    (in_files / "writer.md").write_text(TEXTS["writer.md"], "utf-8")
    assert "was interrupted; written now: " in call(*APPLY).err
    assert texts_in(in_files) == written


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prompts": {}}, "prompts: expected prompts by name"),
        ({"prompts": {"router": "Name a desk."}}, "'router': expected a Prompt"),
        ({"run": 7}, "run: expected a function"),
        ({"prompts": {"one": ROUTER, "two": ROUTER}}, "two with one namespace and key"),
        ({"modules": {"reader": ()}}, "there is no prompt 'reader'"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"prompts": TEAM.prompts, "run": reply, "name": "team", **arguments}
    with pytest.raises(ConfigError, match=message):
        Prompts(given.pop("prompts"), **given)


def test_a_function_that_asks_for_an_unknown_prompt_is_told_the_known_ones() -> None:
    def wrong(ask: Any, ticket: Any) -> Any:
        return ask("routr", ticket)

    subject = Prompts(TEAM.prompts, run=wrong)
    with pytest.raises(PromptgraftError, match=r"did you mean.*router"):
        GepaOptimizer(context(), settings()).optimize(subject)


def test_what_could_not_be_answered_is_refused_before_a_plan_and_before_a_run() -> None:
    def without_ticket(ask: Any) -> Any:
        return ask("router", None)

    unserved = GepaOptimizer(attrs.evolve(context(), adapter=OfflineAdapter()), settings())
    uncalled = GepaOptimizer(context(), settings())
    for optimizer, subject, fault in (
        (unserved, TEAM, r"^prompts: `writer`: the embedded offline model does not serve"),
        (
            uncalled,
            Prompts(TEAM.prompts, run=without_ticket),
            r"without_ticket\(\) cannot be called with \(ask, Ticket\)",
        ),
    ):
        for refused in (optimizer.plan, optimizer.optimize):
            with pytest.raises(ConfigError, match=fault):
                refused(subject)


def test_processes_can_make_the_rollouts() -> None:
    with process_pool(1) as executor:
        assert optimize(executor=executor).candidates == optimize().candidates


def test_sections_with_one_path_are_kept_apart() -> None:
    result = optimize()
    for one in result.candidates:
        for address, override in one.overrides.items():
            for entry in override.entries():
                assert isinstance(entry, SectionOverride)
                source: Prompt[Any] = ROUTER if address == "team/router" else WRITER
                assert entry.expected_hash == source.descriptor.sections[0].content_hash


def test_an_exception_of_the_function_is_the_fault_of_the_texts_where_it_says_so() -> None:
    def strict(ask: Any, ticket: Any) -> Any:
        if ask("router", ticket).text == "nobody":
            raise ValueError("no desk")
        return ask("writer", Draft("desk", ticket.text))

    told = Prompts(TEAM.prompts, run=strict, candidate_errors=ValueError)
    result = GepaOptimizer(context(), settings()).optimize(told)
    assert result.baseline_pareto_mean == 0
    untold = Prompts(TEAM.prompts, run=strict)
    with pytest.raises(PromptgraftError, match=r"on example `t\d` raised ValueError: no desk"):
        GepaOptimizer(context(), settings()).optimize(untold)


def limited(chars: int, **changes: Any) -> tuple[GepaResult, Session]:
    told = Session()
    guarded = settings(guards=Guards(max_prompt_chars=chars))
    return GepaOptimizer(context(**changes), guarded).optimize(TEAM, session=told), told


def test_without_values_no_prompt_is_longer_than_it_may_be() -> None:
    bare = len(ROUTER.with_placeholders().text)
    with pytest.raises(ConfigError) as refused:
        limited(bare - 1)
    assert str(refused.value) == (
        f"guards.max_prompt_chars: prompt `team/router` has {bare} characters; at most "
        f"{bare - 1} are allowed, so shorten it by 1"
    )
    words = "Name a desk. " * 30

    def ramble(rendered: Any) -> str:
        return f"```{'P1' if '**P1:**' in rendered.text else 'instruction'}\n{words}\n```"

    rambling = ScriptedAdapter(ramble, identity="writer")
    result, told = limited(200, reflection_adapter=rambling)
    refusals = {one.reason for one in told.select_all(GepaMutationRejected)}
    assert (result.best_index, refusals) == (0, {RejectionReason.TOO_LONG})


def test_with_its_values_no_prompt_is_longer_than_it_may_be() -> None:
    bare = max(len(one.with_placeholders().text) for one in (ROUTER, WRITER))
    with pytest.raises(ConfigError, match=r"max_prompt_chars: prompt `team/router` has \d+ char"):
        limited(bare)
    tickets = [one.params[0] for one in settings().training_examples]
    baseline = max(
        len(one.render().text)
        for ticket in tickets
        if isinstance(ticket, Ticket)
        for one in (ROUTER.bind(ticket), WRITER.bind(Draft("nobody", ticket.text)))
    )
    result, told = limited(baseline)
    faults = [one.record.fault for one in told.select_all(GepaRolloutCompleted)]
    assert result.best_index == 0
    assert any(f"characters; at most {baseline} are allowed" in fault for fault in faults)
    assert limited(baseline + 40)[0].best_pareto_mean == 1
