"""Several judges, asked several times, and the one verdict that comes of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import ConfigError
from promptgraft.evals.judges.asking import Judgement
from promptgraft.evals.judges.voting import Voting, most_agreed, score_of_votes
from promptgraft.evals.metrics.base import BaseMetric
from promptgraft.evals.metrics.reasons import clipped
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import shown
from promptgraft.strict.checks import COUNT, one_of

ReplyT = TypeVar("ReplyT")

LONGEST_JUDGE_REASON = 2_000
"""Characters of one reason of a judge (for one rubric) that arrive whole."""
LONGEST_VERDICT_REASON = 40_000
"""Characters of the reason of a verdict, all judges and rubrics together."""


def _judges(judges: Iterable[ProviderAdapter] | ProviderAdapter) -> tuple[ProviderAdapter, ...]:
    if isinstance(judges, Iterable):
        return tuple(judges)
    raise ConfigError(f"judges: expected a list of adapters, found {shown(judges)}")


def _voting(voting: str) -> Voting:
    one_of(*Voting).hold("voting", voting)
    return Voting(voting)


@attrs.frozen(kw_only=True)
class JudgeMetric(BaseMetric):
    """A metric that asks models.

    Attributes:
        judges: the models, each with its own adapter; their order is that of the weights.
        voting: how their scores become one.
        weights: one for each judge, above 0; for weighted voting only.
        samples: how often each judge is asked; the highest score that more than half of its
            judgements reach is its own.
        overrides_store: where overrides of the judges' prompts are looked up.
        overrides_tag: the tag they are looked up under.

    Raises:
        ConfigError: no judges, weights that do not fit, or ``samples`` below 1.
    """

    asks_models: ClassVar[bool] = True

    judges: tuple[ProviderAdapter, ...] = attrs.field(converter=_judges)
    voting: Voting = attrs.field(default=Voting.MAJORITY, converter=_voting)
    weights: tuple[float, ...] = attrs.field(default=(), converter=tuple)
    samples: int = attrs.field(default=1, validator=COUNT)
    overrides_store: PromptOverridesStore | None = None
    overrides_tag: str = DEFAULT_TAG

    def __attrs_post_init__(self) -> None:
        if not self.judges:
            raise ConfigError("judges: expected at least one adapter, found none")
        if self.voting is not Voting.WEIGHTED and self.weights:
            raise ConfigError(
                f"weights: {self.voting} voting knows none; set voting to `weighted` or leave "
                "weights out"
            )
        if self.voting is Voting.WEIGHTED:
            self._check_weights()

    def _check_weights(self) -> None:
        usable = all(0 < weight < float("inf") for weight in self.weights)
        if not usable or len(self.weights) != len(self.judges):
            raise ConfigError(
                f"weights: expected a number above 0 for each of {len(self.judges)} judges, "
                f"found {shown(list(self.weights))}"
            )

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        self.check(case)
        judgements = [
            _sampled([self.ask(judge, case, answer, session) for _ in range(self.samples)])
            for judge in self.judges
        ]
        score = score_of_votes(
            self.voting,
            [judgement.score for judgement in judgements],
            threshold=self.threshold,
            weights=self.weights,
        )
        return Verdict(
            metric=self.name,
            score=score,
            passed=None if score is None else score >= self.threshold,
            reason=clipped(self._reason(judgements), LONGEST_VERDICT_REASON),
        )

    @abstractmethod
    def ask(
        self,
        judge: ProviderAdapter,
        case: Case,
        answer: Answer,
        session: SessionProtocol | None,
    ) -> Judgement:
        """Ask one judge once."""

    def prompt_of(self, template: PromptTemplate[ReplyT]) -> Prompt[ReplyT]:
        """Return the question as the user's store has it."""
        return Prompt(
            template, overrides_store=self.overrides_store, overrides_tag=self.overrides_tag
        )

    def _reason(self, judgements: Sequence[Judgement]) -> str:
        """Return what every judge said, those that speak against the answer first."""
        if len(judgements) == 1:
            return judgements[0].reason
        scores = [judgement.score for judgement in judgements]
        against = sum(score is not None and score < self.threshold for score in scores)
        missing = scores.count(None)
        for_it = len(scores) - against - missing
        head = f"{self.voting} of {len(scores)} judges: {for_it} for the answer, {against} against"
        tail = f", {missing} without a judgement" if missing else ""
        ranked = sorted(range(len(scores)), key=lambda place: _rank(scores[place], self.threshold))
        said = [self._said(place, judgements[place]) for place in ranked]
        return "\n".join([head + tail, *said])

    def _said(self, place: int, judgement: Judgement) -> str:
        score = "no judgement" if judgement.score is None else f"{judgement.score:.4g}"
        return f"judge {place + 1} (`{self.judges[place].identity}`), {score}: {judgement.reason}"


def _rank(score: float | None, threshold: float) -> int:
    if score is None:
        return 1
    return 0 if score < threshold else 2


def _sampled(judgements: Sequence[Judgement]) -> Judgement:
    """Return the one judgement of a judge that was asked several times."""
    cast = [(one.score, one) for one in judgements if one.score is not None]
    if 2 * len(cast) > len(judgements):
        return cast[most_agreed([score for score, _ in cast])][1]
    void = [one.reason for one in judgements if one.score is None]
    if len(judgements) == 1:
        return judgements[0]
    said = "; ".join(dict.fromkeys(void))
    return Judgement(
        score=None, reason=f"{len(void)} of {len(judgements)} samples hold no judgement: {said}"
    )
