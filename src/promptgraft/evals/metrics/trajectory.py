"""The metric of tool calls: which tools, with what, in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import attrs

from promptgraft.evals.metrics.base import BaseMetric, brief
from promptgraft.evals.metrics.json_values import (
    JsonRules,
    chain,
    compare,
    pair,
    paths_only,
    pruned,
)
from promptgraft.evals.types import Answer, Case, ToolUse, Verdict
from promptgraft.frozenmap import FrozenMap
from promptgraft.serde import Json
from promptgraft.strict.checks import one_of

_SHOWN_CALLS = 6


@attrs.frozen(kw_only=True)
class ToolRule(JsonRules):
    """When a call is the expected one; the name of the tool always counts.

    Attributes:
        arguments: ``exact``, ``subset`` (others may stand beside the expected ones) or ``ignore``.
        results: the result counts too, where one is expected.
        ignore: places in arguments and results that do not count.
    """

    arguments: Literal["exact", "subset", "ignore"] = attrs.field(
        default="exact", validator=one_of("exact", "subset", "ignore")
    )
    results: bool = False
    ignore: tuple[str, ...] = attrs.field(default=(), validator=paths_only)

    def faults(self, expected: ToolUse, found: ToolUse) -> list[str]:
        """Return how a call with the right name differs from the expected one."""
        faults: list[str] = []
        if self.arguments != "ignore":
            rules = attrs.evolve(self, extra_keys=self.extra_keys or self.arguments == "subset")
            faults += self._differences(dict(expected.arguments), dict(found.arguments), rules)
        if self.results and expected.result is not None:
            differing = self._differences(expected.result, found.result, self)
            faults += [f"in its result {fault}" for fault in differing]
        return faults

    def _differences(self, expected: Json, found: Json, rules: JsonRules) -> list[str]:
        compared = compare(pruned(expected, self.ignore), pruned(found, self.ignore), rules)
        return [place.fault for place in compared if place.fault]


@attrs.frozen(kw_only=True)
class ToolTrajectory(BaseMetric):
    """The share of tool calls that are the expected ones, under the best assignment.

    A call can stand for one expected call only, and of all assignments the one with the most
    pairs counts. An empty list of expected tools means that none should be called.

    Attributes:
        ordered: the calls have to be made in the expected order.
        subset: calls that were not expected do not count against the answer.
        rule: when a call is the expected one.
        tools: other rules for single tools, by name.
    """

    kind: ClassVar[str] = "tool_trajectory"
    judges_tools: ClassVar[bool] = True

    ordered: bool = False
    subset: bool = False
    rule: ToolRule = ToolRule()
    tools: Mapping[str, ToolRule] = attrs.field(factory=dict, converter=FrozenMap[str, ToolRule])

    def check(self, case: Case) -> None:
        self._expected(case)

    def _expected(self, case: Case) -> tuple[ToolUse, ...]:
        if case.tools is None:
            raise self.lacking(
                case,
                "needs the expected `tools`, found none; an empty list means "
                "that no tool should be called",
            )
        return case.tools

    def assess(self, case: Case, answer: Answer) -> Verdict:
        wanted, called = self._expected(case), answer.tools
        pairs = (chain if self.ordered else pair)(wanted, called, self._fits)
        total = len(wanted) if self.subset else max(len(wanted), len(called))
        if len(pairs) == total:
            return self.verdict(1.0, f"the calls are the expected ones: {_calls(wanted)}")
        why = "; ".join(self._faults(wanted, called, pairs))
        return self.verdict(
            len(pairs) / total, f"expected {_calls(wanted)}, found {_calls(called)}: {why}"
        )

    def _fits(self, expected: ToolUse, found: ToolUse) -> bool:
        return expected.name == found.name and not self._rule(expected).faults(expected, found)

    def _rule(self, tool: ToolUse) -> ToolRule:
        return self.tools.get(tool.name, self.rule)

    def _faults(
        self, wanted: Sequence[ToolUse], called: Sequence[ToolUse], pairs: Mapping[int, int]
    ) -> list[str]:
        spare = [call for index, call in enumerate(called) if index not in set(pairs.values())]
        faults: list[str] = []
        for tool in (tool for index, tool in enumerate(wanted) if index not in pairs):
            near = next((call for call in spare if call.name == tool.name), None)
            if near is None:
                faults.append(f"`{tool.name}` was not called with {brief(dict(tool.arguments))}")
                continue
            spare.remove(near)
            differing = self._rule(tool).faults(tool, near)
            faults.append(f"`{tool.name}`: {', '.join(differing) or 'called out of order'}")
        surplus = [] if self.subset else spare
        return faults + [f"`{call.name}` was called and not expected" for call in surplus]


def _calls(tools: Sequence[ToolUse]) -> str:
    shown = [f"{tool.name}({brief(dict(tool.arguments))})" for tool in tools[:_SHOWN_CALLS]]
    more = [f"and {len(tools) - _SHOWN_CALLS} more"] if len(tools) > _SHOWN_CALLS else []
    return ", ".join([*shown, *more]) or "no call"
