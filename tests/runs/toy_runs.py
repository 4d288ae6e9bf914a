"""Small runs in run directories, for tests."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import attrs

from optimizers.worlds import PROMPT, answer, config, examples, propose, twin, twins
from promptgraft import OptimizationContext, OptimizationJob, ScriptedAdapter
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import GepaExample, GepaResult
from promptgraft.ground.clock import Clock
from promptgraft.prompt import RenderedPrompt
from promptgraft.runs import RunFolder
from promptgraft.runs.configuration import described_job, run_config
from promptgraft.runs.folder import make_run
from promptgraft.runs.recorder import recorded
from promptgraft.testing import FakeClock


class KilledError(KeyboardInterrupt):
    """The end of a process, as far as one can have it in a test."""


def after(calls: int) -> Reply:
    """Return a model that is gone with its process after so many calls."""
    left = iter(range(calls))

    def reply(rendered: RenderedPrompt[object]) -> str:
        if next(left, None) is None:
            raise KilledError
        return answer(rendered)

    return reply


def held_out(count: int) -> tuple[GepaExample, ...]:
    """Return questions about the first words, under ids of their own."""
    return tuple(
        twin(example, f"unseen-{number}") for number, example in enumerate(examples(count))
    )


def make_job(
    task: Reply = answer, *, reflection: Reply = propose, **changes: Any
) -> OptimizationJob:
    """Return a job of the world of words: about five steps, held-out examples at the end."""
    context = OptimizationContext(
        ScriptedAdapter(task, identity="task"),
        reflection_adapter=ScriptedAdapter(reflection, identity="writer"),
    )
    settings = {"rollout_budget": 66, "held_out": held_out(3), **changes}
    return OptimizationJob(PROMPT, context, config(**settings))


def make_tiny_job(task: Reply = answer) -> OptimizationJob:
    """Return a job of two steps that leaves every kind of file."""
    return make_job(
        task,
        reflection=sulky,
        pareto_set_size=3,
        minibatch_size=2,
        training_examples=twins(3),
        held_out=held_out(1),
        rollout_budget=20,
    )


def sulky(rendered: RenderedPrompt[object]) -> str:
    """Propose something only if asked again; so every step has a rejected proposal."""
    placeholders = {part.placeholder for found in rendered.sections for part in found.segments}
    return propose(rendered) if "problem" in placeholders else "I would rather not."


def new_folder(root: Path, job: OptimizationJob, clock: Clock | None = None) -> RunFolder:
    """Make the folder of a run of ``job``."""
    asked = run_config(
        job,
        origin={"kind": "job", "spec": "toy.py:JOB", "folder": str(root)},
        settings=described_job(job),
        options={},
    )
    clock = clock or FakeClock()
    return make_run(root, job.name.rpartition("/")[2], asked, now=clock.now())


def carry_out(folder: RunFolder, job: OptimizationJob, clock: Clock | None = None) -> GepaResult:
    """Run ``job`` in its folder, or go on with it."""
    with recorded(folder, job, clock=clock or FakeClock()) as (kept, recorder):
        result = kept.run()
    assert recorder.failure == ""
    return result


def kept_run(root: Path, job: OptimizationJob | None = None) -> RunFolder:
    """Return the folder of a run that went to its end."""
    chosen = make_job() if job is None else job
    folder = new_folder(root, chosen)
    carry_out(folder, chosen)
    return folder


def with_task(job: OptimizationJob, task: Reply) -> OptimizationJob:
    """Return the job with another model, of the same identity."""
    adapter = ScriptedAdapter(task, identity="task")
    return attrs.evolve(job, context=attrs.evolve(job.context, adapter=adapter))


def files_of(folder: RunFolder) -> dict[str, bytes]:
    """Return what a run directory holds, by path; without the locks, and what is made at random."""
    found = {
        str(path.relative_to(folder.path)): path.read_bytes()
        for path in sorted(folder.path.rglob("*"))
        if path.is_file() and path.suffix != ".lock"
    }
    named = re.sub(rb'"tracked_as": "[^"]*"', b'"tracked_as": ""', found.get("config.json", b""))
    return found if not named else {**found, "config.json": named}
