"""Where the winner of a run goes: the prompt as it is today, its store, its files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import attrs

from promptgraft.cli.choosing import open_store, opened_project
from promptgraft.cli.runnable import Origin, loaded_job
from promptgraft.errors import ConfigError
from promptgraft.overrides import LocalPromptOverridesStore, OverrideAddress, PromptLike
from promptgraft.overrides.store import DEFAULT_TAG
from promptgraft.project import Project
from promptgraft.project.files import PromptSource
from promptgraft.project.python_source import beside
from promptgraft.runs import RunRecord
from promptgraft.runs.folder import field_or_none
from promptgraft.strict.checks import STRING


@attrs.frozen(kw_only=True)
class Target:
    """What a run was made from, as it is today.

    Attributes:
        name: what was improved, as runs name it.
        prompts: the sources.
        store: where its overrides are kept.
        tag: the tag that the run began with.
        source: the files that the prompt is written in; None for a prompt in Python.
        folder: the project's folder; None for a job.
    """

    name: str
    prompts: tuple[PromptLike, ...]
    store: LocalPromptOverridesStore
    tag: str
    source: PromptSource | None
    folder: Path | None

    @property
    def address(self) -> OverrideAddress:
        """The one prompt and the tag that the run began with."""
        descriptor = self.prompt.descriptor
        return OverrideAddress(descriptor.ns, descriptor.key, self.tag)

    @property
    def addresses(self) -> tuple[OverrideAddress, ...]:
        """The prompts and the tag that the run began with."""
        described = [prompt.descriptor for prompt in self.prompts]
        return tuple(OverrideAddress(one.ns, one.key, self.tag) for one in described)

    @property
    def prompt(self) -> PromptLike:
        """The one source.

        Raises:
            ConfigError: there are several, or there is none.
        """
        match self.prompts:
            case [prompt]:
                return prompt
        raise ConfigError(f"expected a run of one prompt, found one of `{self.name}`")


def project_of(run: RunRecord, file: str | None) -> Project | None:
    """Return the project that a run was made from; None when it was made from a job.

    Raises:
        ConfigError: the project file is not there any more, or one is named for a job.
        DataFormatError: ``config.json`` or the project file is at fault.
    """
    origin = _origin(run)
    if origin.is_project:
        return opened_project(str(origin.project_file(file)))
    origin.refuse_project(file)
    return None


def _origin(run: RunRecord) -> Origin:
    return Origin(run.folder, run.config)


@contextlib.contextmanager
def found_target(run: RunRecord, project: Project | None, store: str | None) -> Iterator[Target]:
    """Give what the run was made from; inside, its code can import its neighbours.

    No model is made for a prompt of a project, so no secret is needed.

    Raises:
        ConfigError: it is not there any more, or keeps its overrides elsewhere than on disk.
        DataFormatError: the source of the prompt is at fault.
    """
    if project is not None:
        with beside(project.folder):
            found = project.prompt(_origin(run).prompt)
            yield Target(
                name=_origin(run).prompt or run.prompt,
                prompts=(found.prompt,),
                store=project.store() if store is None else open_store(store),
                tag=_run_tag(run),
                source=found.source,
                folder=project.folder,
            )
        return
    origin = _origin(run)
    folder = origin.job_folder()
    opened = None if store is None else open_store(store)
    with contextlib.chdir(folder), loaded_job(origin.spec) as job:
        kept = opened or job.context.overrides_store or LocalPromptOverridesStore()
        if not isinstance(kept, LocalPromptOverridesStore):
            raise ConfigError(
                f"{origin.spec}: the job keeps overrides in a {type(kept).__name__}; "
                "`apply` writes into stores on disk: name one with --store"
            )
        if not job.prompts:
            raise ConfigError(
                f"run {run.id} improves `{job.name}`, which is no prompt: it keeps winners itself"
            )
        yield Target(
            name=job.name,
            prompts=tuple(job.prompts.values()),
            store=kept,
            tag=_run_tag(run),
            source=None,
            folder=None,
        )


def _run_tag(run: RunRecord) -> str:
    """Return the tag that a run began with."""
    kept = ("settings", "store", "tag") if _origin(run).is_project else ("settings", "tag")
    chosen, before = (
        field_or_none(STRING, run.config, run.folder.config, *path)
        for path in (("options", "tag"), kept)
    )
    ended = run.ended.tag if run.ended else None
    return ended or chosen or before or DEFAULT_TAG
