"""The whole prompt of the winner beside the source: its text, its length, what an answer costs."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import attrs

from promptgraft.runs.report.allowance import cropped
from promptgraft.runs.report.data import ReportData
from promptgraft.targets.spending import Role
from promptgraft.targets.types import RolloutRecord

_LONGEST = 300_000
_MOST_PROMPTS = 10


@attrs.frozen
class WholePrompt:
    """A prompt as the winner has it, or the baseline without one; ``is_cut`` when it is longer."""

    name: str
    text: str
    is_cut: bool


def whole_prompts(data: ReportData) -> Iterator[WholePrompt]:
    """Yield the prompts of a run that has ended; at most ten."""
    for name, texts in list(data.prompts.items())[:_MOST_PROMPTS]:
        text = texts["winner" if data.winner else "baseline"]
        shown = cropped(text, _LONGEST)
        yield WholePrompt(name, shown, shown != text)


def amounts(data: ReportData) -> Iterator[tuple[str, str, float, float]]:
    """Yield what a prompt takes where it is known: name, format, of the baseline, of the winner."""
    if data.prompts:
        texts = data.prompts.values()
        after = sum(len(one["winner" if data.winner else "baseline"]) for one in texts)
        yield "characters", "{:,.0f}", sum(len(one["baseline"]) for one in texts), after
    pairs = [
        (_taken(one), _taken(answers[data.winner, case]))
        for answers in (data.answers, data.unseen)
        for (number, case), one in answers.items()
        if number == 0 and (data.winner, case) in answers
    ]
    for place, name, shape in (
        (0, "tokens sent for an answer", "{:,.1f}"),
        (1, "tokens received for an answer", "{:,.1f}"),
        (2, "dollars for an answer", "${:,.6f}"),
    ):
        one, other = (sum((pair[side][place] for pair in pairs), Decimal(0)) for side in (0, 1))
        if one and other and (one + other).is_finite():
            yield name, shape, float(one / len(pairs)), float(other / len(pairs))


def _taken(answer: RolloutRecord) -> tuple[Decimal, Decimal, Decimal]:
    """Return the tokens sent and received, and the dollars; NaN when a price is not known."""
    spent = [one for one in answer.spent if one.role is Role.TASK]
    costs = (Decimal("NaN") if one.cost is None else one.cost for one in spent)
    tokens = sum(one.input_tokens for one in spent), sum(one.output_tokens for one in spent)
    return Decimal(tokens[0]), Decimal(tokens[1]), sum(costs, Decimal(0))
