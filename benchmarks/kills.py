"""Kills of a graph job with slow rollouts, on each database: ``python benchmarks/kills.py``.

A job improves a graph of three nodes with a tool and a judge, five calls a rollout, over a local
server. Its process is killed (SIGKILL) again and again, each time after fewer answers than four
rollouts need, and the job is taken up by the next one. Counted at the server:

* answered again: answers that it has given more often than to a run without kills;
* lost: requests that it has received and never answered;
* ledger: what the ledger of the job has as answered, and as *sent, not answered*.

Every second kill waits until the server answers nothing more, so that it is exact what is in
flight; the others come at any moment. Ends with 1 if more than the calls in flight are repaid, or
if the ledger has fewer requests than the server, or more of them than were in flight at kills.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "resume")]

import calls_world  # noqa: E402
from calls_world import JUDGE, TASK, WORKERS, WRITER, brain  # noqa: E402

from database.database_servers import KINDS, missing, running  # noqa: E402
from jobs.job_world import expire  # noqa: E402
from promptgraft.evals.spending import Role  # noqa: E402
from promptgraft.service.jobs import JobManager, JobState, Worker  # noqa: E402
from servers.behaviour import WELL, Asked, Behaviour, Break  # noqa: E402
from servers.loopback import LoopbackServer  # noqa: E402
from servers.openai_chat import OpenAIChat  # noqa: E402

ENOUGH = 10**9
HANGS = Behaviour(breaks=Break.HANGS)
KEY = "PROMPTGRAFT_KILLS_KEY"
QUIET_SECONDS = 0.1
PATIENCE_SECONDS = 120.0
CLAIMS = 200
"""Looks at the queue of one attempt."""

AGENT = "from calls_world import GRAPH\n\n__all__ = ['GRAPH']\n"
FILE = """
version: 1
graphs: {{calls: agent.py:GRAPH}}
dataset: {{path: cases.jsonl}}
splits: {{ratio: {{train: 0.5, validation: 0.5}}}}
metrics: [{{name: judged, kind: llm_final_response, judges: [strict]}}]
models:
  task: {task}
  reflection: {writer}
  judges: {{strict: {judge}}}
optimizer:
  rollout_budget: {budget}
  minibatch_size: 6
  strategy: {{preset: paper}}
  limits: {{max_idle_steps: 1000}}
workers: {workers}
"""


class Script:
    """Answers so many requests, and leaves the others without an answer."""

    def __init__(self) -> None:
        self.left = ENOUGH
        self.answered: Counter[tuple[str, tuple[str, ...], tuple[str, ...]]] = Counter()
        self.hung = 0
        self._lock = threading.Lock()

    def __call__(self, asked: Asked) -> Behaviour:
        with self._lock:
            if self.left <= 0:
                self.hung += 1
                return HANGS
            self.left -= 1
            # Without the body, which holds ids that the server counts.
            self.answered[asked.model, asked.texts, asked.results] += 1
        return WELL

    def wait_until_quiet(self, process: int) -> bool:
        """Wait until requests hang and no more arrive; return False if the process ends first."""
        before, since = self.hung, time.monotonic()
        end = since + PATIENCE_SECONDS
        hung_before = self.hung
        while time.monotonic() < end:
            if _has_ended(process):
                return False
            time.sleep(0.02)
            if self.hung != hung_before:
                hung_before, since = self.hung, time.monotonic()
            elif hung_before > before and time.monotonic() - since > QUIET_SECONDS:
                return True
        raise AssertionError("the job neither asks nor ends")


def _has_ended(process: int) -> bool:
    # The child is not ours but the forker's: it becomes a zombie until that has seen its end.
    with contextlib.suppress(FileNotFoundError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


class Forker:
    """A program that has imported everything, and forks a process for each attempt."""

    def __init__(self, url: str, project: Path, base_url: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--forker", url, str(project), base_url],
            env={**os.environ, KEY: calls_world.KEY},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self) -> int:
        """Start an attempt, and return its process."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return int(self._line())

    def end(self) -> None:
        """Wait for the end of the attempt."""
        while self._line() != "ended":
            pass

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the program has died"
        return line


def forker(url: str, project: Path) -> None:
    """Carry out the next job in a forked process for each line of standard input."""
    logging.getLogger("promptgraft.service.jobs").setLevel(logging.ERROR)
    import promptgraft.adapters.openai  # noqa: F401 - once, not in each process

    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            with JobManager(url, projects={"calls": project}) as manager:
                worker = Worker(manager, name="here")
                for _ in range(CLAIMS):
                    # A server may need a moment to see that the last process has died.
                    claim = worker.claim()
                    if claim is not None:
                        worker.run_here(claim)
                        break
                    time.sleep(0.05)
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


def written_project(folder: Path, base_url: str, *, cases: int) -> Path:
    """Write the project, and return its file."""
    folder.mkdir(parents=True)
    (folder / "agent.py").write_text(AGENT)
    rows = [
        json.dumps({"id": f"c{n}", "input": f"case {n}", "expected": f"case {n}"})
        for n in range(cases)
    ]
    (folder / "cases.jsonl").write_text("\n".join(rows) + "\n")
    models = {
        name: json.dumps(
            {
                "provider": "openai",
                "api": "chat",
                "model": model,
                "api_key": f"${{{KEY}}}",
                "base_url": base_url,
                "prices": {"input": 1, "output": 2},
                "max_output_tokens": 100,
                "timeout": 30,
            }
        )
        for name, model in (("task", TASK), ("writer", WRITER), ("judge", JUDGE))
    }
    path = folder / "promptgraft.yaml"
    path.write_text(FILE.format(budget=cases * 2, workers=WORKERS, **models))
    return path


