"""What frozen searches are made with: settings, the prompt and the models, from plain data."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import attrs

from frozen.world import (
    FIELD,
    GENERATED,
    SECTIONS,
    TASK_EXAMPLE,
    TOOL,
    TOOL_EXAMPLE,
    ModelError,
    Question,
    Reflection,
    World,
    judge,
    questions,
    reflect,
    solve,
)
from promptgraft import (
    Deadline,
    Described,
    GepaConfig,
    GepaExample,
    MarkdownSection,
    MaxCandidates,
    MaxProposals,
    MinGain,
    NoImprovement,
    Paired,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RenderedPrompt,
    RequiredObjectives,
    RolloutFeedback,
    RunState,
    StopFile,
    Strict,
    TargetScore,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
    ToolExampleTarget,
    Usage,
)
from promptgraft.adapters.base import ModelCalled, answered
from promptgraft.algorithms.gepa import (
    Full,
    Racing,
)
from promptgraft.errors import PermanentProviderError, TransientProviderError
from promptgraft.runtime import Charge, SessionProtocol
from settings_leaves import grouped

OutputT = TypeVar("OutputT")

_QUESTIONS = {
    "reflect-section": "instruction",
    "reflect-tool": "tool",
    "reflect-tool-example": "tool_example",
    "reflect-task-example": "task_example",
    "generate-task-example": "new_task_example",
    "reflect-output-field": "output_field",
}
"""The kind of part that is asked about, by the question."""
_KINDS = {"section": "instruction", "tool": "tool", "output field": "output_field"}
_AS_JSON = ("tool", "output field")
_MARKED = re.compile(
    r"(?ms)^\*\*(P\d+):\*\* (section|tool|output field) ([^\n]*?)(?: \([^\n]*\))?\n\n"
    r"(`{3,})\n(.*?)\n\4$"
)
"""A part in the question on all parts: its mark, kind, name and text."""


# Settings


def settings_of(world: World, plain: Mapping[str, Any], stop_file: Path) -> GepaConfig:
    """Return the settings that ``plain`` stands for; the data is the world's."""
    given = {_NAMES.get(name, name): value for name, value in plain.items()}
    given["rollout_budget"] = given.pop("auto", given["rollout_budget"])
    [(policy, arguments)] = given.pop("acceptance", {"strict": {}}).items()
    validation, stoppers = given.pop("validation", None), given.pop("stoppers", {})
    made: dict[str, Any] = {
        **_targets(given.pop("targets")),
        "acceptance": _POLICIES[policy](**arguments),
        "stoppers": tuple(_STOPPERS[name](value or stop_file) for name, value in stoppers.items()),
        "training_examples": (
            *_examples(world, "v", world.validation),
            *_examples(world, "l", world.learning),
        ),
        "held_out": _examples(world, "h", world.held_out),
        "feedback_fn": _judging(world),
    }
    if validation is not None:
        made["validation"] = Racing(**validation) if validation else Full()
    # The reflector of this world has to know which part it is asked about.
    return GepaConfig(**grouped(**given, **made, published_question=False, keep_anyway=True))


_NAMES = {"required_objectives": "required", "shuffle_examples": "shuffle"}
"""Settings that had other names when the searches were frozen."""


def _enough(rollouts: int) -> Callable[[RunState], str | None]:
    return lambda state: "that is enough" if state.rollouts >= rollouts else None


_POLICIES: Mapping[str, Callable[..., Any]] = {
    "strict": Strict,
    "min gain": MinGain,
    "paired": Paired,
}
_STOPPERS: Mapping[str, Callable[[Any], Any]] = {
    "proposals": MaxProposals,
    "no improvement": NoImprovement,
    "target score": TargetScore,
    "objectives": RequiredObjectives,
    "candidates": MaxCandidates,
    "file": StopFile,
    "function": _enough,
}


