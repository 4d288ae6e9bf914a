"""An agent that is a command, such as a coding CLI."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import termios
import threading
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import attrs

from promptgraft.adapters.providers import KEY_OWNERS
from promptgraft.agents.call import LONGEST_SHOWN, AgentAnswer, AgentCall, too_late
from promptgraft.agents.templates import Template, Templated, a_path, hidden
from promptgraft.errors import AgentFaultError, ConfigError, MissingHereError
from promptgraft.ground.files import is_file
from promptgraft.ground.secrets import SENSITIVE
from promptgraft.ground.serde import digest, digest_text, is_unicode, shown
from promptgraft.ground.strict.checks import ENVIRONMENT_NAME, FLAG, SECONDS, STRING
from promptgraft.ground.text import clip_line
from promptgraft.runtime.deadline import Deadline, sooner

LONGEST_OUTPUT = 10_000_000
"""Largest output of a command in bytes."""

# Bytes of standard error, of which only the last characters are told: half of a secret that was cut
# off could not be recognized. The end says why a command failed.
_KEPT_OF_ERRORS, _TOLD_OF_ERRORS = 1 << 16, 4_000
_SHORT_PAUSE = 0.001  # seconds
_PART = 1 << 16
_FREE_DESCRIPTOR = 10
_LOOK_EVERY = 0.2  # seconds; pipes inherited by children may stay open after the command ended
# A killed process cannot clean up its commands. So each command has a guard in its process group,
# not a child of it, whose standard input closes when this process dies; it then kills the group.
_GUARD = """\
exec 3<&0 <"$1"
shift
( (read -r _ <&3; kill -9 -$$) >/dev/null 2>&1 & )
exec "$@" 3<&-
"""


def _as_command(command: Sequence[str]) -> tuple[str, ...]:
    command_object: object = command
    if (
        isinstance(command_object, str)
        or not command_object
        or not all(isinstance(argument, str) for argument in command)
    ):
        raise ConfigError(
            'command: expected a list of texts such as ["cli", "{query}"], found '
            + shown(command_object)
        )
    return tuple(command)


def _as_names(names: Sequence[str] | None) -> tuple[str, ...] | None:
    if names is None:
        return None
    names_object: object = names
    if isinstance(names_object, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"only: expected a list of names such as ['HOME'], found {shown(names_object)}"
        )
    for name in names:
        ENVIRONMENT_NAME.hold("only", name)
    return tuple(names)


def _an_environment(_: object, __: object, variables: object) -> None:
    """Refuse what no process can be started with; values may hold secrets and are not shown."""
    if not isinstance(variables, Mapping):
        raise ConfigError(f"env: expected variables by name, found {shown(variables)}")
    for name, value in variables.items():
        if not isinstance(name, str) or not name or "=" in name or "\0" in name:
            what = "the name of an environment variable such as HOME"
            raise ConfigError(f"env: expected {what}, found {shown(name)}")
        if not isinstance(value, str) or "\0" in value:
            raise ConfigError(f"env.{name}: expected a text without NUL characters as its value")


@attrs.frozen(kw_only=True, slots=False)
class CommandAgent(Templated):
    """An agent that is a command, started for each query without a shell.

    In arguments, variables and ``stdin``, ``{query}``, ``{folder}``, ``{texts.NAME}``,
    ``{session_id}``, ``{turn}``, ``{history}``, ``{context}``, ``{state}`` and ``{example}`` are
    replaced by their values, and ``{files}`` by a list of the paths of images and files, each as
    one text, and ``${NAME}`` by an environment variable. A nonzero exit code
    is the agent's fault. The answer is complete when the command ends, whatever it leaves behind.
    Then, and when the time limit passes, the run ends or this process dies, its process group is
    killed.

    Attributes:
        command: the program and its arguments.
        stdin: what the command reads from its standard input, such as ``{query}``; empty by
            default. Unlike an argument, it may be of any length.
        env: environment variables in addition to those of this process.
        only: names of the variables of this process that the command gets, besides ``PATH``; None
            for all but the usual variables of providers' keys, such as ``OPENAI_API_KEY``.
        timeout: seconds for one answer.
        answer: path of the answer in JSON output, such as ``$.result``; by default the whole output
            is the answer.
        tools: path of the list of called tools.
        version: version of the agent; by default a digest of the files named in ``command``.
        cwd: working directory, to which paths in ``command`` are relative.
        in_copy: start it in the copy that the delivery ``folder`` makes of ``cwd``.

    Raises:
        ConfigError: an argument is invalid.
    """

    command: tuple[str, ...] = attrs.field(converter=_as_command)
    stdin: str = attrs.field(default="", validator=STRING)
    env: Mapping[str, str] = attrs.field(factory=dict, validator=_an_environment, repr=False)
    only: tuple[str, ...] | None = attrs.field(default=None, converter=_as_names)
    timeout: float = attrs.field(default=600.0, validator=SECONDS)
    answer: str | None = attrs.field(default=None, validator=a_path)
    tools: str | None = attrs.field(default=None, validator=a_path)
    version: str = attrs.field(default="", validator=STRING)
    cwd: Path = attrs.field(default=Path(), converter=Path)
    in_copy: bool = attrs.field(default=False, validator=FLAG)

    @property
    def name(self) -> str:
        return Path(self.command[0]).name

    @property
    def identity(self) -> str:
        # System programs count by name only; the user states their version.
        paths = [
            self.cwd / argument for argument in self.command if not Path(argument).is_absolute()
        ]
        digests = self.version or [digest_text(p.read_bytes().hex()) for p in paths if is_file(p)]
        what: list[object] = [list(self.command), sorted(self.env.items()), self.answer, digests]
        # Only where they are set: journals of agents without them stay valid.
        what += [] if self.only is None else [sorted(self.only)]
        what += ["in_copy"] if self.in_copy else []
        what += [{"stdin": self.stdin}] if self.stdin else []
        return f"{self.name} {digest(what)[:12]}"

    @cached_property
    def _arguments(self) -> tuple[Template, ...]:
        return tuple(Template(value=argument, where="command") for argument in self.command)

    @cached_property
    def _variables(self) -> Mapping[str, Template]:
        return {
            name: Template(value=value, where=f"env.{name}") for name, value in self.env.items()
        }

    @cached_property
    def _input(self) -> Template:
        return Template(value=self.stdin, where="stdin")

    @property
    def _templates(self) -> tuple[Template, ...]:
        return (*self._arguments, *self._variables.values(), self._input)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that it needs."""
        return tuple(dict.fromkeys((*super().variables, *(self.only or ()))))

    @property
    def withheld(self) -> tuple[str, ...]:
        """The variables of this process that it does not get because they hold a provider's key."""
        if self.only is not None:
            return ()
        named = {*self.env, *self.variables}
        return tuple(name for name in KEY_OWNERS if os.environ.get(name) and name not in named)

    @property
    def _secret_names(self) -> tuple[str, ...]:
        # The values of others, such as `LANG=C`, may be ordinary words of answers.
        passed = filter(SENSITIVE.search, self.only or ())
        return tuple(dict.fromkeys((*super()._secret_names, *passed)))

    def check(self, delivery: str, names: Collection[str]) -> None:
        if self.in_copy and delivery != "folder":
            raise ConfigError(
                "cwd: `{folder}` is the copy that the delivery `folder` makes; choose it, or "
                "name another folder"
            )
        needed = {"folder": "folder", "argument": "texts"}.get(delivery, "")
        self._check_places(
            names, "command: neither an argument nor `stdin`", needed, is_reached=self.in_copy
        )
        program = self.command[0]
        # Without a separator, as in `Path() / "./run"`, it would be searched for in `PATH`.
        where = self.cwd.absolute() / program if os.sep in program else program
        if shutil.which(where) is None:
            if isinstance(where, Path) and is_file(where):
                raise MissingHereError(
                    f"command: the file `{program}` is no program; make it one with `chmod +x`, or "
                    "name what runs it first, such as `python`"
                )
            raise MissingHereError(
                f"command: there is no program `{program}`; install it, or give its path"
            )

    def ask(self, query: str, call: AgentCall) -> AgentAnswer:
        with self._with_paths(call) as call_with_paths:
            return self._asked(query, call_with_paths)

    def _asked(self, query: str, call: AgentCall) -> AgentAnswer:
        secrets = self._secrets
        arguments = [argument.text(query, call) for argument in self._arguments]
        env = {name: variable.text(query, call) for name, variable in self._variables.items()}
        # `Popen` raises ValueError for them, and OSError for all else that cannot be started.
        if any("\0" in argument for argument in (*arguments, *env.values())):
            raise AgentFaultError("a command cannot be given a text with a NUL character")
        stdin = self._input.text(query, call)
        if not is_unicode(stdin):
            raise AgentFaultError("a command cannot read a lone surrogate")
        ends = sooner(call.deadline, self.timeout)
        folder = call.folder if self.in_copy and call.folder is not None else self.cwd
        env = {**self._inherited(), **env}
        outcome = _run(arguments, stdin=stdin.encode(), cwd=folder, env=env, ends=ends)
        if outcome.is_late:
            if call.deadline is not None:
                call.deadline.check()
            raise too_late(self.name, self.timeout)
        printed = outcome.output.decode("utf-8", "replace").removeprefix("\ufeff")
        output = hidden(printed, secrets)
        if outcome.is_too_long:
            raise AgentFaultError(f"the agent wrote more than {LONGEST_OUTPUT:,} bytes")
        if outcome.code:
            errors_shown = hidden(outcome.errors.decode("utf-8", "replace"), secrets)
            reason = errors_shown[-_TOLD_OF_ERRORS:] or output
            message = clip_line(reason, LONGEST_SHOWN)
            how = _ended(outcome.code)
            raise AgentFaultError(f"the agent {how}{f': {message}' if message else ''}")
        printed = output.removesuffix("\n").removesuffix("\r")
        return self._answer_in(printed, turn=call.turn, is_output=True)

    def _inherited(self) -> dict[str, str]:
        """Return the variables of this process that the command gets."""
        if self.only is None:
            return {name: value for name, value in os.environ.items() if name not in KEY_OWNERS}
        # The command is started by a shell, which must find it.
        inherited_names = {"PATH", *self.only}
        return {name: value for name, value in os.environ.items() if name in inherited_names}


