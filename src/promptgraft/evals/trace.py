"""What happened during a rollout, step by step."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.evals.spending import Spending, spent_to_json
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import HexDigest, Json
from promptgraft.text import clip, joined

_NO_PARTS: Mapping[str, HexDigest] = FrozenMap()


@attrs.frozen(kw_only=True)
class Step:
    """One step of a rollout: a node of a graph was asked, or did something.

    Attributes:
        id: its place in the flow, such as ``3``, or ``4.1.2`` for the second step of the first
            branch of the fourth; equal flows give equal ids with any number of threads.
        node: the node.
        kind: ``prompt``, or ``function`` for a node without a text.
        after: ids of the steps that it follows; empty for the first.
        input: what it was given, as text, clipped.
        output: what came of it, as text, clipped; empty when it failed.
        error: why it failed, in one line; empty when it did not.
        parts: the parts that it was made with, by name: the SHA-256 of their texts.
        tools: the tools that it called, each in one line.
        spent: what its calls of models took.
    """

    id: str
    node: str
    kind: str
    after: tuple[str, ...] = ()
    input: str = attrs.field(default="", converter=joined)
    output: str = attrs.field(default="", converter=joined)
    error: str = attrs.field(default="", converter=joined)
    parts: Mapping[str, HexDigest] = _NO_PARTS
    tools: tuple[str, ...] = ()
    spent: tuple[Spending, ...] = ()

    def clipped(self, limit: int) -> Step:
        """Return the step with texts of at most ``limit`` characters, marked where they are cut."""
        if max(len(self.input), len(self.output), len(self.error)) <= limit:
            return self
        return attrs.evolve(
            self,
            input=clip(self.input, limit),
            output=clip(self.output, limit),
            error=clip(self.error, limit, around=" "),
        )


def step_to_json(step: Step) -> Json:
    """Return what the journal keeps of a step: the fields that say something, by name."""
    told: dict[str, Json] = {"id": step.id, "node": step.node, "kind": step.kind}
    texts = {"input": step.input, "output": step.output, "error": step.error}
    told |= {name: text for name, text in texts.items() if text}
    if step.after:
        told["after"] = list(step.after)
    if step.parts:
        told["parts"] = dict(step.parts)
    if step.tools:
        told["tools"] = list(step.tools)
    if step.spent:
        told["spent"] = spent_to_json(step.spent)
    return told
