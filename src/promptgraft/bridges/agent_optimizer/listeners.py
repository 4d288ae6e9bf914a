"""What ``AgentOptimizer`` tells during a run: calls of listeners, lines on stderr, round files."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from promptgraft.bridges.agent_optimizer.result import ResultNames, RoundRecord, rounds_of
from promptgraft.ground.text import listed, score, visible, visible_line
from promptgraft.runs import RunFolder, read_run
from promptgraft.runtime.event_loop import awaited
from promptgraft.runtime.session import EventBus
from promptgraft.search import events
from promptgraft.search.notices import QuestionAsked, RoundStarted
from promptgraft.search.place import Place

_CALLED_ON: Mapping[str, type[object]] = {
    "on_optimization_start": events.RunStarted,
    "on_iteration_start": RoundStarted,
    "on_proposal_start": QuestionAsked,
    "on_proposal_end": events.MutationProposed,
    "on_budget_updated": events.RolloutCompleted,
    "on_valset_evaluated": events.CandidateAdded,
    "on_valset_breakdown": events.CandidateAdded,
    "on_candidate_accepted": events.MutationAccepted,
    "on_candidate_rejected": events.MutationRejected,
    "on_merge_attempted": events.MergeAttempted,
    "on_merge_accepted": events.MergeAccepted,
    "on_merge_rejected": events.MergeRejected,
    "on_optimization_end": events.RunEnded,
}


def warn_of_unheard(listeners: Iterable[object]) -> None:
    """Warn of methods of listeners that look like hooks and are never called."""
    for listener in listeners:
        hooks = [name for name in dir(listener) if name.startswith("on_")]
        if unheard := [name for name in hooks if name not in _CALLED_ON]:
            warnings.warn(
                f"extra_gepa_callbacks: {listed(unheard)} of {type(listener).__name__} will not be "
                f"called; there are {listed(_CALLED_ON)}",
                stacklevel=3,
            )


@contextlib.contextmanager
def listening(
    bus: EventBus, *, listeners: Sequence[object], verbose: int, names: ResultNames
) -> Iterator[None]:
    """Subscribe the user's listeners, and the messages of ``verbose``, to a run."""
    by_kind = defaultdict[type[object], list[Callable[[Any], Any]]](list)
    for name, kind in _CALLED_ON.items():
        hooks = (getattr(listener, name, None) for listener in listeners)
        by_kind[kind] += [partial(_called, hook) for hook in hooks if hook is not None]
    if verbose:
        by_kind[events.CandidateAdded].append(partial(_say_joined, names))
        by_kind[events.MutationRejected].append(partial(_say_rejected, names))
    if verbose > 1:
        by_kind[QuestionAsked].append(_say_asked)
    with contextlib.ExitStack() as subscribed:
        for kind, handlers in by_kind.items():
            for handler in handlers:
                subscribed.callback(bus.subscribe(kind, handler))
        yield


def _called(handler: Callable[[object], Any], event: object) -> None:
    awaited(handler(event))


def _say_joined(names: ResultNames, event: events.CandidateAdded) -> None:
    rate = "" if event.figures.pass_rate is None else f", pass rate {event.figures.pass_rate:.3f}"
    changed = event.changed if event.module is None else _shown(names, event.module)
    what = f"round {event.step}: {changed}" if event.step else "baseline"
    line = visible_line(f"{what}: {score(event.mean)} on the validation set{rate}")
    sys.stderr.write(f"{line}\n")


def _say_rejected(names: ResultNames, event: events.MutationRejected) -> None:
    module = _shown(names, event.module)
    line = visible_line(f"round {event.step}: {module} refused: {event.reason}")
    sys.stderr.write(f"{line}\n")


def _say_asked(event: QuestionAsked) -> None:
    sys.stderr.write(f"{event.position}:\n{visible(event.text)}\n")


def _shown(names: ResultNames, modules: str) -> str:
    return visible(", ".join(names.several(modules)))


class RoundFiles:
    """Writes ``round_NNN.json`` of a run, each when its step has ended."""

    def __init__(self, output: Path, run: RunFolder, names: ResultNames) -> None:
        self._folder = output / "rounds"
        self._run = run
        self._names = names
        self._step = 1
        self._written = 0

    def on_question(self, event: QuestionAsked) -> None:
        """Write the rounds of all steps before the step of a question."""
        self._write_until(Place.parse(event.position).step)

    def on_rollout(self, event: events.RolloutCompleted) -> None:
        """Write the rounds of all steps before the step of a rollout."""
        self._write_until(Place.parse(event.position.rpartition("/")[0]).step)

    def _write_until(self, step: int) -> None:
        if step > self._step:
            self._step = step
            rounds = rounds_of(read_run(self._run), self._names, until=step)
            self._written += write_rounds(self._folder, list(rounds)[self._written :])


def write_rounds(folder: Path, rounds: Sequence[RoundRecord]) -> int:
    """Write each round to its file in ``folder``; return how many there are."""
    folder.mkdir(parents=True, exist_ok=True)
    for record in rounds:
        record.dump_to(folder / f"round_{record.round:03d}.json")
    return len(rounds)
