"""Proposes descriptions from what the feedback says; a stand-in for a real reflection model."""

from __future__ import annotations

import json
import re
from typing import TypeVar

from promptgraft import Deadline, Prompt, PromptResponse
from promptgraft.adapters.base import answered
from promptgraft.runtime import SessionProtocol

OutputT = TypeVar("OutputT")

KNOWN = (
    ("this.date", {"about-receipt-date": "As ISO 8601, YYYY-MM-DD"}),
    ("(this.total", {"about-receipt-total": "What was paid in the end, with tax"}),
    (
        "this.category",
        {
            "about-category-travel": "Taxi, train, bus and hotel",
            "about-category-office": "Paper, pens, toner and desks",
        },
    ),
)


class Rewriter:
    """Mends one kind of failure at a time: the first one that the feedback names."""

    identity = "rewriter"

    def evaluate(
        self, prompt: Prompt[OutputT], *, session: SessionProtocol, deadline: Deadline | None = None
    ) -> PromptResponse[OutputT]:
        del deadline
        rendered = prompt.render(session)
        found = re.findall(r"\*\*(P\d+):\*\* section (\S+)", rendered.text)
        marks = {key: mark for mark, key in found}
        # The feedback lists the rules that hold too.
        failed = " ".join(re.findall(r"`([^`]+)` does not hold", rendered.text))
        failures = [texts for rule, texts in KNOWN if rule in failed]
        texts = failures[0] if failures else dict[str, str]()
        if marks:
            edits = [
                {"part": marks[key], "reason": "it says too little", "text": text}
                for key, text in texts.items()
                if key in marks
            ]
            reply = f"```json\n{json.dumps({'edits': edits})}\n```"
        else:
            # A question about one part is answered with its text, if need be the same one: a
            # block of anything else would become that text.
            part = re.search(
                r"The part is: section (\S+)\s+(`{3,})\S*\n(.*?)\n\2", rendered.text, re.DOTALL
            )
            key, fence, current = part.groups() if part else ("", "```", "")
            reply = f"{fence}instruction\n{texts.get(key, current)}\n{fence}"
        return answered(rendered, reply, session=session)


def make() -> Rewriter:
    """Return what the project asks for proposals."""
    return Rewriter()