def _targets(keys: Sequence[str]) -> dict[str, Any]:
    return {
        "target_section_paths": tuple((key,) for key in keys if key in SECTIONS),
        "tools": tuple(key for key in keys if key == TOOL),
        "target_tool_examples": tuple(
            ToolExampleTarget(tool_name=TOOL, example_index=0)
            for key in keys
            if key == TOOL_EXAMPLE
        ),
        "target_task_examples": tuple((GENERATED, key) for key in keys if key == TASK_EXAMPLE),
        "output_fields": tuple(f"Answer.{key}" for key in keys if key == FIELD),
        "enable_example_generation": GENERATED in keys,
    }


def _examples(world: World, prefix: str, count: int) -> tuple[GepaExample, ...]:
    return tuple(
        GepaExample(
            id=question.name,
            params=(_Params(question.text, question),),
            label=question.label,
            critical=question.name in world.critical,
        )
        for question in questions(world, prefix, count)
    )


def _judging(world: World) -> Any:
    def give(
        example: GepaExample, response: PromptResponse[object], session: SessionProtocol
    ) -> RolloutFeedback:
        [params] = example.params
        assert isinstance(params, _Params)
        note = response.output.note if isinstance(response.output, Answer) else response.text
        found = judge(world, params.question, note)
        return RolloutFeedback(
            score=found.score, feedback=found.feedback, objectives=found.objectives
        )

    return give


# The prompt


@attrs.frozen
class _Params:
    ask: str
    question: Question
    manner: str = "plainly"


class Known(Enum):
    KNOWN = "known"
    UNKNOWN = "unknown"


@attrs.frozen
class Answer:
    verdict: Annotated[Known, Described("Whether the words are known.")]
    note: str = ""


@attrs.frozen
class LookUp:
    word: Annotated[str, Described("The word.")]


_CALL: ToolExample[Any, Any] = ToolExample(
    description="Look it up.", input=LookUp("apple"), output="a fruit"
)


def prompt_of(typed: bool) -> Prompt[Any]:
    """Return the prompt of every search; parts of all kinds only where its answers are typed."""
    bodies = {"rules": "Words:", "notes": "Words:", "style": "Words, $manner:", "tone": "Words:"}
    sections: list[Any] = [
        MarkdownSection(title=key, key=key, template=bodies[key]) for key in SECTIONS
    ]
    if typed:
        sections += _parts()
    ask = MarkdownSection(title="Ask", key="ask", template="$ask", overridable=False)
    return Prompt(
        PromptTemplate[Any](
            ns="frozen",
            key="words",
            sections=(*sections, ask),
            output_type=Answer if typed else None,
        )
    )


def _parts() -> tuple[MarkdownSection | TaskExamplesSection, ...]:
    tool: Tool[LookUp, str] = Tool(
        name=TOOL,
        description="Look a word up.",
        params_type=LookUp,
        result_type=str,
        examples=(_CALL,),
    )
    first = TaskExample(
        key=TASK_EXAMPLE,
        objective="Say whether apple is known.",
        steps=(TaskStep(tool_name=TOOL, example=_CALL),),
        outcome=Answer(Known.KNOWN),
    )
    return (
        MarkdownSection(title="Tools", key="tools", template="Call them.", tools=(tool,)),
        TaskExamplesSection(title="Examples", key=GENERATED, examples=(first,)),
    )


def _seen(rendered: RenderedPrompt[Any]) -> dict[str, str]:
    """Return what a model is shown of each part, by the world's name of the part."""
    texts = {section.path: section.text for section in rendered.sections}
    seen = {path[-1]: text for path, text in texts.items() if path[-1] != "ask"}
    added = [text for path, text in texts.items() if path[0] == GENERATED and len(path) > 1]
    seen[GENERATED] = " ".join(text for text in added if text != seen.get(TASK_EXAMPLE))
    seen[TOOL_EXAMPLE] = seen.pop("tools", "")
    seen[TOOL] = " ".join(tool.description for tool in rendered.tools)
    seen[FIELD] = json.dumps(rendered.output_schema)
    return seen


