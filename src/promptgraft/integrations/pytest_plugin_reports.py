"""What tests are given, verdicts and reports, and what a test run keeps: projects and answers."""

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
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.integrations.gate import Choice, chosen_cases, subject_of
from promptgraft.project import FILE_NAME, Project, find_project, load_project
from promptgraft.project.python_source import beside
from promptgraft.serde import did_you_mean, digest
from promptgraft.text import visible, visible_line

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
    """One case, the answer to it, and what the metrics of the project say.

    Attributes:
        answer: None when it could not be used.
        verdicts: of every metric in their order; empty when there was no answer.
        score: 0 to 1.
        reason: why it does not pass: a line for each metric; empty when it passes.
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
        return f"<case {self.case.id!r} fails, score {self.score:.4g}: {self.reason}>"

    def told(self, folder: Path) -> str:
        """Return the reasons and the answer as a failing test shows them.

        Files below ``folder`` are named without it.
        """
        origin = self.case.origin.removeprefix(f"{folder}{os.sep}")
        place = f" ({origin})" if origin else ""
        said = "no answer" if self.answer is None else f"answer: {self.answer.text}"
        return visible(
            f"case `{self.case.id}`{place} fails, score {self.score:.4g}\n{self.reason}\n{said}"
        )


@attrs.frozen(kw_only=True, repr=False)
class ReportOfTests:
    """What a selection came to.

    Attributes:
        report: every case with its verdicts.
        folder: what the paths of baselines begin at: the folder of the project file.
        ask: evaluates the cases with these ids again, for the n-th time.
        max_unscored: how many answers may be without a score.
    """

    report: gate.GateReport
    folder: Path
    ask: Callable[[tuple[str, ...], int], gate.GateReport]
    max_unscored: int = 0

    @property
    def mean_score(self) -> float | None:
        """The mean of the cases with a score."""
        return self.report.mean_score

    @property
    def pass_rate(self) -> float | None:
        """The share of passing answers among those with a score."""
        return self.report.pass_rate

    @property
    def cases(self) -> tuple[gate.TriedCase, ...]:
        """Every case, in the order of the data set."""
        return self.report.cases

    @property
    def failing(self) -> tuple[gate.TriedCase, ...]:
        """The cases that do not pass, critical ones first."""
        return self.report.failing

    def compared_with(self, baseline: str | Path, *, tolerance: float = 0.0) -> gate.Comparison:
        """Return what changed since a baseline that ``promptgraft eval --save-baseline`` wrote.

        Critical cases that score lower are asked again.

        Raises:
            ConfigError: it cannot be read, or is of other data.
            DataFormatError: it is damaged.
        """
        path = self.folder / baseline
        kept, where = gate.read_baseline(path), f"baseline {path}"
        check_comparable(kept, self.report, where=where)
        report = gate.confirm(kept, self.report, self.ask)
        return gate.compare(kept, report, tolerance=tolerance, where=where)

    def check(
        self,
        *,
        fail_under: float | None = None,
        min_pass_rate: float | None = None,
        baseline: str | Path | None = None,
        tolerance: float = 0.0,
        refuse_unclear: bool = False,
    ) -> None:
        """Fail the test, with the rules that do not hold and the failing cases.

        The rules are those of ``promptgraft eval``: the least mean score, the least pass rate,
        and a baseline that neither the mean nor a critical case may be worse than.
        """
        rules = gate.GateRules(
            fail_under=fail_under,
            min_pass_rate=min_pass_rate,
            refuse_unclear=refuse_unclear,
            max_unscored=self.max_unscored,
        )
        try:
            found = None if baseline is None else self.compared_with(baseline, tolerance=tolerance)
        except PromptgraftError as error:
            pytest.fail(visible(str(error)), pytrace=False)
        decision = gate.decide(self.report, rules, found)
        if not decision.passed:
            broken = [f"{one.rule}: {one.said}" for one in decision.broken]
            pytest.fail(visible("\n".join([*broken, *self._told()])), pytrace=False)

    def __repr__(self) -> str:
        return repr(self.report)

    def _told(self) -> list[str]:
        failing = self.failing
        lines = [
            visible_line(f"{case.id}: {case.reason}")[:_REASON_CHARS]
            for case in failing[:_SHOWN_CASES]
        ]
        more = len(failing) - _SHOWN_CASES
        return [self.report.line(), *lines, *([f"and {more} more"] if more > 0 else [])]


class Answers:
    """Answers each case at its first use and remembers what came of it.

    Args:
        folder: shared by the workers of pytest-xdist, with a file and a lock for each case; made
            when it is missing. None for a test run of one process.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, gate.Answered] = {}

    def of(
        self, subject: gate.Subject, cases: Sequence[Case], *, identity: object, workers: int = 1
    ) -> Mapping[str, gate.Answered]:
        """Return the answers to some cases of ``subject``, by their ids.

        Answers to one case are shared where ``identity``, plain data, is the same.

        Raises:
            PromptgraftError: the evaluation cannot be carried out.
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
        left = []
        for case in cases:
            found = self._find(keys[case.id])
            if found is None:
                left.append(case)
            else:
                self._known[keys[case.id]] = found
        with contextlib.ExitStack() as ending:
            executor = None
            if workers > 1 and len(left) > 1:
                executor = ending.enter_context(ThreadPoolExecutor(min(workers, len(left))))
            attempts = subject.evaluate(left, executor=executor).attempts if left else ()
        for attempt in attempts:
            self._keep(keys[attempt.case_id], gate.Answered.of(attempt))

    @contextlib.contextmanager
    def _locked(self, keys: Iterable[str]) -> Iterator[None]:
        """Keep other processes from answering these while the block runs."""
        from filelock import FileLock

        with contextlib.ExitStack() as locks:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                for key in sorted(keys):  # in one order, so that two workers cannot deadlock
                    locks.enter_context(FileLock(self._folder / f"{key}.lock"))
            yield

    def _find(self, key: str) -> gate.Answered | None:
        """Return the answer of another process."""
        if self._folder is None:
            return None
        try:
            data = (self._folder / f"{key}.answer").read_bytes()
        except FileNotFoundError:
            return None
        found: gate.Answered = pickle.loads(data)  # noqa: S301 - of a worker of this test run
        return found

    def _keep(self, key: str, answered: gate.Answered) -> None:
        self._known[key] = answered
        if self._folder is not None:  # not durable: the file lives no longer than the test run
            temporary = self._folder / f"{key}.{os.getpid()}.tmp"
            temporary.write_bytes(pickle.dumps(answered))
            temporary.replace(self._folder / f"{key}.answer")


@attrs.frozen(kw_only=True)
class Selection:
    """What a marker, or a call of ``promptgraft_evaluate``, asks for.

    ``project`` is the absolute path of its file; ``check``: a case that does not pass fails its
    test; ``max_unscored``: how many answers of a report may be without a score.
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
    """One test run: the project file and the tag of its command line, and the answers so far."""

    __test__ = False

    _project: Path | None
    _tag: str | None
    _answers: Answers
    _projects: dict[Path, Project] = attrs.field(factory=dict, init=False)
    _subjects: dict[tuple[Path, Choice], gate.Subject | PromptgraftError] = attrs.field(
        factory=dict, init=False
    )
    _reports: dict[Selection, ReportOfTests] = attrs.field(factory=dict, init=False)

    def selection(self, given: Mapping[str, object], folder: Path) -> Selection:
        """Return what the arguments of a marker ask for; paths in them begin at ``folder``.

        Raises:
            ConfigError: an argument is unknown or unusable, or there is no project.
        """
        for name, value in given.items():
            if name not in _ARGUMENTS:
                known = f"{did_you_mean(name, list(_ARGUMENTS))}; there are {', '.join(_ARGUMENTS)}"
                raise ConfigError(f"unknown argument `{name}`{known}")
            if type(value) is not _ARGUMENTS[name]:
                raise ConfigError(f"{name}: expected {_ARGUMENTS[name].__name__}, found {value!r}")
        chosen = {name: value for name, value in given.items() if name in _CHOICES}
        if self._tag is not None:
            chosen = {**chosen, "tag": self._tag, "source": False}
        rest = {name: given[name] for name in ("check", "max_unscored") if name in given}
        path = self._path(given.get("project"), folder)
        return _SELECTION(project=path, choice=_CHOICE(**chosen), **rest)

    def project(self, path: Path) -> Project:
        """Return a project, read at its first use."""
        if path not in self._projects:
            self._projects[path] = load_project(path)
        return self._projects[path]

    def project_of(self, folder: Path) -> Project:
        """Return the project of the command line, or that of a folder."""
        return self.project(self._path(None, folder))

    def cases(self, selection: Selection) -> tuple[Case, ...]:
        """Return what a selection asks for; nothing is called."""
        return chosen_cases(self.project(selection.project).splits, selection.choice.split)

    def verdict(self, selection: Selection, case: Case) -> CaseVerdict | str:
        """Return what came of a case; why there is no score when there is none."""
        subject, found = self._answered(selection, (case,), workers=1)
        tried = gate.tried_cases((case,), found.values(), subject.metrics)[0]
        outcome = found[case.id].outcome
        if outcome.status is CaseStatus.UNSCORED or outcome.score is None:
            return outcome.error
        return CaseVerdict(
            case=case,
            answer=found[case.id].answer,
            verdicts=outcome.verdicts,
            score=outcome.score,
            passed=tried.passed is True,
            reason=tried.reason,
        )

    def report(self, selection: Selection) -> ReportOfTests:
        """Return the report on every case of a selection."""
        if selection not in self._reports:
            project = self.project(selection.project)
            cases = self.cases(selection)
            subject, found = self._answered(selection, cases, workers=project.workers)

            def ask(ids: tuple[str, ...], again: int) -> gate.GateReport:
                some = subject.of(ids)
                _, more = self._answered(selection, some, workers=project.workers, again=again)
                return subject.report(more.values())

            self._reports[selection] = ReportOfTests(
                report=subject.report(found.values()),
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
            self._subjects[key] = error  # who refuses for good refuses the next case too
            raise

    def _subject(self, key: tuple[Path, Choice]) -> gate.Subject:
        if key not in self._subjects:
            try:
                self._subjects[key] = subject_of(self.project(key[0]), key[1])
            except PromptgraftError as error:
                self._subjects[key] = error
        found = self._subjects[key]
        if isinstance(found, PromptgraftError):
            raise found
        return found

    def _path(self, given: object, folder: Path) -> Path:
        if self._project is not None:
            return self._project
        if given is not None:
            return file_of(folder / str(given))
        return find_project(folder, option="--promptgraft-project=FILE").resolve()


def file_of(path: Path) -> Path:
    """Return the project file that a path means: the file, or that of the folder; absolute."""
    return (path / FILE_NAME if path.is_dir() else path).resolve()
