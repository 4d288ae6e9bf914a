"""Jobs that the tests of the command line run, in a file as users write it."""

from __future__ import annotations

from pathlib import Path

SOURCE = """
from __future__ import annotations

import asyncio
import itertools
import signal
import threading

import attrs

from optimizers.worlds import PROMPT, answer, config, examples, failing, propose, twin
from promptgraft import (
    Cancellation,
    InMemoryPromptOverridesStore,
    LocalPromptOverridesStore,
    MemoryJournal,
    OptimizationContext,
    OptimizationJob,
    ScriptedAdapter,
)
from promptgraft.adapters.base import CallWaiting
from promptgraft.errors import PermanentProviderError, StoreError


def made(task=answer, *, reflection=propose, store=None, **changes):
    context = OptimizationContext(
        ScriptedAdapter(task, identity="task"),
        reflection_adapter=ScriptedAdapter(reflection, identity="writer"),
        overrides_store=store or LocalPromptOverridesStore(),
        overrides_tag="toy",
    )
    # Enough is held out to show that a winner with half of the words is better.
    unseen = [twin(e, f"{e.id}-{n}") for n in range(4) for e in examples(6)]
    given = {"rollout_budget": 60 + 48, "held_out": unseen, **changes}
    return OptimizationJob(PROMPT, context, config(**given))


def good():
    print("a job may print")
    return made()


JOB = made()


def hopeless():
    return made(reflection=lambda rendered: "```instruction\\nMore.\\n```", max_idle_steps=2)


def refused():
    left = iter(range(30))
    return made(failing(PermanentProviderError("401: no key"), lambda _: next(left, None) is None))


def interrupted():
    return made(after(30, lambda: signal.raise_signal(signal.SIGINT)))


def pressed():
    return attrs.evolve(made(), context=attrs.evolve(made().context, adapter=Pressed()))


class Pressed:
    identity = "pressed"

    def evaluate(self, prompt, *, session, deadline=None):
        answered = ScriptedAdapter(answer).evaluate(prompt, session=session, deadline=deadline)
        stopped = threading.Event()
        undo = deadline.cancellation.listen(stopped.set)
        if PRESSES.acquire(blocking=False):
            stopped.wait(0.1)  # the main thread waits by then, and is not awake by chance
            signal.raise_signal(signal.SIGINT)
        stopped.wait()
        undo()
        return answered


def pressed_async():
    return attrs.evolve(made(), context=attrs.evolve(made().context, adapter=PressedAsync()))


class PressedAsync:
    identity = "pressed"

    async def evaluate(self, prompt, *, session, deadline=None):
        if PRESSES.acquire(blocking=False):
            # In a thread of its own, so that the main thread waits by then.
            await asyncio.to_thread(signal.raise_signal, signal.SIGINT)
        await asyncio.get_running_loop().create_future()


async def made_in_a_loop():
    asyncio.get_running_loop()
    return made()


PRESSES = threading.Semaphore(1)  # a second signal would end the process


def wordy():
    much = lambda rendered: propose(rendered).replace("\\n```", " much" * 90 + "\\n```")
    return made(reflection=much)


def too_few():
    return made(held_out=(), rollout_budget=20)


def few_reflections():
    return made(max_reflections=3)


def unstored():
    return made(persist=False)


def in_memory():
    return made(store=InMemoryPromptOverridesStore())


class FullStore(LocalPromptOverridesStore):
    def mutate_all(self, *arguments, **options):
        raise StoreError("the disk is full; make space")


def full():
    return made(store=FullStore())


def lazy(example=None):
    import neighbour

    return attrs.evolve(made(), config=attrs.evolve(made().config, feedback_fn=neighbour.judge))


def waiting():
    return attrs.evolve(made(), context=attrs.evolve(made().context, adapter=Slow()))


class Slow:
    identity = "slow"

    def evaluate(self, prompt, *, session, deadline=None):
        session.notify(CallWaiting(model="slow", seconds=30.0, reason="rate limited"))
        return ScriptedAdapter(answer).evaluate(prompt, session=session, deadline=deadline)


STOP, JOURNAL = Cancellation(), MemoryJournal()


def owned():
    def stop():
        STOP.set("the owner came home")

    job = made(after(30, stop))
    return attrs.evolve(job, context=attrs.evolve(job.context, cancellation=STOP))


def journaled():
    job = made(after(100, lambda: 1 / 0), rollout_budget=90)
    return attrs.evolve(job, context=attrs.evolve(job.context, journal=JOURNAL))


def wrong():
    return made(rollout_budget=1)


def odd():
    return "no job"


def raising():
    raise KeyError("token")


def needing(seed):
    return made(seed=seed)


def after(calls, act):
    made_so_far = itertools.count()

    def reply(rendered):
        if next(made_so_far) == calls:  # once, or a second signal would end the process
            act()
        return answer(rendered)

    return reply
"""

NEIGHBOUR = """
def judge(example, response, session):
    from optimizers import worlds

    print("judging")
    import lateneighbour

    return worlds.judge(example, response, session)
"""


def write_jobs(folder: Path) -> None:
    """Write the jobs, and what they import, into ``folder``."""
    (folder / "toy_jobs.py").write_text(SOURCE, "utf-8")
    (folder / "neighbour.py").write_text(NEIGHBOUR, "utf-8")
    (folder / "lateneighbour.py").write_text("", "utf-8")