def _bound(rendered: RenderedPrompt[Any]) -> dict[str, str]:
    """Return the values that placeholders were replaced by."""
    return {
        segment.placeholder: segment.text
        for section in rendered.sections
        for segment in section.segments
        if segment.placeholder is not None
    }


# The models


@attrs.frozen(kw_only=True)
class Model:
    """Answers by a function of the rendered prompt, at a price."""

    identity: str
    reply: Callable[[RenderedPrompt[Any]], str]
    cost: Decimal | None

    def evaluate(
        self,
        prompt: Prompt[OutputT],
        *,
        session: SessionProtocol,
        deadline: Deadline | None = None,
    ) -> PromptResponse[OutputT]:
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        if session.budget is not None:
            session.budget.reserve(Charge())
        usage = Usage(input_tokens=10 + len(_bound(rendered).get("ask", "")), output_tokens=2)
        fault = ""
        try:
            text = self.reply(rendered)
        except ModelError as error:
            fault = error.kind
            raise _FAULTS[fault](fault) from None
        finally:
            session.dispatch(
                ModelCalled(
                    model=self.identity,
                    requests=2,
                    usage=usage,
                    cost=self.cost,
                    seconds=0.5,
                    fault=fault,
                )
            )
            if session.budget is not None:
                tokens = usage.input_tokens + usage.output_tokens
                paid = Charge(cost=self.cost or Decimal(0), tokens=tokens)
                session.budget.settle(Charge(), paid)
        return answered(rendered, text, session=session, usage=usage)


_FAULTS = {"transient": TransientProviderError, "permanent": PermanentProviderError}


def task_of(world: World) -> Callable[[RenderedPrompt[Any]], str]:
    def reply(rendered: RenderedPrompt[Any]) -> str:
        question = _bound(rendered)["ask"]
        seen = _seen(rendered)
        try:
            said = solve(world, seen, question)
        except ModelError as fault:
            if fault.kind in _FAULTS:
                raise
            return fault.kind
        if rendered.output_type is None:
            return said
        return json.dumps({"verdict": "known" if "lacks ;" in said else "unknown", "note": said})

    return reply


def reflector_of(world: World, end: Callable[[int], None]) -> Callable[[RenderedPrompt[Any]], str]:
    def reply(rendered: RenderedPrompt[Any]) -> str:
        given = _bound(rendered)
        current = given.get("current", "")
        if rendered.key == "reflect-prompt":
            return edit(current, given)
        asked = _asked(_QUESTIONS[rendered.key], given["part"], _unfenced(current), given)
        end(len(asked.current.split()))
        return reflect(world, asked)

    def edit(current: str, given: Mapping[str, str]) -> str:
        """Reply to the question on all parts what those of the parts at fault would be replied."""
        edits = []
        said = "I would rather not."
        shown = [found.groups() for found in _MARKED.finditer(current)]
        at_fault = {found[1] for found in re.finditer(r"(\w+): missing", given["examples"])}
        end(len(" ".join(text for *_, text in shown).split()))
        for mark, kind, name, _, text in shown:
            if at_fault and re.split(r"[ /.]", name)[-1] not in at_fault:
                continue
            rest = "\n".join(other for one, *_, other in shown if one != mark)
            said = reflect(world, _asked(_KINDS[kind], name, text, given, rest=rest))
            if said.startswith("```") and (new := _unfenced(said)) != text:
                edits.append({"part": mark, "text": json.loads(new) if kind in _AS_JSON else new})
        return f"```json\n{json.dumps({'edits': edits})}\n```" if edits else said

    return reply


def _asked(
    kind: str, name: str, current: str, given: Mapping[str, str], *, rest: str = ""
) -> Reflection:
    return Reflection(
        kind=kind,
        part=name.replace("/", " ").replace(".", " ").split()[-1],
        current=current,
        rollouts=given.get("examples", ""),
        rest=rest + given.get("neighbours", ""),
        again=bool(given.get("problem")),
    )


def _unfenced(block: str) -> str:
    return block.partition("\n")[2].rpartition("\n")[0]
