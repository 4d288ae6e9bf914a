"""A wrong setting is a type error for mypy and pyright, and the types of users reach them."""

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
optimize(TEMPLATE, SPLITS, [Exact()], reflection_model=3)  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model="offline", rollout_budget="tiny")  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model="offline", sed=3)  # wrong
optimize(TEMPLATE, SPLITS, [Exact()], model="offline").held_out_gain  # wrong

async def later() -> GepaResult:
    return await aoptimize(TEMPLATE, SPLITS, [Exact()], model="anthropic/m", workers=2)
"""

USERS_TYPES = """
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal, TypeVar, assert_type

import attrs

import promptgraft as pg
from promptgraft.adapters.base import answered
from promptgraft.evals.types import Answer
from promptgraft.overrides import Changes, PromptDescriptor, Provenance
from promptgraft.overrides import BasePromptOverridesStore, OverrideAddress
from promptgraft.runtime import SessionProtocol

T = TypeVar("T")

class Team(StrEnum):
    ROADS = "roads"

@attrs.frozen
class Query:
    text: str

@attrs.frozen
class Reply:
    team: Team

def look_up(query: Query) -> Reply:
    return Reply(Team.ROADS)

async def look_up_later(query: Query) -> Reply:
    return Reply(Team.ROADS)

pg.Tool(name="a", description="", params_type=Query, result_type=Reply, handler=look_up)
pg.Tool(name="a", description="", params_type=Query, result_type=Reply, handler=look_up_later)
pg.Tool(name="a", description="", params_type=Query, result_type=Reply, handler=3)  # wrong

plain = pg.PromptTemplate(ns="a", key="b")
assert_type(plain, pg.PromptTemplate[object])
prompt = pg.Prompt(pg.PromptTemplate(ns="a", key="b", output_type=Reply))
assert_type(prompt, pg.Prompt[Reply])
assert_type(prompt.bind({"a": 1}).render(), pg.RenderedPrompt[Reply])
asked = pg.ScriptedAdapter(["a"]).evaluate(prompt, session=pg.Session())
assert_type(asked.output, Reply | None)
Choice = Literal["roads", "waste"]
teams: pg.PromptTemplate[Choice] = pg.PromptTemplate(ns="a", key="b", output_type=Choice)
chosen = pg.OfflineAdapter().evaluate(pg.Prompt(teams), session=pg.Session()).output
choice: str | None = chosen
number: int | None = chosen  # wrong
listed = pg.PromptTemplate(ns="a", key="b", output_type=list[Reply])
assert_type(listed, pg.PromptTemplate[list[Reply]])
pg.PromptTemplate(ns="a", key="b", output_type=3)  # wrong

def judge(
    case: pg.GepaExample, answer: pg.PromptResponse[Reply], session: SessionProtocol
) -> pg.RolloutFeedback:
    right = answer.output is not None and answer.output.team == case.label
    return pg.RolloutFeedback(score=right, feedback="")

def configured(examples: list[pg.GepaExample]) -> pg.GepaConfig:
    return pg.GepaConfig(
        rollout_budget=9, pareto_set_size=1, training_examples=examples, feedback_fn=judge
    )

async def reply(rendered: pg.RenderedPrompt[object]) -> str:
    return rendered.text

pg.ScriptedAdapter(reply)
pg.ScriptedAdapter(len)  # wrong

def in_pairs(case: pg.Case, answer: Answer) -> tuple[bool, str]:
    return answer.text == case.expected, "why"

async def in_a_mapping(case: pg.Case, answer: Answer) -> Mapping[str, object]:
    return {"score": 1.0, "feedback": "why"}

def improved(pairs: list[tuple[str, Team]]) -> pg.RunResult:
    return pg.optimize("Name it.", pairs, ["exact", in_pairs, in_a_mapping], model=Model())

class Model:
    async def evaluate(
        self, prompt: pg.Prompt[T], *, session: SessionProtocol, deadline: pg.Deadline | None = None
    ) -> pg.PromptResponse[T]:
        return answered(prompt.render(session), "roads", session=session)

class Store(BasePromptOverridesStore):
    def resolve(
        self, descriptor: PromptDescriptor, tag: str = "latest"
    ) -> pg.PromptOverride | None:
        return None

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, pg.PromptOverride]:
        return {address: change(address.empty()) for address, change in changes.items()}

    def delete(self, *, ns: str, prompt_key: str, tag: str) -> None: ...
"""


PROGRAMS = {"settings_of_a_run.py": SETTINGS, "types_of_a_user.py": USERS_TYPES}


def mypy(folder: Path) -> list[str]:
    files = [str(folder / name) for name in PROGRAMS]
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", *files]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()


def pyright(folder: Path) -> list[str]:
    project = folder / "pyrightconfig.json"
    settings = {"typeCheckingMode": "strict", "reportWildcardImportFromLibrary": "none"}
    paths = {"extraPaths": [str(ROOT / "src")], "reportUnusedExpression": "none"}
    project.write_text(json.dumps(settings | paths | {"include": [*PROGRAMS]}))
    command = [sys.executable, "-m", "pyright", "-p", str(project), "--pythonpath", sys.executable]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


@pytest.mark.parametrize("checker", [mypy, pytest.param(pyright, marks=pytest.mark.thorough)])
def test_every_wrong_line_is_an_error_and_no_right_one(
    checker: Callable[[Path], list[str]], tmp_path: Path
) -> None:
    wrong: set[tuple[str, int]] = set()
    for name, program in PROGRAMS.items():
        (tmp_path / name).write_text(program)
        lines = enumerate(program.splitlines(), 1)
        wrong.update((name, number) for number, line in lines if line.endswith("# wrong"))
    said = [line for line in checker(tmp_path) if "error" in line]
    places = [at for line in said if (at := re.search(r"(\w+\.py):(\d+):", line))]
    assert {(at[1], int(at[2])) for at in places} == wrong, "\n".join(said)
