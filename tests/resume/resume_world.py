"""A small run whose every answer is counted, for tests that kill it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

import attrs

from promptgraft import (
    Deadline,
    FileJournal,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    LocalPromptOverridesStore,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
)
from promptgraft.adapters.base import answered
from promptgraft.clock import FakeClock
from promptgraft.journal import Answer, Record
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import SessionProtocol
from promptgraft.serde import HexDigest, Json

OutputT = TypeVar("OutputT")

Tick = Callable[[str], None]
"""Called at every point at which a process may be killed."""


@attrs.frozen
class Question:
    """One question; its word must be among the rules for the answer to be right."""

    word: str


def template(rules: str = "Known words: apple") -> PromptTemplate[object]:
    """Return the prompt of the run."""
    return PromptTemplate(
        ns="tests",
        key="resume",
        sections=(
            MarkdownSection(title="Role", key="role", template="Answer carefully."),
            MarkdownSection(title="Rules", key="rules", template=rules),
            MarkdownSection(title="Question", key="question", template="Word: $word"),
        ),
    )


def examples(count: int = 24) -> tuple[GepaExample, ...]:
    """Return questions over a dozen words."""
    return tuple(
        GepaExample(id=f"q{n}", params=(Question(word=f"word{n % 12}"),), label=f"word{n % 12}")
        for n in range(count)
    )


def feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    """Score 1 for a known word."""
    del session
    known = response.text == "known"
    return RolloutFeedback(score=float(known), feedback="" if known else f"lacks {example.label}")


class CountingModel:
    """Answers tasks and reflections, and writes down every call before it answers."""

    identity = "counting"

    def __init__(self, paid: Path, tick: Tick) -> None:
        self._paid = paid
        self._tick = tick

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        """Answer at once."""
        del deadline
        rendered = prompt.render(session)
        with self._paid.open("a") as log:
            log.write(".")
        self._tick("call")
        reply = _reflect(rendered) if rendered.ns == "promptgraft/gepa" else _solve(rendered)
        self._tick("answer")
        return answered(rendered, reply, session=session)


def _solve(rendered: RenderedPrompt[object]) -> str:
    word = rendered.sections[-1].text.removeprefix("Word: ")
    rules = " ".join(section.text for section in rendered.sections[:-1]).split()
    return "known" if word in rules else "unknown"


def _reflect(rendered: RenderedPrompt[object]) -> str:
    found = re.search(r"The part is: .*?\n\n```\n(.*?)\n```", rendered.text, re.DOTALL)
    lacking = re.findall(r"lacks (\w+)", rendered.text)
    current = found[1] if found else ""
    # Every third proposal is useless, so that some are rejected and some need a repair.
    if len(lacking) % 3 == 2:
        return "I would rather not." if "Refused attempt" not in rendered.text else current
    return f"```instruction\n{current} {' '.join(sorted(set(lacking))[:1])}\n```"


class AcknowledgingJournal:
    """A file journal that writes down each key after its answer was recorded."""

    def __init__(self, path: Path, acknowledged: Path, tick: Tick) -> None:
        self._journal = FileJournal(path)
        self._acknowledged = acknowledged
        self._tick = tick

    def begin(self, fingerprint: Mapping[str, Json]) -> None:
        self._journal.begin(fingerprint)

    def find(self, key: str, digest: HexDigest) -> Answer | None:
        return self._journal.find(key, digest)

    def append(self, key: str, digest: HexDigest, kind: str, answer: Json) -> None:
        self._journal.append(key, digest, kind, answer)
        with self._acknowledged.open("a") as log:
            log.write(f"{key}\n")
        self._tick("acknowledged")

    def sync(self) -> None:
        self._journal.sync()

    def close(self) -> None:
        self._journal.close()

    def records(self) -> Iterator[Record]:
        return self._journal.records()

    def __len__(self) -> int:
        return len(self._journal)


def run(
    folder: Path,
    *,
    budget: int,
    tick: Tick = lambda _: None,
    executor: Executor | None = None,
    seed: int = 3,
    rules: str = "Known words: apple",
    count: int = 24,
) -> GepaResult:
    """Run or resume the run that lives in ``folder``."""
    model = CountingModel(folder / "paid", tick)
    journal = AcknowledgingJournal(folder / "journal.jsonl", folder / "acknowledged", tick)
    try:
        context = OptimizationContext(
            model,
            overrides_store=LocalPromptOverridesStore(folder, clock=FakeClock()),
            overrides_tag="crash",
            executor=executor,
            journal=journal,
        )
        config = GepaConfig(
            rollout_budget=budget,
            minibatch_size=3,
            pareto_set_size=8,
            target_section_paths=(("rules",), ("role",)),
            training_examples=examples(count),
            feedback_fn=feedback,
            seed=seed,
        )
        return GepaOptimizer(context, config).optimize(Prompt(template(rules)))
    finally:
        journal.close()


def paid(folder: Path) -> int:
    """Return how many calls were made in the folder, by all processes."""
    path = folder / "paid"
    return path.stat().st_size if path.exists() else 0


def acknowledged(folder: Path) -> list[str]:
    """Return the keys that were acknowledged, by all processes; a torn last line is none."""
    path = folder / "acknowledged"
    return path.read_text().split("\n")[:-1] if path.exists() else []
