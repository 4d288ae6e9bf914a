"""What promptgraft itself costs beside the model calls: a scripted adapter that answers at once.

3 sections, 50 + 50 examples, 2,000 steps, journal on. Scores are random but seeded, so that
candidates are accepted now and then all through the run.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import attrs

from figures import Figure, unit_seconds
from promptgraft import (
    Deadline,
    EventBus,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    Strategy,
)
from promptgraft.adapters.base import PromptResponse, answered
from promptgraft.errors import DeadlineExceededError
from promptgraft.ground.serde import digest_text
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol

OutputT = TypeVar("OutputT")

TITLE = "Overhead: scripted adapter, 50 + 50 examples, 2,000 steps, journal on"
STEPS = 2_000
MINIBATCH = 4
BUDGET = 100 + (STEPS + 1) * (2 * MINIBATCH + 50)
"""Every step may end with an accepted candidate, so that the budget never ends the run."""


@attrs.frozen
class Question:
    """What the benchmark's prompt is bound to."""

    text: str
    context: str


TEMPLATE: PromptTemplate[object] = PromptTemplate(
    ns="benchmarks",
    key="overhead",
    sections=(
        MarkdownSection(title="Role", key="role", template="You answer questions. " * 10),
        MarkdownSection(title="Rules", key="rules", template="Be brief. " * 20),
        MarkdownSection(
            title="Question", key="question", template="Context: $context\n\nQuestion: $text"
        ),
    ),
)

PROMPT = Prompt(TEMPLATE)
PROMPTS = {"benchmarks/overhead": PROMPT}

EXAMPLES = tuple(
    GepaExample(
        id=f"e{number}",
        params=(Question(text=f"question {number}", context="some context " * 10),),
        label=str(number),
    )
    for number in range(100)
)


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score at random, but always the same for the same prompt and example."""
    del session
    score = int(digest_text(f"{example.id}:{response.text}")[:4], 16) / 0xFFFF
    return RolloutFeedback(score=score, feedback="expected something else")


class InstantAdapter:
    """A model that takes no time: it counts, answers and forgets."""

    identity = "instant"

    def __init__(self, reply: Callable[[RenderedPrompt[object]], str]) -> None:
        self.moments: list[float] = []
        self._reply = reply

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Render and answer at once."""
        del deadline
        self.moments.append(time.perf_counter())
        rendered = prompt.render(session)
        return answered(rendered, self._reply(rendered), session=session)


class Pace:
    """A reflection model that proposes something new each time, and ends the run in time."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._asked = 0

    def __call__(self, rendered: RenderedPrompt[object]) -> str:
        del rendered
        self._asked += 1
        if self._asked > self._steps:
            raise DeadlineExceededError("enough steps")
        return f"```instruction\nBe brief and careful, attempt {self._asked}.\n```"


@attrs.frozen(kw_only=True)
class Run:
    """One run: its result, how long it took, and when each rollout and each step began."""

    result: GepaResult
    seconds: float
    rollouts: list[float]
    steps: list[float]


def run(
    journal: Path,
    *,
    new_steps: int,
    budget: int = BUDGET,
    bus: EventBus | None = None,
    opened: Callable[[Path], FileJournal] = FileJournal,
) -> Run:
    """Replay what the journal holds, run ``new_steps`` more steps, and measure."""
    task = InstantAdapter(lambda rendered: digest_text(rendered.text))
    reflection = InstantAdapter(Pace(new_steps))
    config = GepaConfig(
        rollout_budget=budget,
        minibatch_size=MINIBATCH,
        pareto_set_size=50,
        target_section_paths=(("role",), ("rules",)),
        training_examples=EXAMPLES,
        feedback_fn=feedback,
        strategy=Strategy(preset="paper"),
    )
    with opened(journal) as kept:
        context = OptimizationContext(
            task, reflection_adapter=reflection, journal=kept, event_bus=bus or EventBus()
        )
        started = time.perf_counter()
        result = GepaOptimizer(context, config).optimize(PROMPT)
        seconds = time.perf_counter() - started
    return Run(result=result, seconds=seconds, rollouts=task.moments, steps=reflection.moments)


def measure(folder: Path) -> list[Figure]:
    """Return the figures of this page, the replay of the journal included."""
    journal = folder / "journal.jsonl"
    first = run(journal, new_steps=STEPS)
    between = _differences(first.rollouts)
    tenth = len(between) // 10
    growth = statistics.median(between[-tenth:]) / statistics.median(between[:tenth])
    steps = _differences(first.steps)
    tenth = len(steps) // 10
    slowdown = sum(steps[-tenth:]) / sum(steps[:tenth])
    answers = first.result.total_rollouts + first.result.total_reflections
    again = run(journal, new_steps=0)
    if again.result != first.result:
        raise SystemExit("the replay did not give the result of the run")
    rollout, replay, unit = statistics.median(between), again.seconds / answers, unit_seconds()
    return [
        Figure("JSON there and back of a small record: the unit", unit * 1e6, "µs", None),
        Figure("rollout, median", rollout * 1e6, "µs", None),
        Figure("rollout, median, in units", rollout / unit, "x", 30),
        Figure("last 10 % of the rollouts against the first", growth, "x", 1.2),
        Figure("last 10 % of the steps against the first", slowdown, "x", 1.2),
        Figure("run, whole", first.seconds, "s", None),
        Figure("journaled answers of the run", answers, "", None),
        Figure("replay of an answer", replay * 1e6, "µs", None),
        Figure("replay of an answer, in units", replay / unit, "x", 10),
    ]


def _differences(moments: list[float]) -> list[float]:
    return [after - before for before, after in itertools.pairwise(moments)]