def _ended(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@attrs.define(kw_only=True)
class _Ran:
    """The outcome of a command; ``code`` is negative for a signal."""

    output: bytearray = attrs.field(factory=bytearray)
    errors: bytearray = attrs.field(factory=bytearray)
    code: int = 0
    is_late: bool = False
    is_too_long: bool = False


def _run(
    arguments: Sequence[str], *, stdin: bytes, cwd: Path, env: Mapping[str, str], ends: Deadline
) -> _Ran:
    """Run a command, which reads ``stdin``, until it ends or its time is up."""
    ends.check()
    with contextlib.ExitStack() as stack:
        source = os.devnull
        descriptors: tuple[int, ...] = ()
        if stdin:
            # A file and not a pipe, which a command that does not read it would block.
            file = stack.enter_context(tempfile.TemporaryFile())
            file.write(stdin)
            file.seek(0)
            # Above the numbers that the guard uses.
            descriptor = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, _FREE_DESCRIPTOR)
            stack.callback(os.close, descriptor)
            source, descriptors = f"/dev/fd/{descriptor}", (descriptor,)
        try:
            process = subprocess.Popen(  # noqa: S603 - the user's own command, and no shell line
                ["/bin/sh", "-c", _GUARD, "agent", source, *arguments],
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,  # held open for the guard, closed when this process dies
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=descriptors,
                start_new_session=True,  # a process group of its own, to be killed as a whole
            )
        except OSError as error:
            mend = (
                "; pass `{query}`, or what else is long, in `stdin`"
                if error.errno == errno.E2BIG
                else ""
            )
            raise AgentFaultError(
                f"the command cannot be started: {error.strerror}{mend}"
            ) from error
        running = _Running(process)
        stack.enter_context(process)
        stack.callback(running.end)
        if ends.cancellation is not None:
            stack.callback(ends.cancellation.listen(running.kill))
        return running.follow(ends)


