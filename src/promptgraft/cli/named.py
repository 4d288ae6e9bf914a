"""Which prompt and which store a command means: those of the project, if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from promptgraft.cli.options import PromptName, read_prompt_name
from promptgraft.cli.stored import open_store
from promptgraft.errors import ConfigError
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.project.files import find_project

if TYPE_CHECKING:
    from promptgraft.project import Project


def chosen_store(
    store: str | None, project: str | None, prompt: PromptName | None = None
) -> LocalPromptOverridesStore:
    """Return the store named, or that of the project, or that of the current folder.

    ``prompt`` is what the command looks at; when its name is one of the project, the project is
    needed beside a store that is named.

    Raises:
        ConfigError: what is named does not exist, or the project would not be looked at.
        DataFormatError: the project file is at fault.
    """
    if store is not None and project is not None and not (prompt and prompt.in_project):
        raise ConfigError("--project only says where the store is, and --store does; leave one out")
    if store is None and (found := _chosen_project(project)) is not None:
        return found.store()
    return open_store(store)


def read_prompt(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> PromptName | None:
    """Return the prompt that is meant: ``namespace/key``, or a name of the project.

    Without a value it is the only prompt of the project.

    Raises:
        ConfigError: the project has no such prompt, or several.
        DataFormatError: the project file, or the prompt, is at fault.
    """
    if value is not None and "/" in value:
        return read_prompt_name(context, parameter, value)
    found = _chosen_project(context.params.get("project"))
    if found is None:
        if value is None:
            raise click.MissingParameter(ctx=context, param=parameter)
        return read_prompt_name(context, parameter, value)
    from promptgraft.project.python_source import beside

    with beside(found.folder):
        descriptor = found.prompt(value).prompt.descriptor
    return PromptName(descriptor.ns, descriptor.key, in_project=True)


prompt_argument = click.argument("prompt", metavar="[PROMPT]", required=False, callback=read_prompt)


def in_project(project: str | None) -> bool:
    """Tell whether a project is named, or around the current folder."""
    if project is not None:
        return True
    try:
        find_project()
    except ConfigError:
        return False
    return True


def _chosen_project(project: str | None) -> Project | None:
    # The library behind projects takes its time to load, which other folders need not wait for.
    if not in_project(project):
        return None
    from promptgraft.cli.projects import opened_project

    return opened_project(project)
