"""What judges have to reply."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import attrs

from promptgraft.prompt.fields import Described


class VoidReplyError(ValueError):
    """A reply that is no judgement; the judge is told why, and asked once more."""


class Category(StrEnum):
    """How an answer compares with its reference."""

    CORRECT = "correct"
    PARTLY = "partly"
    WRONG = "wrong"


class Met(StrEnum):
    """Whether a rubric is met."""

    YES = "yes"
    NO = "no"


@attrs.frozen(kw_only=True)
class CategoryReply:
    """A category for an answer, after the reason for it."""

    reason: Annotated[
        str, Described("What agrees with the reference, what differs, what is missing.")
    ]
    category: Annotated[
        Category,
        Described(
            "The category.",
            values={
                "correct": "Says the same as the reference, in whatever words.",
                "partly": "Right as far as it goes, but something of the reference is missing.",
                "wrong": "Contradicts the reference or does not answer the question.",
            },
        ),
    ]


@attrs.frozen(kw_only=True)
class RubricReply:
    """The answer to one rubric, after the reason for it."""

    id: Annotated[str, Described("The id of the rubric, as it is given.")]
    reason: Annotated[str, Described("What of the material meets the rubric, or fails to.")]
    met: Annotated[Met, Described("Whether the rubric is met.")]


@attrs.frozen(kw_only=True)
class RubricsReply:
    """One answer for each rubric."""

    rubrics: Annotated[
        tuple[RubricReply, ...], Described("One item for each rubric, none left out, none twice.")
    ]


def checked_reason(reason: str, what: str) -> str:
    """Return the reason of a judge.

    Raises:
        VoidReplyError: it is empty.
    """
    if reason.strip():
        return reason.strip()
    raise VoidReplyError(f"{what} has no reason; say what you found")