@attrs.frozen
class _Running:
    """A running command and its process group."""

    process: subprocess.Popen[bytes]
    # Reentrant: a signal handler may cancel the run in the thread that holds it.
    lock: threading.RLock = attrs.field(factory=threading.RLock)

    def kill(self) -> None:
        """Kill the group, unless the command was reaped: its id may have been reused."""
        with self.lock:
            if self.process.returncode is None:
                # The group may consist of zombies only.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.process.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill the rest of the group and return the exit code of the command."""
        with self.lock:
            self.kill()
            return self.process.wait()

    def follow(self, ends: Deadline) -> _Ran:
        """Read its output until it has ended or must be stopped."""
        # One thread for both pipes: a command that fills one of them unread would block.
        process, outcome = self.process, _Ran()
        with selectors.DefaultSelector() as waiting:
            for pipe, buffer in (
                (process.stdout, outcome.output),
                (process.stderr, outcome.errors),
            ):
                assert pipe is not None  # noqa: S101 - see _run
                waiting.register(pipe, selectors.EVENT_READ, buffer)
            while not self._has_ended():
                # A command that has closed its output is usually about to end.
                seconds = _LOOK_EVERY if waiting.get_map() else _SHORT_PAUSE
                _read_ready(waiting, min(ends.remaining, ends.look_every, seconds))
                del outcome.errors[:-_KEPT_OF_ERRORS]
                outcome.is_too_long = len(outcome.output) > LONGEST_OUTPUT
                outcome.is_late = ends.expired
                if outcome.is_late or outcome.is_too_long:
                    return outcome
            self.kill()  # children that it left behind
            # What the command wrote is in the pipes by now. They may stay open for ever: a child
            # that has left the group is not killed, and may even go on to write.
            for key in waiting.get_map().values():
                _read_rest(key)
            outcome.is_too_long = len(outcome.output) > LONGEST_OUTPUT
        outcome.code = self.end()
        return outcome

    def _has_ended(self) -> bool:
        """Return whether the command itself has ended, without reaping it."""
        # Reaping would free the id, and a later kill could hit an unrelated group.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process.pid, options) is not None


def _read_ready(waiting: selectors.BaseSelector, seconds: float) -> None:
    """Read what the pipes hold, after waiting for it at most so long."""
    for key, _ in waiting.select(seconds):
        data = os.read(key.fd, _PART)
        key.data.extend(data)
        if not data:
            waiting.unregister(key.fileobj)


def _read_rest(pipe: selectors.SelectorKey) -> None:
    """Read what a pipe holds now, without waiting for its end."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe.fd, termios.FIONREAD, count)
    bytes_left = count[0]
    while bytes_left > 0:
        data = os.read(pipe.fd, min(bytes_left, _PART))
        pipe.data.extend(data)
        bytes_left -= len(data)
