"""The agent of a project, with the texts that it is asked with."""

from __future__ import annotations

import os
from collections.abc import Iterator

from promptgraft.adapters.base import ProviderAdapter
from promptgraft.agents.adapter import AgentAdapter
from promptgraft.agents.user import SIMULATED_USER
from promptgraft.errors import ConfigError
from promptgraft.overrides.store import PromptOverridesStore
from promptgraft.project.format import ProjectConfig
from promptgraft.project.format_agents import AgentConfig
from promptgraft.project.parts import ProjectPrompt, Surroundings
from promptgraft.project.sources import delivery_of
from promptgraft.prompt.template import as_kept
from promptgraft.prompt.texts import takes_cases

_MISFITS = {
    False: "expected texts of the agent, found a prompt that a model answers; `promptgraft docs "
    "specs/agents.md` says how texts are named",
    True: "expected a prompt that a model answers, found texts of an agent; name the `agent`",
}


def check_fits(found: ProjectPrompt, agent: AgentConfig | None, around: Surroundings) -> None:
    """Refuse texts without an agent, and an agent without texts, with a ``DataFormatError``."""
    is_asked = takes_cases(found.prompt)
    if not found.answers_itself and is_asked != (agent is not None):
        raise around.refusal(("prompts", found.name), _MISFITS[is_asked])


def asking(
    project: ProjectConfig,
    prompt: ProjectPrompt,
    around: Surroundings,
    *,
    user: ProviderAdapter | None = None,
    store: PromptOverridesStore | None = None,
) -> AgentAdapter:
    """Return what asks the agent of a project; nothing is asked, and secrets need not be set.

    What ``store`` holds for the question to the simulated user is asked in its place.

    Raises:
        ConfigError: the project names no agent.
        DataFormatError: the agent cannot be made, or the texts do not reach it.
    """
    config = project.agent
    if config is None:
        raise ConfigError("agent: expected one, found none")
    delivery = delivery_of(
        project.delivery, prompt, around, leave_out=[around.folder / project.runs]
    )
    names = tuple(section.key for section in prompt.prompt.template.sections)
    try:
        agent = config.made(around.python)
        agent.check(delivery.kind, names)
    except ConfigError as error:
        raise around.refusal(("agent",), error) from error
    return AgentAdapter(
        agent=agent,
        names=names,
        delivery=delivery,
        on_agent_error=config.on_agent_error,
        user=user,
        max_turns=config.max_turns,
        question=as_kept(SIMULATED_USER, store),
    )


def unset_variables(asking: AgentAdapter | None, around: Surroundings) -> Iterator[str]:
    """Yield a line for each variable that the agent needs and that is not set."""
    for name in getattr(asking and asking.agent, "variables", ()):
        if not os.environ.get(name):
            said = f"the environment variable {name} is not set; a run needs it"
            settings = around.file.document.value
            place = "agent" if isinstance(settings, dict) and "agent" in settings else "prompts"
            yield around.file.line((place,), said)
