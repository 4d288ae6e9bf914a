"""A wrong setting is a type error, for mypy and for pyright, in strict mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = """
from promptgraft import *
from promptgraft.adapters import ModelPrice, Prices
from promptgraft.algorithms.gepa import *
from promptgraft.evals.metrics import Exact
from promptgraft.project import aoptimize
from promptgraft.search import *
from promptgraft.runtime import SessionProtocol

def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    return RolloutFeedback(score=1.0, feedback="fine")

EXAMPLES = [GepaExample(id="a", params=()), GepaExample(id="b", params=())]
Limits(max_cost=2.5, max_tokens=9, timeout=1.5, stoppers=[MaxProposals(3)])
Limits(max_cost=["2.50"])  # wrong
Limits(max_token=9)  # wrong
Limits(max_tokens="9")  # wrong
Limits(stoppers=[3])  # wrong
Limits(stoppers=MaxProposals(3))  # wrong
Objectives(weights={"score": 0.8}, required={"exact": 1}, frontier_type="hybrid")
Objectives(weights={"score": "much"})  # wrong
Objectives(weights="score=0.8")  # wrong
Objectives(frontier_type="all")  # wrong
Objectives(on_error="ignore")  # wrong
Guards(max_copied_words=None, max_rollout_cost="0.10")
Guards(max_copied_words=2.5)  # wrong
Targets(tools=["search"], output_fields=("Answer.verdict",))
Targets(tools=3)  # wrong
Data(held_out=EXAMPLES, shuffle=True)
Data(held_out=["a"])  # wrong
Data(shuffle="yes")  # wrong
Strategy(preset="paper", validation=Racing(first=8), minibatches="epochs")
Strategy(preset="papers")  # wrong
Strategy(validation="full")  # wrong
Strategy(validation=Racing(first="8"))  # wrong
Strategy(exploration="much")  # wrong
Strategy(module_choice="first")  # wrong
Paired(level="low")  # wrong
GepaConfig(
    rollout_budget="light",
    pareto_set_size=1,
    training_examples=EXAMPLES,
    feedback_fn=judge,
    limits=Limits(),
    acceptance=Paired(),
)
GepaConfig(
    rollout_budget="tiny",  # wrong
    pareto_set_size="1",  # wrong
    training_examples="data.jsonl",  # wrong
    feedback_fn=EXAMPLES,  # wrong
    target_section_paths=("rules",),  # wrong
    limits=Strategy(),  # wrong
    acceptance="strict",  # wrong
    strategy="paper",  # wrong
    persist_scope="global",  # wrong
)
OpenAIAdapter("m", stop=["\\n"], prices=Prices({"m": ModelPrice(input=1, output="2.50")}))
OpenAIAdapter("m", stop="end")  # wrong
OpenAIAdapter("m", effort=3)  # wrong
ModelPrice(input=[1], output=2)  # wrong
StopFile("stop")
StopFile(3)  # wrong

TEMPLATE = PromptTemplate(ns="a", key="b", sections=[], output_type=str)
CASES = Dataset.of([{"input": "a", "expected": "b"}])
SPLITS = Splits.by_ratio(CASES)
optimize(Prompt(TEMPLATE), SPLITS, [Exact()], model="offline")
optimize(TEMPLATE, SPLITS, [Exact()], model=OfflineAdapter(), seed=1, limits=Limits(max_cost=5))
optimize("Be brief.", [("a", "b")], "exact", model="offline")
optimize({"task": "Be brief."}, "cases.csv", lambda case, answer: 1.0, model="offline")
optimize(TEMPLATE, CASES, Exact(), model="offline")
optimize(3, SPLITS, [Exact()], model="offline")  # wrong
optimize(TEMPLATE, 3, [Exact()], model="offline")  # wrong
optimize(TEMPLATE, SPLITS, 3, model="offline")  # wrong
optimize(TEMPLATE, SPLITS, [Exact], model="offline")  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model=3)  # wrong
optimize(TEMPLATE, SPLITS, [Exact()])  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model="offline", rollout_budget="tiny")  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model="offline", sed=3)  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model="offline").held_out_gain  # wrong

async def later() -> GepaResult:
    return await aoptimize(TEMPLATE, SPLITS, [Exact()], model="anthropic/m", workers=2)
"""


def mypy(file: Path) -> list[str]:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(file)]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()


def pyright(file: Path) -> list[str]:
    project = file.with_name("pyrightconfig.json")
    settings = {"typeCheckingMode": "strict", "reportWildcardImportFromLibrary": "none"}
    paths = {"extraPaths": [str(ROOT / "src")], "reportUnusedExpression": "none"}
    project.write_text(json.dumps(settings | paths | {"include": [file.name]}))
    command = [sys.executable, "-m", "pyright", "-p", str(project), "--pythonpath", sys.executable]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_every_wrong_setting_is_an_error_and_no_right_one(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    file = tmp_path / "settings_of_a_run.py"
    file.write_text(SETTINGS)
    wrong = {n for n, line in enumerate(SETTINGS.splitlines(), 1) if line.endswith("# wrong")}
    said = [line for line in checker(file) if "error" in line]
    found = {int(at[1]) for line in said if (at := re.search(r"\.py:(\d+):", line))}
    assert found == wrong, "\n".join(said)
