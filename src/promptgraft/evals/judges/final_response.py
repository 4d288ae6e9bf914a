"""The judge that compares an answer with its reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import attrs

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.evals.judges.asking import Judgement, ask
from promptgraft.evals.judges.material import material_of
from promptgraft.evals.judges.panel import LONGEST_JUDGE_REASON, JudgeMetric
from promptgraft.evals.judges.prompts import FINAL_RESPONSE
from promptgraft.evals.judges.replies import Category, CategoryReply, checked_reason
from promptgraft.evals.metrics.reasons import clipped
from promptgraft.evals.types import Answer, Case
from promptgraft.runtime.session import SessionProtocol

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
        self,
        judge: ProviderAdapter,
        case: Case,
        answer: Answer,
        session: SessionProtocol | None,
    ) -> Judgement:
        prompt = self.prompt_of(FINAL_RESPONSE).bind(material_of(case, answer))
        return ask(judge, prompt, _judgement, session=session)


def _judgement(reply: CategoryReply) -> Judgement:
    reason = clipped(checked_reason(reply.reason, "the category"), LONGEST_JUDGE_REASON)
    return Judgement(score=CATEGORY_SCORES[reply.category], reason=f"{reply.category}: {reason}")
