"""What a run tells while it goes. Positions are those of the candidates in the pool."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path

import attrs

from promptgraft.parts.descriptors import SectionPath
from promptgraft.runtime.events import EventBus
from promptgraft.runtime.session import SessionProtocol
from promptgraft.search.scores import Score
from promptgraft.targets.base import RejectionReason
from promptgraft.targets.types import Candidate, RolloutRecord

Emit = Callable[[object], None]
"""Takes an event of a run."""


@attrs.frozen(kw_only=True)
class RolloutCompleted:
    """A rollout was used.

    Attributes:
        position: where in the run: ``step/12/child/3``.
        record: what came of it.
        total_rollouts: how many were used so far, this one included.
    """

    position: str
    record: RolloutRecord
    total_rollouts: int


@attrs.frozen(kw_only=True)
class GepaStopFileRemoved:
    """A stop file was there when the run began, left behind by an earlier one.

    Attributes:
        path: where it was.
    """

    path: Path


@attrs.frozen(kw_only=True)
class GepaWorking:
    """A notice: what the run does now, and what it has used so far.

    It is no event: only the bus is told, and how often depends on the machine. What a journal
    answers is not told.

    Attributes:
        position: where in the run: ``baseline``, ``step/12/child``, ``step/12/reflect/0``.
        done: answers that are there.
        total: answers that are wanted.
        rollouts: how many the run has used.
        reflections: how many the run has used.
        tokens: how many the run has used.
        cost: US dollars that the run has used; None when a price is not known.
    """

    position: str
    done: int
    total: int
    rollouts: int
    reflections: int
    tokens: int
    cost: Decimal | None


@attrs.frozen(kw_only=True)
class GepaCandidateAdded:
    """The baseline, an accepted child or a merge is in the pool; told before its acceptance.

    Attributes:
        step: number of the step; 0 for the baseline.
        candidate: its position.
        value: the candidate.
        texts: its text of each module, as ``GepaOptimizationStarted.texts``.
        scores: its scores on D_pareto; None for unscored or not tried.
        objectives: its mean in each objective.
        mean: its mean over the scored examples; None when nothing was scored.
        best: position of the best candidate so far.
        rollouts: how many the run has used so far.
        reflections: how many the run has used so far.
        tokens: how many the run has used so far.
        cost: US dollars that the run has used so far; None when a price is not known.
    """

    step: int
    candidate: int
    value: Candidate
    texts: Mapping[str, str]
    scores: Sequence[Score]
    objectives: Mapping[str, float]
    mean: Score
    best: int
    rollouts: int
    reflections: int
    tokens: int
    cost: Decimal | None


@attrs.frozen(kw_only=True)
class GepaCandidateScored:
    """A member of the pool was tried on more of D_pareto.

    Attributes:
        step: number of the step.
        candidate: its position.
        scores: all its scores on D_pareto; None for unscored or not tried.
        objectives: its mean in each objective.
        mean: its mean over the scored examples; None when nothing was scored.
        best: position of the best candidate so far.
    """

    step: int
    candidate: int
    scores: Sequence[Score]
    objectives: Mapping[str, float]
    mean: Score
    best: int


@attrs.frozen(kw_only=True)
class GepaMutationProposed:
    """A usable proposal is about to be tried.

    Attributes:
        step: number of the step, from 1.
        parent: position of the parent.
        module: name of what is changed.
        before: its text in the parent.
        after: the proposed text.
    """

    step: int
    parent: int
    module: str
    before: str
    after: str


@attrs.frozen(kw_only=True)
class GepaMutationAccepted:
    """A candidate joined the pool.

    Attributes:
        step: number of the step.
        candidate: its position.
        parent: position of its parent.
        module: what was changed; several names where a step has changed several.
        parent_score: mean of the parent on the minibatch.
        child_score: mean of the child on the minibatch.
        pareto_mean: mean of the child on D_pareto; None when nothing was scored.
        best_pareto_mean: mean of the best candidate so far.
    """

    step: int
    candidate: int
    parent: int
    module: str
    parent_score: Score
    child_score: Score
    pareto_mean: float | None
    best_pareto_mean: float | None


@attrs.frozen(kw_only=True)
class GepaMutationRejected:
    """A proposal was rejected.

    Attributes:
        step: number of the step.
        parent: position of the parent.
        module: what was to be changed.
        reason: the kind of reason.
        detail: one line for people.
        text: what was proposed; empty when there was nothing to read.
        before: the parent's text of the module.
        parent_score: mean of the parent on the minibatch; None when the child was not tried.
        child_score: mean of the child on the minibatch.
        final: whether the step ends here; otherwise the reflector is asked to mend it, or the
            step goes on with other modules of the same child.
    """

    step: int
    parent: int
    module: str
    reason: RejectionReason
    detail: str
    text: str = ""
    before: str = ""
    parent_score: Score = None
    child_score: Score = None
    final: bool = True


@attrs.frozen(kw_only=True)
class GepaExampleGenerated:
    """A candidate with a new task example joined the pool.

    Attributes:
        step: number of the step.
        candidate: position of the candidate.
        container_path: the section that holds the example.
        key: its key there.
        objective: what it asks.
    """

    step: int
    candidate: int
    container_path: SectionPath
    key: str
    objective: str


@attrs.frozen(kw_only=True)
class GepaMergeAttempted:
    """Two candidates are about to be merged.

    Attributes:
        step: number of the step.
        ancestor: position of the ancestor that they share.
        better: position of the one with the higher mean.
        other: position of the other.
    """

    step: int
    ancestor: int
    better: int
    other: int


@attrs.frozen(kw_only=True)
class GepaMergeAccepted:
    """A merge joined the pool.

    Attributes:
        step: number of the step.
        candidate: its position.
        parents: positions of its parents, the better one first.
        pareto_mean: its mean on D_pareto.
        best_pareto_mean: mean of the best candidate so far.
    """

    step: int
    candidate: int
    parents: tuple[int, int]
    pareto_mean: float | None
    best_pareto_mean: float | None


@attrs.frozen(kw_only=True)
class GepaMergeRejected:
    """A merge was tried and not kept.

    Attributes:
        step: number of the step.
        parents: positions of the two, the better one first.
        reason: the kind of reason.
        detail: one line for people.
    """

    step: int
    parents: tuple[int, int]
    reason: RejectionReason
    detail: str


def teller(session: SessionProtocol | None, bus: EventBus | None) -> Callable[[object], None]:
    """Return a function that tells an event to ``session`` and to ``bus``.

    A session may publish to the same bus itself; its subscribers are not told again then.
    """

    def tell(event: object) -> None:
        told = _dispatch(session, bus, event) if session is not None else False
        if bus is not None and not told:
            bus.publish(event)

    return tell


def _dispatch(session: SessionProtocol, bus: EventBus | None, event: object) -> bool:
    """Append ``event``, and tell whether ``bus`` has published it on the way."""
    heard: list[object] = []
    stop_listening = bus.subscribe(type(event), heard.append) if bus is not None else None
    try:
        session.dispatch(event)
    finally:
        if stop_listening is not None:
            stop_listening()
    return any(told is event for told in heard)
