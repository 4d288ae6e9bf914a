"""promptgraft on a simulated world, through its public interface."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import attrs

from promptgraft import (
    Data,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    Guards,
    Limits,
    MarkdownSection,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    RolloutFeedback,
    ScriptedAdapter,
    Stopper,
    Strategy,
    Targets,
    Tool,
)
from promptgraft.adapters.base import PromptResponse
from promptgraft.algorithms.gepa import GepaCandidateAdded
from promptgraft.algorithms.gepa.prompts import WHOLE
from promptgraft.graphs import Graph, Node, Run
from promptgraft.prompt import RenderedPrompt
from promptgraft.runtime import EventBus, SessionProtocol
from promptgraft.targets.part_json import read_named_texts, write_named_texts
from search.curves import Curve, Recorder
from search.interfaces import GraphWorld, ReflectionModel, World, Writer
from search.readers import ReadingModel, Shown
from search.worlds import Item

_SAID = re.compile(r"said: (.*)")
_ASKED = re.compile(r"(\[[\w-]+\] [\w ,]+)")
_MARKED = re.compile(r"^section (\S+):\n\n(`{3,})\n(.*?)\n\2$", re.DOTALL | re.MULTILINE)
_PARTS = re.compile(
    r"^\*\*(P\d+):\*\* (\w+) (\S+)[^\n]*\n\n(`{3,})\n(.*?)\n\4$", re.DOTALL | re.MULTILINE
)
_INPUT = "input"
_DESCRIPTION = "description"


@attrs.frozen
class Asked:
    """What a prompt is bound to."""

    id: str
    text: str


@attrs.frozen
class Called:
    """What a tool is called with: nothing that a description would be needed for."""


def search(
    world: World,
    reflector: ReflectionModel | ReadingModel | Writer,
    *,
    budget: int,
    executor: Executor | None = None,
    used: Callable[[], float] | None = None,
    titles: Mapping[str, str] = {},
    minibatch_size: int,
    enable_merge: bool = False,
    additions: Sequence[str] | None = None,
    stoppers: Sequence[Stopper] = (),
    **strategy: Any,
) -> Curve:
    """Search with so many calls of the task model.

    Args:
        world: what is searched.
        reflector: writes new texts.
        budget: calls of the task model.
        executor: runs calls side by side.
        used: see :class:`Recorder`.
        titles: headings of sections, where they are not the names of the texts.
        minibatch_size: see ``GepaConfig``.
        enable_merge: the same.
        additions: the same.
        stoppers: see ``Limits``.
        strategy: settings of ``Strategy``.
    """
    bus, recorder = EventBus(), Recorder(world, used)
    graph = world if isinstance(world, GraphWorld) else None
    reflect = _replying(reflector)
    pool: list[Mapping[str, str]] = []
    led = set[int]()

    def added(event: GepaCandidateAdded) -> None:
        pool.append(dict(_named(name, text) for name, text in event.texts.items()))
        led.add(event.best)
        recorder.note(pool[event.best])

    bus.subscribe(GepaCandidateAdded, added)
    context = OptimizationContext(
        ScriptedAdapter(_stepping(graph) if graph else _answering(world)),
        reflection_adapter=ScriptedAdapter(reflect),
        event_bus=bus,
        executor=executor,
    )
    config = GepaConfig(
        rollout_budget=budget,
        training_examples=[_example(item) for item in (*world.validation, *world.train)],
        pareto_set_size=len(world.validation),
        target_section_paths=[
            (name,) for name in world.first if not graph and name not in world.tools
        ],
        feedback_fn=_judging(graph) if graph else _feedback,
        seed=world.seed,
        data=Data(held_out=()),
        minibatch_size=minibatch_size,
        enable_merge=enable_merge,
        strategy=Strategy(**_known_part(reflector), **strategy),
        additions=additions,
        limits=Limits(stoppers=stoppers),
        targets=Targets(tools=world.tools),
        guards=Guards(max_copied_words=0, max_part_chars=20_000),
    )
    subject = _graph(graph) if graph else Prompt(_template(world, titles))
    result = GepaOptimizer(context, config).optimize(subject)
    recorder.note(pool[result.best_index])
    stages = (
        "finals" if None not in scores else "later" if position in led else "race"
        for position, scores in enumerate(result.scores_matrix)
    )
    return attrs.evolve(
        recorder.curve(reflector.calls),
        pool=tuple(pool),
        winner=pool[result.best_index],
        stages=tuple(stages),
    )


def _known_part(reflector: ReflectionModel | ReadingModel | Writer) -> Mapping[str, Any]:
    """Return the setting for models that have to know which text they are asked about."""
    return {} if isinstance(reflector, Writer) else {"published_question": False}


def _replying(
    reflector: ReflectionModel | ReadingModel | Writer,
) -> Callable[[RenderedPrompt[object]], str]:
    if isinstance(reflector, Writer):
        return lambda rendered: reflector.reply(rendered.text)
    return _reading(reflector) if isinstance(reflector, ReadingModel) else _reflecting(reflector)


def _answering(world: World) -> Callable[[RenderedPrompt[object]], str]:
    """Return the task model: it knows of a candidate only what it is rendered."""
    items = {item.id: item for item in (*world.train, *world.validation)}

    def answer(rendered: RenderedPrompt[object]) -> str:
        texts = {found.path[0]: found.text for found in rendered.sections}
        texts |= {tool.name: tool.description for tool in rendered.tools}
        item = items[texts.pop(_INPUT)[1:].partition("]")[0]]
        trial = world.answer(texts, item)
        return json.dumps([trial.score, trial.feedback])

    return answer


def _graph(world: GraphWorld) -> Graph:
    """Return the graph of a world: each text is the prompt of a node."""

    def flow(run: Run, asked: Asked) -> str:
        world.calls += 1
        return world.flow(
            lambda node, given: str(run.ask(node, Asked(asked.id, given))), asked.text
        )

    nodes = [
        Node(
            name,
            PromptTemplate[Any](
                ns="benchmarks",
                key=name,
                sections=(
                    MarkdownSection(title=name, key="rules", template=text),
                    MarkdownSection(title="Input", key=_INPUT, template="$text", overridable=False),
                ),
            ),
        )
        for name, text in world.first.items()
    ]
    return Graph("benchmarks/world", flow=flow, nodes=nodes)


def _stepping(world: GraphWorld) -> Callable[[RenderedPrompt[object]], str]:
    """Return the task model of a graph: it knows of a node only what it is rendered."""

    def answer(rendered: RenderedPrompt[object]) -> str:
        texts = {found.path[0]: found.text for found in rendered.sections}
        return world.step(rendered.key, texts["rules"], texts[_INPUT])

    return answer


def _judging(world: GraphWorld) -> Callable[..., RolloutFeedback]:
    items = {item.id: item for item in (*world.train, *world.validation)}

    def judge(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        del session
        return RolloutFeedback(*world.judge(items[example.id], response.text))

    return judge


def _reflecting(reflector: ReflectionModel) -> Callable[[RenderedPrompt[object]], str]:
    """Return the reflection model: it reads the reflection prompt."""

    def reflect(rendered: RenderedPrompt[object]) -> str:
        bound = _bound(rendered)
        if _is_on_all(rendered):
            said = _SAID.findall(bound["examples"])
            return _edits(bound, lambda texts: reflector.improve_any(texts, said))
        kind, _, module = bound["part"].partition(" ")
        current = bound["current"].partition("\n")[2].rpartition("\n")[0]
        feedback = _SAID.findall(bound["examples"])
        if kind == "tool":
            text = reflector.improve(module, _described(current), feedback)
            return f"```json\n{write_named_texts({_DESCRIPTION: text})}\n```"
        return f"```instruction\n{reflector.improve(module, current, feedback)}\n```"

    return reflect


def _reading(reader: ReadingModel) -> Callable[[RenderedPrompt[object]], str]:
    """Return the reflection model: it reads the part, the others and the examples shown."""

    def reflect(rendered: RenderedPrompt[object]) -> str:
        bound = _bound(rendered)
        if _is_on_all(rendered):
            return _edits(
                bound,
                lambda texts: reader.revise(
                    Shown(asked=tuple(texts), parts=texts, answers=_answers(bound))
                ),
            )
        name = bound["part"].partition(" ")[2]
        text = bound["current"].partition("\n")[2].rpartition("\n")[0]
        marked = _MARKED.finditer(bound.get("neighbours", ""))
        others = {found[1]: found[3] for found in marked if found[1] != _INPUT}
        shown = Shown(asked=(name,), parts={name: text, **others}, answers=_answers(bound))
        return f"```instruction\n{reader.revise(shown)[name]}\n```"

    return reflect


def _edits(
    bound: Mapping[str, str], revise: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> str:
    """Return the reply to a question on all parts, out of what ``revise`` makes of their texts."""
    shown = [found.groups() for found in _PARTS.finditer(bound["current"])]
    texts = {name: _described(text) if kind == "tool" else text for _, kind, name, _, text in shown}
    revised = revise(texts)
    edits = [
        {
            "part": mark,
            "reason": "a failure belongs to it",
            "text": {_DESCRIPTION: revised[name]} if kind == "tool" else revised[name],
        }
        for mark, kind, name, _, _ in shown
        if name in revised
    ]
    return f"```json\n{json.dumps({'edits': edits})}\n```"


def _answers(bound: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return input and feedback of each example shown."""
    return tuple(
        (asked[1], said[1])
        for example in bound["examples"].split("### Example ")[1:]
        if (asked := _ASKED.search(example)) and (said := _SAID.search(example))
    )