@attrs.frozen(kw_only=True)
class Count:
    """What one database has shown; all are requests but ``kills`` and ``seconds``."""

    database: str
    kills: int
    answered_again: int
    in_flight: int
    lost: int
    ledger_answered: int
    ledger_lost: int
    received: int
    seconds: float

    @property
    def surplus(self) -> int:
        """Requests of the ledger that the server has not received: noted, and not sent."""
        return self.ledger_answered + self.ledger_lost - self.received

    @property
    def is_kept(self) -> bool:
        """Whether nothing but calls in flight is repaid, and the ledger has them all."""
        most = self.kills * WORKERS
        repaid = self.answered_again + self.lost
        return repaid <= most and 0 <= self.surplus <= most - repaid

    def line(self) -> str:
        """Return it as a line of a table."""
        return (
            f"{self.database:<11} {self.kills:>5} {self.answered_again:>14} {self.lost:>6} "
            f"{self.kills * WORKERS:>10} {self.ledger_answered:>9} {self.ledger_lost:>10} "
            f"{self.received:>9} {self.surplus:>8} {self.seconds:>8.0f}  "
            f"{'kept' if self.is_kept else 'MISSED'}"
        )


HEAD = (
    f"{'database':<11} {'kills':>5} {'answered again':>14} {'lost':>6} {'in flight':>10} "
    f"{'answered':>9} {'not answ.':>10} {'received':>9} {'surplus':>8} {'seconds':>8}"
)


@contextlib.contextmanager
def served() -> Iterator[tuple[LoopbackServer, Script]]:
    """Yield a server of the models, and its script."""
    script = Script()
    with LoopbackServer(
        OpenAIChat(), brain=brain, script=script, key=calls_world.KEY, models=calls_world.MODELS
    ) as server:
        yield server, script


def straight(folder: Path, cases: int) -> Counter[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return what a run without kills is answered."""
    with served() as (server, script):
        path = written_project(folder, server.base_url, cases=cases)
        with JobManager("sqlite://", projects={"calls": path}) as manager:
            job = manager.create("calls", "calls", {"store": False})
            worker = Worker(manager, name="here")
            claim = worker.claim()
            assert claim is not None
            worker.run_here(claim)
            assert manager.get(job.id).state is JobState.COMPLETED, manager.get(job.id)
        return script.answered


def killed(kind: str, url: str, folder: Path, *, kills: int, cases: int, seed: int) -> Count:
    """Kill a job so often, and let it end."""
    began, chance = time.monotonic(), random.Random(seed)
    needed = straight(folder / "straight", cases)
    with served() as (server, script):
        path = written_project(folder / "killed", server.base_url, cases=cases)
        manager = JobManager(url, projects={"calls": path})
        job = manager.create("calls", "calls", {"store": False})
        program = Forker(url, path, server.base_url)
        try:
            for kill in range(kills):
                # Fewer than the calls of four rollouts, so that no attempt ends all it begins.
                script.left = chance.randint(1, 9) if kill % 2 else ENOUGH
                process = program.begin()
                if kill % 2:
                    assert script.wait_until_quiet(process), f"the job ended at kill {kill}"
                else:
                    before = sum(script.answered.values())
                    while sum(script.answered.values()) < before + chance.randint(1, 9):
                        assert not _has_ended(process), f"the job ended at kill {kill}"
                        time.sleep(0.001)
                os.kill(process, signal.SIGKILL)
                program.end()
                expire(manager)
            script.left = ENOUGH
            program.begin()
            program.end()
        finally:
            program.close()
        current = manager.get(job.id)
        assert current.state is JobState.COMPLETED, f"{current.state}: {current.reason}"
        rows = (manager.result(job.id) or {})["ledger"]
        assert isinstance(rows, list)
        requests = Counter[bool]()
        for row in rows:
            assert isinstance(row, dict)
            is_lost = row["role"] == str(Role.UNANSWERED)
            requests[is_lost] += int(str(row["calls"])) + int(str(row["retries"]))
        manager.close()
        again = script.answered - needed
        assert not needed - script.answered, "an answer that the run needs was never given"
        return Count(
            database=kind,
            kills=kills,
            answered_again=again.total(),
            in_flight=kills * WORKERS,
            lost=script.hung,
            ledger_answered=requests[False],
            ledger_lost=requests[True],
            received=server.counts.requests,
            seconds=time.monotonic() - began,
        )


def main() -> int:
    """Kill a job on each database."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("databases", nargs="*", metavar="DATABASE", help=", ".join(KINDS))
    options = parser.parse_args()
    os.environ[KEY] = calls_world.KEY
    logging.getLogger("promptgraft.service.jobs").setLevel(logging.ERROR)
    counts: list[Count] = []
    print(HEAD, flush=True)
    for kind in options.databases or KINDS:
        if why := missing(kind):
            print(why, flush=True)
            continue
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kills-")))
            url = f"sqlite:///{folder}/jobs.db"
            if kind != "sqlite":
                url = stack.enter_context(running(kind)).fresh()
            cases = max(40, options.kills)
            count = killed(kind, url, folder, kills=options.kills, cases=cases, seed=options.seed)
        counts.append(count)
        print(count.line(), flush=True)
    return 0 if all(count.is_kept for count in counts) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--forker"]:
        forker(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main())
