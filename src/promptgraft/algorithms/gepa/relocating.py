"""Moves lines that did not help where a reflection put them to the part where they do.

A rule in the wrong part of a prompt often has no effect, and models often misplace rules. A line
that did not help with the failure that it concerns is tried on that failure alone, by binary
search: in all other parts at once, then in half of them, until one is left. This takes a few
rollouts and no reflection.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from promptgraft.algorithms.gepa.attribution import AddedLine, Effect
from promptgraft.algorithms.gepa.redundant import lines_of, without
from promptgraft.algorithms.gepa.sampling import Lesson
from promptgraft.search.acceptance import Change
from promptgraft.search.algorithm import Kit
from promptgraft.search.asks import Asking, Records, Rollouts, Together
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.types import Candidate, GepaExample, Module, RolloutRecord

_FEW = 3
"""Relocations in a row without a gain after which fewer are tried."""


@attrs.frozen(kw_only=True)
class Stray:
    """A line that did not help where it stands.

    Attributes:
        module: the part it was added to.
        text: the line, with its continuation lines.
        key: its normalized content; equal for repetitions.
        words: its words, without case and accents.
        others: the parts in which it may belong.
        example: the training example that it concerns.
        enough: the score that must be exceeded there for the line to count as helpful, unless the
            feedback moves on.
    """

    module: Module
    text: str
    key: str
    words: Sequence[str]
    others: tuple[Module, ...]
    example: GepaExample
    enough: float

    @property
    def cost(self) -> int:
        """Most rollouts that finding its part can take: parent, binary search, child."""
        return 3 + math.ceil(math.log2(len(self.others)))


@attrs.define
class Strays:
    """The queue of lines to be tried in other parts.

    Attributes:
        kit: what the search works with.
        most: rollouts that one proposal may use.
    """

    kit: Kit
    most: int
    _waiting: deque[tuple[Stray, ...]] = attrs.field(factory=deque, init=False)
    _without_gain: int = attrs.field(default=0, init=False)
    _rests: int = attrs.field(default=0, init=False)

    def take(self) -> tuple[Stray, ...]:
        """Return the lines that the next proposal tries to move; empty if it is to reflect."""
        return self._waiting.popleft() if self._waiting else ()

    def moved(self, *, gained: bool) -> None:
        """Record a relocation; the longer none has helped, the fewer are tried."""
        self._without_gain = 0 if gained else self._without_gain + 1
        self._rests = max(0, self._without_gain - _FEW)

    def note(
        self, lines: Iterable[AddedLine], before: Records, about: Sequence[GepaExample]
    ) -> None:
        """Queue the lines of a proposal that did not help.

        Args:
            lines: the lines that the proposal added.
            before: the parent's rollouts on the minibatch.
            about: the minibatch.
        """
        if self._rests:
            self._rests -= 1
            return
        left, found = self.most, list[Stray]()
        for line in lines:
            others = () if line.helped else self._others(line.module, before[line.place])
            if not others:
                continue
            stray = Stray(
                module=line.module,
                text=line.text,
                key=line.key,
                words=line.words,
                others=others,
                example=about[line.place],
                enough=line.enough,
            )
            if stray.cost <= left:
                left -= stray.cost
                found.append(stray)
        if found:
            self._waiting.append(tuple(found))

    def _others(self, module: Module, record: RolloutRecord) -> tuple[Module, ...]:
        """Return the parts of the same kind that the model was shown in that rollout."""
        return tuple(
            one
            for one in self.kit.target.modules
            if one.kind == module.kind and one != module and one.owner not in record.hidden
        )


@attrs.define(eq=False)
class _Sought:
    """State of the binary search for the part of one line.

    Attributes:
        stray: the line.
        places: the parts that are still possible.
        tried: those of them to be tried next.
        helps: whether the line has helped in any of them.
    """

    stray: Stray
    places: tuple[Module, ...]
    tried: tuple[Module, ...]
    helps: bool = False

    def learn(self, *, helped: bool) -> None:
        """Narrow the search, given whether the line helped in ``tried``."""
        if helped:
            self.helps, self.places = True, self.tried
        else:
            left = (one for one in self.places if one not in self.tried)
            self.places = tuple(left) if self.helps else ()
        self.tried = self.places[: len(self.places) // 2]


@attrs.frozen
class Relocation:
    """Moves lines of a candidate to other parts.

    Attributes:
        kit: what the search works with.
        lesson: the candidate, and the examples that the lines concern.
        generic: words of feedback that identify no complaint.
    """

    kit: Kit
    lesson: Lesson
    generic: frozenset[str]

    def run(
        self, position: str, strays: Sequence[Stray], known: Mapping[str, RolloutRecord]
    ) -> Asking[tuple[tuple[Change, ...], list[str]]]:
        """Return the changes that move lines to where they help, and the ids of their examples.

        Args:
            position: position in the run.
            strays: the lines to be moved.
            known: the parent's rollouts, by example id.
        """
        scores = {name: self.kit.scorer.score(record) for name, record in known.items()}
        sought = [
            _Sought(one, one.others, one.others)
            for one in strays
            if (score := scores[one.example.id]) is not None and score <= one.enough
        ]
        count, waiting = 0, sought
        while waiting:
            asked = []
            for one in waiting:
                if (child := self._with(self.lesson.candidate, one.stray, one.tried)) is not None:
                    where, examples = f"{position}/move/{count}", [one.stray.example]
                    asked.append(
                        (one, Rollouts(position=where, candidate=child, examples=examples))
                    )
                    count += 1
            made = yield from Together([rollouts for _, rollouts in asked])
            for (one, _), [record] in zip(asked, made, strict=True):
                one.learn(helped=self._helped(one.stray, known[one.stray.example.id], record))
            waiting = [one for one, _ in asked if one.tried]
        child, moved = self.lesson.candidate, list[Stray]()
        for one in sought:
            if one.helps and (found := self._with(child, one.stray, one.places)) is not None:
                child = found
                moved.append(one.stray)
        return tuple(self._changes(child)), [one.example.id for one in moved]

    def _helped(self, stray: Stray, before: RolloutRecord, after: RolloutRecord) -> bool:
        effect = Effect.of(self.kit.scorer, before, after, generic=self.generic)
        return effect is not None and effect.is_help_of(stray.words, enough=stray.enough)

    def _changes(self, child: Candidate) -> Iterator[Change]:
        target, parent = self.kit.target, self.lesson.candidate
        for module in target.modules:
            text = target.text(module, child)
            if not module.is_example and text != target.text(module, parent):
                before = target.describe(module, parent)
                yield Change(module, before, text, child, "lines moved to where they help")

    def _with(self, onto: Candidate, stray: Stray, places: Sequence[Module]) -> Candidate | None:
        """Return a candidate with the line moved to other parts; None if it is not valid."""
        target = self.kit.target
        texts = {module: target.text(module, onto) for module in (*places, stray.module)}
        for module, text in texts.items():
            own = [line for line in lines_of(text) if line.key == stray.key]
            if module == stray.module:
                texts[module] = without(text, own)
            elif not own:
                texts[module] = f"{text}\n{stray.text}"
        position, minibatch = self.lesson.parent, self.lesson.minibatch
        try:
            for module, text in texts.items():
                if text != target.text(module, onto):
                    onto = target.graft(onto, module, text, parents=(position,), examples=minibatch)
        except InvalidProposalError:
            return None
        return onto