def _is_on_all(rendered: RenderedPrompt[object]) -> bool:
    return rendered.key == WHOLE.key


def _bound(rendered: RenderedPrompt[object]) -> dict[str, str]:
    """Return what the reflection prompt is bound to, by placeholder."""
    return {
        segment.placeholder: segment.text
        for found in rendered.sections
        for segment in found.segments
        if segment.placeholder
    }


def _template(world: World, titles: Mapping[str, str]) -> PromptTemplate[object]:
    tools = [
        Tool(name=name, description=world.first[name], params_type=Called, result_type=str)
        for name in world.tools
    ]
    sections = (
        MarkdownSection(title=titles.get(name, name), key=name, template=text.replace("$", "$$"))
        for name, text in world.first.items()
        if name not in world.tools
    )
    asked = MarkdownSection(
        title="Input", key=_INPUT, template="$text", overridable=False, tools=tools
    )
    return PromptTemplate[object](ns="benchmarks", key="world", sections=(*sections, asked))


def _named(name: str, text: str) -> tuple[str, str]:
    if "#" in name:  # of a graph
        return name.partition("#")[0].rpartition("/")[2], text
    kind, _, module = name.partition(" ")
    return module, _described(text) if kind == "tool" else text


def _described(text: str) -> str:
    """Return the description that a tool's text says, as a reflection model reads it."""
    return read_named_texts(text, [_DESCRIPTION])[_DESCRIPTION]


def _example(item: Item) -> GepaExample:
    return GepaExample(id=item.id, params=(Asked(item.id, item.text),))


def _feedback(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    del example, session
    score, feedback = json.loads(response.text)
    return RolloutFeedback(score=score, feedback=f"said: {feedback}")
