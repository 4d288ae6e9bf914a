"""A program for another optimizer runs unchanged but for its import."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from integrations.quickstart import TAUGHT, serving, variables, write_program
from promptgraft.bridges.agent_optimizer import (
    OPTIMIZER_REGISTRY,
    AgentEvaluator,
    AgentOptimizer,
    BaseOptimizer,
    OptimizeResult,
    RoundRecord,
    TargetPrompt,
)
from promptgraft.errors import CallerError, ConfigError, DataFormatError, PromptgraftError
from promptgraft.runs import find_run, read_run
from servers.loopback import KEY

FIELDS = (
    "status finish_reason stop_reason error_message algorithm baseline_pass_rate best_pass_rate "
    "pass_rate_improvement baseline_metric_breakdown best_metric_breakdown metric_thresholds "
    "per_metric_best_candidates baseline_prompts best_prompts total_rounds rounds "
    "rounds_accepted merge_rounds_total total_metric_calls metric_calls_total proposals_total "
    "total_reflection_lm_calls total_token_usage duration_seconds started_at finished_at "
    "schema_version extras"
)
OF_ROUND = (
    "round kind started_at duration_seconds optimized_field_names candidate_prompts accepted "
    "acceptance_reason per_field_diagnosis validation_pass_rate metric_breakdown failed_case_ids "
    "failed_cases_truncated train_minibatch_size train_subsample_parent_score "
    "train_subsample_candidate_score skip_reason error_message reflection_lm_calls "
    "round_token_usage budget_used budget_total extras"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program, with a server for its models and judges."""
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        for name, value in variables(server).items():
            monkeypatch.setenv(name, value)
        yield write_program(tmp_path)


