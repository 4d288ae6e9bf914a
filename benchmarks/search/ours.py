"""promptgraft on a simulated world, through its public interface."""

from __future__ import annotations

import json
import re
from typing import Any

import attrs

from promptgraft import (
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.optimizers.gepa.events import GepaCandidateAdded
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import EventBus, SessionProtocol
from search.curves import Curve, Recorder
from search.reflecting import Reflector
from search.worlds import Item, RuleWorld

_SAID = re.compile(r"said: (.*)")


@attrs.frozen
class Asked:
    """What a prompt is bound to."""

    id: str
    text: str


def search(world: RuleWorld, reflector: Reflector, *, budget: int, **settings: Any) -> Curve:
    """Search with so many calls of the task model; ``settings`` are those of ``GepaConfig``."""
    items = {item.id: item for item in (*world.train, *world.validation)}
    template = PromptTemplate[object](
        ns="benchmarks",
        key="world",
        sections=(
            *(
                MarkdownSection(title=name, key=name, template=text)
                for name, text in world.first.items()
            ),
            MarkdownSection(title="Input", key="input", template="$text", overridable=False),
        ),
    )

    def answer(rendered: RenderedPrompt[object]) -> str:
        texts = {found.path[0]: found.text for found in rendered.sections}
        item = items[texts.pop("input")[1:].partition("]")[0]]
        trial = world.answer(texts, item)
        return json.dumps([trial.score, trial.feedback])

    def reflect(rendered: RenderedPrompt[object]) -> str:
        bound = {
            segment.placeholder: segment.text
            for found in rendered.sections
            for segment in found.segments
            if segment.placeholder
        }
        current = bound["current"].partition("\n")[2].rpartition("\n")[0]
        module = re.findall(r"section (part\d+)", bound["part"])[0]
        text = reflector.improve(module, current, _SAID.findall(bound["examples"]))
        return f"```instruction\n{text}\n```"

    bus, recorder = EventBus(), Recorder(world)
    pool: list[dict[str, str]] = []

    def added(event: GepaCandidateAdded) -> None:
        pool.append({name.partition(" ")[2]: text for name, text in event.texts.items()})
        recorder.note(pool[event.best])

    bus.subscribe(GepaCandidateAdded, added)
    context = OptimizationContext(
        ScriptedAdapter(answer), reflection_adapter=ScriptedAdapter(reflect), event_bus=bus
    )
    config = GepaConfig(
        rollout_budget=budget,
        training_examples=[_example(item) for item in (*world.validation, *world.train)],
        pareto_set_size=len(world.validation),
        target_section_paths=[(name,) for name in world.first],
        feedback_fn=_feedback,
        max_copied_words=None,
        **settings,
    )
    result = GepaOptimizer(context, config).optimize(Prompt(template))
    recorder.note(pool[result.best_index])
    return recorder.curve(reflector.calls)


def _example(item: Item) -> GepaExample:
    return GepaExample(id=item.id, params=(Asked(item.id, item.text),))


def _feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    del example, session
    score, feedback = json.loads(response.text)
    return RolloutFeedback(score=score, feedback=f"said: {feedback}")
