"""The files of an agent hold one candidate at a time, and in the end what they held before."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from black_box.stored_texts import FRONT, NEW, OLD, SKILL, contents, make, opened
from killing import error_text, folder_in_memory
from programs import Programs
from promptgraft import (
    BlackBox,
    Case,
    GepaConfig,
    GepaExample,
    OptimizationContext,
    OptimizationJob,
    RolloutFeedback,
    ScriptedAdapter,
)
from promptgraft.agents.call import Delivery
from promptgraft.agents.live import LiveFiles
from promptgraft.errors import (
    ConfigError,
    DeadlineExceededError,
    JournalLockedError,
    RunCancelledError,
)
from promptgraft.ground.clock import SystemClock
from promptgraft.runtime import Cancellation, Deadline

DRIVER = Path(__file__).with_name("live_crash_driver.py")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "app")
    return tmp_path / "app"


def test_the_sources_hold_the_candidate_and_then_what_they_held_before(
    folder: Path, tmp_path: Path
) -> None:
    before = contents(folder)
    delivery: Delivery = LiveFiles(opened(folder))
    with delivery.opened(tmp_path / "run"):
        with delivery.deliver(NEW) as given:
            assert given == folder
            assert (folder / "system.md").read_bytes() == (
                b"\xef\xbb\xbfNew system.\r\nTwo lines.\r\n"
            )
            assert (folder / SKILL).read_text() == f"{FRONT}New skill."
            assert (folder / "store.txt").read_text() == "New store."
        originals = contents(tmp_path / "run" / "originals")
    assert contents(folder) == before
    assert originals == {
        "skill.md": before[SKILL],
        "stored": before["store.txt"],
        "system.md": before["system.md"],
    }


def digest(folder: Path) -> str:
    names = ("system.md", SKILL, "store.txt")
    return hashlib.sha256(b"|".join((folder / name).read_bytes() for name in names)).hexdigest()


def test_sixteen_rollouts_at_a_time_read_their_own_candidate(folder: Path, tmp_path: Path) -> None:
    sources = opened(folder)
    candidates = [{**OLD, "system": f"System {at}.", "stored": f"Store {at}."} for at in range(5)]
    expected: dict[int, str] = {}
    delivery = LiveFiles(sources)

    def rollout(number: int) -> str:
        with delivery.deliver(candidates[number % 5]):
            first, second = digest(folder), digest(folder)
        return first if first == second else "changed"

    with delivery.opened(tmp_path / "run"), ThreadPoolExecutor(16) as workers:
        for at in range(5):
            expected[at] = rollout(at)
        assert len({*expected.values()}) == 5
        found = list(workers.map(rollout, range(500)))
    assert [read for at, read in enumerate(found) if read != expected[at % 5]] == []


class LookedAt(SystemClock):
    """A clock at which time stands still, and that says when a waiting rollout looks at it."""

    def __init__(self) -> None:
        self.looked_at = threading.Event()

    def monotonic(self) -> float:
        self.looked_at.set()
        return 0.0


def test_rollouts_of_one_candidate_run_together_and_none_is_overtaken_for_ever(
    folder: Path, tmp_path: Path
) -> None:
    delivery = LiveFiles(opened(folder))
    order: list[str] = []
    inside, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def rollout(system: str, deadline: Deadline | None = None) -> None:
        with delivery.deliver({**OLD, "system": system}, deadline=deadline):
            order.append(system)
            inside.release()
            assert go_on.acquire(timeout=10)

    with delivery.opened(tmp_path / "run"), ThreadPoolExecutor(16) as workers:
        begun = [workers.submit(rollout, "a") for _ in range(3)]
        for _ in range(3):
            assert inside.acquire(timeout=10)  # three together
        waits = LookedAt()
        begun.append(workers.submit(rollout, "b", Deadline(clock=waits, expires_at=1.0)))
        assert waits.looked_at.wait(10)
        begun.append(workers.submit(rollout, "a"))  # comes after b
        go_on.release(5)
        for future in begun:
            future.result(10)
    assert order == ["a", "a", "a", "b", "a"]


def test_waiting_ends_with_the_deadline_and_with_a_cancellation(
    folder: Path, tmp_path: Path
) -> None:
    delivery = LiveFiles(opened(folder))
    stop = Cancellation()
    with delivery.opened(tmp_path / "run"), delivery.deliver(OLD), ThreadPoolExecutor(2) as workers:

        def wait(deadline: Deadline) -> None:
            with delivery.deliver(NEW, deadline=deadline):
                pass

        late = workers.submit(wait, Deadline.after(0.01))
        with pytest.raises(DeadlineExceededError):
            late.result(10)
        cancelled = workers.submit(wait, Deadline(cancellation=stop))
        stop.set("enough")
        with pytest.raises(RunCancelledError):
            cancelled.result(10)
    with delivery.opened(tmp_path / "run"), delivery.deliver(NEW):
        pass


def test_a_source_that_something_else_writes_ends_the_run_and_is_left_as_it_is(
    folder: Path, tmp_path: Path
) -> None:
    before = contents(folder)
    delivery = LiveFiles(opened(folder))
    with delivery.opened(tmp_path / "run"):
        with delivery.deliver(NEW):
            pass
        (folder / "system.md").write_text("Mine.")
        told = (
            "live: system.md:1: expected line '\\ufeffNew system.\\r', found line 'Mine.'; "
            "something else wrote it while the run had a candidate there, so the run ends; it is "
            "left as it is: `promptgraft restore --overwrite` writes over it, `promptgraft restore "
            "--keep` leaves it for good"
        )
        for _ in range(2):
            with pytest.raises(ConfigError) as raised, delivery.deliver(OLD):
                pass
            assert str(raised.value) == told
    found = contents(folder)
    assert found.pop("system.md") == b"Mine."
    assert ".promptgraft/sources.json" in found
    assert found[SKILL] == before[SKILL]
    assert found["store.txt"] == before["store.txt"]
    with pytest.raises(ConfigError, match="run was interrupted: system"):
        opened(folder)


def test_a_source_that_is_written_during_a_rollout_gives_it_no_score(
    folder: Path, tmp_path: Path
) -> None:
    delivery = LiveFiles(opened(folder))
    with (
        delivery.opened(tmp_path / "run"),
        pytest.raises(ConfigError, match=r"system\.md:1: .* so the run ends"),
        delivery.deliver(NEW),
    ):
        (folder / "system.md").write_text("Mine.")


def change(folder: Path) -> None:
    (folder / "system.md").write_text("Mine.")


def remove(folder: Path) -> None:
    (folder / "system.md").unlink()


CHANGED = "it has changed since it was read"


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        (
            change,
            "system.md:1: expected line '\\ufeffOld system.\\r', found line 'Mine.'; " + CHANGED,
        ),
        (remove, "system.md: No such file or directory"),
    ],
)
def test_sources_that_have_changed_since_they_were_read_are_not_taken_over(
    folder: Path, tmp_path: Path, meanwhile: Callable[[Path], object], expected: str
) -> None:
    delivery = LiveFiles(opened(folder))
    box = BlackBox(OLD, agent=lambda query, texts: texts["system"], delivery=delivery)
    job = OptimizationJob(
        box,
        OptimizationContext(reflection_adapter=ScriptedAdapter([])),
        GepaConfig(
            rollout_budget=20,
            pareto_set_size=2,
            training_examples=[
                GepaExample(id=f"{n}", params=(Case(id=f"{n}", input=f"{n}"),)) for n in range(4)
            ],
            feedback_fn=lambda example, response, session: RolloutFeedback(score=1.0, feedback=""),
        ),
    )
    assert job.plan().rollouts == 20
    meanwhile(folder)
    before = contents(folder)
    with pytest.raises(ConfigError) as raised, delivery.opened(tmp_path / "run"):
        pass
    assert str(raised.value) == expected
    for foretold in (job.plan, job.run):
        with pytest.raises(ConfigError) as raised:
            foretold()
        assert str(raised.value) == expected
    assert contents(folder) == before


def test_sources_are_taken_over_by_one_run_at_a_time_and_read_by_no_other(
    folder: Path, tmp_path: Path
) -> None:
    first, second = LiveFiles(opened(folder)), LiveFiles(opened(folder))
    with first.opened(tmp_path / "run"), first.deliver(NEW):
        with pytest.raises(JournalLockedError), second.opened(tmp_path / "other"):
            pass
        with pytest.raises(JournalLockedError) as raised:
            opened(folder)
        assert f"the agent's folder {folder} is in use by process" in str(raised.value)


def test_nothing_is_delivered_outside_of_a_run(folder: Path) -> None:
    with pytest.raises(ConfigError) as raised, LiveFiles(opened(folder)).deliver(NEW):
        pass
    assert str(raised.value) == (
        "live: the sources are not taken over; begin the run with `opened(folder)`"
    )


def test_killed_anywhere_the_next_start_finds_the_originals_to_the_byte(
    programs: Programs,
) -> None:
    kills = int(os.environ.get("PROMPTGRAFT_KILLS", "4"))
    with folder_in_memory() as folder:
        lines = error_text(programs, DRIVER, folder, str(kills))
    said = [json.loads(line) for line in lines]
    killed = [one for one in said if one["signal"] == signal.SIGKILL]
    assert len(killed) == kills
    assert [one["seed"] for one in said if one["after"] != one["before"]] == []
    assert any(one["between"] != one["before"] for one in killed)