def program(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("program", folder / "run_optimization.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(folder: Path, **options: Any) -> OptimizeResult:
    result = asyncio.run(program(folder).main(**options))
    assert isinstance(result, OptimizeResult)
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, OptimizeResult]:
    """The folder of a program that has run, and its result."""
    with pytest.MonkeyPatch.context() as patch, serving() as server:
        patch.chdir(tmp_path_factory.mktemp("finished"))
        for name, value in variables(server).items():
            patch.setenv(name, value)
        folder = write_program(Path.cwd())
        return folder, run(folder, timestamp="t1", verbose=0)


def texts(folder: Path) -> dict[str, str]:
    prompts = folder / "agent" / "prompts"
    return {
        "system_prompt": (prompts / "system.md").read_text(),
        "skill": (prompts / "skill.md").read_text(),
    }


def test_the_program_runs_unchanged_and_leaves_its_files_as_they_were(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = texts(folder)
    result = run(folder)
    assert texts(folder) == before
    assert (result.status, result.finish_reason) == ("SUCCEEDED", "perfect_pass_rate")
    assert result.stop_reason == "required_metrics_passing"
    assert (result.baseline_pass_rate, result.best_pass_rate) == (0.0, 1.0)
    assert result.pass_rate_improvement == 1.0
    assert result.metric_thresholds == {
        "final_response_avg_score": 1.0,
        "llm_rubric_response": 0.66,
    }
    assert result.baseline_metric_breakdown["llm_rubric_response"] == pytest.approx(1 / 3)
    assert result.best_metric_breakdown == {
        "final_response_avg_score": 1.0,
        "llm_rubric_response": 1.0,
    }
    assert all(TAUGHT[name] in text for name, text in result.best_prompts.items())
    assert {name: f"{text}\n" for name, text in result.baseline_prompts.items()} == before
    assert result.per_metric_best_candidates == {name: [2] for name in result.metric_thresholds}
    printed = capsys.readouterr().err
    assert printed.splitlines()[0] == "baseline: 0.167 on the validation set, pass rate 0.000"
    assert "pass_rate     : 0.000 -> 1.000 (+1.000), improved\n" in printed


def test_questions_are_printed_where_that_is_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(folder, verbose=2)
    printed = capsys.readouterr().err
    assert printed.count("The part is: section") == 2
    assert "step/1/reflect/0:\n" in printed


def test_the_result_has_the_fields_of_theirs_and_survives_a_file(
    finished: tuple[Path, OptimizeResult],
) -> None:
    folder, result = finished
    assert set(OptimizeResult.__struct_fields__) == set(FIELDS.split())
    assert set(RoundRecord.__struct_fields__) == set(OF_ROUND.split())
    path = folder / "again.json"
    result.dump_to(path)
    assert OptimizeResult.from_file(path) == result
    plain = json.loads(path.read_text())
    assert plain["bestPassRate"] == 1.0
    assert (plain["totalMetricCalls"], plain["metricCallsTotal"]) == (21, 21)
    assert (plain["proposalsTotal"], plain["roundsAccepted"]) == (2, 2)
    assert plain["mergeRoundsTotal"] == 0
    assert plain["bestPrompts"]["system_prompt"] == result.best_prompts["system_prompt"]
    assert plain["rounds"][0]["optimizedFieldNames"] == ["system_prompt"]


def test_rounds_say_what_was_changed_and_what_came_of_it(
    finished: tuple[Path, OptimizeResult],
) -> None:
    first, second = finished[1].rounds
    assert [one.round for one in (first, second)] == [1, 2]
    assert (first.optimized_field_names, second.optimized_field_names) == (
        ["system_prompt"],
        ["skill"],
    )
    assert first.accepted
    assert first.acceptance_reason.startswith("better on the minibatch: 0.167 -> 0.333")
    assert TAUGHT["system_prompt"] in first.candidate_prompts["system_prompt"]
    assert first.metric_breakdown["llm_rubric_response"] == pytest.approx(2 / 3)
    assert sorted(first.failed_case_ids) == ["val-11", "val-12", "val-13"]
    assert (second.validation_pass_rate, second.failed_case_ids) == (1.0, [])
    assert first.train_minibatch_size == 3
    assert first.reflection_lm_calls == 1
    assert first.round_token_usage["total"] > 0
    assert (first.budget_total, first.budget_used, second.budget_used) == (60, 12, 21)


def test_rounds_without_a_new_candidate_say_what_they_used(folder: Path) -> None:
    write_program(folder, max_iterations_without_improvement=3)
    module = program(folder)

    async def deaf(query: str) -> str:
        return "no idea"

    module.call_agent = deaf  # type: ignore[attr-defined]
    result = asyncio.run(module.main(verbose=0))
    assert [one.accepted for one in result.rounds] == [False] * 3
    assert [one.budget_used for one in result.rounds] == [9, 15, 18]
    assert (result.total_metric_calls, result.rounds_accepted) == (18, 0)
    assert result.proposals_total == 3


def test_a_merge_is_a_round_with_a_budget_of_its_own(folder: Path) -> None:
    """Each text alone is right on another third of the cases, both together on all."""
    write_program(folder, use_merge=True, merge_val_overlap_floor=1, seed=8)
    path = folder / "optimizer.json"
    given = json.loads(path.read_text())
    given["evaluate"]["metrics"] = given["evaluate"]["metrics"][:1]
    path.write_text(json.dumps(given))
    module = program(folder)

    async def call_agent(query: str) -> str:
        first, second = map(int, re.findall(r"\d+", query))
        taught = [TAUGHT[name] in text for name, text in texts(folder).items()]
        right = all(taught) or first % 3 == (1 if taught[0] else 2 if taught[1] else 0)
        return f"Answer: {first + second} {query.split()[3]}" if right else "no idea"

    module.call_agent = call_agent  # type: ignore[attr-defined]
    result = asyncio.run(module.main(verbose=0))
    [merge] = [one for one in result.rounds if one.kind == "merge"]
    before = result.rounds[merge.round - 2]
    assert (merge.accepted, result.merge_rounds_total, result.best_pass_rate) == (True, 1, 1.0)
    assert merge.budget_used == result.total_metric_calls == (before.budget_used or 0) + 3


@pytest.mark.parametrize("threshold", [0.5, 1.0])
def test_a_threshold_that_is_reached_is_the_reason_even_by_a_perfect_candidate(
    folder: Path, threshold: float
) -> None:
    write_program(folder, score_threshold=threshold)
    path = folder / "optimizer.json"
    given = json.loads(path.read_text())
    given["optimize"]["stop"] = {"required_metrics": []}
    path.write_text(json.dumps(given))
    result = run(folder, verbose=0)
    assert (result.stop_reason, result.best_pass_rate) == ("score_threshold", 1.0)


def test_a_stopper_may_name_its_reason(folder: Path) -> None:
    class Slow:
        label = "too slow"

        def __call__(self, gepa_state: object = None) -> bool:
            return True

    result = run(folder, verbose=0, extra_stop_callbacks=[lambda state: False, Slow()])
    assert result.stop_reason == "too slow"


def test_plain_keys_are_used_and_are_in_no_file(folder: Path) -> None:
    path = folder / "optimizer.json"
    for name in ("reflection_lm", "judge_model"):
        before, named, after = path.read_text().partition(f'"{name}"')
        path.write_text(before + named + after.replace("${TRPC_AGENT_API_KEY}", KEY, 1))
    os.environ.pop("TRPC_AGENT_API_KEY")
    config = json.loads(path.read_text())
    names = ("X-Api-Key", "GATE_API_KEY", "Subscription-Key", "accessTokens")
    fields = {"metadata": dict.fromkeys(names, "of-a-gateway")}
    config["optimize"]["algorithm"]["reflection_lm"]["extra_fields"] = fields
    path.write_text(json.dumps(config))
    assert run(folder, verbose=0).best_pass_rate == 1.0
    out = folder / "runs" / "now"
    texts = {file: file.read_text("utf-8") for file in out.rglob("*") if file.is_file()}
    leaks = [file for file, text in texts.items() if KEY in text or "of-a-gateway" in text]
    assert leaks == []
    snapshot = json.loads((out / "config.snapshot.json").read_text())
    reflection = snapshot["optimize"]["algorithm"]["reflection_lm"]
    assert reflection["api_key"] == "${API_KEY}"
    assert reflection["extra_fields"] == {
        "metadata": {
            "X-Api-Key": "${X_API_KEY}",
            "GATE_API_KEY": "${GATE_API_KEY}",
            "Subscription-Key": "${SUBSCRIPTION_KEY}",
            "accessTokens": "${ACCESS_TOKENS}",
        }
    }
    given = {
        "call_agent": program(folder).call_agent,
        "eval_set_path": str(folder / "val.evalset.json"),
        "test_config_path": str(path),
    }
    with pytest.raises(AssertionError, match="3 of 3 cases do not pass"):
        asyncio.run(AgentEvaluator.evaluate(**given))


def test_the_output_folder_has_their_files_and_the_whole_run(
    finished: tuple[Path, OptimizeResult],
) -> None:
    folder, result = finished
    out = folder / "runs" / "t1"
    assert OptimizeResult.from_file(out / "result.json") == result
    assert (out / "config.snapshot.json").read_text() == (folder / "optimizer.json").read_text()
    assert "status=SUCCEEDED" in (out / "run.log").read_text()
    assert "1.000 (+1.000)" in (out / "summary.txt").read_text()
    for name, text in result.best_prompts.items():
        assert (out / "best_prompts" / f"{name}.md").read_text() == text
        assert (out / "baseline_prompts" / f"{name}.md").read_text() == (
            result.baseline_prompts[name]
        )
    assert sorted(path.name for path in (out / "rounds").iterdir()) == [
        "round_001.json",
        "round_002.json",
    ]
    record = read_run(find_run(out))
    assert len(record.candidates) == 3


def test_the_best_texts_are_written_back_where_that_is_asked_for(folder: Path) -> None:
    result = run(folder, update_source=True, verbose=0)
    assert texts(folder) == {name: f"{text}\n" for name, text in result.best_prompts.items()}


def test_stoppers_and_listeners_of_the_user_take_part(folder: Path) -> None:
    heard: list[str] = []

    class Listener:
        def on_candidate_accepted(self, event: object) -> None:
            heard.append(type(event).__name__)

        async def on_optimization_end(self, event: object) -> None:
            heard.append(type(event).__name__)

    result = run(
        folder,
        verbose=0,
        extra_stop_callbacks=[lambda state=None: state.candidates > 1],
        extra_gepa_callbacks=[Listener()],
    )
    assert (result.stop_reason, result.total_rounds) == ("completed", 1)
    assert heard == ["MutationAccepted", "RunEnded"]


def test_a_file_ends_the_run(folder: Path) -> None:
    def touch(state: object = None) -> bool:
        (folder / "runs" / "now" / "optimize.stop").touch()
        return False

    result = run(folder, verbose=0, extra_stop_callbacks=[touch])
    assert (result.status, result.stop_reason) == ("SUCCEEDED", "user_requested_stop")


def test_an_agent_that_always_fails_is_found_before_the_search(folder: Path) -> None:
    module, before = program(folder), texts(folder)

    async def broken(query: str) -> str:
        raise RuntimeError(f"no idea: {query}")

    module.call_agent = broken  # type: ignore[attr-defined]
    with pytest.raises(CallerError, match="no idea: Mia has"):
        asyncio.run(module.main(verbose=0, update_source=True))
    assert texts(folder) == before


def test_an_agent_that_fails_now_and_then_scores_nothing_there(folder: Path) -> None:
    module = program(folder)
    good = module.call_agent

    async def frail(query: str) -> str:
        if "12" in query:
            raise RuntimeError("twelve again")
        return str(await good(query))

    module.call_agent = frail  # type: ignore[attr-defined]
    result = asyncio.run(module.main(verbose=0))
    assert result.best_pass_rate == pytest.approx(2 / 3)
    assert result.rounds[1].failed_case_ids == ["val-12"]


def test_a_case_without_a_score_that_no_candidate_can_win_with_is_named(folder: Path) -> None:
    module = program(folder)
    good = module.call_agent

    async def slow(query: str) -> str:
        if " 12 " in query:
            raise TimeoutError("twelve again")
        return str(await good(query))

    module.call_agent = slow  # type: ignore[attr-defined]
    result = asyncio.run(module.main(verbose=0))
    assert (result.status, result.best_pass_rate) == ("SUCCEEDED", 0.0)
    summary = (folder / "runs" / "now" / "summary.txt").read_text()
    assert re.search(
        r"^remark +: 2 candidates .* could not win: .*\(`val-12`\)", summary, re.MULTILINE
    )


def test_mixed_sources_are_read_and_written_all_or_none(tmp_path: Path) -> None:
    kept = {"rule": "Be kind."}
    (tmp_path / "system.md").write_text("Hello.\n")

    async def read() -> str:
        return kept["rule"]

    async def write(text: str) -> None:
        if "refuse" in text:
            raise RuntimeError("no")
        kept["rule"] = text

    target = TargetPrompt().add_path("system", tmp_path / "system.md")
    target.add_callback("rule", read=read, write=write)
    assert target.names() == ["system", "rule"]
    assert target.describe_source("rule") == "<callback>"
    assert target.describe_source("system") == str(tmp_path / "system.md")
    assert TargetPrompt().add_path("rule", "texts/rule.md").describe_source("rule") == (
        "texts/rule.md"
    )
    assert asyncio.run(target.read_all()) == {"system": "Hello.", "rule": "Be kind."}
    asyncio.run(target.write_all({"system": "Hi.", "rule": "Be brief."}))
    assert ((tmp_path / "system.md").read_text(), kept["rule"]) == ("Hi.\n", "Be brief.")
    with pytest.raises(ConfigError, match="every text is as it was"):
        asyncio.run(target.write_all({"system": "Ho.", "rule": "refuse"}))
    assert ((tmp_path / "system.md").read_text(), kept["rule"]) == ("Hi.\n", "Be brief.")
    with pytest.raises(ConfigError, match="expected the texts system, rule, found rule"):
        asyncio.run(target.write_all({"rule": "x"}))
    with pytest.raises(KeyError):
        target.describe_source("none")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output_dir": ""}, "output_dir: expected a folder"),
        ({"target_prompt": TargetPrompt()}, "target_prompt: expected at least one text"),
        ({"validation_dataset_path": "train.evalset.json"}, "are the same file"),
        ({"callbacks": object()}, "callbacks: expected None"),
        ({"config_path": "none.json"}, "none.json: cannot be read"),
        ({"call_agent": 3}, "call_agent: expected a function, found 3"),
        ({"call_agent": None}, "call_agent: expected a function, found None"),
    ],
)
def test_a_wrong_argument_is_refused_before_the_first_call(
    folder: Path, change: dict[str, Any], said: str
) -> None:
    given = {
        "config_path": "optimizer.json",
        "call_agent": program(folder).call_agent,
        "target_prompt": program(folder).target,
        "train_dataset_path": "train.evalset.json",
        "validation_dataset_path": "val.evalset.json",
        "output_dir": "runs/x",
        **change,
    }
    kind = TypeError if "call_agent" in change else (ConfigError, DataFormatError)
    with pytest.raises(kind, match=said):
        asyncio.run(AgentOptimizer.optimize(**given))
    assert not (folder / "runs").exists()


