"""Resolving the project, store, prompt, run or template that a command line names."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import attrs
import click

# Packages whose names are imported at their first use.
from promptgraft import project as projects
from promptgraft import prompt as prompts
from promptgraft import runs as run_folders
from promptgraft.cli import options
from promptgraft.errors import ConfigError, DataFormatError, InvalidIdentifierError
from promptgraft.ground.text import listed, shell_word
from promptgraft.project.files import (
    DEFAULT_RUNS,
    FILE_NAME,
    project_around,
    project_path,
    runs_folder_of,
)

# Projects, stores and runs are slow to import, so functions import them when they need them.
if TYPE_CHECKING:
    from promptgraft.overrides import RevisionedStore
    from promptgraft.project import Project
    from promptgraft.prompt import PromptTemplate
    from promptgraft.runs import RunFolder


def opened_project(file: str | None) -> Project:
    """Return the project of ``--project FILE`` without loading its prompts and data."""
    return projects.open_project(project_path(file))


@contextlib.contextmanager
def _opened_beside(file: str | None) -> Iterator[Project]:
    """Open a project whose code can import its neighbours inside the context."""
    from promptgraft.project.python_source import beside

    opened = opened_project(file)
    with beside(opened.folder):
        yield opened


def in_project(project: str | None) -> bool:
    """Return whether a project is named, or encloses the current folder."""
    return project is not None or project_around() is not None


def chosen_store(
    store: str | None, project: str | None, prompt: options.PromptName | None = None
) -> RevisionedStore:
    """Return the named store, else that of the project, else that of the current folder.

    Together, ``store`` and ``project`` make sense only if ``prompt`` is a name in the project.
    """
    if store is not None and project is not None and not (prompt and prompt.in_project):
        raise ConfigError("--project and --store: both say where the store is; leave one out")
    from promptgraft.project import adding

    if store is None and in_project(project):
        return adding.store_of(project_path(project))
    return adding.open_store(store)


def store_options(command: options.Command) -> options.Command:
    """Add ``--json``, ``--project`` and ``--store``; the command receives the opened ``store``."""

    @functools.wraps(command)
    def wrapped(*, project: str | None, store: str | None, **others: object) -> int | None:
        prompt = others.get("prompt")
        # The prompts of a graph come as a list.
        if isinstance(prompt, list):
            prompt = cast("list[object]", prompt)[0]
        named = prompt if isinstance(prompt, options.PromptName) else None
        return command(store=chosen_store(store, project, named), **others)

    return options.project_option(options.store_option(options.json_option(wrapped)))


def read_prompt(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> options.PromptName | None:
    """Return the prompt named by ``namespace/key`` or by its name in the project.

    Without a value, return the only prompt of the project.
    """
    first, *more = names = read_prompts(context, parameter, value)
    if more:
        raise click.BadParameter(
            f"this is a graph; name one of its prompts: {listed(map(str, names))}",
            context,
            parameter,
            param_hint="PROMPT",
        )
    return first


def read_prompts(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> list[options.PromptName]:
    """Return what :func:`read_prompt` returns, or all prompts of the graph of that name."""
    project: str | None = context.params.get("project")
    if (value is not None and "/" in value) or not in_project(project):
        if value is None:
            raise click.BadParameter(
                f"expected `namespace/key`, found none, and no {FILE_NAME} in {Path.cwd()} or "
                "above it; `promptgraft show` lists the prompts of a store, `promptgraft init` "
                "makes a project",
                context,
                parameter,
                param_hint="PROMPT",
            )
        return [_stored_prompt(context, parameter, value)._replace(file=project)]
    with _opened_beside(project) as opened:
        descriptors = [prompt.descriptor for prompt in opened.prompt(value).prompts]
    return [
        options.PromptName(descriptor.ns, descriptor.key, in_project=True, file=project)
        for descriptor in descriptors
    ]


def _stored_prompt(
    context: click.Context, parameter: click.Parameter, value: str
) -> options.PromptName:
    from promptgraft.overrides.parts import validation

    ns, _, key = value.rpartition("/")
    try:
        return options.PromptName(validation.check_ns(ns), validation.check_key(key, "key"))
    except InvalidIdentifierError:
        raise click.BadParameter(
            "expected `namespace/key` in lower-case letters, digits, `_` and `-`, "
            f"found {value!r}; `promptgraft show` lists the prompts of a store",
            context,
            parameter,
            param_hint="PROMPT",
        ) from None


def project_source(name: options.PromptName) -> PromptTemplate[object] | None:
    """Return the project's source of a prompt; None without a project that has it.

    Raises:
        DataFormatError: the project or one of its prompts is invalid.
    """
    if not in_project(name.file):
        return None
    with _opened_beside(name.file) as project:
        templates = [
            prompt.template
            for prompt_name in project.names
            for prompt in project.prompt(prompt_name).prompts
        ]
    named = (
        template for template in templates if (template.ns, template.key) == (name.ns, name.key)
    )
    return next(named, None)


prompt_argument = click.argument("prompt", metavar="[PROMPT]", required=False, callback=read_prompt)
prompts_argument = click.argument(
    "prompt", metavar="[PROMPT]", required=False, callback=read_prompts
)
"""As ``prompt_argument``, but a graph is all its prompts, in a list."""


@attrs.frozen
class Runs:
    """A folder of run directories, which need not exist.

    Attributes:
        root: the folder.
        options: the options with which suggested commands find it; empty if they need none.
    """

    root: Path
    options: str = ""

    def find(self, name: str) -> RunFolder:
        """Return a run by its id, the beginning of its id, or ``latest``."""
        return run_folders.find_run(self.root, name)

    def command(self, what: str, folder: RunFolder, more: str = "") -> str:
        """Return a command line about a run that works in the current folder."""
        words = ["promptgraft", what, folder.id, more, self.options]
        return " ".join(word for word in words if word)


def chosen_runs(runs: str | None, project: str | None, *, runs_again: bool = False) -> Runs:
    """Return the runs folder: ``--runs``, else that of the project, else ``runs`` here.

    With ``runs_again`` the command also loads the source of a run from the project, so that both
    options may be given.
    """
    if runs is not None and project is not None and not runs_again:
        raise ConfigError("--project and --runs: both say where the runs are; leave one out")
    if runs is None and not in_project(project):
        return Runs(Path(DEFAULT_RUNS))
    root = Path(runs) if runs is not None else runs_folder_of(project_path(project))
    return _named(root, runs, project) or Runs(root)


def runs_of(root: Path, *, runs: str | None, project: str | None) -> Runs:
    """Return the folder that a new run is kept in: ``--runs``, else ``root``."""
    if named := _named(root, runs, project):
        return named
    # A job does not depend on the project around it, which may be broken.
    with contextlib.suppress(DataFormatError):
        if chosen_runs(None, None).root.absolute() == root.absolute():
            return Runs(root)
    # A job inside a project keeps its runs apart from those of the project.
    return _named(root, str(root), None) or Runs(root)


def _named(root: Path, runs: str | None, project: str | None) -> Runs | None:
    if runs is not None:
        return Runs(Path(runs), f"--runs {shell_word(runs)}")
    return None if project is None else Runs(root, f"--project {shell_word(project)}")


def runs_options(command: options.Command) -> options.Command:
    """Add ``--project`` and ``--runs``; the command receives ``runs``, a :class:`Runs`."""

    @functools.wraps(command)
    def wrapped(*, project: str | None, runs: str | None, **others: object) -> int | None:
        return command(runs=chosen_runs(runs, project), **others)

    return options.project_option(options.runs_option(wrapped))


_tried = options.together(
    click.argument("prompt", required=False),
    click.option(
        "--tag", type=options.tag, help="Use the overrides of this tag; by default the project's."
    ),
    click.option("--source", is_flag=True, help="Use the source, without overrides."),
    click.option("--run", metavar="RUN", help="Use the winner of a run: an id, or `latest`."),
    click.option(
        "--candidate",
        type=options.at_least(0),
        help="Use another candidate of that run; 0 is your prompt.",
    ),
    options.project_option,
    options.json_option,
)


def tried_options(command: options.Command) -> options.Command:
    """Add PROMPT and the options that choose its text; the command receives ``choice``."""

    @functools.wraps(command)
    def wrapped(
        *,
        prompt: str | None,
        tag: str | None,
        source: bool,
        run: str | None,
        candidate: int | None,
        **others: object,
    ) -> int | None:
        from promptgraft.project.gate import Choice

        choice = Choice(prompt=prompt, tag=tag, source=source, run=run, candidate=candidate)
        return command(choice=choice, **others)

    return _tried(wrapped)


def load_template(spec: str) -> PromptTemplate[object]:
    """Load the template at ``module:ATTRIBUTE`` or ``file.py:ATTRIBUTE``."""
    from promptgraft.project import python_source

    def read(value: object) -> PromptTemplate[object] | None:
        if isinstance(value, prompts.Prompt):
            return value.template
        return value if isinstance(value, prompts.PromptTemplate) else None

    expected = "a PromptTemplate or a Prompt"
    wanted_kind = python_source.ObjectKind(expected=expected, plural="templates", read=read)
    return python_source.PythonSource().load(spec, wanted_kind, "--template")


def shipped(name: str) -> Path:
    """Return a folder or file that is shipped with promptgraft, installed or in the checkout."""
    package = Path(__file__).resolve().parents[1]
    places = [package / name]
    if package.parent.name == "src":
        # In a checkout, specifications and examples are beside `src`, not in the package.
        places.append(package.parents[1] / name)
    if path := [place for place in places if place.exists()]:
        return path[0]
    looked = " and ".join(map(str, places))
    raise ConfigError(f"`{name}` is not in {looked}; install promptgraft again")
