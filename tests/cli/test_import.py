"""``promptgraft import``: the configuration of another optimizer becomes a project."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.console import Console
from integrations.quickstart import configuration, serving, variables, write_program
from promptgraft.project import load_project

COMMAND = ("import", "optimizer.json", "--train", "train.evalset.json")
SETS = (*COMMAND[2:], "--validation", "val.evalset.json")
TEXTS = (
    "--prompt", "system_prompt=agent/prompts/system.md", "--prompt", "skill=agent/prompts/skill.md",
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The program of another optimizer; it is the current folder."""
    monkeypatch.chdir(tmp_path)
    with serving() as server:
        for name, value in variables(server).items():
            monkeypatch.setenv(name, value)
        yield write_program(tmp_path)


def imported(console: Console, *more: str) -> dict[str, Any]:
    ended = console("import", "optimizer.json", *SETS, *more)
    assert (ended.code, ended.err) == (0, "")
    found: dict[str, Any] = yaml.safe_load(Path("promptgraft.yaml").read_text())
    return found


def with_algorithm(**changes: Any) -> None:
    given = configuration()
    given["optimize"]["algorithm"].update(changes)
    Path("optimizer.json").write_text(json.dumps(given, indent=2))


@pytest.mark.thorough
def test_a_program_goes_the_whole_way_to_its_source(console: Console, folder: Path) -> None:
    project = imported(console, *TEXTS)
    assert project["prompts"]["agent"]["files"]["skill"] == "agent/prompts/skill.md"
    assert project["agent"] == {"python": "run_optimization.py:call_agent"}
    assert project["delivery"] == "live"
    before = (folder / "agent/prompts/skill.md").read_text()

    checked = console("check")
    assert (checked.code, checked.err) == (0, "")
    ended = console("optimize", "-q")
    assert ended.code in (0, 1), ended.err
    assert (folder / "agent/prompts/skill.md").read_text() == before
    [result] = folder.glob("runs/*/result.json")
    assert json.loads(result.read_text())["metrics"]["validation"]["best"]["pass_rate"] == 1.0

    tried = console("eval", "--split", "validation", "--source", "--min-pass-rate", "0.5")
    assert tried.code == 1
    applied = console("apply", "--to-source", "--keep-anyway")
    assert applied.code == 0, applied.err
    assert "Answer:" in (folder / "agent/prompts/skill.md").read_text()
    again = console("eval", "--split", "validation", "--source", "--min-pass-rate", "1")
    assert again.code == 0, again.err

    (folder / "test_agent.py").write_text(
        "import pytest\n\n\n@pytest.mark.promptgraft(split='validation', source=True)\n"
        "def test_the_agent(promptgraft_report):\n    promptgraft_report.check(min_pass_rate=1)\n"
    )
    gate = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_agent.py"]
    assert "1 passed" in subprocess.run(gate, capture_output=True, text=True, check=True).stdout