def test_a_name_is_given_once() -> None:
    with pytest.raises(ConfigError, match="two texts have the name `a`"):
        TargetPrompt().add_path("a", "x.md").add_path("a", "y.md")


@pytest.mark.parametrize(("after", "rounds"), [(2, 0), (20, 1)])
def test_ctrl_c_ends_the_run_with_a_result(folder: Path, after: int, rounds: int) -> None:
    module, before = program(folder), texts(folder)
    answer, calls = module.call_agent, list[str]()

    async def interrupting(query: str) -> str:
        calls.append(query)
        if len(calls) == after:
            os.kill(os.getpid(), signal.SIGINT)
        return str(await answer(query))

    module.call_agent = interrupting  # type: ignore[attr-defined]
    handler = signal.getsignal(signal.SIGINT)
    result = asyncio.run(module.main(verbose=0, update_source=True))
    assert signal.getsignal(signal.SIGINT) is handler
    assert (result.status, result.best_pass_rate) == ("CANCELED", 0.0)
    assert len([record for record in result.rounds if record.accepted]) == rounds
    assert texts(folder) == before
    out = folder / "runs" / "now"
    assert OptimizeResult.from_file(out / "result.json") == result
    assert "status=CANCELED" in (out / "run.log").read_text()
    assert {path.stem for path in (out / "best_prompts").iterdir()} == {"system_prompt", "skill"}


