"""What a test run knows: the selections of its markers, projects, answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from promptgraft.errors import ConfigError, PermanentProviderError, PromptgraftError
from promptgraft.evals.aggregate import CaseStatus
from promptgraft.evals.gate import Answered, Subject, tried_cases
from promptgraft.evals.types import Case
from promptgraft.integrations.gate import Choice, chosen_cases, subject_of
from promptgraft.integrations.pytest_plugin_answers import Answers
from promptgraft.integrations.pytest_plugin_reports import CaseVerdict, ReportOfTests
from promptgraft.project import FILE_NAME, Project, find_project, load_project
from promptgraft.project.python_source import beside
from promptgraft.serde import did_you_mean


@attrs.frozen(kw_only=True)
class Selection:
    """What a marker, or a call of ``promptgraft_evaluate``, asks for.

    Attributes:
        project: the project file, absolute.
        choice: which text of which prompt, on which cases.
        check: whether a case that does not pass fails its test.
        max_unscored: how many answers of a report may be without a score.
    """

    project: Path
    choice: Choice
    check: bool = True
    max_unscored: int = 0


class TestRun:
    """One test run: its options, the projects that it has read, the answers that it has.

    Args:
        project: the project file of the command line; None for none.
        tag: the tag of the command line; None for none.
        answers: what was answered.
    """

    __test__ = False

    def __init__(self, *, project: Path | None, tag: str | None, answers: Answers) -> None:
        self._project = project
        self._tag = tag
        self._answers = answers
        self._projects: dict[Path, Project] = {}
        self._subjects: dict[tuple[Path, Choice], Subject | PromptgraftError] = {}
        self._reports: dict[Selection, ReportOfTests] = {}

    def selection(self, given: Mapping[str, object], folder: Path) -> Selection:
        """Return what the arguments of a marker ask for.

        Args:
            given: the arguments.
            folder: of the test; what a path in the arguments begins at, and where the search
                for a project file begins.

        Raises:
            ConfigError: an argument is unknown or unusable, or there is no project.
        """
        for name, value in given.items():
            if name not in _ARGUMENTS:
                near = did_you_mean(name, list(_ARGUMENTS))
                raise ConfigError(
                    f"unknown argument `{name}`{near}; there are {', '.join(_ARGUMENTS)}"
                )
            if type(value) not in _ARGUMENTS[name]:
                wanted = " or ".join(kind.__name__ for kind in _ARGUMENTS[name])
                raise ConfigError(f"{name}: expected {wanted}, found {value!r}")
        chosen = {name: value for name, value in given.items() if name in _CHOICES}
        if self._tag is not None:
            chosen = {**chosen, "tag": self._tag, "source": False}
        rest = {name: given[name] for name in ("check", "max_unscored") if name in given}
        return _SELECTION(
            project=self._path(given.get("project"), folder),
            choice=_CHOICE(**chosen),
            **rest,
        )

    def project(self, path: Path) -> Project:
        """Return a project, read at its first use.

        Raises:
            DataFormatError: with every fault of the file.
        """
        if path not in self._projects:
            self._projects[path] = load_project(path)
        return self._projects[path]

    def project_of(self, folder: Path) -> Project:
        """Return the project of the command line, or that of a folder.

        Raises:
            ConfigError: there is none.
            DataFormatError: with every fault of the file.
        """
        return self.project(self._path(None, folder))

    def cases(self, selection: Selection) -> tuple[Case, ...]:
        """Return what a selection asks for; nothing is called."""
        return chosen_cases(self.project(selection.project).splits, selection.choice.split)

    def verdict(self, selection: Selection, case: Case) -> CaseVerdict | str:
        """Return what came of a case; why there is no score when there is none.

        Raises:
            PromptgraftError: the case cannot be answered.
        """
        subject, found = self._answered(selection, (case,), workers=1)
        tried = tried_cases((case,), found.values(), subject.metrics)[0]
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
        """Return the report on every case of a selection.

        Raises:
            PromptgraftError: cases cannot be answered.
        """
        if selection not in self._reports:
            project = self.project(selection.project)
            cases = self.cases(selection)
            subject, found = self._answered(selection, cases, workers=project.workers)
            self._reports[selection] = ReportOfTests(
                report=subject.report(found.values()),
                folder=project.folder,
                max_unscored=selection.max_unscored,
            )
        return self._reports[selection]

    def _answered(
        self, selection: Selection, cases: tuple[Case, ...], *, workers: int
    ) -> tuple[Subject, Mapping[str, Answered]]:
        key = (selection.project, selection.choice)
        subject = self._subject(key)
        choice = attrs.evolve(selection.choice, split="all")  # a case stands in one split only
        identity = [str(selection.project), choice]
        project = self.project(selection.project)
        try:
            with beside(project.folder):
                return subject, self._answers.of(subject, cases, identity=identity, workers=workers)
        except PermanentProviderError as error:
            self._subjects[key] = error  # who refuses for good refuses the next case too
            raise

    def _subject(self, key: tuple[Path, Choice]) -> Subject:
        if key not in self._subjects:
            path, choice = key
            try:
                self._subjects[key] = subject_of(self.project(path), choice)
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


# `_ARGUMENTS` has made sure of the types.
_CHOICE: Callable[..., Choice] = Choice
_SELECTION: Callable[..., Selection] = Selection

_CHOICES = ("prompt", "split", "tag", "source")
_ARGUMENTS: Mapping[str, tuple[type, ...]] = {
    "prompt": (str,),
    "project": (str,),
    "split": (str,),
    "tag": (str,),
    "source": (bool,),
    "check": (bool,),
    "max_unscored": (int,),
}
