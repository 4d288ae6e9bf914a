"""What a search is steered by, and what it never sees, reaches no reflection question."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from promptgraft import (
    AgentCall,
    BlackBox,
    Dataset,
    GepaConfig,
    Objectives,
    OptimizationContext,
    OptimizationJob,
    RenderedPrompt,
    ScriptedAdapter,
    Splits,
    Strategy,
)
from promptgraft.evals import metrics
from promptgraft.evals.types import Case, Message, Speaker, Turn
from promptgraft.search.cases import Judging, data_settings

MARK = re.compile(r"planted-(train|validation|held-out)-\w+")
ADDITIONS: tuple[tuple[str, ...] | None, ...] = (None, ("history",), ("history", "whole_prompt"))
STRATEGIES: tuple[dict[str, Any], ...] = (
    {"preset": "lean"},
    {"preset": "paper", "published_question": False},
    {"preset": "paper", "learn_from_perfect": True},
    {"preset": "paper", "module_choice": "all", "explored": "pool"},
)
RUNS = len(STRATEGIES) * len(ADDITIONS)  # each strategy with each of the additions


def case_of(name: str, number: int, chance: random.Random) -> Case:
    """Return a case of one to three turns; every text in it is marked with its set."""

    def mark(what: str) -> str:
        return f"planted-{name}-{number}{what}"

    turns = tuple(
        Turn(user=f"{mark(f'q{turn}')} ask", expected=f"{mark(f'e{turn}')} word{number % 3}")
        for turn in range(chance.randint(1, 3))
    )
    return Case(
        id=f"{mark('id')}",
        input=turns[-1].user,
        expected=turns[-1].expected,
        turns=turns if len(turns) > 1 else (),
        context=(Message(Speaker.USER, mark("context")),),
        state={"note": mark("state")},
    )


async def answer(query: str, call: AgentCall) -> str:
    """Give away all that the agent is told, and the right word once a text holds it."""
    told = [query, *(past.query for past in call.history), *(past.answer for past in call.history)]
    told += [call.example, str(dict(call.state)), *(str(one) for one in call.context)]
    words = " ".join(re.findall(r"word\d", call.texts["rules"]))
    number = int(re.findall(r"planted-[a-z-]+-(\d+)q", query)[0])
    if f"word{number % 3}" in words:
        told.append(f"{query.split(maxsplit=1)[0].replace('q', 'e')} word{number % 3}")
    return " ".join(told)


@pytest.mark.parametrize("seed", range(RUNS))
def test_no_text_of_validation_or_held_out_cases_is_in_any_question(seed: int) -> None:
    chance, questions = random.Random(seed), list[str]()

    def reflect(asked: RenderedPrompt[object]) -> str:
        questions.append(asked.text)
        more = f"word{chance.randrange(3)} {chance.randrange(99)}"
        if asked.key == "reflect-prompt":
            texts = (f"{text} {more}" for text in ("Answer.", "Be kind."))
            edits = [{"part": f"P{at}", "text": text} for at, text in enumerate(texts, 1)]
            return json.dumps({"edits": edits})
        text = re.findall(r"```\w*\n(.*?)\n```", asked.text, re.DOTALL)[0]
        return f"```instruction\n{text}\n{more}\n```"

    sets = {"train": 9, "validation": 6, "held-out": 8}
    parts = {
        name: Dataset(tuple(case_of(name, number, chance) for number in range(count)))
        for name, count in sets.items()
    }
    splits = Splits(parts["train"], parts["validation"], parts["held-out"])
    subject = BlackBox({"rules": "Answer.", "tone": "Be kind."}, agent=answer)
    settings: dict[str, Any] = {
        **data_settings(subject.prompt, Judging(splits=splits, metrics=(metrics.contains(),))),
        "rollout_budget": 90,
        "minibatch_size": 3,
        "seed": seed,
        "enable_merge": seed % 2 == 0,
        "strategy": Strategy(**STRATEGIES[seed % len(STRATEGIES)]),
        "additions": ADDITIONS[seed % len(ADDITIONS)],
        "objectives": Objectives(num_runs=1 + (seed % 7 == 0)),
        "persist": False,
    }
    context = OptimizationContext(reflection_adapter=ScriptedAdapter(reflect, identity="writer"))
    result = OptimizationJob(subject, context, GepaConfig(**settings)).run()
    assert result.total_reflections == len(questions) > 0
    found = {kind for text in questions for kind in MARK.findall(text)}
    assert found == {"train"}
