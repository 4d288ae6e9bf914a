"""Calls of models that the journal of a run keeps, one by one."""

from __future__ import annotations

import attrs

from promptgraft.adapters.base import ModelCalled, called_from_json, called_to_json
from promptgraft.adapters.calling.turns import Finish, Turn, turn_from_json, turn_to_json
from promptgraft.errors import JournalCorruptError
from promptgraft.ground.serde import HexDigest, Json
from promptgraft.runtime.calls import Bound, Places
from promptgraft.runtime.session import SessionProtocol


@attrs.define(eq=False, kw_only=True)
class KeptCall:
    """One call of a model in an answer of a run.

    Attributes:
        places: gives the call its place.
        question: SHA-256 of what is asked, and of whom.
        bound: the most that a request can cost.
        place: its place in the answer.
        called: how it ended; None before that.
    """

    places: Places
    question: HexDigest
    bound: Bound
    place: str = attrs.field(init=False)
    called: ModelCalled | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.place = self.places.next()

    def recall(self, session: SessionProtocol) -> Turn | None:
        """Return the answer that an earlier process has paid for, and dispatch how it came."""
        answer = self.places.kept.find(self.place, self.question)
        if answer is None:
            return None
        match answer:
            case {"calls": [called], "turn": turn}:
                session.dispatch(called_from_json(called, self.place))
                return turn_from_json(turn, self.place)
        raise JournalCorruptError(
            f"the journal's record of the call `{self.place}` is no answer of a model; restore the "
            "journal"
        )

    def sending(self) -> None:
        """Note that a request is about to be sent."""
        self.places.kept.sent(self.place, self.question, self.bound)

    def keep(self, turn: Turn) -> None:
        """Keep the answer."""
        self.places.kept.keep(self.place, lambda: self._record(turn))

    def _record(self, turn: Turn) -> tuple[HexDigest, Json] | None:
        if self.called is None:
            return None
        calls: list[Json] = [called_to_json(self.called)]
        # Only a turn that the conversation goes on from is ever sent back.
        goes_on = turn.finish in {Finish.TOOLS, Finish.PAUSED}
        turn_json = turn_to_json(turn if goes_on else attrs.evolve(turn, messages=()))
        return self.question, {"calls": calls, "turn": turn_json}
