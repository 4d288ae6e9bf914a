"""What holds in every test: how hypothesis searches, and that nobody leaves this machine."""

from __future__ import annotations

import compileall
import gc
import importlib.util
import ipaddress
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import types
import weakref
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest.assertion import rewrite
from _pytest.unraisableexception import gc_collect_iterations_key

from programs import OPENAI, Programs, forked_programs, keeping_bytecode

with keeping_bytecode():
    from hypothesis import HealthCheck, find, settings, strategies

# Of databases only where the extra of the server is installed.
_IN_DATABASES = ("database.fixtures",) if importlib.util.find_spec("sqlalchemy") else ()
pytest_plugins = ("pytester", *_IN_DATABASES)

_SLOW = [HealthCheck.too_slow]
# Fewer than hypothesis would: `make soak` draws others, as long as it is told to.
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=_SLOW)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

MEMORY = Path("/dev/shm")
ENOUGH_BYTES = 2**29


def pytest_configure(config: pytest.Config) -> None:
    """Spare tests what they are not about: a disk to wait for, sources to compile."""
    if hasattr(config, "workerinput"):
        # A worker of pytest-xdist: the process that started it has seen to it, and hears nothing
        # of the garbage that is collected when the worker ends.
        config.stash[gc_collect_iterations_key] = 0
        return
    if _is_roomy(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    # The key that signs records is not to be the user's.
    state = tempfile.mkdtemp(prefix="promptgraft-state-")
    os.environ["XDG_STATE_HOME"] = state
    config.add_cleanup(lambda: shutil.rmtree(state, ignore_errors=True))
    # Where PYTHONDONTWRITEBYTECODE is set, hundreds of children would compile it again.
    compileall.compile_dir(Path(__file__).parents[1] / "src", quiet=2)
    if config.getoption("numprocesses", default=None):
        _rewrite_assertions(config)


def _rewrite_assertions(config: pytest.Config) -> None:
    """Rewrite the assertions of the tests, which each worker would do again, for 10 s."""
    arguments = [Path(argument.partition("::")[0]) for argument in config.args]
    given = [path for path in arguments if path.exists()]  # pytest names the others
    paths = [path for top in given for path in (top.rglob("test_*.py") if top.is_dir() else [top])]
    context = multiprocessing.get_context("fork")
    count = min(os.cpu_count() or 1, len(paths))
    gc.disable()  # in the forks
    forks = [
        context.Process(target=_rewrite_each, args=(paths[first::count], config))
        for first in range(count)
    ]
    for fork in forks:
        fork.start()
    for fork in forks:
        fork.join()
    gc.enable()


def _rewrite_each(paths: list[Path], config: pytest.Config) -> None:
    for path in paths:
        kept = rewrite.get_cache_dir(path) / (path.stem + rewrite.PYC_TAIL)
        if rewrite._read_pyc(path, kept) is None and rewrite.try_makedirs(kept.parent):
            version, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, version, kept)


@pytest.hookimpl(wrapper=True, optionalhook=True)
def pytest_xdist_auto_num_workers() -> Generator[None, int, int]:
    """Run three workers for two processors: tests often wait for processes and servers.

    More would cost more than they gain: each first collects all tests (`pytest --collect-only`).
    """
    workers = yield
    given = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    return workers if given else workers + (workers + 1) // 2


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage; look seldom later, and never through what is there."""
    # Since Python 3.14, Hypothesis would miss the owner of its random numbers among what is frozen.
    find(strategies.none(), lambda _: True)
    gc.disable()
    try:
        with keeping_bytecode():
            return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 100, 20)
        gc.enable()


_LACKING = re.compile(r"No module named '(\w+)|needs the (?:library|package) `?(\w+)")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """With ``make extras``, skip modules that import a package of another extra."""
    report = yield
    _skip_what_lacks(report, str(report.longrepr), collector.path)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With ``make extras``, skip tests that need a package of another extra."""
    report = yield
    _skip_what_lacks(report, str(call.excinfo and call.excinfo.value), item.path)
    return report


