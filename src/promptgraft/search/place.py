"""Where something stands in a run, as a value with one text form.

The text is the key of answers in a journal: ``step/3/2/child`` with the place of an example behind
it is the key of a rollout.
"""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from promptgraft.errors import DataFormatError
from promptgraft.serde import digest_text, shown

_LONGEST, _CUT = 100, 80


class Phase(StrEnum):
    """What a run does at a place."""

    TEACHER = "teacher"
    """A teacher answers the cases that have no ``expected``."""
    BASELINE = "baseline"
    """The baseline is evaluated."""
    STEP = "step"
    """A step, or one of its proposals, as a whole; nothing is asked there."""
    PARENT = "parent"
    """The parent is evaluated on a minibatch."""
    REFLECT = "reflect"
    """A model is asked for a proposal, or for a repair of one."""
    CHILD = "child"
    """The child is evaluated on the same minibatch."""
    PARETO = "pareto"
    """What a step has come to is evaluated on the validation set."""
    MERGE = "merge"
    """A merge is evaluated on the validation set."""
    IDLE = "idle"
    """The best candidate is evaluated on more of the validation set."""
    SHORTEN = "shorten"
    """Lines of the best candidate are left out, and a shorter one is evaluated."""
    FINAL = "final"
    """A finalist is evaluated on the rest of the validation set."""
    HELD_OUT = "held-out"
    """The baseline or the winner is evaluated on held-out examples."""
    INITIAL = "initial"
    """The candidate that a search begins with is evaluated, where it is not the baseline."""
    ROUND = "round"
    """A round as a whole; nothing is asked there."""
    TRAIN = "train"
    """A round evaluates the current candidate on training examples."""
    BACKWARD = "backward"
    """A model is asked what a step has to do with a failure."""
    AGGREGATE = "aggregate"
    """A model merges what was said of a part."""
    OPTIMIZE = "optimize"
    """A model writes a new text of a part."""
    TRY = "try"
    """A round evaluates its candidate on the failures that it came from."""
    VALIDATE = "validate"
    """A round evaluates its candidate on the validation set."""


QUESTIONS = (Phase.REFLECT, Phase.BACKWARD, Phase.AGGREGATE, Phase.OPTIMIZE)
"""The phases in which a model is asked a question."""

ROUNDS = frozenset(
    (
        Phase.ROUND,
        Phase.TRAIN,
        Phase.BACKWARD,
        Phase.AGGREGATE,
        Phase.OPTIMIZE,
        Phase.TRY,
        Phase.VALIDATE,
    )
)
"""The phases of a round."""


MINIBATCHES = frozenset((Phase.PARENT, Phase.CHILD, Phase.TRAIN, Phase.TRY))
"""The phases in which candidates are tried on a few examples, and whose answers come next."""


LEGS = {
    Phase.PARETO: ("", "best", "first", "rest"),
    Phase.MERGE: ("", "rest", "race", "race/best", "race/first", "race/rest"),
    Phase.SHORTEN: ("line", "best", "race", "race/best", "race/first", "race/rest"),
}
"""The parts of the phases that have several."""


