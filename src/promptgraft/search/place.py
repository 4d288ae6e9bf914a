"""Places in a run, as values with a unique text form.

The text is the key of answers in a journal: ``step/3/2/child``, followed by the place of an
example, is the key of a rollout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from urllib.parse import quote

import msgspec

from promptgraft.errors import DataFormatError
from promptgraft.ground.serde import digest_text, shown

_LONGEST, _CUT = 100, 80  # characters of a component


class Phase(StrEnum):
    """What a run does at a place."""

    TEACHER = "teacher"
    """A teacher answers the cases that have no ``expected``."""
    BASELINE = "baseline"
    """The baseline is evaluated."""
    STEP = "step"
    """A step, or one of its proposals, as a whole; has no answers of its own."""
    PARENT = "parent"
    """The parent is evaluated on a minibatch."""
    REFLECT = "reflect"
    """A model is asked for a proposal, or for a repair of one."""
    MOVE = "move"
    """A line that did not help is evaluated in other parts."""
    CHILD = "child"
    """The child is evaluated on the same minibatch."""
    PARETO = "pareto"
    """The child of a step is evaluated on the validation set."""
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
    """The initial candidate is evaluated, if it is not the baseline."""
    ROUND = "round"
    """A round as a whole; has no answers of its own."""
    TRAIN = "train"
    """A round evaluates the current candidate on training examples."""
    BACKWARD = "backward"
    """A model is asked which parts or steps led to a failure."""
    AGGREGATE = "aggregate"
    """A model merges the gradients of a part."""
    OPTIMIZE = "optimize"
    """A model writes a new text of a part."""
    TRY = "try"
    """A round evaluates its candidate on the failures that led to it."""
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


MINIBATCHES = frozenset((Phase.PARENT, Phase.MOVE, Phase.CHILD, Phase.TRAIN, Phase.TRY))
"""The phases that evaluate candidates on a few examples, and whose answers are needed soon."""


LEGS: Mapping[Phase, tuple[str, ...]] = {
    Phase.PARETO: ("", "best", "first", "rest"),
    Phase.MERGE: ("", "rest", "race", "race/best", "race/first", "race/rest"),
    Phase.SHORTEN: ("line", "best", "race", "race/best", "race/first"),
    Phase.VALIDATE: ("parent", "child"),
}
"""The legs of phases that have several."""

DOING: Mapping[Phase, str] = {
    Phase.TEACHER: "asking the teacher",
    Phase.BASELINE: "testing your prompt",
    Phase.STEP: "starting",
    Phase.PARENT: "testing the old text",
    Phase.REFLECT: "writing a new text",
    Phase.MOVE: "moving lines to other parts",
    Phase.CHILD: "testing the new text",
    Phase.PARETO: "validating",
    Phase.MERGE: "merging",
    Phase.IDLE: "testing the best text on more cases",
    Phase.SHORTEN: "shortening the best text",
    Phase.FINAL: "testing the finalists",
    Phase.HELD_OUT: "testing on the test cases",
    Phase.INITIAL: "testing your prompt",
    Phase.ROUND: "starting",
    Phase.TRAIN: "testing on training cases",
    Phase.BACKWARD: "tracing a failure back",
    Phase.AGGREGATE: "merging the feedback",
    Phase.OPTIMIZE: "writing a new text",
    Phase.TRY: "trying the new texts on the failures",
    Phase.VALIDATE: "validating",
}
"""What a run does in each phase, in the words of its users."""

_STEP = "step/{step}[/{proposal}]"
# The text of each phase; the part in brackets is left out if its number is 0.
_FORMS = {
    **{phase: phase.value for phase in (Phase.TEACHER, Phase.BASELINE, Phase.INITIAL)},
    Phase.FINAL: "final/{candidate}/{count}",
    Phase.HELD_OUT: "held-out/{candidate}[/{count}]",
    Phase.STEP: _STEP,
    **{side: f"{_STEP}[/again/{{count}}]/{side}" for side in (Phase.PARENT, Phase.CHILD)},
    **{phase: f"{_STEP}/{phase}/{{count}}" for phase in (Phase.REFLECT, Phase.MOVE, Phase.IDLE)},
    Phase.SHORTEN: f"{_STEP}/shorten/{{candidate}}/{{count}}/{{leg}}",
    **{phase: f"{_STEP}/{phase}[/{{leg}}]" for phase in (Phase.PARETO, Phase.MERGE)},
    Phase.ROUND: "round/{step}",
    **{phase: f"round/{{step}}/{phase}" for phase in (Phase.TRAIN, Phase.TRY)},
    **{
        phase: f"round/{{step}}/{phase}/{{leg}}"
        for phase in (Phase.BACKWARD, Phase.AGGREGATE, Phase.OPTIMIZE)
    },
    Phase.VALIDATE: "round/{step}/validate[/again/{count}]/{leg}",
}
_PIECE = re.compile(r"\[([^\]{]*)\{(\w+)\}\]|\{(\w+)\}")


def _pattern(phase: Phase, form: str) -> re.Pattern[str]:
    """Return the pattern of the text of a phase; only the unique form matches, so not `007`."""

    def group(match: re.Match[str]) -> str:
        before, option, name = match.groups()
        kind = "[1-9][0-9]{0,17}" if option else "0|[1-9][0-9]{0,17}"
        if "leg" in (option, name):
            kind = "|".join(filter(None, LEGS.get(phase, ()))) or ".+"
        piece = f"{before or ''}(?P<{option or name}>{kind})"
        return f"(?:{piece})?" if option else piece

    return re.compile(_PIECE.sub(group, form), re.DOTALL)


@cache
def _patterns() -> Mapping[str, Sequence[tuple[Phase, re.Pattern[str]]]]:
    """Return the patterns of texts, by their first word."""
    patterns: dict[str, list[tuple[Phase, re.Pattern[str]]]] = {}
    for phase, form in _FORMS.items():
        patterns.setdefault(form.partition("/")[0], []).append((phase, _pattern(phase, form)))
    return patterns


def named(text: str) -> str:
    """Return a user's name as one component of a place, short enough for a file name."""
    piece = quote(text, safe=" #")
    return piece if len(piece) <= _LONGEST else f"{piece[:_CUT]}~{digest_text(text)[:12]}"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A place in a run; ``Place.parse(str(place)) == place``.

    Attributes:
        phase: what the run does there.
        step: number of the step, from 1; 0 outside of the steps.
        proposal: number of the proposal in its step, from 1; 0 if the step has only one, and for
            the step as a whole.
        candidate: position of the candidate in ``final`` and ``held-out``; in ``shorten`` that of
            the racing candidate, or of the one from which a line was left out.
        leg: part of the phase, one of :data:`LEGS`; for questions of a round their subject, such
            as ``case-7/2`` for the second step of a case.
        count: for parent and child the number of the repeat, 0 for the first evaluation; for a
            reflection and a moved line its number; for ``held-out`` the round, from 0; for
            ``idle`` and ``final`` the number of examples; for ``shorten`` the number of the line,
            or a number that distinguishes races.
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
        """Return the place with this text form.

        Raises:
            DataFormatError: there is none.
        """
        place = _parsed(text)
        if place is None:
            raise DataFormatError(
                f"expected a place in a run, such as `step/3/child`, found {shown(text)}"
            )
        return place

    @classmethod
    def of_rollout(cls, key: str) -> Place | None:
        """Return the place of a rollout; None if ``key`` is not the key of a rollout."""
        text, _, _ = key.rpartition("/")
        place = _parsed(text)
        phases = (Phase.TEACHER, Phase.STEP, Phase.ROUND, *QUESTIONS)
        return None if place is None or place.phase in phases else place

    def __str__(self) -> str:
        def said(match: re.Match[str]) -> str:
            before, option, name = match.groups()
            value = getattr(self, option or name)
            return f"{before or ''}{value}" if name or value else ""

        return _PIECE.sub(said, _FORMS[self.phase])


def _parsed(text: str) -> Place | None:
    """Return the place with this text form; None if there is none."""
    for phase, pattern in _patterns().get(text.partition("/")[0], ()):
        if match := pattern.fullmatch(text):
            pieces = {name: piece for name, piece in match.groupdict().items() if piece}
            leg = pieces.pop("leg", "")
            numbers = {name: int(piece) for name, piece in pieces.items()}
            return Place(phase=phase, leg=leg, **numbers)
    return None
