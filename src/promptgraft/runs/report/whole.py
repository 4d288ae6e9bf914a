"""The whole prompt of the winner beside the source: its text, its length, what an answer costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from promptgraft.runs.report.allowance import cropped
from promptgraft.runs.report.data import ReportData
from promptgraft.search.scores import Score, mean_score
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


@attrs.frozen
class Amount:
    """What a prompt takes: of the baseline, and of the winner; ``format`` shows a number of it."""

    name: str
    format: str
    before: float
    after: float


def whole_prompts(data: ReportData) -> tuple[WholePrompt, ...]:
    """Return the prompts of a run that has ended; at most ten."""
    found = []
    for name, texts in list(data.prompts.items())[:_MOST_PROMPTS]:
        text = texts["winner" if data.winner else "baseline"]
        shown = cropped(text, _LONGEST)
        found.append(WholePrompt(name, shown, shown != text))
    return tuple(found)


def amounts(data: ReportData) -> Iterator[Amount]:
    """Yield how long the prompts are, and the means of what an answer took where that is known."""
    if data.prompts:
        sides = ("baseline", "winner" if data.winner else "baseline")
        lengths = (sum(len(one[side]) for one in data.prompts.values()) for side in sides)
        yield Amount("characters", "{:,.0f}", *lengths)
    pairs = [
        (one, answers[data.winner, case])
        for answers in (data.answers, data.unseen)
        for (number, case), one in answers.items()
        if number == 0 and (data.winner, case) in answers
    ]
    for name, shape, place in (
        ("tokens sent for an answer", "{:,.1f}", 0),
        ("tokens received for an answer", "{:,.1f}", 1),
        ("dollars for an answer", "${:,.6f}", 2),
    ):
        before, after = (_mean((pair[side] for pair in pairs), place) for side in (0, 1))
        if before and after:
            yield Amount(name, shape, before, after)


def _mean(answers: Iterable[RolloutRecord], place: int) -> Score:
    """Return the mean of what calls of the task took; None when some price is not known."""
    sums = []
    for answer in answers:
        spent = [one for one in answer.spent if one.role is Role.TASK]
        if any(one.cost is None for one in spent) and place == 2:
            return None
        taken = ((one.input_tokens, one.output_tokens, float(one.cost or 0)) for one in spent)
        sums.append(sum(one[place] for one in taken))
    return mean_score(sums)