def test_every_key_of_a_first_program_is_in_the_project(console: Console, folder: Path) -> None:
    project = imported(console)
    assert project["prompts"] == {
        "agent": {"files": {"skill": "agent/prompts/skill.md", "system": "agent/prompts/system.md"}}
    }
    assert project["splits"] == {
        "files": {"train": "train.evalset.json", "validation": "val.evalset.json"}
    }
    model = {
        "provider": "openai",
        "model": "${TRPC_AGENT_MODEL_NAME}",
        "base_url": "${TRPC_AGENT_BASE_URL}",
        "api_key": "${TRPC_AGENT_API_KEY}",
    }
    assert project["models"] == {
        "reflection": {**model, "max_output_tokens": 4096},
        "judges": {"judge-1": model},
    }
    assert project["optimizer"] == {
        "rollout_budget": 60,
        "minibatch_size": 3,
        "seed": 42,
        "enable_merge": False,
        "strategy": {
            "preset": "paper",
            "published_question": False,
            "exploration": 1.0,
            "module_choice": "turns",
            "learn_from_perfect": True,
            "reuse_rollouts": False,
        },
        "additions": [{"history": {"most": 2}}],
        "objectives": {"frontier_type": "instance"},
        "limits": {
            "stoppers": [
                {
                    "required_objectives": {
                        "thresholds": {"final_response_avg_score": 1.0, "llm_rubric_response": 0.66}
                    }
                },
                {"no_improvement": {"steps": 8}},
            ]
        },
    }
    assert project["workers"] == 2
    metrics = json.loads((folder / "metrics.json").read_text())["metrics"]
    assert metrics[0] == configuration()["evaluate"]["metrics"][0]
    judge = metrics[1]["criterion"]["llm_judge"]["judge_model"]
    assert judge == {"model_name": "judge-1"}
    assert len(load_project(folder / "promptgraft.yaml").splits.validation) == 3


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({"candidate_selection_strategy": "current_best"}, {"exploration": 0.0}),
        (
            {"candidate_selection_strategy": "epsilon_greedy"},
            {"exploration": 0.1, "explored": "pool"},
        ),
        (
            {"candidate_selection_strategy": "top_k_pareto"},
            {"exploration": 1.0, "explored": "leaders"},
        ),
        ({"module_selector": "all"}, {"module_choice": "all"}),
        ({"moduleSelector": "random", "module_selector": None}, {"module_choice": "random"}),
        ({"skip_perfect_score": True}, {"learn_from_perfect": False}),
        ({"cache_evaluation": True}, {"reuse_rollouts": True}),
        (
            {"use_merge": True, "max_merge_invocations": 3, "merge_val_overlap_floor": 2},
            {"max_merge_invocations": 3, "merge_overlap": 2},
        ),
    ],
)
def test_what_the_search_does_is_a_setting_of_the_strategy(
    console: Console, folder: Path, theirs: dict[str, Any], ours: dict[str, Any]
) -> None:
    with_algorithm(**theirs)
    project = imported(console)
    found = project["optimizer"]["strategy"]
    assert {name: found[name] for name in ours} == ours
    assert project["optimizer"]["enable_merge"] is theirs.get("use_merge", False)
    assert console("check").code == 0


def test_all_that_stops_theirs_stops_ours(console: Console, folder: Path) -> None:
    with_algorithm(
        timeout_seconds=90.5,
        score_threshold=0.9,
        max_candidate_proposals=7,
        max_tracked_candidates=5,
        frontier_type="hybrid",
    )
    project = imported(console)
    limits = project["optimizer"]["limits"]
    assert limits["timeout"] == 90.5
    assert limits["stoppers"][1:] == [
        {"no_improvement": {"steps": 8}},
        {"target_score": {"score": 0.9}},
        {"max_proposals": {"proposals": 7}},
        {"max_candidates": {"candidates": 5}},
    ]
    assert project["optimizer"]["objectives"] == {"frontier_type": "hybrid"}
    assert console("check").code == 0


def test_runs_judges_and_required_metrics_are_taken_over(console: Console, folder: Path) -> None:
    given = configuration()
    judge = given["evaluate"]["metrics"][1]["criterion"]["llm_judge"]
    model = judge.pop("judge_model")
    judge["judge_models"] = [{**model, "weight": 2.0}, {**model, "model_name": "b"}, model]
    judge["models_aggregator"] = "weighted_majority"
    given["evaluate"]["num_runs"] = 3
    given["optimize"]["stop"] = {"requiredMetrics": ["llm_rubric_response"]}
    Path("optimizer.json").write_text(json.dumps(given))
    project = imported(console)
    assert project["optimizer"]["objectives"]["num_runs"] == 3
    assert project["optimizer"]["limits"]["stoppers"][0] == {
        "required_objectives": {"thresholds": {"llm_rubric_response": 0.66}}
    }
    assert list(project["models"]["judges"]) == ["judge-1", "judge-2"]
    metric = json.loads(Path("metrics.json").read_text())["metrics"][1]
    assert metric["criterion"]["llm_judge"]["judge_models"] == [
        {"model_name": "judge-1", "weight": 2.0},
        {"model_name": "judge-2"},
        {"model_name": "judge-1"},
    ]
    planned = json.loads(console("plan", "--json").out)
    task = next(row for row in planned["roles"] if row["role"] == "task")
    assert task["calls"] == 3 * 60


@pytest.mark.parametrize("stop", [{"required_metrics": None}, {"required_metrics": []}])
def test_metrics_need_not_stop_a_search(
    console: Console, folder: Path, stop: dict[str, Any]
) -> None:
    given = configuration()
    given["optimize"]["stop"] = stop
    Path("optimizer.json").write_text(json.dumps(given))
    stoppers = imported(console)["optimizer"]["limits"]["stoppers"]
    assert stoppers == [{"no_improvement": {"steps": 8}}]


