"""The kinds of judges: an answer beside its reference, and rubrics one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.errors import ConfigError
from promptgraft.evals.judges.panel import (
    LONGEST_JUDGE_REASON,
    Judgement,
    JudgeMetric,
    ask,
    weighted_share,
)
from promptgraft.evals.judges.prompts import (
    FINAL_RESPONSE,
    KNOWLEDGE_RECALL,
    RUBRIC_RESPONSE,
    Category,
    CategoryReply,
    Met,
    RubricReply,
    RubricsReply,
    VoidReplyError,
    checked_reason,
    material_of,
)
from promptgraft.evals.metrics.reasons import clipped
from promptgraft.evals.types import Answer, Case
from promptgraft.prompt.fences import fenced
from promptgraft.prompt.template import PromptTemplate
from promptgraft.runtime.session import SessionProtocol
from promptgraft.serde import shown
from promptgraft.strict.checks import TEXT, number

CATEGORY_SCORES: Mapping[Category, float] = {
    Category.CORRECT: 1.0,
    Category.PARTLY: 0.5,
    Category.WRONG: 0.0,
}
"""What each category scores."""


@attrs.frozen(kw_only=True)
class LlmFinalResponse(JudgeMetric):
    """1 when judges find that the answer says what the reference says, 0.5 for a part of it.

    Cases need ``expected``. With the default threshold of 1 only ``correct`` passes.
    """

    kind: ClassVar[str] = "llm_final_response"

    def check(self, case: Case) -> None:
        if case.expected is None or case.expected == "":
            raise self.lacking(case, "needs `expected` as the reference, found none")

    def ask(
        self, judge: ProviderAdapter, case: Case, answer: Answer, session: SessionProtocol | None
    ) -> Judgement:
        prompt = self.prompt_of(FINAL_RESPONSE).bind(material_of(case, answer))
        return ask(judge, prompt, _judgement, session=session)


def _judgement(reply: CategoryReply) -> Judgement:
    reason = clipped(checked_reason(reply.reason, "the category"), LONGEST_JUDGE_REASON)
    return Judgement(score=CATEGORY_SCORES[reply.category], reason=f"{reply.category}: {reason}")


@attrs.frozen(kw_only=True)
class Rubric:
    """Something that has to hold of an answer.

    Attributes:
        id: unique among the rubrics of a metric, without white space.
        text: what has to hold.
        weight: how much it counts beside the others, above 0.
    """

    id: str = attrs.field(validator=TEXT)
    text: str = attrs.field(validator=TEXT)
    weight: float = attrs.field(default=1.0, validator=number(above=0))

    def __attrs_post_init__(self) -> None:
        if self.id.split() != [self.id]:
            raise ConfigError(f"id: expected one word, found {shown(self.id)}")


def _distinct(
    _: object, attribute: attrs.Attribute[tuple[Rubric, ...]], rubrics: tuple[Rubric, ...]
) -> None:
    if not rubrics:
        raise ConfigError(f"{attribute.name}: expected at least one rubric, found none")
    (found, count), *_ = Counter(rubric.id for rubric in rubrics).most_common(1)
    if count > 1:
        raise ConfigError(f"{attribute.name}: two rubrics have the id `{found}`; rename one")


@attrs.frozen(kw_only=True)
class LlmRubricResponse(JudgeMetric):
    """The share, by weight, of the rubrics that judges find to be met by the answer.

    The reference is shown to the judges when the case has one.

    Attributes:
        rubrics: what has to hold, each judged by itself.
    """

    kind: ClassVar[str] = "llm_rubric_response"
    question: ClassVar[PromptTemplate[RubricsReply]] = RUBRIC_RESPONSE
    shows_tools: ClassVar[bool] = False

    rubrics: tuple[Rubric, ...] = attrs.field(validator=_distinct, converter=tuple[Rubric, ...])

    def ask(
        self, judge: ProviderAdapter, case: Case, answer: Answer, session: SessionProtocol | None
    ) -> Judgement:
        material = material_of(case, answer, tools=self.shows_tools, rubrics=_shown(self.rubrics))
        prompt = self.prompt_of(self.question).bind(material)
        return ask(judge, prompt, self._judgement, session=session)

    def _judgement(self, reply: RubricsReply) -> Judgement:
        replies = _in_order(self.rubrics, reply.rubrics)
        met = [found.met is Met.YES for found in replies]
        lines = [_said(rubric, found) for rubric, found in zip(self.rubrics, replies, strict=True)]
        shares = [float(holds) for holds in met]
        not_met_first = sorted(range(len(met)), key=met.__getitem__)
        head = f"{sum(met)} of {len(met)} rubrics are met"
        return Judgement(
            score=weighted_share(shares, [rubric.weight for rubric in self.rubrics]),
            reason="\n".join([head, *(lines[place] for place in not_met_first)]),
        )


@attrs.frozen(kw_only=True)
class LlmRubricKnowledgeRecall(LlmRubricResponse):
    """The share, by weight, of the rubrics that judges find to be met by what tools returned."""

    kind: ClassVar[str] = "llm_rubric_knowledge_recall"
    question: ClassVar[PromptTemplate[RubricsReply]] = KNOWLEDGE_RECALL
    shows_tools: ClassVar[bool] = True


def _shown(rubrics: Sequence[Rubric]) -> str:
    return "\n\n".join(f"Rubric `{rubric.id}`:\n\n{fenced(rubric.text)}" for rubric in rubrics)


def _in_order(rubrics: Sequence[Rubric], replies: Iterable[RubricReply]) -> list[RubricReply]:
    """Return the one reply to each rubric; anything else is void."""
    given = [(reply.id.strip().strip("`"), reply) for reply in replies]
    counts = Counter(name for name, _ in given)
    known = [rubric.id for rubric in rubrics]
    faults = [f"rubric `{name}` is not answered" for name in known if not counts[name]]
    twice = [name for name in known if counts[name] > 1]
    faults += [f"rubric `{name}` is answered {counts[name]} times" for name in twice]
    faults += [f"there is no rubric {shown(name)}" for name in counts if name not in known]
    if faults:
        raise VoidReplyError("; ".join(faults) + "; answer every rubric exactly once")
    found = dict(given)
    for name in known:
        checked_reason(found[name].reason, f"rubric `{name}`")
    return [found[name] for name in known]


def _said(rubric: Rubric, reply: RubricReply) -> str:
    verdict = "met" if reply.met is Met.YES else "not met"
    return f"rubric `{rubric.id}` {verdict}: {clipped(reply.reason.strip(), LONGEST_JUDGE_REASON)}"
