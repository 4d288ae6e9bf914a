"""``promptgraft render`` and ``export``: the whole prompt in force, for a case or as a template."""

from __future__ import annotations

import click

from promptgraft.adapters.calling.turns import Wire
from promptgraft.cli import options
from promptgraft.cli.choosing import tried_options
from promptgraft.cli.output import echo, print_json
from promptgraft.errors import ConfigError
from promptgraft.evals.attempt import params_of_cases
from promptgraft.integrations.gate import Choice, Tried, tried_prompt
from promptgraft.project.origins import loaded_project
from promptgraft.prompt import RenderedPrompt
from promptgraft.serde import Json, did_you_mean
from promptgraft.text import visible

_protocol_option = click.option(
    "--as",
    "protocol",
    type=click.Choice(["openai", "anthropic"]),
    metavar="openai|anthropic",
    help="Print the request: its messages, tools and the schema of the answer, as JSON.",
)
_messages_option = click.option(
    "--messages", is_flag=True, help="Print the messages of a chat, as JSON."
)


@options.command("render", "render", "render triage --case t-17 --messages", "render --run latest")
@tried_options
@_messages_option
@_protocol_option
@click.option("--case", metavar="ID", help="The case; by default the first of those held out.")
def render_command(
    *,
    choice: Choice,
    project: str | None,
    case: str | None,
    messages: bool,
    protocol: str | None,
    as_json: bool,
) -> None:
    """Print the prompt in force as a model receives it for a case.

    PROMPT is its name in the project. What is in force is what the project's tag holds over
    the source. No model is called.
    """
    with loaded_project(project) as found:
        tried = tried_prompt(found, choice)
        parts = found.splits.parts()
        cases = {one.id: one for name in reversed(parts) for one in parts[name]}
        named = next(iter(cases)) if case is None else case
        if named not in cases:
            near = did_you_mean(named, list(cases))
            raise ConfigError(f"--case: the project has no case `{named}`{near}")
        (params,) = params_of_cases(tried.prompt, [cases[named]], found.params).values()
        rendered = tried.prompt.bind(*params).render()
    _print(tried, rendered, case=named, messages=messages, protocol=protocol, as_json=as_json)


@options.command(
    "export", "export > triage.md", "export --tag stable --messages", "export --source --json"
)
@tried_options
@_messages_option
@_protocol_option
def export_command(
    *, choice: Choice, project: str | None, messages: bool, protocol: str | None, as_json: bool
) -> None:
    """Print the prompt in force as a template: with the placeholders of the source.

    PROMPT is its name in the project. For use elsewhere, as one text or as the messages of a
    chat; with `--json` also its tools and the schema of the answer.
    """
    with loaded_project(project) as found:
        tried = tried_prompt(found, choice)
        rendered = tried.prompt.with_placeholders()
    _print(tried, rendered, messages=messages, protocol=protocol, as_json=as_json)


def _print(
    tried: Tried,
    rendered: RenderedPrompt[object],
    *,
    case: str | None = None,
    messages: bool,
    protocol: str | None,
    as_json: bool,
) -> None:
    if messages and as_json:
        raise click.UsageError("--json has the messages too; leave --messages out")
    if protocol and (messages or as_json):
        raise click.UsageError("--as prints the whole request; leave --messages and --json out")
    for note in tried.notes:
        echo(f"warning: {note}", error=True)
    if protocol:
        print_json(_request(rendered, protocol))
    elif as_json:
        print_json({"tried": tried.name, "case": case, **_plain(rendered)})
    elif messages:
        print_json(_messages(rendered))
    else:
        echo(visible(rendered.text))


def _request(rendered: RenderedPrompt[object], protocol: str) -> dict[str, Json]:
    """Return what a provider is sent, without the model and its options."""
    from promptgraft.adapters.anthropic import AnthropicProfile, AnthropicWire
    from promptgraft.adapters.openai import OpenAIProfile, OpenAIWire

    wire: Wire = (
        OpenAIWire(model="", profile=OpenAIProfile(structured_output="native"), options={})
        if protocol == "openai"
        else AnthropicWire(
            model="",
            profile=AnthropicProfile(structured_output="native"),
            effort=None,
            options={},
        )
    )
    return {name: value for name, value in wire.open(rendered).items() if name != "model"}


def _messages(rendered: RenderedPrompt[object]) -> list[Json]:
    """Return what a model is sent, without the form of the answer, which is sent beside it."""
    from promptgraft.adapters.calling.turns import content_of

    content = content_of(rendered, say_format=False)
    roles = {"system": content.system, "user": content.user}
    return [{"role": role, "content": text} for role, text in roles.items() if text]


def _plain(rendered: RenderedPrompt[object]) -> dict[str, Json]:
    return {
        "prompt": f"{rendered.ns}/{rendered.key}",
        "text": rendered.text,
        "messages": _messages(rendered),
        "tools": [
            {"name": tool.name, "description": tool.description, "parameters": tool.params_schema}
            for tool in rendered.tools
        ],
        "output_schema": rendered.output_schema,
        "applied": [found.part for found in rendered.applied],
        "skipped": [found.part for found in rendered.skipped],
    }
