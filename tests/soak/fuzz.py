"""Fuzzed inputs: project files, data sets, prompts, metrics and answers.

Each trial gives one input, made of a seed, to what reads it. Right is a result, or an error of
promptgraft in one line of bounded length; anything else is raised.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import yaml

from optimizers.worlds import PROMPT, answer, config, instruction, propose
from promptgraft import OptimizationContext, ScriptedAdapter
from promptgraft.algorithms.gepa import GepaOptimizer
from promptgraft.cli.exits import ExitCode
from promptgraft.cli.main import run
from promptgraft.errors import DataFormatError, PromptgraftError
from promptgraft.evals.dataset import Dataset, cases_digest
from promptgraft.evals.metrics import check_cases, judge_case, load_metrics
from promptgraft.evals.types import Answer, Case
from promptgraft.ground.serde import parse_json
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.prompt.answers import read_output
from soak.hostile import damaged, dumped, mutated, text, value

LONGEST_LINE = len("promptgraft: ") + 500
MOST_LINES = 25
COMMANDS = (["check"], ["plan"], ["eval", "--quiet"], ["optimize", "--dry-run", "--budget", "20"])
RIGHT = Path(__file__).parents[1] / "project" / "right"
NAMES = {"a": "Ada", "items": [1, 2], "name": "Bob", "n": 3, "x": {"y": None}}
METRICS: tuple[Mapping[str, Any], ...] = (
    {"name": "exact", "ignore_case": True},
    {"name": "contains", "texts": ["a"]},
    {"name": "regex", "pattern": "a+", "whole": True},
    {"name": "length", "max": 20, "unit": "words"},
    {"name": "number", "tolerance": 0.1, "which": "last"},
    {"name": "json_match", "paths": ["a.b"], "ignore": ["c"]},
    {"name": "json_schema", "schema": {"properties": {"a": {"pattern": "a", "minimum": 1}}}},
    {"name": "json_schema", "schema": {"patternProperties": {"a": {}}, "items": {"$ref": "#"}}},
    {"name": "rouge", "variant": "rouge2"},
    {"name": "edit_similarity"},
    {"name": "classification", "labels": ["roads", "noise"], "several": True},
    {"name": "tool_trajectory", "rule": {"arguments": "subset"}},
    {"name": "assert", "expressions": ["this == 'a'", "this|length > 2"]},
    {"name": "check", "expression": "this.n ** 2 < 1 or this ~ 'a' == expected"},
    {"name": "cost", "limit": 0.01},
)
ROW = {
    "id": "a",
    "input": {"name": "a", "n": 1},
    "expected": ["a", {"b": 1.5}],
    "tools": [{"name": "find", "arguments": {"q": "x"}}],
    "turns": [{"user": "hello"}, {"user": "bye", "expected": "x"}],
    "context": [{"role": "system", "content": "be kind"}],
    "state": {"k": 1},
    "recorded": {"text": "a", "usage": {"input_tokens": 1, "output_tokens": 2}, "cost": "0.1"},
    "hints": {"exact": "look"},
    "critical": True,
    "fields": {"group": "a"},
}


@attrs.frozen
class Inner:
    names: tuple[str, ...]
    count: int = 0


@attrs.frozen
class Output:
    label: str
    score: float
    inner: Inner | None = None


def check_error(error: PromptgraftError) -> None:
    """Hold the message of an error to what is promised of it."""
    said = [str(error), *(error.faults if isinstance(error, DataFormatError) else ())]
    for line in said:
        assert len(line) <= 500, line
        assert len(line.splitlines()) <= 1, line


def projects(chance: random.Random, folder: Path) -> None:
    """Check or plan a project whose file, prompt or data is mutated."""
    shutil.copytree(RIGHT, folder, dirs_exist_ok=True)
    file = folder / chance.choice(("least.yaml", "everything.yaml", "by_field.yaml"))
    kind = chance.random()
    if kind < 0.7:
        document = mutated(yaml.safe_load(file.read_text("utf-8")), chance)
        if chance.random() < 0.3 and isinstance(document, dict):
            document["metrics"] = [mutated(chance.choice(METRICS), chance)]
        written = yaml.safe_dump(document) if chance.random() < 0.7 else dumped(document, chance)
        file.write_text(written, "utf-8", errors="surrogatepass")
    else:
        others = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        other = file if kind < 0.8 else chance.choice(others)
        other.write_bytes(damaged(other.read_bytes(), chance))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([*chance.choice(COMMANDS), "--project", file.name])
    complaints = err.getvalue().splitlines()
    assert code != ExitCode.INTERNAL_ERROR, "\n".join(complaints[:-1])
    if code == 2:
        complaints += out.getvalue().splitlines()
        assert complaints
        assert len(complaints) <= MOST_LINES, complaints
    assert all(len(line) <= LONGEST_LINE for line in complaints), max(complaints, key=len)


def datasets(chance: random.Random, folder: Path) -> None:
    """Load a mutated data set, and judge its cases."""
    ending = chance.choice(("jsonl", "json", "yaml", "csv"))
    rows = [mutated({**ROW, "id": str(number)}, chance) for number in range(chance.randint(1, 3))]
    path = folder / f"cases.{ending}"
    if ending == "csv":
        lines = [",".join(ROW), *(",".join(map(str, map(value, [chance] * 5))) for _ in rows)]
        written = "\n".join(lines)
    elif ending == "jsonl":
        written = "\n".join(json.dumps(row) for row in rows)
    else:
        written = dumped(rows, chance)
    data = written.encode("utf-8", "surrogatepass")
    path.write_bytes(damaged(data, chance) if chance.random() < 0.3 else data)
    options: dict[str, Any] = {
        "fields": {chance.choice(tuple(ROW)): value(chance)},
        "keep": value(chance),
        "format": value(chance),
        "delimiter": text(chance),
    }
    for name in list(options):
        if chance.random() < 0.9:
            del options[name]
    found = Dataset.load(path, **options) if chance.random() < 0.8 else Dataset.of(rows)
    cases_digest(found)
    judged(chance, found.cases)


def judged(chance: random.Random, cases: tuple[Case, ...]) -> None:
    """Judge hostile answers to cases with a mutated metric."""
    metrics = load_metrics({"metrics": [mutated(chance.choice(METRICS), chance)]})
    check_cases(metrics, cases)
    for case in cases:
        output = value(chance) if chance.random() < 0.3 else None
        with contextlib.suppress(PromptgraftError):
            output = None if output is None else parse_json(json.dumps(output), where="output")
        said = text(chance) if chance.random() < 0.5 else json.dumps(value(chance))
        for verdict in judge_case(metrics, case, Answer(text=said, output=output)):
            assert verdict.score is None or 0 <= verdict.score <= 1
            assert len(verdict.reason) <= 1_000


def metrics(chance: random.Random, folder: Path) -> None:
    """Judge hostile answers with mutated metrics."""
    del folder
    expected: Any = chance.choice(("a", ["a", "b"], {"a": {"b": 1}}, 1.5, value(chance)))
    judged(chance, (Case(id="a", input="a", expected=expected, tools=()),))


def prompts(chance: random.Random, folder: Path) -> None:
    """Render templates in each syntax."""
    del folder
    body = "".join(text(chance) for _ in range(chance.randint(1, 3)))
    syntax: Any = chance.choice(("jinja", "jinja", "dollar"))
    section = MarkdownSection(title="Task", key="task", template=body, syntax=syntax)
    prompt: Prompt[object] = Prompt(PromptTemplate(ns="soak", key="prompt", sections=[section]))
    assert isinstance(prompt.bind(NAMES).render().text, str)


def answers(chance: random.Random, folder: Path) -> None:
    """Read hostile answers, alone and in a run whose models give nothing else."""
    del folder
    if chance.random() < 0.8:
        data = mutated({"label": "a", "score": 1, "inner": {"names": ["a"], "count": 2}}, chance)
        said = chance.choice(("", "Here:\n", "```json\n")) + dumped(data, chance)
        read_output(Output, said if chance.random() < 0.8 else text(chance))
        return
    share = chance.random()
    bad = functools.partial(text, chance)
    context = OptimizationContext(
        ScriptedAdapter(lambda shown: bad() if chance.random() < share else answer(shown)),
        reflection_adapter=ScriptedAdapter(
            lambda shown: instruction(bad()) if chance.random() < share else propose(shown)
        ),
    )
    GepaOptimizer(context, config(rollout_budget=25)).optimize(PROMPT)
