"""The verdicts and reports of the pytest plugin, and the projects and answers of a test run."""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from promptgraft.errors import ConfigError, PermanentProviderError, PromptgraftError
from promptgraft.evals import gate
from promptgraft.evals.aggregate import CaseStatus
from promptgraft.evals.gate.baseline import check_comparable
from promptgraft.evals.gate.report import in_a_row
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.locks import locked
from promptgraft.ground.serde import did_you_mean, digest
from promptgraft.ground.text import visible, visible_line
from promptgraft.project import FILE_NAME, Project, find_project, load_project
from promptgraft.project.gate import Choice, chosen_cases, subject_of
from promptgraft.project.python_source import beside

_SHOWN_CASES = 20
_REASON_CHARS = 300
_AT_ONCE = 32  # cases whose locks one process holds

_CHOICES = ("prompt", "split", "tag", "source")
_ARGUMENTS: Mapping[str, type] = {
    "prompt": str,
    "project": str,
    "split": str,
    "tag": str,
    "source": bool,
    "check": bool,
    "max_unscored": int,
}


@attrs.frozen(kw_only=True, repr=False)
class CaseVerdict:
    """One case with its answer and the verdicts of the project's metrics.

    Attributes:
        answer: None if it could not be used.
        verdicts: one of each metric, in their order; empty if there was no answer.
        score: 0 to 1.
        reason: why the case does not pass, one line per metric; empty if it passes.
    """

    case: Case
    answer: Answer | None
    verdicts: tuple[Verdict, ...]
    score: float
    passed: bool
    reason: str

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        if self.passed:
            return f"<case {self.case.id!r} passes, score {self.score:.4g}>"
        return f"<case {self.case.id!r} fails, score {self.score:.4g}: {in_a_row(self.reason)}>"

    def failure_message(self, folder: Path) -> str:
        """Return the message of a failing test; paths are relative to ``folder``."""
        origin = self.case.origin.removeprefix(f"{folder}{os.sep}")
        place = f" ({origin})" if origin else ""
        answer_line = "no answer" if self.answer is None else f"answer: {self.answer.text}"
        return visible(
            f"case `{self.case.id}`{place} fails, score {self.score:.4g}\n"
            f"{self.reason}\n{answer_line}"
        )


@attrs.frozen(kw_only=True, repr=False)
class ReportOfTests:
    """The report on the cases of a marker.

    Attributes:
        report: all cases with their verdicts.
        folder: the folder of the project file, to which paths of baselines are relative.
        ask: evaluates the cases with the given ids again, for the n-th time.
        max_unscored: the number of answers that may be unscored.
    """

    report: gate.GateReport
    folder: Path
    ask: Callable[[tuple[str, ...], int], gate.GateReport]
    max_unscored: int = 0

    @property
    def mean_score(self) -> float | None:
        """The mean over the scored cases."""
        return self.report.mean_score

    @property
    def pass_rate(self) -> float | None:
        """The share of scored answers that pass."""
        return self.report.pass_rate

    @property
    def cases(self) -> tuple[gate.CaseResult, ...]:
        """All cases, in the order of the data set."""
        return self.report.cases

    @property
    def failing(self) -> tuple[gate.CaseResult, ...]:
        """The cases that do not pass, critical ones first."""
        return self.report.failing

    def compared_with(self, baseline: str | Path, *, tolerance: float = 0.0) -> gate.Comparison:
        """Compare with a baseline that ``promptgraft eval --save-baseline`` wrote.

        Critical cases that score lower are repeated first.

        Raises:
            ConfigError: the baseline cannot be read, or is of other data.
            DataFormatError: the baseline is damaged.
        """
        path = self.folder / baseline
        kept_baseline, where = gate.read_baseline(path), f"baseline {path}"
        check_comparable(kept_baseline, self.report, where=where)
        report = gate.confirm(kept_baseline, self.report, self.ask)
        return gate.compare(kept_baseline, report, tolerance=tolerance, where=where)

    def check(
        self,
        *,
        fail_under: float | None = None,
        min_pass_rate: float | None = None,
        baseline: str | Path | None = None,
        tolerance: float = 0.0,
        refuse_unclear: bool = False,
    ) -> None:
        """Fail the test if a rule is broken, with the broken rules and the failing cases.

        The rules are those of ``promptgraft eval``: the lowest mean score, the lowest pass rate,
        and a baseline that neither the mean nor a critical case may be worse than.
        """
        rules = gate.GateRules(
            fail_under=fail_under,
            min_pass_rate=min_pass_rate,
            refuse_unclear=refuse_unclear,
            max_unscored=self.max_unscored,
        )
        try:
            comparison = (
                None if baseline is None else self.compared_with(baseline, tolerance=tolerance)
            )
        except PromptgraftError as error:
            pytest.fail(visible(str(error)), pytrace=False)
        decision = gate.decide(self.report, rules, comparison)
        if not decision.passed:
            broken = [f"{ruling.rule}: {ruling.said}" for ruling in decision.broken]
            pytest.fail(visible("\n".join([*broken, *self._failure_lines()])), pytrace=False)

    def __repr__(self) -> str:
        return repr(self.report)

    def _failure_lines(self) -> list[str]:
        failing = self.failing
        lines = [
            visible_line(f"{case.id}: {in_a_row(case.reason)}")[:_REASON_CHARS]
            for case in failing[:_SHOWN_CASES]
        ]
        more = len(failing) - _SHOWN_CASES
        return [self.report.line(), *lines, *([f"and {more} more"] if more > 0 else [])]