def test_each_round_is_written_when_its_step_has_ended(folder: Path) -> None:
    written: list[list[str]] = []

    class Listener:
        def on_proposal_start(self, event: object) -> None:
            written.append(sorted(path.name for path in (folder / "runs/now/rounds").glob("*")))

    result = run(folder, verbose=0, extra_gepa_callbacks=[Listener()])
    assert written == [[], ["round_001.json"]]
    first = json.loads((folder / "runs/now/rounds/round_001.json").read_text())
    assert first["candidatePrompts"] == result.rounds[0].candidate_prompts


def test_every_hook_that_has_an_event_is_called_and_a_warning_names_the_rest(
    folder: Path,
) -> None:
    heard: set[str] = set()

    class Listener:
        def __getattr__(self, name: str) -> Any:
            if not name.startswith("on_"):
                raise AttributeError(name)
            return lambda event: heard.add(name)

        def on_state_saved(self, event: object) -> None:
            heard.add("on_state_saved")

    with pytest.warns(UserWarning, match=r"`on_state_saved` of Listener will not be called; there"):
        run(folder, verbose=0, extra_gepa_callbacks=[Listener()])
    assert heard == {
        "on_optimization_start",
        "on_iteration_start",
        "on_proposal_start",
        "on_proposal_end",
        "on_budget_updated",
        "on_valset_evaluated",
        "on_valset_breakdown",
        "on_candidate_accepted",
        "on_optimization_end",
    }


