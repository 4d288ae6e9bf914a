"""Stages of a round that a user has replaced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console
from gradient import words_world
from gradient.words_world import missing, reply, settings
from promptgraft.algorithms.gradient import (
    AggregateRequest,
    BackwardRequest,
    NewText,
    RewriteRequest,
)
from promptgraft.errors import CallerError, ConfigError, JournalMismatchError
from promptgraft.ground.serde import digest
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.search.asks import Asking, Question
from promptgraft.search.round_events import Blame, Decided, Problem, Severity

P1 = Severity.P1


def backward(request: BackwardRequest) -> list[Blame]:
    """Blame the rules for each word that feedback calls missing."""
    words = [word for loss in request.losses for word in missing(loss.reason)]
    assert "1" in [step.id for step in request.steps]
    return [Blame(to="section rules", severity=P1, text=f"missing {word}") for word in words]


def aggregate(request: AggregateRequest) -> list[Problem]:
    words = dict.fromkeys(word for _, problem in request.problems for word in missing(problem.text))
    return [Problem(severity=P1, text=f"missing {word}") for word in words]


def rewrite(request: RewriteRequest) -> NewText:
    words = [word for problem in request.problems for word in missing(problem.text)][:2]
    return NewText(" ".join((request.text, *words)), f"it does not know {', '.join(words)}")


ALL: dict[str, Any] = {"backward": backward, "aggregate": aggregate, "rewrite": rewrite}


@pytest.mark.parametrize("names", [["backward"], ["aggregate"], ["rewrite"], [*ALL]])
def test_a_replaced_stage_takes_the_place_of_its_question(names: list[str]) -> None:
    run = words_world.Run(settings(**{name: ALL[name] for name in names}))
    result = run.start()
    usual = words_world.Run().start()
    assert result.best_pareto_mean == usual.best_pareto_mean == 1.0
    assert result.best.changes == usual.best.changes
    roles = {str(entry.role) for entry in result.ledger}
    replaced = {"optimize" if name == "rewrite" else name for name in names}
    assert roles == {"task", "backward", "aggregate", "optimize"} - replaced
    patch = result.rounds[0].patches[0]
    assert patch.why.startswith("it does not know")
    assert result.rounds[0].merged[0].problems


def test_a_stage_that_blames_nothing_may_return_nothing() -> None:
    result = words_world.Run(settings(backward=lambda _request: None)).start()
    assert not any(round_.patches for round_ in result.rounds)


def asking(request: BackwardRequest) -> Asking[list[Blame]]:
    """Ask the reflection model which words are missing."""
    lines = "\n".join(loss.reason for loss in request.losses)
    section = MarkdownSection(title="Losses", key="losses", template="$losses")
    template = PromptTemplate[Any](ns="own", key="which-words", sections=[section])
    answer = yield from Question(
        position=f"{request.position}/words",
        prompt=Prompt(template).bind({"losses": lines}),
        digest=digest(lines),
    )
    answer.check()
    return [
        Blame(to="section rules", severity=P1, text=f"missing {w}") for w in answer.text.split()
    ]


def replying(rendered: Any) -> str:
    return " ".join(missing(rendered.text)) if rendered.key == "which-words" else reply(rendered)


def test_a_stage_may_ask_and_its_answers_are_in_the_journal() -> None:
    journal = MemoryJournal()
    first = words_world.Run(settings(backward=asking), reflection=replying, journal=journal)
    result = first.start()
    assert result.best_pareto_mean == 1.0
    keys = [record.key for record in journal.records()]
    assert any(key.startswith("round/1/backward/") and key.endswith("/words") for key in keys)
    again = words_world.Run(settings(backward=asking), reflection=replying, journal=journal)
    assert again.start().best.changes == result.best.changes
    assert (again.task.calls, again.reflection.calls) == (0, 0)


def test_stages_belong_to_the_run() -> None:
    journal = MemoryJournal()
    words_world.Run(settings(backward=backward), journal=journal).start()
    with pytest.raises(JournalMismatchError, match="backward"):
        words_world.Run(settings(), journal=journal).start()


def first(request: BackwardRequest) -> Iterator[Any]:
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (
            {"backward": lambda request: [Blame(to="section rule", severity=P1, text="x")]},
            r"backward at round/1/backward/\S+: no part 'section rule' \(did you mean",
        ),
        (
            {"backward": lambda request: ["rules"]},
            r"backward at round/1/backward/\S+: expected Blame, found 'rules'",
        ),
        ({"backward": first}, r"backward at round/1/backward/\S+: KeyError: "),
        ({"aggregate": lambda request: "x"}, r"expected Problem, found 'x'"),
        (
            {"rewrite": lambda request: "x"},
            r"rewrite at round/1/optimize/section rules: expected NewText, found \'x\'",
        ),
    ],
)
def test_what_a_stage_does_wrong_is_named(stages: dict[str, Any], message: str) -> None:
    with pytest.raises(CallerError, match=message):
        words_world.Run(settings(**stages)).start()


def test_a_text_of_a_stage_is_checked_like_that_of_a_model() -> None:
    run = words_world.Run(settings(rewrite=lambda request: NewText(request.text), max_rounds=2))
    result = run.start()
    assert result.best_pareto_mean == result.baseline_pareto_mean
    assert {one.reason for one in result.rejections} == {"unchanged"}


def test_a_stage_that_blames_or_merges_nothing_ends_the_round() -> None:
    for name in ("backward", "aggregate"):
        result = words_world.Run(settings(**{name: lambda request: []}, max_rounds=2)).start()
        assert [one.ended.decided for one in result.rounds if one.ended] == [Decided.NOTHING] * 2
    with pytest.raises(ConfigError, match="backward: expected a function"):
        settings(backward="rules")


BLAME = """

def blame(request):
    \"\"\"Blame the text of the node that was judged, or of the team that answered.\"\"\"
    for loss in request.losses:
        node = loss.node or request.steps[-1].node
        part = f"fernhill/reports/{node}#instruction"
        yield Blame(to=part, severity=loss.severity, text=loss.reason)


def backward(request):
    return list(blame(request))
"""


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    """Runs commands in this process."""
    return Console(capsys)


def test_a_project_names_its_stages(
    tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "reports"
    assert console("init", "--graph", str(folder)).code == 0
    monkeypatch.chdir(folder)
    code, file = folder / "agent.py", folder / "promptgraft.yaml"
    source = code.read_text("utf-8").replace(
        "from promptgraft.graphs",
        "from promptgraft.search.round_events import Blame\nfrom promptgraft.graphs",
    )
    code.write_text(source + BLAME, "utf-8")
    written = file.read_text("utf-8").replace("rollout_budget: 1500", "rollout_budget: 300")
    stage = "algorithm: gradient\n  backward: agent.py:backwards"
    file.write_text(written.replace("minibatch_size: 6", stage), "utf-8")
    refused = console("check")
    assert refused.code == 2
    assert "backward" in refused.out + refused.err
    file.write_text(written.replace("minibatch_size: 6", stage[:-1]), "utf-8")
    assert console("check").code == 0
    assert console("optimize", "-q").code in (0, 1)
    [run] = (folder / "runs").iterdir()
    ledger = json.loads((run / "ledger.json").read_text("utf-8"))
    roles = {entry["role"] for entry in ledger["entries"]}
    assert "optimize" in roles
    assert "backward" not in roles
