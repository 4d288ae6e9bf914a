"""Panels of judges: several models, each asked once or several times, and their vote."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Self, TypeVar

import attrs

from promptgraft import errors
from promptgraft.adapters.abilities import sees_images
from promptgraft.adapters.base import PromptExecuted, ProviderAdapter, adapter_identity, evaluated
from promptgraft.evals.attempt import AsideSession
from promptgraft.evals.judges.prompts import Refused, VoidReplyError
from promptgraft.evals.metrics.base import (
    LONGEST_SHOWN,
    LONGEST_VERDICT_REASON,
    MOST_ATTEMPTS,
    BaseMetric,
)
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.content import Image, files_in
from promptgraft.ground.serde import shown
from promptgraft.ground.strict.checks import COUNT, one_of, reaches
from promptgraft.ground.text import clip, fenced
from promptgraft.overrides.store import DEFAULT_TAG, PromptOverridesStore
from promptgraft.prompt.template import Prompt, PromptTemplate
from promptgraft.runtime.session import SessionProtocol

ReplyT = TypeVar("ReplyT")
LONGEST_JUDGE_REASON = 2_000
"""The maximum length of a judge's reason (for one rubric), in characters."""


class Voting(StrEnum):
    """How the scores of several judges are combined.

    A judge votes for an answer if its score reaches the threshold; the answer passes if the
    combined score does.

    Attributes:
        ALL: the lowest score, so every judge must vote for the answer.
        ANY: the highest score, so one vote is enough.
        MAJORITY: the highest score that more than half of the judges reach, so more than half
            must vote for the answer; a tie fails.
        MEAN: the mean.
        WEIGHTED: the weighted mean.
        WEIGHTED_MAJORITY: like MAJORITY, with more than half of the weight instead of more than
            half of the judges.
    """

    ALL = "all"
    ANY = "any"
    MAJORITY = "majority"
    MEAN = "mean"
    WEIGHTED = "weighted"
    WEIGHTED_MAJORITY = "weighted majority"


_MEANS = (Voting.MEAN, Voting.WEIGHTED)
_BY_WEIGHT = (Voting.WEIGHTED, Voting.WEIGHTED_MAJORITY)


def score_of_votes(
    voting: Voting,
    scores: Sequence[float | None],
    *,
    threshold: float,
    weights: Sequence[float] = (),
) -> float | None:
    """Return the combined score of the judges; None if they reach none.

    A judge without a judgement (None) casts no vote. Means need the votes of all judges. The other
    schemes need at least one vote, and that no missing vote could change whether the answer
    passes; the score is then that of the votes cast.
    """
    by_weight = weights or [1.0] * len(scores)
    votes = zip(scores, by_weight, strict=True)
    cast = [(score, weight) for score, weight in votes if score is not None]
    if cast and len(cast) < len(scores):
        if voting in _MEANS:
            return None
        # The schemes are monotonic, so the extremes of the missing votes bound the result.
        worst, best = (
            _tally(voting, [missing if vote is None else vote for vote in scores], by_weight)
            for missing in (0.0, 1.0)
        )
        # A judge that failed must not decide by its absence.
        if reaches(worst, threshold) != reaches(best, threshold):
            return None
    return _tally(voting, *zip(*cast, strict=True)) if cast else None


def most_agreed(scores: Sequence[float], weights: Sequence[float] = ()) -> int:
    """Return the first position of the highest score that more than half of ``scores`` reach.

    With ``weights``, the scores that reach it need more than half of the weight.
    """
    # Exact, because "more than half" must not depend on rounding.
    by_weight = [Fraction(str(weight)) for weight in weights or [1] * len(scores)]
    half, reached = sum(by_weight) / 2, Fraction(0)
    ranked = sorted(range(len(scores)), key=lambda at: -scores[at])
    for place in ranked:
        reached += by_weight[place]
        if reached > half:
            break
    return scores.index(scores[place])