def test_what_is_not_kept_is_said_in_a_line_each(console: Console, folder: Path) -> None:
    given = configuration()
    given["evaluate"]["user_simulator_config"] = {"model": "x"}
    given["optimize"]["algorithm"].update(
        perfect_score=0.9, track_best_outputs=True, max_metric_calls=None
    )
    given["optimize"]["algorithm"]["reflection_lm"].update(
        api_key="sk-plain-0123456789abcdef", think=True, extra_fields={"user": "me"}
    )
    Path("optimizer.json").write_text(json.dumps(given, indent=1))
    ended = console("import", "optimizer.json", *SETS)
    notes = [line[6:] for line in ended.out.splitlines() if line.startswith("note: ")]
    place, model = r"optimizer.json:\d+: ", "optimize.algorithm.reflection_lm"
    expected = [
        place + "evaluate.user_simulator_config: left out: a user who is played is .*",
        place + f"{model}: a key is not copied into a file: export it as REFLECTION_API_KEY",
        place + f"{model}: `think` is left out: .*",
        "optimizer.json: without `max_metric_calls` the budget is `heavy`: .*",
        place + "optimize.algorithm.perfect_score: left out: .*",
        place + "optimize.algorithm.track_best_outputs: left out: .*",
    ]
    assert len(notes) == len(expected)
    for note, pattern in zip(notes, expected, strict=True):
        assert re.fullmatch(pattern, note), note
    written = Path("promptgraft.yaml").read_text() + Path("metrics.json").read_text()
    assert "sk-plain" not in written + ended.out
    project = yaml.safe_load(Path("promptgraft.yaml").read_text())
    assert project["optimizer"]["rollout_budget"] == "heavy"
    assert project["models"]["reflection"]["extra_body"] == {"user": "me"}


@pytest.mark.parametrize(
    ("agent", "found"),
    [
        (
            "http://localhost:8000/chat",
            {"agent": {"http": {"url": "http://localhost:8000/chat"}}, "delivery": "live"},
        ),
        (
            "cli --add-dir {folder} '{query}'",
            {
                "agent": {"command": ["cli", "--add-dir", "{folder}", "{query}"]},
                "delivery": "folder",
            },
        ),
        ("cli {query}", {"agent": {"command": ["cli", "{query}"]}, "delivery": "live"}),
        ("other.py:call", {"agent": {"python": "other.py:call"}}),
    ],
)
def test_agents_of_every_kind_are_named(
    console: Console, folder: Path, agent: str, found: dict[str, Any]
) -> None:
    (folder / "other.py").write_text("def call(query, call):\n    return query\n")
    project = imported(console, "--agent", agent)
    assert {name: project[name] for name in found} == found
    assert ("delivery" in project) == ("delivery" in found)


def lacking(*path: str | int) -> Callable[[Any], None]:
    def change(given: Any) -> None:
        for name in path[:-1]:
            given = given[name]
        del given[path[-1]]

    return change


def having(value: object, *path: str | int) -> Callable[[Any], None]:
    def change(given: Any) -> None:
        for name in path[:-1]:
            given = given[name]
        given[path[-1]] = value

    return change


