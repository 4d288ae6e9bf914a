"""Makes frozen searches, and says in plain JSON what came of them.

This module and ``arrange`` are all that knows the library: whatever is renamed there is renamed
here. The plain form names no class and no file format, and holds no sentence that people read.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from typing import Any, TypeAlias, get_args

from frozen.arrange import Model, prompt_of, reflector_of, settings_of, task_of
from frozen.world import SECTIONS, World
from promptgraft import (
    Cancellation,
    Deadline,
    EventBus,
    GepaConfig,
    GepaOptimizer,
    GepaResult,
    InMemoryPromptOverridesStore,
    OptimizationContext,
    PromptOverride,
    StopReason,
)
from promptgraft.algorithms.gepa import (
    Candidate,
    GepaMergeAccepted,
    GepaMergeAttempted,
    GepaMergeRejected,
    GepaRolloutCompleted,
)
from promptgraft.algorithms.gepa.settings import Preset
from promptgraft.overrides import (
    AddedTaskExample,
    OutputFieldOverride,
    SectionOverride,
    TaskExampleOverride,
    ToolExampleOverride,
    ToolOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.search import RejectionReason
from promptgraft.search.frontier import FrontierType
from promptgraft.testing import FakeClock

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

STOP_REASONS = frozenset(reason.name for reason in StopReason)
PRESETS = frozenset(get_args(Preset))
FRONTIER_TYPES = frozenset(get_args(FrontierType))
REJECTION_REASONS = frozenset(reason.name for reason in RejectionReason)

_KINDS = {
    "section": "section",
    "tool": "tool",
    "tool example": "tool example",
    "task example": "task example",
    "generated example": "generated task example",
    "output field": "output field",
}
"""What the kinds of parts are called here, by what they are called there."""

KINDS = frozenset(_KINDS.values())


# A search


def search(world: World, plain: Mapping[str, Any], *, workers: int = 0) -> dict[str, Plain]:
    """Make a search, and return what came of it in plain form; no workers is no executor."""
    with tempfile.TemporaryDirectory() as folder:
        stop_file = Path(folder, "STOP")
        settings = settings_of(world, plain, stop_file)
        if not workers:
            return _Search(world, settings, stop_file).run(None)
        with ThreadPoolExecutor(workers) as executor:
            return _Search(world, settings, stop_file).run(executor)


class _Search:
    def __init__(self, world: World, settings: GepaConfig, stop_file: Path) -> None:
        self._world = world
        self._settings = settings
        self._stop_file = stop_file
        self._clock = FakeClock()
        self._cancellation = Cancellation()
        self._store = InMemoryPromptOverridesStore()
        self._rollouts: list[GepaRolloutCompleted] = []
        self._merges: list[Plain] = []

    def run(self, executor: ThreadPoolExecutor | None) -> dict[str, Plain]:
        world = self._world
        prompt = prompt_of(typed=bool({*world.parts} - {*SECTIONS, "nothing"}))
        if world.stored:
            self._store.set_section_override(prompt, path=("rules",), body=world.stored)
        context = OptimizationContext(
            Model(identity="task", reply=task_of(world), cost=_dollars(world.task_cost)),
            reflection_adapter=Model(
                identity="reflection",
                reply=reflector_of(world, self._end),
                cost=_dollars(world.reflection_cost),
            ),
            overrides_store=self._store,
            event_bus=self._bus(),
            deadline=self._deadline(),
            cancellation=self._cancellation if world.ends == "cancellation" else None,
            executor=executor,
        )
        result = GepaOptimizer(context, self._settings).optimize(prompt)
        stored = self._store.resolve(prompt.descriptor)
        return {
            **_described(result, self._settings.budget),
            "merges": self._merges,
            "rollouts": _batches(self._rollouts),
            "stored": None if stored is None else _contents(stored),
        }

    def _end(self, size: int) -> None:
        """Let time pass while the reflector thinks, and end the run where the world says so."""
        self._clock.advance(self._world.reflection_seconds)
        if size >= self._world.ends_at and self._world.ends == "cancellation":
            self._cancellation.set("enough")
        if size >= self._world.ends_at and self._world.ends == "file":
            self._stop_file.touch()

    def _deadline(self) -> Deadline | None:
        seconds = self._world.deadline
        return None if seconds is None else Deadline.after(seconds, clock=self._clock)

    def _bus(self) -> EventBus:
        bus = EventBus()
        bus.subscribe(GepaRolloutCompleted, self._rollouts.append)
        bus.subscribe(GepaMergeAttempted, self._merge_attempted)
        bus.subscribe(GepaMergeAccepted, self._merge_accepted)
        bus.subscribe(GepaMergeRejected, self._merge_rejected)
        return bus

    def _merge_attempted(self, event: GepaMergeAttempted) -> None:
        pair: list[Plain] = [event.better, event.other]
        self._merges.append(
            {"step": event.step, "what": "tried", "parents": pair, "ancestor": event.ancestor}
        )

    def _merge_accepted(self, event: GepaMergeAccepted) -> None:
        self._merges.append({"step": event.step, "what": "kept", "candidate": event.candidate})

    def _merge_rejected(self, event: GepaMergeRejected) -> None:
        self._merges.append({"step": event.step, "what": "refused", "reason": event.reason.name})


def _dollars(amount: str | None) -> Decimal | None:
    return None if amount is None else Decimal(amount)


# What came of it


def _described(result: GepaResult, budget: int) -> dict[str, Plain]:
    held_out = result.held_out
    return {
        "stop": result.stop_reason.name,
        "steps": result.steps,
        "improved": result.found_better,
        "verdict": str(result.verdict),
        "best": result.best_index,
        "persisted": result.persisted,
        "frontier": list(result.frontier),
        "validation": list(result.pareto_ids),
        "candidates": [_candidate(result, number) for number in range(len(result.candidates))],
        "accepted": {
            "mutations": result.ended.accepted,
            "of examples": result.accepted_example_mutations,
            "merges": result.accepted_merges,
        },
        "held out": None
        if held_out is None
        else {
            "examples": list(held_out.ids),
            "baseline": list(held_out.baseline_scores),
            "winner": list(held_out.winner_scores),
            "means": [_rounded(held_out.baseline_mean), _rounded(held_out.winner_mean)],
        },
        "rejections": [
            {
                "step": one.step,
                "module": one.module,
                "reason": one.reason.name,
                "parent": one.parent,
                "scores": [_rounded(one.parent_score), _rounded(one.child_score)],
                "final": one.final,
            }
            for one in result.rejections
        ],
        "ledger": _ledger(result, budget),
    }


def _candidate(result: GepaResult, number: int) -> Plain:
    candidate: Candidate = result.candidates[number]
    return {
        "parents": list(candidate.parents),
        "changed": [module.name for module in candidate.modules],
        "kinds": [_KINDS[module.kind] for module in candidate.modules],
        "scores": list(result.scores_matrix[number]),
        "mean": _rounded(result.means[number]),
        "objectives": {
            name: _rounded(mean) for name, mean in sorted(result.objectives[number].items())
        },
        "contents": _contents(candidate.override),
    }


def _ledger(result: GepaResult, budget: int) -> Plain:
    return {
        "rollouts": result.total_rollouts,
        "unscored": result.unscored_rollouts,
        "reflections": result.total_reflections,
        "budget kept": result.total_rollouts <= budget,
        "calls": [
            {
                "role": entry.role.name,
                "model": entry.model,
                "calls": entry.calls,
                "retries": entry.retries,
                "tokens": [entry.usage.input_tokens, entry.usage.output_tokens],
                "cost": str(entry.cost),
                "unpriced": entry.unpriced_calls,
                "seconds": _rounded(entry.seconds),
            }
            for entry in result.ledger
        ],
    }


def _batches(events: Sequence[GepaRolloutCompleted]) -> list[Plain]:
    """Return rollouts in order, those of one position in one line: ``step/1/parent: l3=0``."""
    lines: list[Plain] = []
    for position, batch in groupby(events, lambda event: event.position.rpartition("/")[0]):
        found = [f"{event.record.example_id}={_short(event.record.score)}" for event in batch]
        lines.append(f"{position}: {' '.join(found)}")
    return lines


def _short(score: float | None) -> str:
    return "-" if score is None else f"{score:.9g}"


def _rounded(number: float | None) -> float | None:
    """Return a mean without the digits that depend on the order of a sum."""
    return None if number is None else round(number, 9)


def _contents(override: PromptOverride) -> dict[str, Plain]:
    """Return what an override says, by part, without what binds it to its source."""
    return {entry.part: _content(entry) for entry in sorted(override.entries(), key=_part)}


def _part(entry: Entry) -> str:
    return entry.part


def _content(entry: Entry) -> Plain:
    match entry:
        case SectionOverride():
            return entry.body
        case ToolOverride():
            return {"description": entry.description, "params": dict(entry.param_descriptions)}
        case ToolExampleOverride():
            return {
                "description": entry.description,
                "input": _parsed(entry.input_json),
                "output": _parsed(entry.output_json),
            }
        case TaskExampleOverride():
            return {
                "objective": entry.objective,
                "outcome": _parsed(entry.outcome_json),
                "steps": _parsed(entry.steps_json),
                "single steps": {
                    str(place): {
                        "tool": step.tool_name,
                        "description": step.description,
                        "input": _parsed(step.input_json),
                        "output": _parsed(step.output_json),
                    }
                    for place, step in sorted(entry.step_overrides.items())
                },
            }
        case AddedTaskExample():
            return {
                "objective": entry.objective,
                "outcome": _parsed(entry.outcome_json),
                "steps": _parsed(entry.steps_json),
            }
        case OutputFieldOverride():
            return {
                "description": entry.description,
                "aliases": None if entry.aliases is None else list(entry.aliases),
                "values": dict(entry.value_descriptions),
            }
        case _:
            return None  # a removal says nothing


def _parsed(text: str | None) -> Plain:
    found: Plain = None if text is None else json.loads(text)
    return found