def test_the_best_answer_of_each_case_is_kept_where_that_is_asked_for(folder: Path) -> None:
    write_program(folder, track_best_outputs=True)
    run(folder, verbose=0)
    best = json.loads((folder / "runs/now/best_outputs.json").read_text())
    assert best["val-11"] == {
        "candidate": 2,
        "score": 1.0,
        "answer": "11 + 14. Answer: 25 books",
    }
    assert sorted(best) == ["val-11", "val-12", "val-13"]


def test_settings_without_effect_are_warned_of(folder: Path) -> None:
    write_program(folder, perfect_score=0.9)
    path = folder / "optimizer.json"
    given = json.loads(path.read_text())
    given["optimize"]["algorithm"]["reflection_lm"]["think"] = True
    given["evaluate"]["user_simulator_config"] = {}
    judge = given["evaluate"]["metrics"][1]["criterion"]["llm_judge"]["judge_model"]
    judge["variant"] = "small"
    path.write_text(json.dumps(given, indent=1))
    with pytest.warns(UserWarning, match="left out") as caught:
        run(folder, verbose=0)
    lines = [str(one.message) for one in caught if "left out" in str(one.message)]
    assert [line.split(": ")[1].rpartition(".")[2] for line in lines] == [
        *("user_simulator_config", "judge_model", "reflection_lm", "perfect_score")
    ]
    with pytest.warns(UserWarning, match="left out") as caught, pytest.raises(AssertionError):
        asyncio.run(
            AgentEvaluator.evaluate(
                call_agent=program(folder).call_agent,
                eval_set_path=str(folder / "val.evalset.json"),
                test_config_path=str(path),
            )
        )
    assert [str(one.message) for one in caught] == lines[:2]


