"""Evaluating candidates: the losses of their answers, and whether a new one is better."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import attrs
from msgspec.structs import replace

from promptgraft.algorithms.gradient.patching import Base, Patch
from promptgraft.algorithms.gradient.settings import GradientSettings
from promptgraft.evals.types import Case, TaughtCase, Verdict
from promptgraft.ground.serde import HexDigest
from promptgraft.search.acceptance import Compared, Comparer, Strict
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Records, Rollouts
from promptgraft.search.round_events import Loss, Severity
from promptgraft.search.scores import Score
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import Candidate, GepaExample, RolloutRecord

Means = tuple[Score, Score]
"""The means of the current and of the new candidate."""


@attrs.frozen(kw_only=True)
class RoundAttempt:
    """The candidate of a round, and its comparisons with the current one.

    Attributes:
        patches: the new texts.
        child: the current candidate with all of them.
        tried: the comparison on the failures that led to it; None if there was none.
        validated: the comparison on the validation set; None if it was not validated.
    """

    patches: Sequence[Patch]
    child: Candidate
    tried: Compared | None = None
    validated: Compared | None = None

    @property
    def compared(self) -> Compared:
        """The comparison that decides."""
        measured = self.validated or self.tried
        assert measured is not None  # noqa: S101 - one of them was made
        return measured

    @property
    def means(self) -> dict[str, Means | None]:
        """The means of both comparisons, by their names in events."""
        both = {"tried": self.tried, "validated": self.validated}
        return {
            name: None if pair is None else (pair.before, pair.after) for name, pair in both.items()
        }


class Judge:
    """Evaluates the current and new candidates, and reuses answers of earlier rounds."""

    def __init__(self, config: GradientSettings, kit: Kit) -> None:
        self._kit = kit
        self._examples = {example.id: example for example in kit.training}
        self._known: dict[HexDigest, dict[str, RolloutRecord]] = {}
        self._trial, self._comparer = (
            Comparer(
                policy=policy,
                scorer=kit.scorer,
                max_rollout_cost=config.guards.max_rollout_cost,
                where=where,
            )
            for policy, where in (
                (Strict(), "the failures that it came from"),
                (config.acceptance, "the validation set"),
            )
        )

    def known(self, candidate: Candidate) -> Mapping[str, RolloutRecord]:
        """Return the known answers of a candidate to training cases, by case."""
        return self._known.get(candidate.digest, {})

    def losses(self, record: RolloutRecord) -> tuple[Loss, ...]:
        """Return the losses of an answer to a training case; none if it is unscored."""
        score, example = self._kit.scorer.score(record), self._examples[record.example_id]
        if record.feedback is None or score is None:
            return ()
        if record.fault:
            return (_loss(example, "", record.fault, Severity.P0),)
        if record.verdicts:
            failed = [verdict for verdict in record.verdicts if verdict.passed is False]
            return tuple(
                replace(
                    _loss(example, verdict.metric, verdict.reason, _severity(verdict)),
                    node=verdict.node,
                )
                for verdict in failed
            )
        if score >= self._kit.scorer.perfect:
            return ()
        feedback = record.feedback.feedback, record.feedback.eval_trace
        return (_loss(example, "", "\n".join(filter(None, feedback)), Severity.P1),)

    def forget(self, candidate: Candidate) -> None:
        """Forget the rollouts of a candidate that no later round begins with."""
        self._known.pop(candidate.digest, None)

    def train(
        self, candidate: Candidate, examples: Sequence[GepaExample], position: str
    ) -> Asking[Records]:
        """Return rollouts on training cases, in their order."""
        cached = self._known.setdefault(candidate.digest, {})
        new = [example for example in examples if example.id not in cached]
        records = yield from Rollouts(position=position, candidate=candidate, examples=new)
        by_example = cached | {record.example_id: record for record in records}
        # Unscored answers are not kept, so that they are repeated when their turn comes.
        cached |= {record.example_id: record for record in records if record.feedback is not None}
        return tuple(by_example[example.id] for example in examples)

    def judge(
        self, base: Base, attempt: RoundAttempt, validated: Records, *, tries: bool
    ) -> Asking[RoundAttempt]:
        """Return an attempt with its comparisons.

        Args:
            base: the start of the round.
            attempt: the new candidate.
            validated: rollouts of the current candidate on the validation set.
            tries: whether to evaluate it first on the failures that led to it.
        """
        child, where = attempt.child, f"round/{base.number}"
        if tries:
            cases = {case for patch in attempt.patches for case in patch.cases}
            examples = [example for example in base.examples if example.id in cases]
            # Answers that failed are scored and therefore known: nothing is evaluated again.
            before = yield from self.train(base.candidate, examples, f"{where}/train")
            after = yield from self.train(child, examples, f"{where}/try")
            tried = self._trial.judge((before, after), examples)
            attempt = attrs.evolve(attempt, tried=tried)
            if tried is None or tried.refusal is not None:
                return attempt
        comparison = yield from self._comparer.compare(
            f"{where}/validate", (base.candidate, child), self._kit.validation, validated
        )
        if comparison.refusal is None and not self._kit.population.may_become_best(
            dict(enumerate(comparison.batches[1]))
        ):
            detail = "it may not win: too much is unscored, or a required objective is missed"
            comparison = attrs.evolve(comparison, refusal=(RejectionReason.UNSCORED, detail))
        return attrs.evolve(attempt, validated=comparison)


_HINT = re.compile(r"(P[0-3]):\s*(.*)", re.DOTALL)
_WRONG, _IN_PART = 1 / 3, 2 / 3


def _severity(verdict: Verdict) -> Severity:
    score = verdict.score or 0.0
    if score < _WRONG:
        return Severity.P1
    return Severity.P2 if score < _IN_PART else Severity.P3


def _loss(example: GepaExample, metric: str, reason: str, severity: Severity) -> Loss:
    """Return a loss with the hints for its metric.

    A hint such as ``P1: too long`` also decides the severity. Feedback without metrics includes
    the hints of a case already.
    """
    texts = [reason]
    case = example.label
    hints = case.hints if isinstance(case, Case) and metric else {}
    for name in dict.fromkeys((metric, "")):
        if hint := hints.get(name):
            hint_match = _HINT.fullmatch(hint)
            severity = Severity(hint_match[1]) if hint_match else severity
            texts.append(hint_match[2] if hint_match else hint)
    if isinstance(case, TaughtCase) and metric:
        texts.append(case.remark)
    return Loss(
        case=example.id,
        metric=metric,
        severity=severity,
        reason="\n".join(filter(None, texts)) or "no reason is given",
    )