class CollectedAnswers:
    """Answers each case on first use, and remembers the answers.

    Args:
        folder: shared by the workers of pytest-xdist, with a file and a lock for each case;
            created if it is missing. None for a test run in one process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, gate.Answered] = {}

    def of(
        self, subject: gate.Subject, cases: Sequence[Case], *, identity: object, workers: int = 1
    ) -> Mapping[str, gate.Answered]:
        """Return the answers to some cases of ``subject``, by case id.

        Answers are shared between calls with the same ``identity``, which is plain data.

        Raises:
            PromptgraftError: the evaluation failed.
        """
        keys = {case.id: digest([identity, case.id]) for case in cases}
        missing = [case for case in cases if keys[case.id] not in self._known]
        for first in range(0, len(missing), _AT_ONCE):
            some = missing[first : first + _AT_ONCE]
            with self._locked(keys[case.id] for case in some):
                self._fill(subject, some, keys, workers)
        return {case_id: self._known[key] for case_id, key in keys.items()}

    def _fill(
        self, subject: gate.Subject, cases: Sequence[Case], keys: Mapping[str, str], workers: int
    ) -> None:
        unanswered = []
        for case in cases:
            answered = self._find(keys[case.id])
            if answered is None:
                unanswered.append(case)
            else:
                self._known[keys[case.id]] = answered
        with contextlib.ExitStack() as ending:
            executor = None
            if workers > 1 and len(unanswered) > 1:
                executor = ending.enter_context(ThreadPoolExecutor(min(workers, len(unanswered))))
            attempts = (
                subject.evaluate(unanswered, executor=executor).attempts if unanswered else ()
            )
        for attempt in attempts:
            self._keep(keys[attempt.case_id], gate.Answered.of(attempt))

    @contextlib.contextmanager
    def _locked(self, keys: Iterable[str]) -> Iterator[None]:
        """Lock cases, so that no other process answers them at the same time."""
        with contextlib.ExitStack() as locks:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                for key in sorted(keys):  # in one order, so that two workers cannot deadlock
                    locks.enter_context(locked(self._folder / f"{key}.lock"))
            yield

    def _find(self, key: str) -> gate.Answered | None:
        """Return the answer that another process has stored."""
        if self._folder is None:
            return None
        try:
            data = (self._folder / f"{key}.answer").read_bytes()
        except FileNotFoundError:
            return None
        answered_case: gate.Answered = pickle.loads(data)  # noqa: S301 - of a worker of this test run
        return answered_case

    def _keep(self, key: str, answered: gate.Answered) -> None:
        self._known[key] = answered
        if self._folder is not None:  # not durable: the file lives no longer than the test run
            temporary = self._folder / f"{key}.{os.getpid()}.tmp"
            temporary.write_bytes(pickle.dumps(answered))
            # Renamed, so that another worker never reads half an answer.
            temporary.replace(self._folder / f"{key}.answer")


@attrs.frozen(kw_only=True)
class Selection:
    """The arguments of a marker, or of a call of ``promptgraft_evaluate``.

    Attributes:
        project: the absolute path of the project file.
        check: whether a case that does not pass fails its test.
        max_unscored: the number of answers of a report that may be unscored.
    """

    project: Path
    choice: Choice
    check: bool = True
    max_unscored: int = 0


# Untyped calls: `_ARGUMENTS` has already checked the types.
_CHOICE: Callable[..., Choice] = Choice
_SELECTION: Callable[..., Selection] = Selection


@attrs.frozen(kw_only=True, eq=False)
class TestRun:
    """A test run: the options of its command line, the projects and the answers so far."""

    __test__ = False

    _project: Path | None
    _tag: str | None
    _answers: CollectedAnswers
    _projects: dict[Path, Project] = attrs.field(factory=dict, init=False)
    _subjects: dict[tuple[Path, Choice], gate.Subject | PromptgraftError] = attrs.field(
        factory=dict, init=False
    )
    _reports: dict[Selection, ReportOfTests] = attrs.field(factory=dict, init=False)

    def selection(self, arguments: Mapping[str, object], folder: Path) -> Selection:
        """Check the arguments of a marker; paths in them are relative to ``folder``.

        Raises:
            ConfigError: an argument is unknown or unusable, or there is no project.
        """
        for name, value in arguments.items():
            if name not in _ARGUMENTS:
                names = f"{did_you_mean(name, list(_ARGUMENTS))}; there are {', '.join(_ARGUMENTS)}"
                raise ConfigError(f"unknown argument `{name}`{names}")
            if type(value) is not _ARGUMENTS[name]:
                raise ConfigError(f"{name}: expected {_ARGUMENTS[name].__name__}, found {value!r}")
        chosen = {name: value for name, value in arguments.items() if name in _CHOICES}
        if self._tag is not None:
            chosen = {**chosen, "tag": self._tag, "source": False}
        rest = {name: arguments[name] for name in ("check", "max_unscored") if name in arguments}
        path = self._path(arguments.get("project"), folder)
        return _SELECTION(project=path, choice=_CHOICE(**chosen), **rest)

    def project(self, path: Path) -> Project:
        """Return a project; it is read on first use."""
        if path not in self._projects:
            self._projects[path] = load_project(path)
        return self._projects[path]

    def project_of(self, folder: Path) -> Project:
        """Return the project of the command line, or else that of a folder."""
        return self.project(self._path(None, folder))

    def cases(self, selection: Selection) -> tuple[Case, ...]:
        """Return the cases of a selection, without calling a model."""
        return chosen_cases(self.project(selection.project).parts, selection.choice.split)

    def verdict(self, selection: Selection, case: Case) -> CaseVerdict | str:
        """Return the verdict on a case, or in one line why it is unscored."""
        subject, answered = self._answered(selection, (case,), workers=1)
        tried = gate.case_results((case,), answered.values(), subject.metrics)[0]
        outcome = answered[case.id].outcome
        if outcome.status is CaseStatus.UNSCORED or outcome.score is None:
            return visible(outcome.error)
        return CaseVerdict(
            case=case,
            answer=answered[case.id].answer,
            verdicts=outcome.verdicts,
            score=outcome.score,
            passed=tried.passed is True,
            reason=tried.reason,
        )

    def report(self, selection: Selection) -> ReportOfTests:
        """Return the report on all cases of a selection."""
        if selection not in self._reports:
            project = self.project(selection.project)
            cases = self.cases(selection)
            subject, answered = self._answered(selection, cases, workers=project.workers)

            def ask(ids: tuple[str, ...], again: int) -> gate.GateReport:
                some = subject.of(ids)
                _, more = self._answered(selection, some, workers=project.workers, again=again)
                return subject.report(more.values())

            self._reports[selection] = ReportOfTests(
                report=subject.report(answered.values()),
                folder=project.folder,
                ask=ask,
                max_unscored=selection.max_unscored,
            )
        return self._reports[selection]

    def _answered(
        self, selection: Selection, cases: tuple[Case, ...], *, workers: int, again: int = 0
    ) -> tuple[gate.Subject, Mapping[str, gate.Answered]]:
        key = (selection.project, selection.choice)
        subject = self._subject(key)
        choice = attrs.evolve(selection.choice, split="all")  # a case stands in one split only
        identity = [str(selection.project), choice, again]
        project = self.project(selection.project)
        try:
            with beside(project.folder):
                return subject, self._answers.of(subject, cases, identity=identity, workers=workers)
        except PermanentProviderError as error:
            self._subjects[key] = error  # a permanent refusal applies to all other cases too
            raise

    def _subject(self, key: tuple[Path, Choice]) -> gate.Subject:
        if key not in self._subjects:
            try:
                self._subjects[key] = subject_of(self.project(key[0]), key[1])
            except PromptgraftError as error:
                # Kept, so that a thousand tests report the same fault without loading the project
                # again.
                self._subjects[key] = error
        subject = self._subjects[key]
        if isinstance(subject, PromptgraftError):
            raise subject
        return subject

    def _path(self, value: object, folder: Path) -> Path:
        if self._project is not None:
            return self._project
        if value is not None:
            return file_of(folder / str(value))
        return find_project(folder, option="--promptgraft-project=FILE").resolve()


def file_of(path: Path) -> Path:
    """Return the absolute path of a project file, given the file or its folder."""
    return (path / FILE_NAME if path.is_dir() else path).resolve()
