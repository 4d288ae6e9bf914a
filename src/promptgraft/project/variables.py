"""The environment variables that a project sends, and to whom."""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from promptgraft.adapters.providers import KNOWN
from promptgraft.agents.command import CommandAgent
from promptgraft.agents.http import HttpAgent
from promptgraft.errors import CallerError
from promptgraft.ground.environment import Secret
from promptgraft.ground.yaml_text import YamlPath
from promptgraft.project.format_models import HOSTED, ModelConfig, hosted, named_host
from promptgraft.project.project import Project


def sent_variables(project: Project) -> Iterator[str]:
    """Yield a line for each variable that a project sends, with its place and who gets it.

    No value of a variable is in them, but the host in an address that the environment sets.
    """
    file = project.surroundings.file
    for place, config in project.models().items():
        recipient = _recipient(config)
        for path, names in _names(config):
            for name in names:
                yield file.line((*place, *path), f"{name} goes to {recipient}")
    try:
        agent = project.asking.agent if project.asking is not None else None
    except CallerError:  # a fault, or Python that was not run, which other lines name
        agent = None
    if isinstance(agent, CommandAgent):
        for name in agent.variables:
            yield file.line(("agent",), f"{name} goes to the command `{agent.name}`")
    if isinstance(agent, HttpAgent):
        for name in agent.variables:
            yield file.line(("agent",), f"{name} goes to {urlsplit(agent.url).hostname}")
    if (url := project.config.store.url) is not None:
        host = named_host(url) or "the database that it names"
        for name in Secret(url).names:
            yield file.line(("store", "url"), f"{name} goes to {host}")


def _names(config: ModelConfig) -> Iterator[tuple[YamlPath, tuple[str, ...]]]:
    """Yield the variables of a model by the option that names them, and those that it reads."""
    for name, option in config.options.items():
        if isinstance(option, Secret):
            yield (name,), option.names
    for name, header in config.headers.items():
        yield ("headers", name), header.names
    if config.api_key is not None:
        yield ("api_key",), config.api_key.names
        return
    usual = KNOWN[config.provider].keys if config.provider in KNOWN else ()
    is_signed = any(name.lower() == "authorization" for name in config.headers)
    if usual and not is_signed:
        yield (), (next(filter(os.environ.get, usual), usual[0]),)


def _recipient(config: ModelConfig) -> str:
    """Return the host that a model is called at, as far as it can be told without a call."""
    address = config.options.get("base_url")
    if isinstance(address, Secret):
        return named_host(address.written) or f"the host in {', '.join(address.names)}"
    if address is None and config.provider in HOSTED:
        variable = hosted(config.provider).service.address_variable
        address = os.environ.get(variable)
        if address:
            return f"{urlsplit(address).hostname}, from {variable}"
    if address is not None:
        return named_host(address) or "no valid host"
    provider = KNOWN.get(config.provider)
    return (
        provider.hosts[0]
        if provider and provider.hosts
        else f"a host that {config.provider} chooses"
    )
