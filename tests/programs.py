"""Runs programs as `python` does, in forks of a process that has imported what they import.

To import promptgraft takes as long as a small program. What a fork has of another process is a
copy: it has its own environment, folder, modules of the project and end. Only what Python reads
when it begins is that of the first process: the locale, and how texts are hashed.

As a program, ``python programs.py MODULE...``: each line of standard input is a program as JSON;
the reply is its exit code, or the id of its process where nobody waits for its end.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

SEARCH = (
    *("promptgraft.algorithms.gepa.merge", "promptgraft.algorithms.gepa.search"),
    *("promptgraft.search.call_log", "promptgraft.search.validation"),
)
"""What a search imports as it begins."""

COMMANDS = (
    *("promptgraft.cli.apply", "promptgraft.cli.demo_run", "promptgraft.cli.eval"),
    *("promptgraft.cli.main", "promptgraft.cli.optimize", "promptgraft.cli.project"),
    *("promptgraft.cli.runs", "promptgraft.cli.show_run", "promptgraft.runs.report.page"),
    *("promptgraft.adapters.anthropic", "promptgraft.adapters.hosted", "promptgraft.bridges"),
    *("promptgraft.adapters.offline", "promptgraft.adapters.scripted", "promptgraft.graphs.flow"),
    *(
        f"promptgraft.algorithms.gepa.additions.{name}"
        for name in ("blame", "lines.addition", "shorten", "whole_prompt")
    ),
    *("promptgraft.bridges.telemetry", "promptgraft.ground.strict.converter"),
    *("promptgraft.evals.metrics.patterns", "promptgraft.evals.metrics.text"),
    *("promptgraft.project.format_agent_kinds", "asyncio", "cattrs", "jinja2", "markdown_it"),
    *("promptgraft.service.commands.serve", "promptgraft.service.jobs.worker", "uvicorn"),
    *("promptgraft.service.server.app", "sqlalchemy.dialects.sqlite", "ssl", "yaml", *SEARCH),
)
"""What most commands import."""

OPENAI = (
    *("openai.resources.chat.chat", "openai.resources.chat.completions.completions"),
    *("openai.resources.responses", "httpcore2", "anyio._backends._asyncio", "genai_prices.data"),
    *("promptgraft.adapters.openai", "promptgraft.adapters.calling.sdk"),
)
"""What commands with a model of OpenAI import as well: many tests have a local server of theirs."""

SECONDS = 300
"""After this time a program is ended by SIGALRM, so that one that hangs fails its test."""


@contextlib.contextmanager
def keeping_bytecode() -> Iterator[None]:
    """Keep modules whose assertions pytest rewrites for the next run, whatever children may do.

    Those are the tests, and packages that have a plugin: hypothesis takes 0.6 s.
    """
    given, sys.dont_write_bytecode = sys.dont_write_bytecode, False
    try:
        yield
    finally:
        sys.dont_write_bytecode = given


class Started:
    """A program that runs, as :class:`subprocess.Popen` has it.

    Args:
        pid: the id of its process.
        end: the named pipe with its end.
        streams: what it writes to: named pipes, or terminals, of which nothing is read here.
    """

    def __init__(self, pid: int, end: Path, streams: Iterable[Path]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        # Each waits for the program, which opens them in this order.
        self._end = end.open("rb", buffering=0)
        self.stdout, self.stderr = (
            (stream if stream.is_fifo() else Path(os.devnull)).open(encoding="utf-8")
            for stream in streams
        )

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._ended(0)

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for its end, and return its exit code: minus the number of a signal."""
        code = self._ended(seconds)
        assert code is not None, f"process {self.pid} runs after {seconds} s"
        return code

    def _ended(self, seconds: float) -> int | None:
        if self.returncode is None and select.select([self._end], [], [], seconds)[0]:
            self.returncode = int(self._end.read())
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it is known to have ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it by force."""
        self.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """Kill it if it still runs, and close its streams."""
        if self.poll() is None:
            self.kill()
            self.wait()
        for stream in (self.stdout, self.stderr, self._end):
            stream.close()


class WithInput(Started):
    """A program that runs, with a pipe to its standard input."""

    def __init__(self, pid: int, end: Path, given: Path) -> None:
        self.stdin = given.open("wb")
        super().__init__(pid, end, [Path(os.devnull)] * 2)


class Programs:
    """Runs programs.

    Args:
        server: the process that is forked.
    """

    def __init__(self, server: subprocess.Popen[str] | types.SimpleNamespace) -> None:
        self._server = server

    def __call__(
        self,
        *words: str | Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        given: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run ``python WORDS``, where the first are ``-m MODULE``, ``-c CODE`` or a file.

        Args:
            words: the command.
            folder: where it runs; by default, in the current folder.
            environment: the variables that differ from those of this process.
            given: its standard input.
        """
        with tempfile.TemporaryDirectory() as name:
            streams = [Path(name, stream) for stream in ("in", "out", "err")]
            streams[0].write_text(given, "utf-8")
            code = self._ask(words, folder, environment, streams)
            out, err = (stream.read_text("utf-8") for stream in streams[1:])
        return subprocess.CompletedProcess(words, code, out, err)

    @contextlib.contextmanager
    def started(
        self,
        *words: str | Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        given: str = "",
        terminals: Sequence[int] = (),
    ) -> Iterator[Started]:
        """Start a program, which is killed at the end of the block if it still runs.

        ``terminals`` stand in for the last of its two streams.
        """
        with tempfile.TemporaryDirectory() as name:
            streams = [Path(name, stream) for stream in ("in", "out", "err", "end")]
            streams[0].write_text(given, "utf-8")
            for stream in streams[1:]:
                os.mkfifo(stream)
            if terminals:
                streams[-1 - len(terminals) : -1] = map(Path, map(os.ttyname, terminals))
            pid = self._ask(words, folder, environment, streams)
            with contextlib.closing(Started(pid, streams[-1], streams[1:-1])) as begun:
                yield begun

    @contextlib.contextmanager
    def popen(self, parent: Path | None = None) -> Iterator[Callable[..., WithInput]]:
        """Give what starts a program as :class:`subprocess.Popen` does, with a pipe to its input.

        What it writes goes where this process writes. At the end of the block it is killed.
        ``parent`` is where pipes are; by default, where other temporary files are.
        """
        with tempfile.TemporaryDirectory(dir=parent) as name, contextlib.ExitStack() as started:

            def start(command: Sequence[str], **_: object) -> WithInput:
                folder = Path(tempfile.mkdtemp(dir=name))
                for pipe in (given := folder / "in", end := folder / "end"):
                    os.mkfifo(pipe)
                own = [Path(f"/proc/{os.getpid()}/fd/{number}") for number in (1, 2)]
                pid = self._ask(command[1:], None, None, [given, *own, end])
                return started.enter_context(contextlib.closing(WithInput(pid, end, given)))

            yield start

    def _ask(
        self,
        words: Sequence[str | Path],
        folder: Path | None,
        environment: Mapping[str, str] | None,
        streams: Sequence[Path],
    ) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        asked = {
            "words": [str(word) for word in words],
            "folder": str(folder or Path.cwd()),
            "environment": {**os.environ, **(environment or {})},
            "streams": [str(stream) for stream in streams],
        }
        self._server.stdin.write(json.dumps(asked) + "\n")
        self._server.stdin.flush()
        reply = self._server.stdout.readline()
        assert reply, "the process that is forked has ended"
        return int(reply)

    def output(self, *words: str | Path, folder: Path) -> str:
        """Run a program that must succeed; return what it prints."""
        done = self(*words, folder=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def promptgraft(
        self,
        *words: str | Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of promptgraft."""
        return self("-m", "promptgraft", *words, folder=folder, environment=environment)


@contextlib.contextmanager
def forked_programs(*modules: str, path: Path | None = None) -> Iterator[Programs]:
    """Start a process that imports modules, if they are installed, and forks one per program.

    Args:
        modules: what it imports beside promptgraft.
        path: where promptgraft is; by default, where Python finds it.
    """
    command = [sys.executable, __file__, *COMMANDS, *modules]
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as server:
        yield Programs(server)


def _serve(modules: list[str]) -> dict[str, Any]:
    """Fork for each program that is asked for; return it in the fork, exit at the end of input."""
    del sys.path[0]  # the folder of this file
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    _warm_up()
    gc.freeze()
    return _fork_for_each()


def _fork_for_each() -> dict[str, Any]:
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        ends = asked["streams"][3:]
        if ends and os.fork():  # another process waits for that one
            continue
        child = os.fork()
        if child == 0:
            del asked["streams"][3:]
            return asked
        if not ends:
            print(_code_of(child), flush=True)
            continue
        print(child, flush=True)
        with Path(ends[0]).open("w") as end:
            end.write(str(_code_of(child)))
        os._exit(0)
    sys.exit()


def _with_forked_jobs(asked: dict[str, Any]) -> dict[str, Any]:
    """Let the worker that this process will be fork the processes of its jobs.

    Returns what is asked for: in this process the worker, in each fork for it what it asked for.
    """
    from promptgraft.service.jobs import worker

    given, asking = os.pipe()
    answers, answering = os.pipe()
    if os.fork() == 0:
        os.close(asking)  # so that this one ends with the worker
        os.dup2(given, 0)
        os.dup2(answering, 1)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        return _fork_for_each()
    os.close(given)
    os.close(answering)
    server = types.SimpleNamespace(stdin=os.fdopen(asking, "w"), stdout=os.fdopen(answers))
    started = contextlib.ExitStack()
    atexit.register(started.close)
    # Beside its streams, because a worker that is killed removes nothing.
    popen = started.enter_context(Programs(server).popen(Path(asked["streams"][0]).parent))
    own = types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    vars(worker)["subprocess"] = own
    return asked


def _code_of(child: int) -> int:
    """Wait for the end of a process."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _warm_up() -> None:
    """Compile the templates of the report, which takes as long as a small run, and patterns."""
    from promptgraft.ground.text import words_in
    from promptgraft.runs.report.page import make_environment

    words_in("é")
    environment = make_environment()
    for name in environment.list_templates(("html",)):
        environment.get_template(name)


def _become(
    *, words: list[str], folder: str, environment: dict[str, str], streams: list[str]
) -> None:
    """Be the process that runs a program."""
    signal.alarm(SECONDS)
    writing = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for number, stream in enumerate(streams):
        opened = os.open(stream, writing if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    # A stream that was seekable asks of its descriptor what a pipe refuses.
    for number, name, buffering in ((1, "stdout", -1), (2, "stderr", 1)):
        first = getattr(sys, name)
        text = {"encoding": first.encoding, "errors": first.errors}
        setattr(sys, name, open(number, "w", buffering, closefd=False, **text))  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    importlib.invalidate_caches()
    if words[:2] == ["-W", "error"]:
        warnings.simplefilter("error")
        del words[:2]
    if words[0] == "-m":
        sys.path.insert(0, folder)
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.path.insert(0, "")
        sys.argv = ["-c", *words[2:]]
        exec(words[1], {"__name__": "__main__"})
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def _end(code: int) -> NoReturn:
    """End as Python does, but leave the memory to the system.

    To free what the first process has imported copies all of it: 40 ms of the 50 that a fork takes.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve; in each fork, run its program."""
    asked = _serve(sys.argv[1:])
    if asked["words"][:3] == ["-m", "promptgraft", "worker"]:
        asked = _with_forked_jobs(asked)
    try:
        _become(**asked)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        _end(end.code or 0)
    _end(0)


if __name__ == "__main__":
    main()