def named(text: str) -> str:
    """Return a name of the user's as one piece of a place, short enough for the name of a file."""
    piece = quote(text, safe=" #")
    return piece if len(piece) <= _LONGEST else f"{piece[:_CUT]}~{digest_text(text)[:12]}"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a run; ``Place.parse(str(place)) == place``.

    Attributes:
        phase: what the run does there.
        step: number of the step, from 1; 0 outside of the steps.
        proposal: number of the proposal in its step, from 1; 0 where the step has only one, and
            for what the step does as a whole.
        candidate: position of the candidate in ``final`` and ``held-out``; in ``shorten`` of the
            one that races, or that a line was left out of.
        leg: which part of the phase, one of :data:`LEGS`; of the questions of a round what they
            are about, such as ``case-7/2`` for the second step of a case.
        count: of parent and child the repeat, from 1, 0 for the first time; of a reflection its
            number; of ``held-out`` the round, from 0; of ``idle`` and ``final`` the number of
            examples; of ``shorten`` the number of the line, or what tells races apart.
    """

    phase: Phase
    step: int = 0
    proposal: int = 0
    candidate: int = 0
    leg: str = ""
    count: int = 0

    @classmethod
    def of_step(cls, step: int, proposal: int = 0) -> Place:
        """Return the place of a step, or of one of its proposals."""
        return cls(phase=Phase.STEP, step=step, proposal=proposal)

    def at(self, phase: Phase, *, leg: str = "", count: int = 0) -> Place:
        """Return the place of a phase of the same step and proposal."""
        return Place(phase=phase, step=self.step, proposal=self.proposal, leg=leg, count=count)

    @classmethod
    def parse(cls, text: str) -> Place:
        """Return the place that ``text`` is the form of.

        Raises:
            DataFormatError: it is the form of none.
        """
        place = _parsed(text)
        # Whatever else Python reads as a number, such as `007`, is not the one form.
        if place is None or str(place) != text:
            raise DataFormatError(
                f"expected a place in a run, such as `step/3/child`, found {shown(text)}"
            )
        return place

    @classmethod
    def of_rollout(cls, key: str) -> Place | None:
        """Return where a rollout was asked for; None when ``key`` is that of something else."""
        text, _, _ = key.rpartition("/")
        place = _parsed(text)
        others = (Phase.TEACHER, Phase.STEP, Phase.ROUND, *QUESTIONS)
        asks = place is not None and place.phase not in others
        return place if asks and str(place) == text else None

    def __str__(self) -> str:
        match self.phase:
            case Phase.TEACHER | Phase.BASELINE | Phase.INITIAL:
                return self.phase.value
            case Phase.FINAL:
                return f"final/{self.candidate}/{self.count}"
            case Phase.HELD_OUT:
                return f"held-out/{self.candidate}" + (f"/{self.count}" if self.count else "")
        if self.phase in ROUNDS:
            return _of_round(self)
        step = f"step/{self.step}/{self.proposal}" if self.proposal else f"step/{self.step}"
        match self.phase:
            case Phase.STEP:
                return step
            case Phase.REFLECT | Phase.IDLE:
                return f"{step}/{self.phase.value}/{self.count}"
            case Phase.SHORTEN:
                return f"{step}/shorten/{self.candidate}/{self.count}/{self.leg}"
            case Phase.PARENT | Phase.CHILD if self.count:
                return f"{step}/again/{self.count}/{self.phase.value}"
        return f"{step}/{self.phase.value}{f'/{self.leg}' if self.leg else ''}"


def _of_round(place: Place) -> str:
    text = f"round/{place.step}"
    if place.phase is Phase.ROUND:
        return text
    again = f"/again/{place.count}" if place.count else ""
    return f"{text}/{place.phase.value}{again}{f'/{place.leg}' if place.leg else ''}"


def _parsed(text: str) -> Place | None:
    """Return a place whose text is ``text`` if there is one; else any place, or None."""
    try:
        match text.split("/"):
            case ["teacher" | "baseline" | "initial" as phase]:
                return Place(phase=Phase(phase))
            case ["round", step, *rest]:
                return _in_round(int(step), rest)
            case ["final", candidate, count]:
                return Place(phase=Phase.FINAL, candidate=int(candidate), count=int(count))
            case ["held-out", candidate, *count] if len(count) < 2:
                number = int(count[0]) if count else 0
                return Place(phase=Phase.HELD_OUT, candidate=int(candidate), count=number)
            case ["step", step, *rest]:
                proposal = int(rest.pop(0)) if rest and rest[0].isdigit() else 0
                return _in_step(Place.of_step(int(step), proposal), rest)
    except ValueError:  # no number, or no phase
        pass
    return None


def _in_round(step: int, parts: list[str]) -> Place | None:
    match parts:
        case []:
            return Place(phase=Phase.ROUND, step=step)
        case ["train" | "try" as phase]:
            return Place(phase=Phase(phase), step=step)
        case ["backward" | "aggregate" | "optimize" as phase, *about] if about:
            return Place(phase=Phase(phase), step=step, leg="/".join(about))
        case ["validate", "parent" | "child" as side]:
            return Place(phase=Phase.VALIDATE, step=step, leg=side)
        case ["validate", "again", again, "parent" | "child" as side]:
            return Place(phase=Phase.VALIDATE, step=step, leg=side, count=int(again))
    return None


def _in_step(step: Place, parts: list[str]) -> Place | None:
    match parts:
        case []:
            return step
        case ["parent" | "child" as side]:
            return step.at(Phase(side))
        case ["again", count, "parent" | "child" as side]:
            return step.at(Phase(side), count=int(count))
        case ["reflect" | "idle" as phase, count]:
            return step.at(Phase(phase), count=int(count))
        case ["shorten", candidate, count, *legs] if "/".join(legs) in LEGS[Phase.SHORTEN]:
            found = step.at(Phase.SHORTEN, leg="/".join(legs), count=int(count))
            return replace(found, candidate=int(candidate))
        case ["pareto" | "merge" as phase, *legs] if "/".join(legs) in LEGS[Phase(phase)]:
            return step.at(Phase(phase), leg="/".join(legs))
    return None
