"""A graph of three nodes as a target of its own: two finders side by side, then a writer.

Each node knows the words of its text. The right answer to a case is one word of each: the case
`a1 b2 c3` wants the finder `left` to know a1, `right` to know b2, and the `writer` to know c3.
"""

from __future__ import annotations

import re
from typing import Any

import attrs

from gradient.words_world import block, text_block
from optimizers.worlds import bound, current_text
from promptgraft import RolloutFeedback
from promptgraft.adapters.scripted import Reply, ScriptedAdapter
from promptgraft.algorithms.gradient import GradientConfig, GradientOptimizer, GradientResult
from promptgraft.evals.types import Step
from promptgraft.ground.serde import digest_text
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import OptimizationContext
from promptgraft.targets import Identity, Module, RolloutRecord, TextTarget
from promptgraft.targets.types import Candidate, GepaExample
from settings_leaves import grouped

NODES = ("left", "right", "writer")


@attrs.frozen
class Node(Module):
    name: str
    kind = "node"


class Flow(TextTarget):
    """``left`` and ``right`` find a word each, ``join`` puts them together, ``writer`` adds one."""

    @property
    def identity(self) -> Identity:
        return Identity(name="tests/flow")

    @property
    def modules(self) -> tuple[Module, ...]:
        return tuple(map(Node, NODES))

    def source(self, module: Module) -> str:
        return f"{module.name} knows:"

    def rollout(
        self, candidate: Candidate, example: GepaExample, deadline: object
    ) -> RolloutRecord:
        del deadline
        wanted = example.id.split()[:3]
        said = [
            word if word in str(candidate.changes[node]).split() else "?"
            for node, word in zip(NODES, wanted, strict=True)
        ]
        parts = {node: {node: digest_text(str(candidate.changes[node]))} for node in NODES}
        draft = " ".join(said[:2])
        steps = (
            Step(
                id="1.1.1",
                node="left",
                kind="prompt",
                input=wanted[0],
                output=said[0],
                parts=parts["left"],
            ),
            Step(
                id="1.2.1",
                node="right",
                kind="prompt",
                input=wanted[1],
                output=said[1],
                parts=parts["right"],
            ),
            Step(id="2", node="join", kind="function", after=("1.1.1", "1.2.1"), output=draft),
            Step(
                id="3",
                node="writer",
                kind="prompt",
                after=("2",),
                input=draft,
                output=" ".join(said),
                parts=parts["writer"],
            ),
        )
        right = sum(one != "?" for one in said)
        missing = [word for word, one in zip(wanted, said, strict=True) if one == "?"]
        return RolloutRecord(
            example_id=example.id,
            inputs_repr=example.id,
            output_repr=" ".join(said),
            tool_trace_repr="",
            feedback=RolloutFeedback(
                score=right / 3, feedback="".join(f"missing {word}; " for word in missing)
            ),
            steps=steps,
        )


def reply(rendered: RenderedPrompt[object], most: int = 9) -> str:
    """Reply as the reflection model does: by the letter of a missing word.

    It writes so many words into a text at most.
    """
    match rendered.key:
        case "blame-step":
            return _blame_step(rendered)
        case "blame-trace":
            said = [
                {
                    "text": f"T{'abc'.index(word[0]) + 1}",
                    "severity": "P1",
                    "problem": f"missing {word}",
                }
                for word in _missing(bound(rendered, "losses"))
            ]
            return block({"blame": said})
        case "merge-problems":
            words = _missing(bound(rendered, "said"))
            problems = [{"severity": "P1", "problem": f"missing {word}"} for word in words]
            return block({"problems": problems})
    words = _missing(bound(rendered, "problems"))[:most]
    text = " ".join((current_text(rendered), *words))
    return text_block(text, f"it lacks {', '.join(words)}")


def _blame_step(rendered: RenderedPrompt[object]) -> str:
    node = re.findall(r"\*\*Node:\*\* (\w+)", bound(rendered, "steps"))[0]
    blame, hand_on = [], []
    for word in _missing(bound(rendered, "losses")):
        said = {"severity": "P1", "problem": f"missing {word}"}
        owner = NODES["abc".index(word[0])]
        if node == owner:
            blame.append({"text": "T1", **said})
        elif node == "writer":
            hand_on.append({"step": "S1", **said})
        else:
            hand_on.append({"step": "S1" if owner == "left" else "S2", **said})
    return block({"blame": blame, "hand_on": hand_on})


def _missing(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(r"missing (\w+)", text)))


def cases(count: int) -> tuple[GepaExample, ...]:
    """Return cases over three words of each node, and as many others over the same words."""
    names = [f"a{at % 3} b{at // 3 % 3} c{at % 2}" for at in range(count)]
    return tuple(
        GepaExample(id=f"{one}{end}", params=()) for end in ("", " again") for one in names
    )


def settings(**changes: Any) -> GradientConfig:
    given: dict[str, Any] = {
        "rollout_budget": 300,
        "pareto_set_size": 9,
        "training_examples": cases(9),
        "held_out": (),
        "keep_anyway": True,
        "attribution": "steps",
    }
    return GradientConfig(**grouped(**(given | changes)))


class Run:
    """One gradient run on the graph."""

    def __init__(
        self,
        config: GradientConfig | None = None,
        *,
        reflection: Reply = reply,
        **context: Any,
    ) -> None:
        self.reflection = ScriptedAdapter(reflection, identity="reflection")
        surroundings = OptimizationContext(self.reflection, **context)
        self.optimizer = GradientOptimizer(surroundings, config or settings())

    def start(self) -> GradientResult:
        return self.optimizer.optimize(Flow())

    def asked(self, key: str) -> list[RenderedPrompt[object]]:
        return [one for one in self.reflection.requests if one.key == key]