def _skip_what_lacks(
    report: pytest.CollectReport | pytest.TestReport, said: str, path: Path
) -> None:
    lacking = _LACKING.search(said) if os.environ.get("PROMPTGRAFT_EXTRAS") else None
    if report.failed and lacking is not None:
        report.outcome = "skipped"
        report.longrepr = (str(path), 0, f"{lacking[1] or lacking[2]} is not installed")


def _is_roomy(folder: Path) -> bool:
    """Tell whether temporary files may be there, and programs run from there."""
    return (
        folder.is_dir()
        and os.access(folder, os.W_OK)
        and not os.statvfs(folder).f_flag & os.ST_NOEXEC
        and shutil.disk_usage(folder).free > ENOUGH_BYTES
    )


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Fail a test that connects, sends or asks for the address of another machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, name, _LocalOnly(name))
        patch.setattr(socket, "getaddrinfo", _local_getaddrinfo)
        yield


@pytest.fixture(scope="session")
def programs() -> Iterator[Programs]:
    """Runs programs and commands, without the time that Python takes to begin."""
    with forked_programs(*OPENAI) as made:
        yield made


@pytest.fixture
def forked_jobs(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let workers of this process fork the processes of their jobs: 0.7 CPU seconds for each."""
    with programs.popen() as popen:
        own = types.SimpleNamespace(**{**vars(subprocess), "Popen": popen})
        monkeypatch.setattr("promptgraft.service.jobs.worker.subprocess", own)
        yield


_connected: list[weakref.ref[socket.socket]] = []


@pytest.fixture(scope="module", autouse=True)
def no_connections_left() -> Iterator[None]:
    """Fail the module that leaves connections open, not the one in which they are collected.

    It looks for garbage only where some are open, and never again through what it has kept:
    that takes 0.1 s.
    """
    yield
    if any(left is not None and left.fileno() >= 0 for left in (ref() for ref in _connected)):
        gc.collect()
        gc.freeze()
    _connected.clear()


_OTHERS = ("schemathesis", "langsmith_plugin", "anyio", "hypothesispytest")
_WITHOUT_OTHERS = " ".join(f"-p no:{name}" for name in _OTHERS)


@pytest.fixture(scope="session", autouse=True)
def no_plugins_of_others() -> None:
    """Spare each run of pytest that a test starts a second of plugins which it does not use."""
    os.environ["PYTEST_ADDOPTS"] = _WITHOUT_OTHERS


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Pytest's own, which takes the options away that spare it the plugins of others."""
    monkeypatch.setenv("PYTEST_ADDOPTS", _WITHOUT_OTHERS)
    return pytester


EXAMPLES = str(Path(__file__).parents[1] / "examples")


@pytest.fixture(scope="module", autouse=True)
def no_modules_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Forget modules of projects and examples; others may have some under the same names.

    What test modules import at their top stays: they go on to use its classes.
    """
    known = set(sys.modules)
    yield
    homes = (str(tmp_path_factory.getbasetemp()), EXAMPLES)
    for name in sys.modules.keys() - known:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(homes):
            del sys.modules[name]


class _LocalOnly:
    """A method of sockets that looks at the address first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._method = getattr(socket.socket, name)

    def __get__(self, sock: socket.socket, _: type[socket.socket]) -> object:
        def call(*args: object) -> object:
            address = args[-1]
            if sock.family in {socket.AF_INET, socket.AF_INET6} and isinstance(address, tuple):
                _check_local(self._name, address[0], sock)
                _connected.append(weakref.ref(sock))
            return self._method(sock, *args)

        return call


_getaddrinfo = socket.getaddrinfo


def _local_getaddrinfo(host: object, *args: object, **kwargs: object) -> object:
    _check_local("getaddrinfo", host)
    return _getaddrinfo(host, *args, **kwargs)  # type: ignore[arg-type]


def _check_local(what: str, host: object, sock: socket.socket | None = None) -> None:
    if host in {None, "", "localhost", b"localhost"}:
        return
    try:
        if ipaddress.ip_address(str(host)).is_loopback:
            return
    except ValueError:
        pass
    if sock is not None:
        sock.close()
    pytest.fail(f"a test may not leave this machine: {what} {host!r}")
