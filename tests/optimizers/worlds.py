"""Small worlds with known answers.

In the world of words the task model answers a question about a word with ``ok`` when the word
stands in the rules or the notes of its prompt. The reflection model adds the first word that
the feedback calls missing. So every accepted mutation adds a word, and scores can be foretold.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import attrs

from promptgraft.adapters.base import PromptResponse, Usage, answered
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.algorithms.gepa import (
    FeedbackFn,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    GepaResult,
    RolloutFeedback,
)
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.errors import PermanentProviderError, TransientProviderError
from promptgraft.ground.serde import Json
from promptgraft.journal import MemoryJournal, Record
from promptgraft.overrides import InMemoryPromptOverridesStore, PromptOverride
from promptgraft.overrides.base_store import Changes
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.store import OverrideAddress, PromptOverridesStore
from promptgraft.overrides.types import Provenance
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate, RenderedPrompt
from promptgraft.prompt.rendered import RenderedSection
from promptgraft.runtime import Deadline, SessionProtocol
from promptgraft.search import OptimizationContext
from promptgraft.search.plan import RunPlan
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompt_rollout import PromptRollout, Scoring
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.types import Candidate
from settings_leaves import grouped

OutputT = TypeVar("OutputT")

OVERLOADED = TransientProviderError("429: overloaded")
REFUSED = PermanentProviderError("401: the key is not valid")

_RULES_SHOWN = re.compile(r"(?ms)^\*\*(P\d+):\*\* section rules.*?\n```\n(.*?)\n```$")

RULES, QUESTION, NOTES = ("rules",), ("question",), ("notes",)


@attrs.frozen
class Question:
    word: str
    again: str = ""


TEMPLATE = PromptTemplate[object](
    ns="toy",
    key="words",
    sections=(
        MarkdownSection(title="Rules", key="rules", template="Known words:"),
        MarkdownSection(title="Question", key="question", template="Do you know $word?"),
        MarkdownSection(title="Notes", key="notes", template="More words:"),
    ),
)
PROMPT = Prompt[object](TEMPLATE)


def with_output(kind: Any) -> Prompt[object]:
    """Return the prompt with an output type, which may be any type form."""
    return Prompt(attrs.evolve(TEMPLATE, output_type=kind))


def examples(count: int, *, first: int = 0) -> tuple[GepaExample, ...]:
    """Return questions about the words w0, w1, ..., each with its word as the label."""
    return tuple(
        GepaExample(id=f"e{number}", params=(Question(f"w{number}"),), label=f"w{number}")
        for number in range(first, first + count)
    )


def config(**changes: Any) -> GepaConfig:
    """Return a small configuration that finds something; 6 and 6 examples.

    The examples to learn from ask for the same words as those to compare on. The strategy is the
    published one, of which every step can be foretold. Settings of groups are written flat.
    """
    settings: dict[str, Any] = {
        "preset": "paper",
        # Reflectors of these worlds are told which part it is.
        "published_question": False,
        "whole_prompt": 0.0,
        "rollout_budget": 200,
        "minibatch_size": 3,
        "pareto_set_size": 6,
        "target_section_paths": (RULES, NOTES),
        "training_examples": twins(6),
        "feedback_fn": judge,
        "seed": 1,
        # Nothing is held out in most of these worlds, and nothing shown by that.
        "held_out": (),
        "keep_anyway": True,
    }
    return GepaConfig(**grouped(**(settings | changes)))


def twins(count: int) -> tuple[GepaExample, ...]:
    """Return ``count`` questions, and as many others about the same words."""
    return (*examples(count), *(twin(e, f"{e.id}-again") for e in examples(count)))


def twin(example: GepaExample, name: str) -> GepaExample:
    """Return another question about the same word."""
    return attrs.evolve(example, id=name, params=(Question(str(example.label), again=name),))


def judge(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    if response.text == "ok":
        return RolloutFeedback(score=1.0, feedback="fine")
    return RolloutFeedback(score=0.0, feedback=f"missing {example.label}")


def answer(rendered: RenderedPrompt[object]) -> str:
    """Reply as the task model does."""
    known = f"{section(rendered, RULES).text} {section(rendered, NOTES).text}".split()
    return "ok" if asked(rendered) in known else "no"


def propose(rendered: RenderedPrompt[object]) -> str:
    """Reply as the reflection model does."""
    missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
    return instruction(f"{current_text(rendered)} {missing[1] if missing else 'nothing'}")


def missing(rendered: RenderedPrompt[object]) -> list[str]:
    return re.findall(r"missing (\w+)", bound(rendered, "examples"))


def note(rendered: RenderedPrompt[object]) -> str:
    """Add a line with the words that are missing."""
    return instruction(f"{current_text(rendered)}\n{' '.join(missing(rendered))}")


def instruction(text: str) -> str:
    return f"```instruction\n{text}\n```"


def asked(rendered: RenderedPrompt[object]) -> str:
    """Return the word that the task model is asked for."""
    return bound(rendered, "word")


def shown_rules(rendered: RenderedPrompt[object]) -> tuple[str, str] | None:
    """Return mark and text of the rules in a question about all parts; None in others."""
    found = _RULES_SHOWN.search(bound(rendered, "current")) if rendered.key == WHOLE.key else None
    return None if found is None else (found[1], found[2])


def section(rendered: RenderedPrompt[object], path: tuple[str, ...]) -> RenderedSection:
    return next(found for found in rendered.sections if found.path == path)


def bound(rendered: RenderedPrompt[object], name: str) -> str:
    """Return the value that the placeholder ``name`` was replaced by."""
    values = {
        segment.placeholder: segment.text
        for found in rendered.sections
        for segment in found.segments
        if segment.placeholder
    }
    return values[name]


def unfenced(block: str) -> str:
    """Return the text between the first and the last line."""
    return block.partition("\n")[2].rpartition("\n")[0]


def current_text(rendered: RenderedPrompt[object]) -> str:
    """Return the text that the reflection model is asked to improve."""
    return unfenced(bound(rendered, "current"))


class Run:
    """One run of GEPA with adapters that remember what they were asked."""

    def __init__(
        self,
        settings: GepaConfig | None = None,
        *,
        task: Reply | Sequence[str] = answer,
        reflection: Reply | Sequence[str] | None = propose,
        prompt: Prompt[object] = PROMPT,
        session: SessionProtocol | None = None,
        **context: Any,
    ) -> None:
        self.task = ScriptedAdapter(task, identity="task")
        self.reflection = (
            ScriptedAdapter(reflection, identity="reflection") if reflection else self.task
        )
        surroundings = OptimizationContext(
            self.task, reflection_adapter=self.reflection if reflection else None, **context
        )
        self._optimizer = GepaOptimizer(surroundings, settings or config())
        self._prompt = prompt
        self._session = session

    def plan(self) -> RunPlan:
        return self._optimizer.plan(self._prompt, session=self._session)

    def start(self) -> GepaResult:
        return self._optimizer.optimize(self._prompt, session=self._session)


def optimize(settings: GepaConfig | None = None, **surroundings: Any) -> GepaResult:
    """Make a run of which only the result counts."""
    return Run(settings, **surroundings).start()


def records(journal: MemoryJournal) -> dict[str, Record]:
    return {record.key: record for record in journal.records()}


def answers(journal: MemoryJournal) -> dict[str, Json]:
    """Return what a journal holds, whatever the order in which it arrived."""
    return {record.key: record.answer for record in journal.records()}


def scored(score: float) -> FeedbackFn:
    """Return a feedback function that gives the same score to everything."""

    def give(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        return RolloutFeedback(score=score, feedback=f"always {score}")

    return give


def failing(error: Exception, when: Callable[[RenderedPrompt[object]], bool]) -> Reply:
    """Answer as usual, but raise ``error`` for some prompts."""

    def reply(rendered: RenderedPrompt[object]) -> str:
        if when(rendered):
            raise error
        return answer(rendered)

    return reply


def about(*words: str) -> Callable[[RenderedPrompt[object]], bool]:
    return lambda rendered: asked(rendered) in words


def numbered(replies: Callable[[int, RenderedPrompt[object]], str]) -> Reply:
    """Return a reply that is told which call it answers, from 0; for runs in one thread."""
    count = -1

    def reply(rendered: RenderedPrompt[object]) -> str:
        nonlocal count
        count += 1
        return replies(count, rendered)

    return reply


class CountingStore(InMemoryPromptOverridesStore):
    """Remembers every write with its provenance; refuses when it is told to."""

    def __init__(self, *, refuse: Exception | None = None) -> None:
        super().__init__()
        self.writes: list[tuple[OverrideAddress, Provenance | None]] = []
        self.refuse = refuse

    def mutate_all(
        self, changes: Changes, *, provenance: Provenance | None = None
    ) -> dict[OverrideAddress, PromptOverride]:
        self.writes.extend((address, provenance) for address in changes)
        if self.refuse is not None:
            raise self.refuse
        return super().mutate_all(changes, provenance=provenance)


@attrs.frozen
class PlainAdapter:
    """Answers like the task model and travels to other processes."""

    identity: str = "task"

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        rendered = prompt.render(session)
        usage = Usage(input_tokens=len(rendered.text), output_tokens=1)
        return answered(rendered, answer(rendered), session=session, usage=usage)


def target_of(
    prompt: Prompt[object],
    *paths: SectionPath,
    store: PromptOverridesStore | None = None,
    max_part_chars: int = 6_000,
    max_example_chars: int = 6_000,
) -> PromptTarget:
    """Return ``prompt`` as the algorithms see it, over what ``store`` holds for it."""
    descriptor = prompt.descriptor
    address = f"{descriptor.ns}/{descriptor.key}"
    held = store.resolve(descriptor) if store is not None else None
    scoring = Scoring(feedback_fn=judge, max_example_chars=max_example_chars)
    return PromptTarget(
        rollout=PromptRollout(
            prompts={address: prompt},
            base={
                address: held or OverrideAddress(descriptor.ns, descriptor.key, "latest").empty()
            },
            adapter=PlainAdapter(),
            scoring=scoring,
        ),
        max_task_examples=5,
        modules=tuple(SectionModule(path) for path in paths),
        max_part_chars=max_part_chars,
        store=store,
    )


def grafted(
    target: PromptTarget, parent: Candidate, path: SectionPath, text: str, *data: GepaExample
) -> Candidate:
    """Return the child of ``parent`` that has ``text`` at ``path``."""
    return target.graft(parent, SectionModule(path), text, parents=(0,), examples=data)


def refusal_of(propose_text: Callable[[], object]) -> InvalidProposalError | None:
    """Return why a proposal cannot be used, or None when it can."""
    try:
        propose_text()
    except InvalidProposalError as refusal:
        return refusal
    return None


def hostile_text(chance: random.Random, fragments: Sequence[str], *, longest: int = 14) -> str:
    """Return fragments and random characters, lone halves of characters among them."""
    pieces = (
        chr(chance.randrange(0x11000)) if chance.random() < 0.08 else chance.choice(fragments)
        for _ in range(chance.randrange(longest))
    )
    return chance.choice(("", "", "\n")).join(pieces)
