"""From the changes of a job to an optimization job of its project: read, merge, apply, plan."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping

import attrs

from promptgraft.errors import ConfigError, MissingHereError
from promptgraft.evals.dataset import cases_digest
from promptgraft.ground.serde import Json, digest_json, digest_text, shown
from promptgraft.ground.strict.nodes import Source
from promptgraft.project import Project
from promptgraft.project.python_source import beside
from promptgraft.project.running import Changes as RunChanges
from promptgraft.search.job import OptimizationJob
from promptgraft.search.plan import RunPlan
from promptgraft.service.database import Database, SqlPromptOverridesStore
from promptgraft.service.jobs.interface import Changes
from promptgraft.service.jobs.types import JOB_CHANGES, Job, JobChanges

_MOST_KEY_CHARS = 200


def check_idempotency_key(key: str) -> None:
    """Refuse an invalid idempotency key.

    Raises:
        ConfigError: it is empty, too long or not ASCII.
    """
    if not (0 < len(key) <= _MOST_KEY_CHARS and key.isascii()):
        raise ConfigError(
            f"key: expected 1 to {_MOST_KEY_CHARS} ASCII characters, found {len(key)}"
        )


def read_changes(given: Changes) -> JobChanges:
    """Read the changes of a job from plain data.

    Raises:
        DataFormatError: a line for each fault, which begins with the name of the field.
    """
    if given is None:
        return JobChanges()
    if isinstance(given, JobChanges):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(f"expected the changes of a job as an object, found {shown(given)}")
    named: dict[str, Json] = {str(name): plain(value) for name, value in given.items()}
    source = Source.of(named, is_trusted=False)
    job_changes = JOB_CHANGES.read(source.root)
    source.raise_all()
    assert job_changes is not None  # noqa: S101 - what has no fault is read
    return job_changes


def plain(value: object) -> Json:
    """Return a value as plain data; other values, such as money, become text."""
    if value is None or isinstance(value, (str, int, float, bool, list, dict)):
        return value
    return str(value)


def written_changes(changes: JobChanges) -> dict[str, Json]:
    """Return changes as plain data, without defaults."""
    default = JobChanges()
    fields = attrs.asdict(changes, recurse=False)
    return {
        # JSON has no exact decimals, and `tuning` may be a mapping that it cannot hold.
        name: str(value) if name == "max_cost" else dict(value) if name == "tuning" else value
        for name, value in fields.items()
        if value != getattr(default, name)
    }


def job_json(job: Job) -> dict[str, Json]:
    """Return a job as plain data."""
    return {
        **attrs.asdict(job, recurse=False),
        "state": str(job.state),
        "wish": str(job.wish),
        "changes": written_changes(job.changes),
        "status": attrs.asdict(job.status),
    }


_CHANGEABLE = frozenset(
    {
        "budget",
        "max_iterations",
        "target_score",
        "patience",
        "max_cost",
        "max_tokens",
        "timeout",
        "priority",
        "not_before",
        "note",
        "store",
    }
)
"""Fields that do not decide the path of the search, and may change once there are answers."""


def merged_changes(before: JobChanges, given: Changes) -> JobChanges:
    """Merge new changes into those of a job; a default that is named counts as given.

    Raises:
        ConfigError: a change decides the path of the search.
        DataFormatError: a change is invalid.
    """
    changes = read_changes(given)
    names = given if isinstance(given, Mapping) else written_changes(changes)
    values = {str(name): getattr(changes, str(name)) for name in names}
    if fixed := sorted(values.keys() - _CHANGEABLE):
        raise ConfigError(
            f"{fixed[0]}: decides the path of the search, which is bound to the answers that are "
            "there; submit a new job"
        )
    return attrs.evolve(before, **values)


def planned(project: Project, name: str, changes: JobChanges) -> RunPlan:
    """Check without a call that a job can run, and return its plan.

    Raises:
        ConfigError, DataFormatError: it cannot run.
    """
    # Functions of the project are imported from its folder.
    with beside(project.folder):
        project.stand_in()
        return prepared(project, name, changes).plan()


def in_database(project: Project, name: str, database: Database) -> Project:
    """Return a project with its winners in the database of its jobs, unless its file names a place.

    The folder of a project is that of one machine; server and workers may be on several. Other
    projects may have prompts of the same addresses, so that each has its winners apart.
    """
    if project.default_store is not None or project.names_store:
        return project
    return project.storing_in(SqlPromptOverridesStore(database, project=name))


def place_of_store(project: Project) -> str:
    """Return a digest of where winners are; empty if all machines see them."""
    store = project.store()
    # A machine that has the SQLite file of the jobs has the tables in it, too.
    is_shared = not store.is_of_machine or store is project.default_store
    return "" if is_shared else digest_text(store.place)[:16]


def check_reach(project: Project, submission: Mapping[str, Json]) -> None:
    """Refuse a store that is another one where the job was submitted.

    Args:
        project: the project as this machine has it.
        submission: the event of the submission, with its ``host`` and its ``store``.

    Raises:
        MissingHereError: naming the store and where it is not seen.
    """
    place, here, host = place_of_store(project), socket.gethostname(), submission.get("host")
    if not place:
        return
    if host not in (None, here):
        elsewhere = f"on {host}, which does not see it"
    elif submission.get("store", place) != place:
        elsewhere = "from another folder, which has its own"
    else:
        return
    raise MissingHereError(
        f"store: {project.store().place} is on {here}, and the job was submitted {elsewhere}; "
        "leave `store` out, so that winners are in the database of the jobs"
    )


def submitted_digest(project: Project, name: str) -> str:
    """Return the SHA-256 of everything that a job depends on: settings, prompt and cases."""
    descriptor = project.prompt(name).prompt.descriptor
    prompt: list[Json] = [descriptor.interface_hash]
    prompt += [section.content_hash for section in descriptor.sections]
    sets: dict[str, Json] = {
        part: cases_digest(cases) for part, cases in project.splits.parts().items()
    }
    settings = project.described()
    # It may be raised while jobs wait for the next day, and these must still match the project.
    settings.pop("max_cost_per_day", None)
    return digest_json([settings, name, prompt, sets])


def prepared(project: Project, name: str, changes: JobChanges) -> OptimizationJob:
    """Return the optimization job of a project with the changes applied.

    Args:
        project: the project; its folder must be importable.
        name: the name of the prompt.
        changes: the changes.

    Raises:
        ConfigError: a change does not fit the project, or the project has a setting that jobs do
            not support; names it.
        DataFormatError: the project is invalid.
    """
    if project.config.apply is not None and not changes.dry_run:
        raise ConfigError(
            "apply: `to-source` is for `promptgraft optimize` and `resume`, and a job writes no "
            "source: its winner goes to the store; leave it out of the project file"
        )
    if changes.dry_run:
        project.stand_in()  # it asks no model of the project, so that it needs no secrets
    job = run_changes_of(changes).job_of(project, name)
    stores = changes.store and not changes.dry_run
    return OptimizationJob(job.subject, job.context, attrs.evolve(job.config, persist=stores))


def run_changes_of(changes: JobChanges) -> RunChanges:
    """Return the changes of a job as the ``config.json`` of its run records them."""
    make: Callable[..., RunChanges] = RunChanges
    names = attrs.fields_dict(RunChanges)
    written = written_changes(changes).items()
    return make(**{name: value for name, value in written if name in names})