def weighted_share(parts: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted mean of ``parts``, computed exactly and rounded once."""
    exact = [Fraction(str(weight)) for weight in weights]  # `str`, so that 0.1 is a tenth
    total = sum(Fraction(str(part)) * weight for part, weight in zip(parts, exact, strict=True))
    return float(total / sum(exact))


def _tally(voting: Voting, scores: Sequence[float], weights: Sequence[float]) -> float:
    if voting is Voting.ALL:
        return min(scores)
    if voting is Voting.ANY:
        return max(scores)
    if voting in _MEANS:
        return weighted_share(scores, weights)
    return scores[most_agreed(scores, weights)]


@attrs.frozen(kw_only=True)
class Judgement:
    """A judge's score from 0 to 1 with its reason, or None with what went wrong."""

    score: float | None
    reason: str


def _judges(judges: Iterable[ProviderAdapter] | ProviderAdapter) -> tuple[ProviderAdapter, ...]:
    if isinstance(judges, Iterable):
        return tuple(judges)
    raise errors.ConfigError(f"judges: expected a list of adapters, found {shown(judges)}")


def _voting(voting: str) -> Voting:
    one_of(*Voting).hold("voting", voting)
    return Voting(voting)


@attrs.frozen(kw_only=True)
class JudgeMetric(BaseMetric):
    """A metric that asks models.

    Attributes:
        judges: the adapters of the models, in the order of the weights.
        voting: how their scores are combined.
        weights: one for each judge, above 0; for weighted voting only.
        samples: how often each judge is asked; its score is the highest that more than half of
            its judgements reach.
        overrides_store: the store with overrides of the judges' prompts.
        overrides_tag: the tag of those overrides.
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
            raise errors.ConfigError("judges: expected at least one adapter, found none")
        if self.voting not in _BY_WEIGHT and self.weights:
            raise errors.ConfigError(
                f"weights: {self.voting} voting takes none; set voting to `weighted` or "
                "`weighted majority`, or leave weights out"
            )
        usable = all(0 < weight < float("inf") for weight in self.weights)
        weight_count = len(self.judges) if self.voting in _BY_WEIGHT else 0
        if not usable or len(self.weights) != weight_count:
            raise errors.ConfigError(
                f"weights: expected a number above 0 for each of {len(self.judges)} judges, "
                f"found {shown(list(self.weights))}"
            )

    def assess(self, case: Case, answer: Answer) -> Verdict:
        return self.judge(case, answer)

    def judge(
        self, case: Case, answer: Answer, *, session: SessionProtocol | None = None
    ) -> Verdict:
        self.check(case)
        question = self.question(case, answer)
        judgements = [
            _sampled([self._ask(judge, shown_answer, session) for _ in range(self.samples)])
            for judge in self.judges
            for shown_answer in [shown_to(judge, question, case)]
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
            passed=None if score is None else reaches(score, self.threshold),
            reason=clip(self._reason(judgements), LONGEST_VERDICT_REASON),
        )

    @abstractmethod
    def question(self, case: Case, answer: Answer) -> Prompt[Any]:
        """Return the prompt for each judge."""

    def questions(
        self, case: Case, answer: Answer
    ) -> Iterator[tuple[ProviderAdapter, Prompt[Any]]]:
        first = self.question(case, answer).bind(Refused())
        for judge in self.judges:
            question = shown_to(judge, first, case)
            yield from ((judge, question) for _ in range(self.samples))

    def answered_by(self, judge: ProviderAdapter) -> Self:
        return attrs.evolve(self, judges=[judge] * len(self.judges))

    @abstractmethod
    def judgement(self, reply: Any) -> Judgement:
        """Return the judgement in a reply.

        Raises:
            VoidReplyError: it holds none.
        """

    def _ask(
        self, judge: ProviderAdapter, question: Prompt[Any], session: SessionProtocol | None
    ) -> Judgement:
        """Ask a judge; after a void reply, ask it once more and say what was wrong."""
        # Bound at the first attempt too: the section of the prompt needs its values.
        refused, text = Refused(), ""
        for _ in range(MOST_ATTEMPTS):
            aside = AsideSession(session, tags={"scope": "judge"})
            bound = question.bind(refused)
            try:
                response = evaluated(judge, bound, session=aside, deadline=aside.deadline)
                problem = "the reply holds no data"
                if response.output is not None:
                    return self.judgement(response.output)
            # Named and raised: every other case would be refused as well.
            except errors.PermanentProviderError as error:
                name = adapter_identity(judge)
                raise errors.PermanentProviderError(f"judge `{name}`: {error}") from error
            # Unscored, not 0: it says nothing about the answer.
            except errors.ProviderError as error:
                return Judgement(score=None, reason=f"the judge's provider failed: {error}")
            except (errors.OutputError, VoidReplyError) as error:
                problem = str(error)
            # An error of the judge's prompt would otherwise count against the candidate that is
            # judged.
            except errors.CandidateError as error:
                return Judgement(score=None, reason=f"the judge could not be asked: {error}")
            executed = aside.latest(PromptExecuted)
            text = "" if executed is None else clip(executed.response.text, LONGEST_SHOWN)
            refused = Refused(problem=problem, previous=fenced(text) if text else "")
        reply = f"; the last one is {shown(text)}" if text else ""
        reason = f"the judge's replies are void: {refused.problem}{reply}"
        return Judgement(score=None, reason=reason)

    @property
    def instructions(self) -> str:
        """What judges are told for every case; empty if it is not known."""
        return ""

    @property
    def guarded(self) -> tuple[str, ...]:
        return (self.instructions, *self.wording)

    def prompt_of(self, template: PromptTemplate[ReplyT]) -> Prompt[ReplyT]:
        """Return a prompt with the overrides of the user's store."""
        return Prompt(
            template, overrides_store=self.overrides_store, overrides_tag=self.overrides_tag
        )

    def _reason(self, judgements: Sequence[Judgement]) -> str:
        """Return the reasons of all judges, those against the answer first."""
        if len(judgements) == 1:
            return judgements[0].reason
        against: list[str] = []
        missing: list[str] = []
        for_it: list[str] = []
        for number, (judge, judgement) in enumerate(
            zip(self.judges, judgements, strict=True), start=1
        ):
            head = f"judge {number} (`{adapter_identity(judge)}`)"
            if judgement.score is None:
                missing.append(f"{head}, no judgement: {judgement.reason}")
            else:
                # Those against come first: the reflector can learn from them alone.
                reasons = for_it if reaches(judgement.score, self.threshold) else against
                reasons.append(f"{head}, {judgement.score:.4g}: {judgement.reason}")
        votes = f"{len(for_it)} for the answer, {len(against)} against"
        void = f", {len(missing)} without a judgement" if missing else ""
        head = f"{self.voting} of {len(judgements)} judges: {votes}{void}"
        return "\n".join([head, *against, *missing, *for_it])


def shown_to(judge: ProviderAdapter, question: Prompt[ReplyT], case: Case) -> Prompt[ReplyT]:
    """Return a question with the images of its case, which other judges are only told by name."""
    if not sees_images(judge):
        return question
    files = files_in([case.input, case.context, case.turns])
    return attrs.evolve(question, files=tuple(file for file in files if isinstance(file, Image)))


def _sampled(judgements: Sequence[Judgement]) -> Judgement:
    """Return the judgement of one judge from its samples."""
    cast = [(judgement.score, judgement) for judgement in judgements if judgement.score is not None]
    # With half of them or fewer, the samples that happened to succeed would decide.
    if 2 * len(cast) > len(judgements):
        return cast[most_agreed([score for score, _ in cast])][1]
    void = [judgement.reason for judgement in judgements if judgement.score is None]
    if len(judgements) == 1:
        return judgements[0]
    message = "; ".join(dict.fromkeys(void))
    return Judgement(
        score=None, reason=f"{len(void)} of {len(judgements)} samples hold no judgement: {message}"
    )
