"""Sampling of parents and minibatches, and attribution of failures to modules by name."""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeAlias

import attrs

from promptgraft.algorithms.gepa.policies import Explored
from promptgraft.algorithms.gepa.selection import Choices
from promptgraft.algorithms.gepa.settings import GepaSettings
from promptgraft.search.frontier import drawn
from promptgraft.search.population import Pool
from promptgraft.search.scores import Scorer
from promptgraft.targets.base import Target
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

_CANDIDATES = 200
"""Candidates whose training rollouts are remembered; the oldest are hardly ever parents again."""
_LEADERS = 5
"""Members of the frontier that ``explored: leaders`` chooses from."""


class Known:
    """Training rollouts of the latest candidates, by candidate and example.

    Args:
        scorer: computes scores.
        perfect_score: the score at which there is nothing left to learn.
    """

    def __init__(self, scorer: Scorer, perfect_score: float) -> None:
        self._scorer = scorer
        self._perfect = perfect_score
        self._of: OrderedDict[str, dict[str, RolloutRecord]] = OrderedDict()
        self._chosen: Counter[tuple[str, str]] = Counter()

    def add(self, candidate: Candidate, records: Iterable[RolloutRecord]) -> None:
        """Record rollouts; a later one of the same example replaces the earlier one."""
        held = self._of.setdefault(candidate.digest, {})
        self._of.move_to_end(candidate.digest)
        held.update({one.example_id: one for one in records if one.feedback is not None})
        while len(self._of) > _CANDIDATES:
            digest, forgotten = self._of.popitem(last=False)
            for name in forgotten:
                self._chosen.pop((digest, name), None)

    def of(self, candidate: Candidate) -> dict[str, RolloutRecord]:
        """Return the rollouts of a candidate by example."""
        return self._of.get(candidate.digest, {})

    def failed(self, candidate: Candidate) -> dict[str, int]:
        """Return the examples a candidate failed on, with how often each was learned from."""
        return {
            name: self._chosen[candidate.digest, name]
            for name, one in self.of(candidate).items()
            if self._is_imperfect(one)
        }

    def choose(self, candidate: Candidate, examples: Iterable[GepaExample]) -> None:
        """Count that a candidate's rollouts on some examples are learned from once more."""
        known = self.of(candidate)
        self._chosen.update((candidate.digest, one.id) for one in examples if one.id in known)

    def _is_imperfect(self, record: RolloutRecord) -> bool:
        score = self._scorer.score(record)
        return score is not None and score < self._perfect


@attrs.frozen(kw_only=True)
class Lesson:
    """What a proposal learns from, as known when its step begins.

    Attributes:
        parent: position of the parent.
        candidate: the parent.
        minibatch: the examples that parent and child are evaluated on.
        known: the parent's rollouts that are reused, by example id; the last example of a
            minibatch is always evaluated anew.
    """

    parent: int
    candidate: Candidate
    minibatch: tuple[GepaExample, ...]
    known: Mapping[str, RolloutRecord]


class Lessons:
    """Chooses parents and minibatches, and remembers the rollouts that may be reused.

    Args:
        config: the settings.
        feedback: the training set (D_feedback).
        choices: makes the random choices.
        scorer: computes the scores of rollouts.
    """

    def __init__(
        self,
        config: GepaSettings,
        feedback: Sequence[GepaExample],
        *,
        choices: Choices,
        scorer: Scorer,
    ) -> None:
        self._config = config
        self._size = config.batch_size
        self._feedback = feedback
        self._choices = choices
        self._known = Known(scorer, config.objectives.perfect_score)

    def begin(self, parent: int, candidate: Candidate, about: Iterable[GepaExample] = ()) -> Lesson:
        """Return what the next proposal learns from.

        Args:
            parent: position of its parent.
            candidate: the parent.
            about: the minibatch, if it is given rather than sampled.
        """
        strategy, choices, size = self._config.strategy, self._choices, self._size
        known = self._known.of(candidate) if strategy.reuse_rollouts else {}
        if given := tuple(about):
            own = {example.id: known[example.id] for example in given if example.id in known}
            return Lesson(parent=parent, candidate=candidate, minibatch=given, known=own)
        match strategy.minibatches:
            case "random":
                minibatch = choices.minibatch(self._feedback, size)
            case "epochs":
                minibatch = choices.epochs(self._feedback, size)
            case _:
                failed = self._known.failed(candidate)
                minibatch = choices.teaching(self._feedback, size, failed=failed)
                self._known.choose(candidate, minibatch)
        names = [example.id for example in minibatch[:-1] if example.id in known]
        return Lesson(
            parent=parent,
            candidate=candidate,
            minibatch=minibatch,
            known={name: known[name] for name in names},
        )

    def parent(self, pool: Pool) -> int:
        """Return the parent of the next step's proposals."""
        strategy, draws = self._config.strategy, self._choices.parents
        if strategy.exploration < 1 and draws.random() >= strategy.exploration:
            return pool.best
        is_frontier = strategy.explored == "frontier"
        weights = pool.frontier() if is_frontier else _of(pool, strategy.explored)
        return drawn(weights, draws.random())

    def learn(
        self,
        candidate: Candidate,
        records: Sequence[RolloutRecord],
        *,
        known: Container[str] = (),
    ) -> None:
        """Record training rollouts, except those on ``known`` examples."""
        strategy = self._config.strategy
        if strategy.reuse_rollouts or strategy.minibatches == "teaching":
            made = [record for record in records if record.example_id not in known]
            self._known.add(candidate, made)


