"""A world with a teacher: the right answer is the text in capitals, which only the teacher knows.

The task model gives the text back as it is until its rules ask for capitals. Run as a program it
makes a run and dies at the N-th append: ``FILE N``. What it asks the teacher goes to
``FILE.asked``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from dying_journal import DyingJournal
from promptgraft import (
    Case,
    Data,
    GepaConfig,
    GepaOptimizer,
    GepaResult,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    ScriptedAdapter,
    Teacher,
    examples_from,
    feedback_from,
)
from promptgraft.evals import metrics
from promptgraft.ground.serde import digest_text
from promptgraft.prompt import RenderedPrompt

GIVEN = ("c0", "c7")
"""Cases that the data set has the answer to; it is that to no text."""


def prompt(key: str, rules: str) -> Prompt[object]:
    sections = [
        MarkdownSection(title="Rules", key="rules", template=rules),
        MarkdownSection(title="Text", key="text", template="$text", overridable=False),
    ]
    return Prompt(PromptTemplate[object](ns="toy", key=key, sections=sections))


TASK, TEACHING = prompt("task", "Answer."), prompt("teaching", "Say it loud.")


def bound(rendered: RenderedPrompt[object]) -> str:
    [text] = [s.text for one in rendered.sections for s in one.segments if s.placeholder == "text"]
    return text


def answer(rendered: RenderedPrompt[object]) -> str:
    return bound(rendered).upper() if "capitals" in rendered.text else bound(rendered)


def propose(rendered: RenderedPrompt[object]) -> str:
    del rendered
    return "```instruction\nAnswer in capitals.\n```"


class Loud(ScriptedAdapter):
    """The teacher's model; ``asked`` are the texts that it was asked about."""

    def __init__(self, note: Callable[[str], object] | None = None) -> None:
        self.asked: list[str] = []
        self._note = note or self.asked.append
        super().__init__(self._loud, identity="loud")

    def _loud(self, rendered: RenderedPrompt[object]) -> str:
        self._note(bound(rendered))
        return bound(rendered).upper()


def cases() -> list[Case]:
    return [
        Case(
            id=f"c{n}",
            input=f"text {digest_text(str(n))[:4]}x",
            expected="none of it" if f"c{n}" in GIVEN else None,
        )
        for n in range(14)
    ]


def settings(**options: Any) -> GepaConfig:
    judges = [metrics.exact()]
    examples = examples_from(TASK, cases(), judges, taught=True)
    given: dict[str, Any] = {
        "training_examples": examples[:9],
        "pareto_set_size": 5,
        "data": Data(held_out=examples[9:]),
        "feedback_fn": feedback_from(judges),
        "rollout_budget": 60,
        "minibatch_size": 2,
    }
    return GepaConfig(**{**given, **options})


def run(teacher: Teacher, config: GepaConfig | None = None, **around: Any) -> GepaResult:
    context = OptimizationContext(
        ScriptedAdapter(answer, identity="task"),
        reflection_adapter=ScriptedAdapter(propose, identity="reflection"),
        teacher=teacher,
        **around,
    )
    return GepaOptimizer(context, config or settings()).optimize(TASK)


def main(path: Path, fatal: int) -> None:
    with DyingJournal(path) as journal, Path(f"{path}.asked").open("a", encoding="utf-8") as asked:
        journal.lives = fatal
        loud = Loud(lambda text: print(text, file=asked, flush=True))
        result = run(Teacher(TEACHING, loud), journal=journal)
        print(repr(result.means), sum(1 for _ in journal.records()), result.taught)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
