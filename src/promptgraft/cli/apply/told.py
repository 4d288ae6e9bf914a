"""What ``promptgraft apply`` tells of a run, whichever way its candidate goes."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from promptgraft.cli.exits import ExitCode, complain
from promptgraft.cli.output import Screen, print_json
from promptgraft.project.applying.winner import Winner
from promptgraft.runs import RunRecord
from promptgraft.serde import Json


@attrs.frozen(kw_only=True)
class Asked:
    """What the command line asks for.

    Attributes:
        run: the run.
        candidate: the number of the candidate that is meant.
        dry: whether nothing may be written.
    """

    run: RunRecord
    candidate: int
    dry: bool

    def document(self, where: str, outcome: str, **more: object) -> dict[str, object]:
        """Return the keys that every answer has, and ``more``."""
        return {
            "run": self.run.id,
            "candidate": self.candidate,
            "prompt": self.run.prompt,
            "where": where,
            "outcome": outcome,
            "dry_run": self.dry,
            **more,
        }


def scores_json(winner: Winner) -> dict[str, Json]:
    """Return the means of baseline and candidate, as a revision keeps them."""
    return dict(winner.provenance.scores)


def print_origin(screen: Screen, asked: Asked, winner: Winner) -> None:
    """Say which candidate it is, and how good it was."""
    means = ", ".join(
        f"{name.replace('_', ' ')} {value:.3f}" for name, value in winner.provenance.scores.items()
    )
    screen.line(f"run `{asked.run.id}`, candidate {asked.candidate}: {means}", bold=True)


def say_nothing_improved(run: RunRecord, why: str, *, as_json: bool) -> ExitCode:
    """Say that a run has nothing to hand over."""
    if as_json:
        print_json(
            {
                "run": run.id,
                "candidate": None,
                "prompt": run.prompt,
                "where": None,
                "outcome": "not improved",
                "dry_run": False,
                "reason": why,
            }
        )
    else:
        screen = Screen()
        screen.line(f"run `{run.id}`: {why}; nothing was written", bold=True)
        if len(run.candidates) > 1:
            last = len(run.candidates) - 1
            screen.line(
                "--candidate 1 applies its one candidate"
                if last == 1
                else f"--candidate N applies one of its candidates 1 to {last}"
            )
    return ExitCode.NOT_IMPROVED


def refuse(faults: Sequence[str]) -> ExitCode:
    """Say why nothing was written, a line for each reason."""
    for fault in faults:
        complain(fault)
    return ExitCode.WRONG_USE
