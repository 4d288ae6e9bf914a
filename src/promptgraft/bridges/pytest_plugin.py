"""The pytest plugin: cases of a project as tests, and the gate as an assertion.

Installed with promptgraft; ``-p no:promptgraft`` disables it. Imports nothing but pytest until a
test uses it, so that other test suites do not become slower.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from promptgraft.bridges.pytest_plugin_reports import (
        CaseVerdict,
        ReportOfTests,
        Selection,
        TestRun,
    )
    from promptgraft.evals.types import Case
    from promptgraft.project import Project

_PARAM = "promptgraft_case_of_item"
_MARK = "promptgraft"
_UNSAFE = re.compile(r"[^A-Za-z0-9_.+=@-]+")
_ID_CHARS = 60
_RUN = pytest.StashKey["TestRun"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command line options."""
    group = parser.getgroup("promptgraft")
    group.addoption(
        "--promptgraft-project",
        metavar="FILE",
        help="project file, for every test; by default what the marker says, or the nearest "
        "promptgraft.yaml of the test",
    )
    group.addoption(
        "--promptgraft-tag",
        metavar="TAG",
        help="tag whose overrides are tried, for every test; by default what the marker says, or "
        "the tag of the project",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "promptgraft(split='test', prompt=None, project=None, tag=None, source=False, check=True, "
        "max_unscored=0): run the test for each case of a promptgraft project, or once when it "
        "uses `promptgraft_report`",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn a marked test into one test per case, without calling a model."""
    names = metafunc.fixturenames
    wants_case = {"promptgraft_case", "promptgraft_verdict"} & set(names)
    if not _is_marked(metafunc.definition) or ("promptgraft_report" in names and not wants_case):
        return
    run = _run_of(metafunc.config)
    with _failing():
        selection = _selection(run, metafunc.definition)
        cases = run.cases(selection)
    names.append(_PARAM)
    metafunc.parametrize(
        _PARAM, [(selection, case) for case in cases], ids=[_safe_id(case.id) for case in cases]
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Answer the case of an item before its test; an unscored case is an error."""
    # `--setup-plan` promises to run nothing.
    if not _is_marked(item) or item.config.getoption("setupplan", default=False):
        return
    parameters = _param(item)
    if parameters is not None:
        with _failing():
            if parameters[0].check:
                _verdict(item, parameters)
    elif "promptgraft_report" not in getattr(item, "fixturenames", ()):
        pytest.fail(
            "the marker `promptgraft` takes functions and methods of plain classes only: this "
            "test cannot be run for each case",
            pytrace=False,
        )


@pytest.hookimpl(tryfirst=True)  # before the body of the test
def pytest_runtest_call(item: pytest.Item) -> None:
    """Fail the test of a case that does not pass with the reasons of the metrics."""
    parameters = _param(item)
    if parameters is not None and parameters[0].check:
        verdict = _verdict(item, parameters)
        if not verdict.passed:
            pytest.fail(verdict.failure_message(_started_in(item.config)), pytrace=False)


@pytest.fixture(scope="session")
def promptgraft_project(pytestconfig: pytest.Config) -> Project:
    """Return the project of ``--promptgraft-project``, or that of the current folder."""
    with _failing():
        return _run_of(pytestconfig).project_of(_started_in(pytestconfig))


@pytest.fixture(scope="session")
def promptgraft_evaluate(pytestconfig: pytest.Config) -> Callable[..., ReportOfTests]:
    """Return a function that takes the arguments of the marker and returns a report."""

    def evaluate(**given: object) -> ReportOfTests:
        run = _run_of(pytestconfig)
        with _failing():
            return _scored(run.report(run.selection(given, _started_in(pytestconfig))))

    return evaluate


@pytest.fixture
def promptgraft_case(request: pytest.FixtureRequest) -> Case:
    """Return the case of a marked test."""
    return _needed(request)[1]


@pytest.fixture
def promptgraft_verdict(request: pytest.FixtureRequest) -> CaseVerdict:
    """Return the case of a marked test with its answer, verdicts, score and reason."""
    parameters = _needed(request)
    with _failing():
        return _verdict(request.node, parameters)


@pytest.fixture
def promptgraft_report(request: pytest.FixtureRequest) -> ReportOfTests:
    """Return the report on all cases that the marker of the test selects."""
    run = _run_of(request.config)
    with _failing():
        return _scored(run.report(_selection(run, request.node)))


def _scored(report: ReportOfTests) -> ReportOfTests:
    from promptgraft.evals.gate import GateRules, decide

    # Unscored answers must not look like a score.
    ruling = decide(report.report, GateRules(max_unscored=report.max_unscored)).rulings[0]
    if ruling.held:
        return report
    reasons = [f"{case.id}: {case.reason}" for case in report.cases if case.unscored]
    pytest.fail("\n".join([ruling.said, *reasons[:5]]), pytrace=False)


def _run_of(config: pytest.Config) -> TestRun:
    if _RUN not in config.stash:
        from promptgraft.bridges import pytest_plugin_reports as reports

        option = config.getoption("--promptgraft-project")
        config.stash[_RUN] = reports.TestRun(
            project=None if option is None else reports.file_of(_started_in(config) / option),
            tag=config.getoption("--promptgraft-tag"),
            answers=reports.CollectedAnswers(_shared_folder(config)),
        )
    return config.stash[_RUN]


def _shared_folder(config: pytest.Config) -> Path | None:
    """Return a folder that the workers of pytest-xdist share; None without pytest-xdist."""
    base_temp = config.getoption("basetemp") if hasattr(config, "workerinput") else None
    # Each worker has a base folder of its own below the one of the test run.
    return None if base_temp is None else Path(base_temp).parent / "promptgraft"


def _started_in(config: pytest.Config) -> Path:
    return config.invocation_params.dir


def _is_marked(node: pytest.Item) -> bool:
    return node.get_closest_marker(_MARK) is not None


def _selection(run: TestRun, node: pytest.Item) -> Selection:
    from promptgraft.errors import ConfigError

    arguments: dict[str, object] = {}
    # From the module inward, so that the marker of a function wins over that of its class.
    for mark in reversed(list(node.iter_markers(_MARK))):
        if mark.args:
            raise ConfigError(
                f"the marker `promptgraft` takes named arguments only, found {mark.args[0]!r}"
            )
        arguments.update(mark.kwargs)
    return run.selection(arguments, node.path.parent)


def _param(item: pytest.Item) -> tuple[Selection, Case] | None:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(_PARAM)


def _needed(request: pytest.FixtureRequest) -> tuple[Selection, Case]:
    parameters = _param(request.node)
    if parameters is None:
        pytest.fail(
            f"`{request.fixturename}` is for tests with the marker `@pytest.mark.promptgraft`",
            pytrace=False,
        )
    return parameters


def _verdict(item: pytest.Item, parameters: tuple[Selection, Case]) -> CaseVerdict:
    selection, case = parameters
    verdict = _run_of(item.config).verdict(selection, case)
    if isinstance(verdict, str):
        pytest.fail(f"case `{case.id}` has no score: {verdict}", pytrace=False)
    return verdict


def _safe_id(case_id: str) -> str:
    """Return an id that shells, reports and ``-k`` accept."""
    safe = _UNSAFE.sub("_", case_id)[:_ID_CHARS]
    if safe == case_id:
        return safe
    short = hashlib.sha256(case_id.encode("utf-8", "surrogatepass")).hexdigest()[:6]
    return f"{safe}-{short}"


@contextmanager
def _failing() -> Iterator[None]:
    """Turn errors of promptgraft into one-line failures of a test or of the collection."""
    from promptgraft import errors
    from promptgraft.ground.text import visible

    try:
        yield
    except errors.PromptgraftError as error:
        faults = error.faults if isinstance(error, errors.DataFormatError) else (str(error),)
        raise pytest.fail.Exception(visible("\n".join(faults)), pytrace=False) from None
