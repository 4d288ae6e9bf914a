"""Changes the modules that feedback and traces name, instead of the one whose turn it is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar, TypeAlias

import attrs

from promptgraft.algorithms.gepa.additions.base import Addition
from promptgraft.algorithms.gepa.attempt import Attempt, Changes, Proposer
from promptgraft.algorithms.gepa.reflect import MOST_MODULES_CHANGED
from promptgraft.algorithms.gepa.select import Draws, Turn
from promptgraft.search.asks import Asking
from promptgraft.targets.base import Target
from promptgraft.targets.types import Module, RolloutRecord

_TOGETHER_SHARE = 0.5
"""Share of the steps that change all blamed instructions together."""
_BLAMED_SHARE = 0.75
"""Share of the steps that heed blame in one way or the other; in the rest modules take turns."""

Names: TypeAlias = Mapping[str, re.Pattern[str]]
"""A pattern for the names that feedback may use for a module, by the module's own name."""


@attrs.define(slots=False)
class Blame(Addition):
    """Reflects on the modules that failures name.

    In half of the steps all blamed instructions are changed together, at most the four most
    blamed; in a quarter, one of the most blamed modules is changed; else modules take turns.
    """

    name: ClassVar[str] = "blame"
    asks_several: ClassVar[bool] = True

    _draws: Draws = attrs.field(init=False, repr=False, eq=False)
    _names: Names = attrs.field(init=False, repr=False, eq=False)

    def start(self) -> None:
        self._draws = Draws(self.tools.config.seed, "blame")
        self._names = names_of(self.tools.kit.target)

    def expected_questions(self, modules: int, otherwise: float) -> float:
        # In half of the steps the blamed parts, on average half of them, are changed together.
        return 1 + (min(modules, MOST_MODULES_CHANGED) - 1) / 4

    def begin(self, attempt: Attempt) -> Proposer:
        return partial(self._propose, draw=self._draws.at(attempt.ahead))

    def _propose(self, attempt: Attempt, *, draw: float) -> Asking[Changes]:
        reflector = self.tools.reflector
        imperfect, perfect = self.tools.kit.scorer.split(attempt.records)
        blame = attempt.notes[self.name] = blamed(self._names, imperfect, perfect)
        modules = blamed_modules(reflector.turn(attempt), blame, draw=draw)
        failures = {
            name: tuple(
                record for record in imperfect if blamed({name: self._names[name]}, [record])
            )
            for name in blame
        }
        return (yield from reflector.reflect_on(attempt, modules, failures))

    def learn(self, attempt: Attempt) -> None:
        # A number is only used up where it has decided something.
        if attempt.notes.get(self.name):
            self._draws.popleft()


def blamed_modules(turn: Turn, blame: Mapping[str, int], *, draw: float) -> tuple[Module, ...]:
    """Return the modules to change; empty if there is none.

    Args:
        turn: the modules in the order of their turns.
        blame: how often modules are blamed, by name.
        draw: a random number, 0 to 1, that decides whether blame counts.
    """
    at_fault = [module for module in turn.first if module.name in blame]
    if draw < _TOGETHER_SHARE and any(not module.is_example for module in at_fault):
        most_blamed = sorted(at_fault, key=lambda module: -blame[module.name])
        return tuple(most_blamed[:MOST_MODULES_CHANGED])
    most = max((blame[module.name] for module in at_fault), default=0)
    heeds = draw < _BLAMED_SHARE
    preferred = [module for module in at_fault if heeds and blame[module.name] == most]
    return (*preferred, *turn.all)[:1]


def names_of(target: Target) -> Names:
    """Return patterns for the names that feedback may use for the modules of a target.

    A module may be called by the last component of its name, such as ``refund-policy`` of ``section
    policies/refund-policy``, or by its title, in any spelling: ``Refund policy``,
    ``refund_policy``, ``refundPolicy``.
    """
    baseline, patterns = target.baseline(), dict[str, re.Pattern[str]]()
    for module in target.modules:
        names = re.split(r"[ /.]", module.name)[-1], target.describe(module, baseline).title
        parted = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).casefold() for name in names)
        words = dict.fromkeys(tuple(re.findall(r"[^\W_]+", name)) for name in parted)
        spelled = "|".join(r"[\W_]{0,3}".join(map(re.escape, word)) for word in words if word)
        # Matches whole words only; a module whose names have no word is never named.
        whole = rf"(?<![^\W_])(?:{spelled})(?![^\W_])" if spelled else r"(?!)"
        patterns[module.name] = re.compile(whole)
    return patterns


def blamed(
    names: Names, imperfect: Sequence[RolloutRecord], perfect: Sequence[RolloutRecord] = ()
) -> Mapping[str, int]:
    """Return the modules at fault, with the number of imperfect rollouts that name each.

    Feedback and traces may name a module. A metric that fails the output of a graph node names the
    parts of that node. Names that occur as often in perfect rollouts are not evidence: nearly all
    feedback contains the name of a section called ``answer``.

    Args:
        names: patterns for the names of the modules that may be changed.
        imperfect: the rollouts with a score below perfect.
        perfect: the other scored rollouts of the same minibatch.
    """
    failed, right = ([_texts(record) for record in records] for records in (imperfect, perfect))
    judged = [_judged(record) for record in imperfect]
    counts = {}
    for module, called in names.items():
        named = _share(called, failed) > _share(called, right)
        count = sum(
            module in parts or (named and any(map(called.search, texts)))
            for parts, texts in zip(judged, failed, strict=True)
        )
        if count:
            counts[module] = count
    return counts


def _judged(record: RolloutRecord) -> frozenset[str]:
    """Return the parts of the nodes whose output failed a metric."""
    nodes = {
        verdict.node for verdict in record.verdicts if verdict.node and verdict.passed is False
    }
    return frozenset(part for step in record.steps if step.node in nodes for part in step.parts)


def _share(word: re.Pattern[str], rollouts: Sequence[tuple[str, str]]) -> float:
    """Return the share of the texts of rollouts that contain a name; 0 without rollouts."""
    texts = [text for pair in rollouts for text in pair]
    return sum(map(bool, map(word.search, texts))) / len(texts) if texts else 0.0


def _texts(record: RolloutRecord) -> tuple[str, str]:
    """Return feedback and trace, apart: a tool in every trace may still be blamed in feedback."""
    feedback = record.feedback
    texts = ("", "") if feedback is None else (feedback.feedback, record.tool_trace_repr)
    return texts[0].casefold(), texts[1].casefold()