ALGORITHM = ("optimize", "algorithm")
MODEL = (*ALGORITHM, "reflection_lm")
JUDGE = ("evaluate", "metrics", 1, "criterion", "llm_judge", "judge_model")
MISTAKES: dict[str, Callable[[Any], None]] = {
    "no section": lacking("optimize"),
    "another section": having({}, "extra"),
    "no algorithm": lacking(*ALGORITHM),
    "another algorithm": having("mipro", *ALGORITHM, "name"),
    "no model": lacking(*MODEL),
    "no name of a model": lacking(*MODEL, "model_name"),
    "an empty name": having("", *MODEL, "model_name"),
    "another provider": having("acme", *MODEL, "provider_name"),
    "a typo": having(3, *ALGORITHM, "reflection_minibatch"),
    "a selector": having("robin", *ALGORITHM, "module_selector"),
    "a number as text": having("60", *ALGORITHM, "max_metric_calls"),
    "a history that is too long": having(9, *ALGORITHM, "reflection_history_top_k"),
    "nothing that stops": having(
        {"name": "gepa_reflective", "reflection_lm": {"model_name": "m"}}, *ALGORITHM
    ),
    "a metric that is not there": having(["style"], "optimize", "stop", "required_metrics"),
    "metrics as a number": having(3, "optimize", "stop", "required_metrics"),
    "a metric that nobody has": having("bleuh", "evaluate", "metrics", 0, "kind"),
    "a threshold": having("high", "evaluate", "metrics", 0, "threshold"),
    "no runs": having(0, "evaluate", "num_runs"),
    "a judge without a name": lacking(*JUDGE, "model_name"),
}
LINES = Path(__file__).with_name("import_mistakes.txt")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_with_its_place(console: Console, folder: Path, name: str) -> None:
    given = configuration()
    MISTAKES[name](given)
    Path("optimizer.json").write_text(json.dumps(given, indent="\t"))
    ended = console("import", "optimizer.json", *SETS)
    expected = dict(line.split(" | ") for line in LINES.read_text().splitlines())
    assert (ended.code, ended.out, ended.err) == (2, "", f"promptgraft: {expected[name]}\n")
    assert not Path("promptgraft.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("optimizer.json",), "--train is missing"),
        (("none.json", *SETS), "none.json: cannot be read: No such file"),
        (
            ("optimizer.json", "--train", "x.json", *SETS[2:]),
            "expected a file, found none at x.json",
        ),
        (("optimizer.json", *SETS, "--prompt", "system"), "expected NAME=FILE, found 'system'"),
        (("optimizer.json", *SETS, "--prompt", "a=b.md"), "expected a file, found none at b.md"),
    ],
)
def test_a_wrong_use_is_one_line(
    console: Console, folder: Path, arguments: tuple[str, ...], said: str
) -> None:
    ended = console("import", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert not Path("promptgraft.yaml").exists()


def test_an_object_of_nobody_is_told_what_can_be_imported(console: Console, folder: Path) -> None:
    Path("program.json").write_text('{"predict": {"signature": {"instructions": "Sort."}}}')
    ended = console("import", "program.json")
    assert ended.code == 2
    assert "program.json: expected a data set of inspect_ai or an `optimizer.json`" in ended.err


def test_nothing_is_overwritten_and_nothing_is_guessed(console: Console, folder: Path) -> None:
    imported(console)
    assert "promptgraft.yaml already exists" in console("import", "optimizer.json", *SETS).err
    for name in ("promptgraft.yaml", "metrics.json", "run_optimization.py"):
        Path(name).unlink()
    assert "there is no function `call_agent`" in console("import", "optimizer.json", *SETS).err
    with contextlib.suppress(FileNotFoundError):
        for path in Path("agent/prompts").iterdir():
            path.unlink()
    ended = console("import", "optimizer.json", *SETS, "--agent", "a.py:f")
    assert "name the texts of the agent: `--prompt system=FILE`" in ended.err


def test_machines_are_told_the_files(console: Console, folder: Path) -> None:
    document = json.loads(console("import", "optimizer.json", *SETS, "--json").out)
    assert [Path(name).name for name in document["files"]] == [
        "promptgraft.yaml",
        "metrics.json",
        "promptgraft.schema.json",
    ]
    assert document["notes"] == []


def test_offline_free_text_names_the_model_with_which_the_project_is_valid(
    console: Console, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    tests = [
        {"vars": {"text": f"hello {word}"}, "assert": [{"type": "contains", "value": "hello"}]}
        for word in ("one", "two", "three")
    ]
    config = {"prompts": ["Summarize: {{text}}"], "providers": ["openai:gpt"], "tests": tests}
    Path("promptfooconfig.yaml").write_text(json.dumps(config))
    [note] = re.findall("note: .*", console("import", "promptfooconfig.yaml", "--offline").out)
    [model] = re.findall("--offline: .* set `task: (.*?)` under `models`", note)
    project = Path("promptgraft.yaml")
    settings = project.read_text()
    project.write_text(settings.replace("task:\n    provider: offline", f"task: {model}"))
    assert settings != project.read_text()
    assert "promptgraft.yaml is valid" in console("check").out
    assert "your prompt: 2 of the 2 cases right" in console("optimize", "--dry-run").err