def test_merging_one_text_is_warned_of(folder: Path) -> None:
    write_program(folder, use_merge=True)
    module = program(folder)
    module.target = TargetPrompt().add_path(  # type: ignore[attr-defined]
        "skill", folder / "agent/prompts/skill.md"
    )
    with pytest.warns(UserWarning, match="use_merge has no effect: .*`skill` is the only one"):
        asyncio.run(module.main(verbose=0))


def test_names_of_texts_are_free_and_placeholders_are_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = folder / "agent/prompts"
    (prompts / "skill.md").write_text("Add the numbers up for {user}.\n")
    module = program(folder)
    module.target = (  # type: ignore[attr-defined]
        TargetPrompt()
        .add_path("System Prompt", prompts / "system.md")
        .add_path("技能/1", prompts / "skill.md", placeholders=["{user}"])
    )
    result = asyncio.run(module.main())
    assert [*result.best_prompts] == ["System Prompt", "技能/1"]
    assert {name for one in result.rounds for name in one.optimized_field_names} == {
        "System Prompt",
        "技能/1",
    }
    out = folder / "runs/now"
    assert {path.name for path in (out / "baseline_prompts").iterdir()} == {
        "system-prompt.md",
        "1.md",
    }
    assert "round 1: System Prompt" in capsys.readouterr().err
    module.target = TargetPrompt().add_path(  # type: ignore[attr-defined]
        "skill", prompts / "skill.md", placeholders=["{nobody}"]
    )
    with pytest.raises(PromptgraftError, match="nobody"):
        asyncio.run(module.main())


def test_an_algorithm_of_the_user_is_found_by_its_name(folder: Path) -> None:
    before = texts(folder)

    class Shouting(BaseOptimizer):
        async def run(self, *, reporter: object = None) -> OptimizeResult:
            assert self.config["optimize"]["algorithm"]["volume"] == 11  # type: ignore[call-overload, index]
            found = await self.target_prompt.read_all()
            loud = {name: text.upper() for name, text in found.items()}
            await self.target_prompt.write_all(loud)
            return a_result(found, loud)

    OPTIMIZER_REGISTRY.register("shouting", Shouting)
    OPTIMIZER_REGISTRY.register("shouting", Shouting)
    write_program(folder, name="shouting", volume=11)
    result = run(folder, verbose=0)
    assert result.best_prompts["skill"] == "ADD THE NUMBERS UP."
    assert texts(folder) == before
    out = folder / "runs/now"
    assert (out / "best_prompts/skill.md").read_text() == "ADD THE NUMBERS UP."
    assert (out / "baseline_prompts/skill.md").read_text() == "Add the numbers up."
    run(folder, verbose=0, update_source=True)
    assert texts(folder)["skill"] == "ADD THE NUMBERS UP.\n"
    write_program(folder, name="shoutin")
    said = r"optimizer.json:\d+: .*`gepa_reflective`, `shouting`, found 'shoutin'"
    with pytest.raises(DataFormatError, match=said):
        run(folder)
    with pytest.raises(TypeError, match="expected a subclass of BaseOptimizer"):
        OPTIMIZER_REGISTRY.register("no", dict)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="already is an algorithm `gepa_reflective`"):
        OPTIMIZER_REGISTRY.register("gepa_reflective", Shouting)


