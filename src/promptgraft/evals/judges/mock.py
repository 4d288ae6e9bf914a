"""A judge without a model, for dry runs."""

from __future__ import annotations

import json
import re
from typing import TypeVar

from promptgraft.adapters.base import PromptResponse, answered, free_call
from promptgraft.adapters.offline import DryAdapter
from promptgraft.evals.judges.prompts import Category, CategoryReply, Met
from promptgraft.ground.serde import Json
from promptgraft.prompt.rendered import RenderedPrompt
from promptgraft.prompt.template import Prompt
from promptgraft.runtime.deadline import Deadline
from promptgraft.runtime.session import SessionProtocol

OutputT = TypeVar("OutputT")

_RUBRIC = re.compile(r"^Rubric `(\S+)`:\n\n`{3}", re.MULTILINE)
_WORD = re.compile(r"\w+")


class MockJudge(DryAdapter):
    """Judges an answer by the words that it shares with the reference, and asks no model.

    All of them make it correct and half of them partly so, which meets rubrics too; without a
    reference it is correct.
    """

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        """Render the question of a judge, and answer it."""
        if deadline is not None:
            deadline.check()
        rendered = prompt.render(session)
        session.dispatch(free_call(self.identity))
        return answered(rendered, json.dumps(_reply(rendered)), session=session)


def _reply(rendered: RenderedPrompt[object]) -> Json:
    segments = (segment for section in rendered.sections for segment in section.segments)
    values = {segment.placeholder: segment.text for segment in segments}
    reference, answer = (
        {word.casefold() for word in _WORD.findall(values.get(name, ""))}
        for name in ("reference", "answer")
    )
    reason = f"dry run: {len(reference & answer)} of {len(reference)} words of the reference"
    share = len(reference & answer) / len(reference) if reference else 1.0
    if rendered.output_type is CategoryReply:
        halves = (Category.WRONG, Category.PARTLY, Category.CORRECT)
        return {"reason": reason, "category": halves[int(2 * share)]}
    met = Met.YES if share >= 1 / 2 else Met.NO
    rubrics = _RUBRIC.findall(values.get("rubrics", ""))
    return {"rubrics": [{"id": rubric, "reason": reason, "met": met} for rubric in rubrics]}
