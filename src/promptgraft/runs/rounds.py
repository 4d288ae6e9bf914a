"""The rounds of a run: what failed, what was blamed for it, what was tried, what came of it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import Json
from promptgraft.search.events import MutationAccepted, MutationProposed, MutationRejected
from promptgraft.search.notices import Event
from promptgraft.search.round_events import (
    Blame,
    Decided,
    GradientsMerged,
    Loss,
    PatchWritten,
    Problem,
    QuestionUnanswered,
    RoundEnded,
    RoundTrained,
    StepBlamed,
)
from promptgraft.search.scores import Score

OfRound = (
    RoundTrained
    | StepBlamed
    | QuestionUnanswered
    | GradientsMerged
    | PatchWritten
    | RoundEnded
    | MutationProposed
    | MutationAccepted
    | MutationRejected
)
"""Events that rounds are made of."""


@attrs.frozen(kw_only=True)
class RoundPatch:
    """A new text of a part, and the model's reason for it, which may be empty."""

    module: str
    text: str
    why: str


@attrs.frozen(kw_only=True)
class RoundSummary:
    """A round, or a step of a search that has steps.

    Attributes:
        number: its number, from 1.
        current: position of the candidate that it began with; None while unknown.
        decided: the outcome; None while it lasts.
        detail: why, in one line.
        tried: means of the current and the new candidate on the cases that the patches came from;
            None if they were not evaluated there.
        validated: their means on the validation set; None if the new one was not validated.
        candidate: position of the new candidate; None if it was not accepted.
        cases: training cases that were evaluated.
        losses: failures.
        blamed: parts and steps that models blamed, with the case.
        problems: what is to be fixed, by part.
        patches: new texts.
        unanswered: why questions have no usable reply, one line each.
    """

    number: int
    current: int | None = None
    decided: Decided | None = None
    detail: str = ""
    tried: tuple[Score, Score] | None = None
    validated: tuple[Score, Score] | None = None
    candidate: int | None = None
    cases: int = 0
    losses: tuple[Loss, ...] = ()
    blamed: tuple[tuple[str, Blame], ...] = ()
    problems: Mapping[str, tuple[Problem, ...]] = FrozenMap()
    patches: tuple[RoundPatch, ...] = ()
    unanswered: tuple[str, ...] = ()

    def after(self, event: Event) -> RoundSummary:
        """Return the round as it is after an event of it."""
        match event:
            case RoundTrained():
                return attrs.evolve(
                    self, current=event.current, cases=len(event.cases), losses=event.losses
                )
            case StepBlamed():
                blamed = ((event.case, blame) for blame in event.blamed)
                return attrs.evolve(self, blamed=(*self.blamed, *blamed))
            case QuestionUnanswered():
                return attrs.evolve(self, unanswered=(*self.unanswered, event.detail))
            case GradientsMerged():
                return attrs.evolve(self, problems={**self.problems, event.module: event.problems})
            case PatchWritten():
                return self._patched(
                    RoundPatch(module=event.module, text=event.text, why=event.why)
                )
            case RoundEnded():
                names = ("current", "candidate", "decided", "detail", "tried", "validated")
                return attrs.evolve(self, **{name: getattr(event, name) for name in names})
            case _:
                return self._mutated(event)

    def _mutated(self, event: Event) -> RoundSummary:
        match event:
            case MutationProposed():
                patch = RoundPatch(module=event.module, text=event.after, why=event.reason)
                return attrs.evolve(self._patched(patch), current=event.parent)
            case MutationRejected() if self.candidate is None:
                return attrs.evolve(
                    self,
                    current=event.parent,
                    decided=Decided.REFUSED,
                    detail=event.detail,
                    tried=(event.parent_score, event.child_score),
                )
            case MutationAccepted():
                return attrs.evolve(
                    self,
                    current=event.parent,
                    decided=Decided.ACCEPTED,
                    detail="",
                    tried=(event.parent_score, event.child_score),
                    candidate=event.candidate,
                )
        return self

    def _patched(self, patch: RoundPatch) -> RoundSummary:
        # A search in rounds tells of the same text twice: as it is written, and as it is tried.
        texts = [(earlier.module, earlier.text) for earlier in self.patches]
        is_new = (patch.module, patch.text) not in texts
        return attrs.evolve(self, patches=(*self.patches, patch)) if is_new else self

    def as_json(self) -> dict[str, Json]:
        """Return it as plain data."""
        patches: list[Json] = [attrs.asdict(patch) for patch in self.patches]
        losses: list[Json] = [
            {name: str(getattr(loss, name)) for name in Loss.__struct_fields__}
            for loss in self.losses
        ]
        blamed: list[Json] = [
            {"case": case, "to": blame.to, "severity": str(blame.severity), "text": blame.text}
            for case, blame in self.blamed
        ]
        problems: dict[str, Json] = {
            module: [{"severity": str(row.severity), "text": row.text} for row in rows]
            for module, rows in self.problems.items()
        }
        return {
            "round": self.number,
            "current": self.current,
            "decided": None if self.decided is None else str(self.decided),
            "detail": self.detail,
            "tried": None if self.tried is None else list(self.tried),
            "validated": None if self.validated is None else list(self.validated),
            "candidate": self.candidate,
            "cases": self.cases,
            "losses": losses,
            "blamed": blamed,
            "problems": problems,
            "patches": patches,
            "unanswered": list(self.unanswered),
        }
