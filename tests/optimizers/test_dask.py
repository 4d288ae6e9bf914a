"""Rollouts on a cluster of dask with two processes; skipped where dask is not installed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from cli.console import Console
from further import thorough
from optimizers.async_world import AsyncAdapter, AsyncJudge
from optimizers.dask_world import Deadly, Hanging, Heavy, serve
from optimizers.worlds import PROMPT, PlainAdapter, answer, answers, config, propose
from promptgraft.adapters.base import ProviderAdapter
from promptgraft.adapters.scripted import ScriptedAdapter
from promptgraft.algorithms.gepa import GepaConfig, GepaOptimizer, GepaResult
from promptgraft.errors import ConfigError
from promptgraft.journal import MemoryJournal
from promptgraft.runtime import Cancellation, Deadline, EventBus
from promptgraft.search import OptimizationContext, StopReason
from promptgraft.search.events import RolloutCompleted

# Not imported here: that takes a second, in every worker that collects tests.
pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask.distributed is not installed"
)
PROCESSES = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Processes with a thread each, which are started again when they are lost."""
    dask, distributed = map(importlib.import_module, ("dask", "distributed"))
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        # What every worker would import again, after each kill.
        distributed.utils.get_mp_context().set_forkserver_preload(
            ["distributed", "promptgraft.algorithms.gepa", "promptgraft.bridges.dask"]
        )
        with distributed.LocalCluster(
            n_workers=PROCESSES,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as made:
            yield made


@pytest.fixture
def executor(cluster: Any) -> Iterator[Any]:
    with on(cluster.scheduler_address) as made:
        yield made


@contextlib.contextmanager
def scheduler_and_worker() -> Iterator[tuple[BaseProcess, str]]:
    """Give the process of a scheduler that may be killed, and its address."""
    with contextlib.ExitStack() as started:

        def start(kind: str, *arguments: object, **options: object) -> tuple[BaseProcess, str]:
            here, there = forkserver.Pipe()
            process = forkserver.Process(target=serve, args=(there, kind, arguments, options))
            process.start()
            started.callback(process.join)
            started.callback(process.kill)
            return process, here.recv()

        forkserver = multiprocessing.get_context("forkserver")
        scheduler, address = start("Scheduler", host="127.0.0.1", port=0, dashboard=False)
        start("Worker", address, nthreads=PROCESSES)
        yield scheduler, address


@contextlib.contextmanager
def on(address: str, **options: Any) -> Iterator[Any]:
    # What a run was cancelled in is not waited for.
    made = importlib.import_module("promptgraft.bridges.dask").DaskExecutor(address, **options)
    try:
        yield made
    finally:
        made.shutdown(wait=False)


def settings(**changes: Any) -> GepaConfig:
    """Return a search that keeps more workers busy than one."""
    chosen = {"preset": "lean", "rollout_budget": 60, "proposals_per_step": 2, "persist": False}
    return config(**(chosen | changes))


def run(
    executor: Executor | None, adapter: ProviderAdapter | None = None, **surroundings: Any
) -> GepaResult:
    chosen = surroundings.pop("settings", None) or settings()
    context = OptimizationContext(
        adapter or PlainAdapter(),
        reflection_adapter=ScriptedAdapter(propose),
        executor=executor,
        **surroundings,
    )
    return GepaOptimizer(context, chosen).optimize(PROMPT)


@functools.cache
def plain() -> tuple[GepaResult, dict[str, Any]]:
    """Return what the run comes to on threads, and what its journal holds."""
    journal = MemoryJournal()
    with ThreadPoolExecutor(PROCESSES) as threads:
        result = run(threads, journal=journal)
    assert result.found_better
    return result, answers(journal)


def after(rollouts: int, act: Callable[[], object]) -> EventBus:
    """Return a bus that acts once so many rollouts were used."""
    bus = EventBus()

    def look(event: RolloutCompleted) -> None:
        if event.total_rollouts == rollouts:
            act()

    bus.subscribe(RolloutCompleted, look)
    return bus


def test_workers_that_are_killed_change_nothing(
    cluster: Any, executor: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One word ends a process twice; what else was under way there is made again as well."""
    cluster.scheduler.allowed_failures = 2
    journal = MemoryJournal()

    result = run(executor, Deadly(tmp_path, times=2, words=("w2",)), journal=journal)

    assert len(list(tmp_path.iterdir())) == 2
    assert (result, answers(journal)) == plain()
    assert executor.made_again >= 2
    assert "was lost; " in caplog.text


@pytest.mark.thorough
def test_a_rollout_that_ends_its_workers_stays_unscored_and_is_asked_again(
    cluster: Any, executor: Any, tmp_path: Path
) -> None:
    cluster.scheduler.allowed_failures = 1
    journal, strict = MemoryJournal(), settings(max_unscored_share=0.0)
    deadly = Deadly(tmp_path, times=2, words=("w2",))

    stopped = run(executor, deadly, settings=strict, journal=journal)
    assert stopped.stop_reason is StopReason.PROVIDER_FAILED
    assert "the dask workers that made the call were lost" in stopped.stop_detail

    result = run(executor, deadly, journal=journal)
    assert (result.candidates, answers(journal)) == (plain()[0].candidates, plain()[1])


def test_what_is_large_travels_once_to_each_worker(executor: Any, tmp_path: Path) -> None:
    assert run(executor, Heavy(tmp_path)).found_better

    assert (tmp_path / "pickled").read_text() == "x"
    unpickled = [file.read_text() for file in tmp_path.glob("unpickled-*")]
    assert 1 <= len(unpickled) <= PROCESSES
    assert set(unpickled) == {"x"}


def test_results_do_not_stay_in_the_cluster(cluster: Any, executor: Any) -> None:
    held: list[int] = []
    bus = EventBus()
    bus.subscribe(RolloutCompleted, lambda _: held.append(len(cluster.scheduler.tasks)))

    run(executor, event_bus=bus)

    # Two for each thread may be under way, and as many on their way back.
    assert max(held) <= 4 * PROCESSES < len(held)


def test_coroutines_are_run_by_workers(executor: Any) -> None:
    chosen = settings(feedback_fn=AsyncJudge())
    on_workers = run(executor, AsyncAdapter(answer, "task"), settings=chosen)
    assert on_workers == run(None, AsyncAdapter(answer, "task"), settings=chosen)


def test_any_executor_of_a_client_will_do(cluster: Any) -> None:
    client = importlib.import_module("distributed").Client(cluster, set_as_default=False)
    with client, client.get_executor(pure=False) as theirs:
        assert run(theirs) == plain()[0]


@pytest.mark.parametrize("how", ["cancellation", *thorough(["pause"])])
def test_a_run_that_is_stopped_is_resumed_as_if_it_never_was(executor: Any, how: str) -> None:
    journal, stop = MemoryJournal(), Cancellation()
    given: dict[str, Any] = {how: stop, "event_bus": after(30, lambda: stop.set("lunch"))}
    stopped = run(executor, journal=journal, **given)
    assert stopped.stop_reason in {StopReason.CANCELLED, StopReason.PAUSED}

    result = run(executor, journal=journal)

    assert (result.candidates, answers(journal)) == (plain()[0].candidates, plain()[1])


@pytest.mark.thorough
def test_a_scheduler_that_is_lost_ends_the_run_which_is_resumed_with_another(
    executor: Any, caplog: pytest.LogCaptureFixture
) -> None:
    journal = MemoryJournal()
    # For half a minute, dask would look for a scheduler that is lost.
    patience = importlib.import_module("dask").config.set({"distributed.comm.timeouts.connect": 5})
    with scheduler_and_worker() as (scheduler, address), patience, on(address) as lost:
        stopped = run(lost, journal=journal, event_bus=after(30, scheduler.kill))
    kept = answers(journal)

    assert stopped.stop_reason is StopReason.PROVIDER_FAILED
    assert stopped.stop_detail == (
        f"the dask scheduler {address} was lost; start it and resume the run"
    )
    assert len(kept) >= 30

    result = run(executor, journal=journal)
    assert (result.candidates, answers(journal)) == (plain()[0].candidates, plain()[1])
    assert kept.items() <= answers(journal).items()
    assert "Traceback" not in caplog.text
    assert "ERROR" not in caplog.text


def test_a_deadline_leaves_behind_what_hangs_on_workers(executor: Any, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    held = os.open(pipe, os.O_RDWR)
    result = run(executor, Hanging(pipe), deadline=Deadline.after(1.0))
    assert result.stop_reason is StopReason.DEADLINE
    # So that the workers can be used again: those that hang, and those that only begin now.
    pipe.unlink()
    pipe.touch()
    os.close(held)


def test_what_cannot_be_pickled_is_said_before_the_first_call(executor: Any) -> None:
    with pytest.raises(ConfigError, match="executor: dask: a call cannot be pickled: "):
        run(executor, ScriptedAdapter(answer))


def test_a_worker_with_other_packages_is_refused(cluster: Any, executor: Any) -> None:
    def pretend(is_true: bool) -> None:
        module: Any = importlib.import_module("promptgraft.bridges.dask")
        if is_true:
            module.real, module.versions = module.versions, lambda: "promptgraft 0.0.1"
        else:
            module.versions = module.real

    client = importlib.import_module("distributed").Client(cluster, set_as_default=False)
    with client:
        client.run(pretend, True)
        try:
            with pytest.raises(
                ConfigError, match=r"worker tcp://\S+ has promptgraft 0\.0\.1, the run P"
            ):
                run(executor)
            with pytest.raises(ConfigError, match=r"; install the same there"):
                on(cluster.scheduler_address).__enter__()
        finally:
            client.run(pretend, False)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"no scheduler with a worker answers at {address} "):
            on(address, timeout=0.2).__enter__()


# A project file.

FILES = {
    "promptgraft.yaml": """
version: 1
prompts: {words: words.md}
dataset: {path: cases.jsonl}
splits: {ratio: {train: 0.5, validation: 0.5}}
metrics: [{name: judge, kind: python, function: "judging.py:judge"}]
models: {task: {python: "model.py:TASK"}, reflection: {python: "model.py:WRITER"}}
optimizer: {rollout_budget: 60}
""",
    "words.md": "---\nns: toy\nkey: words\n---\n\n# Rules\n\nKnown words:\n\n# Question\n\n$word\n",
    "cases.jsonl": "".join(
        f'{{"id": "{n}", "input": {{"word": "w{n}"}}, "expected": "w{n % 5}"}}\n' for n in range(20)
    ),
    "judging.py": """
import os
from pathlib import Path

import attrs
from helping import is_right

PIDS = Path(__file__).with_name("pids")

@attrs.frozen
class Strict:
    right: float = 1.0

def judge(case, answer):
    with PIDS.open("a") as file:
        print(os.getpid(), file=file)
    score = Strict().right * is_right(case, answer)
    return score, "fine" if score else f"missing {case.expected}"
""",
    "helping.py": """
def is_right(case, answer):
    return case.expected in answer.text
""",
    "model.py": """
from promptgraft import ScriptedAdapter
from promptgraft.adapters.base import answered

class Task:
    identity = "task"

    def evaluate(self, prompt, *, session, deadline=None):
        rendered = prompt.render(session)
        return answered(rendered, rendered.text, session=session)

TASK = Task()
WRITER = ScriptedAdapter(lambda asked: "```instruction\\nw0 w1 w2 w3 w4\\n```", identity="writer")
""",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_functions_of_a_project_reach_workers(
    cluster: Any, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Workers know nothing of its folder; the search is that of threads."""
    console, pids = Console(capsys), project / "pids"

    on_threads = console("optimize", "--json")
    assert set(pids.read_text().split()) == {str(os.getpid())}
    pids.unlink()
    with (project / "promptgraft.yaml").open("a") as file:
        file.write(f"executor: {{dask: '{cluster.scheduler_address}'}}\n")
    on_workers = console("optimize", "--json")

    assert on_workers.code == on_threads.code, on_workers.err
    # Here only the trial on two answers before the run, in the workers everything else.
    assert pids.read_text().split().count(str(os.getpid())) == 2
    first, second = (json.loads(ended.out.splitlines()[-1]) for ended in (on_threads, on_workers))
    for name in ("scores", "candidates", "means", "winner"):
        assert first[name] == second[name]


def test_a_cluster_that_does_not_answer_is_one_line_before_a_run_is_kept(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("promptgraft.bridges.dask")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.2)
    ended = Console(capsys)("optimize", "--dask", "tcp://127.0.0.1:1")
    assert ended.code == 2
    assert "executor: dask: no scheduler with a worker answers at tcp://127.0.0.1:1 " in ended.err
    assert not (project / "runs").exists()
