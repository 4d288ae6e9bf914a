"""An agent that is a command, such as a coding CLI."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import attrs

from promptgraft.agents.call import AgentAnswer, AgentCall
from promptgraft.agents.faults import LONGEST_SHOWN
from promptgraft.agents.python import sooner, too_late
from promptgraft.agents.reaping import reaped
from promptgraft.agents.templates import (
    Template,
    Templated,
    a_path,
    hidden,
)
from promptgraft.errors import AgentFaultError, ConfigError
from promptgraft.files import is_file
from promptgraft.runtime.deadline import Deadline
from promptgraft.serde import digest, digest_text, shown
from promptgraft.strict.checks import SECONDS, STRING
from promptgraft.text import clip

LONGEST_OUTPUT = 10_000_000
"""Bytes that a command may write."""

_KEPT_OF_ERRORS = 4_000
_SHORTEST_PAUSE = 0.0005  # seconds
_LOOK_EVERY = 0.2  # seconds; a command that has ended may have left its pipes to others
# The command begins only once it is known to what would end it: `read` waits for a line.
_GATE = ("/bin/sh", "-c", 'read -r go || exit 125; exec "$@"', "agent")


def _as_command(command: Sequence[str]) -> tuple[str, ...]:
    found: object = command
    if isinstance(found, str) or not found or not all(isinstance(one, str) for one in command):
        raise ConfigError(
            'command: expected a list of texts such as ["cli", "{query}"], found ' + shown(found)
        )
    return tuple(command)


@attrs.frozen(kw_only=True, slots=False)
class CommandAgent(Templated):
    """An agent that is a command. It is started for each query, without a shell.

    In arguments and variables ``{query}``, ``{folder}``, ``{texts.NAME}``, ``{session_id}``,
    ``{turn}``, ``{history}``, ``{context}``, ``{state}`` and ``{example}`` stand for what it is
    asked, each as one text, and ``${NAME}`` for a variable of the environment. An exit code other
    than 0 is the agent's fault. At its time limit, when the run ends and when this process dies,
    the command is killed with all that it has started in its process group.

    Attributes:
        command: the program and its arguments.
        env: variables that are set besides those of this process.
        timeout: seconds for one answer.
        answer: where the answer stands in JSON that it writes: ``$.result``; by default all that
            it writes is the answer.
        tools: where the list of the tools stands that it called.
        version: of the agent; by default a digest of the files that ``command`` names.
        cwd: the folder that it is started in, where paths in ``command`` begin.

    Raises:
        ConfigError: an argument is not what it must be.
    """

    command: tuple[str, ...] = attrs.field(converter=_as_command)
    env: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    timeout: float = attrs.field(default=600.0, validator=SECONDS)
    answer: str | None = attrs.field(default=None, validator=a_path)
    tools: str | None = attrs.field(default=None, validator=a_path)
    version: str = attrs.field(default="", validator=STRING)
    cwd: Path = attrs.field(default=Path(), converter=Path)

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def identity(self) -> str:
        # A program of the system is known by its name: its version is the user's to say.
        paths = [self.cwd / one for one in self.command if not Path(one).is_absolute()]
        seen = self.version or [digest_text(p.read_bytes().hex()) for p in paths if is_file(p)]
        what = digest([list(self.command), sorted(self.env.items()), self.answer, seen])[:12]
        return f"{self.name} {what}"

    @cached_property
    def _arguments(self) -> tuple[Template, ...]:
        return tuple(Template(value=one, where="command") for one in self.command)

    @cached_property
    def _variables(self) -> Mapping[str, Template]:
        return {name: Template(value=one, where=f"env.{name}") for name, one in self.env.items()}

    @property
    def _templates(self) -> tuple[Template, ...]:
        return (*self._arguments, *self._variables.values())

    def check(self, delivery: str, names: Collection[str]) -> None:
        needed = {"folder": "folder", "argument": "texts"}.get(delivery, "")
        self._check_places(names, "command: no argument", needed)
        program = self.command[0]
        where = self.cwd / program if os.sep in program else program
        if shutil.which(where) is None:
            raise ConfigError(
                f"command: there is no program `{program}`; install it, or give its path"
            )

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        secrets = self._secrets
        arguments = [one.text(query, call) for one in self._arguments]
        env = {name: one.text(query, call) for name, one in self._variables.items()}
        if any("\0" in one for one in (*arguments, *env.values())):
            raise AgentFaultError("a command cannot be given a text with a NUL character")
        ends = sooner(call.deadline, self.timeout)
        found = _run(arguments, cwd=self.cwd, env={**os.environ, **env}, ends=ends)
        if found.is_late:
            if call.deadline is not None:
                call.deadline.check()
            raise too_late(self.name, self.timeout)
        output = hidden(found.output.decode("utf-8", "replace"), secrets)
        if found.is_too_long:
            raise AgentFaultError(f"the agent wrote more than {LONGEST_OUTPUT:,} bytes")
        if found.code:
            told = hidden(found.errors.decode("utf-8", "replace"), secrets)
            said = clip(" ".join((told or output).split()), LONGEST_SHOWN, around=" ")
            how = _ended(found.code)
            raise AgentFaultError(f"the agent {how}{f': {said}' if said else ''}")
        return self._answer_in(output.removesuffix("\n"))


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@attrs.define(kw_only=True)
class _Ran:
    """What a command did; ``code`` is negative for a signal."""

    output: bytearray = attrs.field(factory=bytearray)
    errors: bytearray = attrs.field(factory=bytearray)
    code: int = 0
    is_late: bool = False
    is_too_long: bool = False


def _run(
    arguments: Sequence[str], *, cwd: Path, env: Mapping[str, str], ends: Deadline | None
) -> _Ran:
    """Run a command to its end, or until its time is over."""
    ends = ends or Deadline()
    ends.check()
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell line
            [*_GATE, *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:  # such as a query that is longer than an argument may be
        raise AgentFaultError(f"the command cannot be started: {error.strerror}") from error
    running = _Running(process)
    cancellation = ends.cancellation
    undo: Callable[[], None] = lambda: None  # noqa: E731
    try:
        with reaped(process.pid):
            if cancellation is not None:
                undo = cancellation.listen(running.kill)
            return running.follow(ends)
    finally:
        undo()
        running.end()


class _Running:
    """A command under way, with its process group."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._is_over = False  # waited for: its number may belong to another process
        self._lock = threading.RLock()

    def kill(self) -> None:
        """Kill the group; nothing once the command was waited for."""
        with self._lock:
            if not self._is_over:
                # All of it may have ended and only wait to be waited for.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill what is left and return the exit code of the command."""
        with self._lock:
            if not self._is_over:
                self.kill()
                self._process.wait()
                self._is_over = True
                for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                    if pipe is not None:
                        pipe.close()
        return self._process.returncode

    def follow(self, ends: Deadline) -> _Ran:
        """Let it begin, read what it writes, and return what it did."""
        process, found = self._process, _Ran()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # killed already
                process.stdin.write(b"\n")
            process.stdin.close()
        with selectors.DefaultSelector() as waiting:
            for pipe, kept in ((process.stdout, found.output), (process.stderr, found.errors)):
                if pipe is not None:
                    waiting.register(pipe, selectors.EVENT_READ, kept)
            while waiting.get_map() and not found.is_late and not found.is_too_long:
                seconds = min(ends.remaining, ends.look_every, _LOOK_EVERY)
                for key, _ in waiting.select(seconds):
                    data = os.read(key.fd, 65_536)
                    key.data.extend(data)
                    if not data:
                        waiting.unregister(key.fileobj)
                del found.errors[:-_KEPT_OF_ERRORS]
                found.is_too_long = len(found.output) > LONGEST_OUTPUT
                found.is_late = ends.expired
                if not found.is_late and self._has_ended():
                    self.kill()  # what it has started and left behind
        pause = _SHORTEST_PAUSE
        while not (found.is_late or found.is_too_long or self._has_ended()):
            # It has closed its output and goes on; mostly it is just about to end.
            time.sleep(min(pause, ends.remaining, ends.look_every))
            pause = min(2 * pause, _LOOK_EVERY)
            found.is_late = ends.expired
        if not (found.is_late or found.is_too_long):
            found.code = self.end()
        return found

    def _has_ended(self) -> bool:
        """Tell whether the command itself has ended; it stays to be waited for."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is not None