def a_result(before: dict[str, str], after: dict[str, str]) -> OptimizeResult:
    """Return a result as an algorithm of the user makes it."""
    return OptimizeResult(
        status="SUCCEEDED",
        finish_reason="completed",
        stop_reason="completed",
        algorithm="shouting",
        baseline_pass_rate=0.0,
        best_pass_rate=1.0,
        pass_rate_improvement=1.0,
        baseline_metric_breakdown={},
        best_metric_breakdown={},
        metric_thresholds={},
        per_metric_best_candidates={},
        baseline_prompts=before,
        best_prompts=after,
        total_rounds=0,
        rounds=[],
        total_reflection_lm_calls=0,
        total_token_usage={},
        duration_seconds=0.0,
        started_at="2026-05-19T17:00:00+00:00",
        finished_at="2026-05-19T17:00:00+00:00",
    )


def test_files_may_number_their_cases_alike(folder: Path) -> None:
    for name, prefix in (("train", "train-"), ("val", "val-1")):
        path = folder / f"{name}.evalset.json"
        path.write_text(path.read_text().replace(prefix, "case-"))
    result = run(folder)
    assert sorted(result.rounds[0].failed_case_ids) == ["case-1", "case-2", "case-3"]
    assert result.best_pass_rate == 1.0


def test_the_gate_judges_the_same_files(folder: Path) -> None:
    module = program(folder)
    given = {
        "call_agent": module.call_agent,
        "eval_set_path": str(folder / "val.evalset.json"),
        "test_config_path": str(folder / "optimizer.json"),
    }
    with pytest.raises(AssertionError, match="3 of 3 cases do not pass") as caught:
        asyncio.run(AgentEvaluator.evaluate(**given))
    [first, *_] = json.loads(str(caught.value).partition("\n")[2])
    assert (first["case"], first["expected"]) == ("val-11", "Answer: 25 books")
    assert first["runs"][0]["answer"] == "It is 25."
    assert first["scores"]["final_response_avg_score"] == 0.0
    assert "Answer: 25 books" in first["runs"][0]["reasons"]["final_response_avg_score"]
    for name, taught in TAUGHT.items():
        path = folder / "agent/prompts" / f"{name.removesuffix('_prompt')}.md"
        path.write_text(f"{path.read_text()}{taught}\n")
    evaluation = asyncio.run(AgentEvaluator.evaluate(**given, num_runs=2))
    assert [report.passed for report in evaluation.runs] == [3, 3]


def test_the_gate_reads_a_file_of_metrics_alone(folder: Path) -> None:
    async def frail(query: str) -> str:
        raise RuntimeError("no idea")

    metrics = json.loads((folder / "optimizer.json").read_text())["evaluate"]
    metrics["metrics"] = metrics["metrics"][:1]
    (folder / "test_config.json").write_text(json.dumps(metrics))
    with pytest.raises(AssertionError, match="no idea"):
        asyncio.run(
            AgentEvaluator.evaluate(
                call_agent=frail,
                eval_set_path="val.evalset.json",
                test_config_path="test_config.json",
            )
        )
    with pytest.raises(DataFormatError, match=r"none.json: cannot be read"):
        asyncio.run(
            AgentEvaluator.evaluate(
                call_agent=frail, eval_set_path="val.evalset.json", test_config_path="none.json"
            )
        )