def _of(pool: Pool, what: Explored) -> Mapping[int, int]:
    """Return the candidates that a parent is drawn from, with their weights, in order."""
    if what == "pool":
        return dict.fromkeys(range(len(pool)), 1)
    members = pool.frontier()
    means = {one: pool.estimate(one) for one in members}
    # By descending mean, those without scores last; ties keep the elder first.
    ranked = sorted(members, key=lambda one: (means[one] is None, -(means[one] or 0.0)))
    return {one: members[one] for one in sorted(ranked[:_LEADERS])}


Names: TypeAlias = Mapping[str, re.Pattern[str]]
"""A pattern for the names that feedback may use for a module, by the module's own name."""


def names_of(target: Target) -> Names:
    """Return patterns for the names that feedback may use for the modules of a target.

    A module may be called by the last component of its name, such as ``refund-policy`` of ``section
    policies/refund-policy``, or by its title, in any spelling: ``Refund policy``,
    ``refund_policy``, ``refundPolicy``.
    """
    baseline = target.baseline()
    return {
        module.name: _called(
            re.split(r"[ /.]", module.name)[-1], target.describe(module, baseline).title
        )
        for module in target.modules
    }


def _called(*names: str) -> re.Pattern[str]:
    """Return a pattern that matches any of the names as whole words, in any spelling."""
    parted = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).casefold() for name in names)
    words = dict.fromkeys(tuple(re.findall(r"[^\W_]+", name)) for name in parted)
    spelled = "|".join(r"[\W_]{0,3}".join(map(re.escape, one)) for one in words if one)
    return re.compile(rf"(?<![^\W_])(?:{spelled})(?![^\W_])" if spelled else r"(?!)")


def blamed(
    names: Names,
    imperfect: Sequence[RolloutRecord],
    perfect: Sequence[RolloutRecord] = (),
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
    failed, right = ([_said(record) for record in records] for records in (imperfect, perfect))
    found = [_judged(record) for record in imperfect]
    counts = {}
    for module, called in names.items():
        named = _share(called, failed) > _share(called, right)
        count = sum(
            module in parts or (named and any(map(called.search, said)))
            for parts, said in zip(found, failed, strict=True)
        )
        if count:
            counts[module] = count
    return counts


def _judged(record: RolloutRecord) -> frozenset[str]:
    """Return the parts of the nodes whose output failed a metric."""
    nodes = {one.node for one in record.verdicts if one.node and one.passed is False}
    return frozenset(part for step in record.steps if step.node in nodes for part in step.parts)


def _share(word: re.Pattern[str], rollouts: Sequence[tuple[str, str]]) -> float:
    """Return the share of the texts of rollouts that contain a name; 0 without rollouts."""
    texts = [text for said in rollouts for text in said]
    return sum(map(bool, map(word.search, texts))) / len(texts) if texts else 0.0


def _said(record: RolloutRecord) -> tuple[str, str]:
    """Return feedback and trace, apart: a tool in every trace may still be blamed in feedback."""
    feedback = record.feedback
    said = ("", "") if feedback is None else (feedback.feedback, record.tool_trace_repr)
    return said[0].casefold(), said[1].casefold()


Remembered: TypeAlias = Mapping[str, Sequence[tuple[float, RolloutRecord]]]
"""Answers with their scores, best first, by example id."""


class History:
    """The best few answers of any candidate to each training example.

    Args:
        top_k: how many answers to keep per example, at least 1.
        scorer: ranks them.
    """

    def __init__(self, top_k: int, scorer: Scorer) -> None:
        self._top_k = top_k
        self._scorer = scorer
        self._best: dict[str, list[tuple[float, RolloutRecord]]] = {}

    def add(self, records: Sequence[RolloutRecord]) -> None:
        """Record rollouts; ties keep the earlier answer, and equal answers are kept once."""
        for record in records:
            score = self._scorer.score(record)
            held = self._best.setdefault(record.example_id, [])
            if score is None or any(record.output_repr == one.output_repr for _, one in held):
                continue
            held.append((score, record))
            held.sort(key=lambda pair: -pair[0])
            del held[self._top_k :]

    def of(self, examples: Iterable[GepaExample]) -> Remembered:
        """Return what is remembered of some examples at this time."""
        return {example.id: tuple(self._best.get(example.id, ())) for example in examples}


def better_answers(
    remembered: Remembered, records: Sequence[RolloutRecord], scorer: Scorer
) -> Mapping[str, tuple[RolloutRecord, ...]]:
    """Return, for each record, the remembered answers with a higher score."""
    found = {}
    for record in records:
        score = scorer.score(record)
        held = remembered.get(record.example_id, ())
        found[record.example_id] = tuple(
            one for height, one in held if score is not None and height > score
        )
    return found
