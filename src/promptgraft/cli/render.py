"""``promptgraft render``, ``export`` and ``describe``: a whole prompt, or the shape of a graph."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from promptgraft.adapters.calling.turns import Wire
from promptgraft.cli import options
from promptgraft.cli.choosing import tried_options
from promptgraft.cli.output import Screen, echo, print_json
from promptgraft.cli.replaying import pack
from promptgraft.errors import ConfigError
from promptgraft.evals.binding import params_of_cases
from promptgraft.ground.serde import Json, did_you_mean
from promptgraft.ground.text import visible, visible_line
from promptgraft.project.describing import describe
from promptgraft.project.exporting import ENDING
from promptgraft.project.gate import Choice, TriedVersion, tried_prompt
from promptgraft.project.origins import loaded_project
from promptgraft.project.parts import ForeignSource
from promptgraft.prompt import RenderedPrompt
from promptgraft.prompt.by_role import by_role

_MOST_NAMED = 5
_BAML_PROVIDERS = {
    "openai": "openai-generic",
    "responses": "openai-responses",
    "anthropic": "anthropic",
}
"""BAML's provider for each form of a request."""

_protocol_option = click.option(
    "--as",
    "protocol",
    type=click.Choice([*_BAML_PROVIDERS]),
    metavar="openai|responses|anthropic",
    help="Print the request as JSON: messages, tools and the schema of the answer.",
)
_messages_option = click.option(
    "--messages", is_flag=True, help="Print the chat messages, as JSON."
)


@options.command("render", "render", "render triage --case t-17 --messages", "render --run latest")
@tried_options
@_messages_option
@_protocol_option
@click.option("--case", metavar="ID", help="The case; by default the first test case.")
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

    PROMPT is its name in the project. In force are the overrides under the project's tag, applied
    to the source. No model is called.
    """
    with loaded_project(project) as opened:
        tried = tried_prompt(opened, choice)
        parts = opened.parts
        # The test set is the last part, so that its first case comes first.
        cases = {case.id: case for name in reversed(tuple(parts)) for case in parts[name]}
        named = next(iter(cases)) if case is None else case
        if named not in cases:
            near = did_you_mean(named, list(cases))
            names = [f"`{name}`" for name in itertools.islice(cases, _MOST_NAMED)]
            more = f" and {len(cases) - len(names):,} more" if len(cases) > len(names) else ""
            raise ConfigError(
                f"--case: the project has no case `{named}`{near}; cases: {', '.join(names)}{more}"
            )
        (params,) = params_of_cases(tried.prompt, [cases[named]], opened.params).values()
        rendered = tried.prompt.bind(*params).render()
        sent = None if opened.baml is None else _sent(opened.baml, tried, named, protocol)
    _print(
        tried,
        rendered,
        case=named,
        messages=messages,
        protocol=protocol,
        as_json=as_json,
        sent=sent,
    )


def _sent(
    source: ForeignSource, version: TriedVersion, case: str, protocol: str | None
) -> dict[str, Json]:
    """Return the messages that BAML sends for a case: its texts are templates of its own."""
    provider = _BAML_PROVIDERS[protocol or "openai"]
    return source.messages(version.prompt, case, provider=provider)


@options.command(
    "export",
    "export > triage.md",
    "export --tag stable --messages",
    "export --source --json",
    "export --run latest run.zip",
)
@tried_options
@_messages_option
@_protocol_option
@click.option(
    "--without-inputs", is_flag=True, help="Pack a run without its cases, answers and journal."
)
def export_command(
    *,
    choice: Choice,
    project: str | None,
    messages: bool,
    protocol: str | None,
    without_inputs: bool,
    as_json: bool,
) -> None:
    """Print the prompt in force as a template, or pack a run.

    PROMPT is its name in the project. A template has the placeholders of the source. It is for use
    elsewhere, as one text or as chat messages; with `--json`, also its tools and the schema of the
    answer.

    With --run and a FILE that ends in `.zip`, pack the run instead: journal, results, settings and
    the files of the project. `promptgraft replay` and `import` take the file. RUN may be a folder.
    """
    if choice.prompt is not None and choice.prompt.endswith(ENDING):
        if choice.run is None or messages or protocol:
            raise click.UsageError(f"{choice.prompt}: name the run to pack with --run, and no form")
        pack(
            choice.run,
            Path(choice.prompt),
            project=project,
            inputs=not without_inputs,
            as_json=as_json,
        )
        return
    if without_inputs:
        raise click.UsageError(f"--without-inputs: is for a run packed into a FILE{ENDING}")
    with loaded_project(project) as opened:
        tried = tried_prompt(opened, choice)
        rendered = tried.prompt.with_placeholders()
    _print(tried, rendered, messages=messages, protocol=protocol, as_json=as_json)


def _print(
    version: TriedVersion,
    rendered: RenderedPrompt[object],
    *,
    case: str | None = None,
    messages: bool,
    protocol: str | None,
    as_json: bool,
    sent: dict[str, Json] | None = None,
) -> None:
    if messages and as_json:
        raise click.UsageError("--json has the messages too; leave --messages out")
    if protocol and (messages or as_json):
        raise click.UsageError("--as prints the whole request; leave --messages and --json out")
    # On standard error, so that the text can be piped as it is.
    for note in version.notes:
        echo(visible_line(f"warning: {note}"), error=True)
    chat = _messages(rendered)
    if sent is not None:
        messages_sent = sent.get("messages")
        chat = messages_sent if isinstance(messages_sent, list) else []
    if protocol:
        print_json(_request(rendered, protocol) if sent is None else sent)
    elif as_json:
        plain = {**_plain(rendered), "messages": chat}
        if sent is not None:
            plain["text"] = _as_text(chat)
        print_json({"tried": version.name, "case": case, **plain})
    elif messages:
        print_json(chat)
    else:
        echo(visible(rendered.text if sent is None else _as_text(chat)))


def _as_text(messages: list[Json]) -> str:
    """Return chat messages as one text, each under its role."""
    chat = [message for message in messages if isinstance(message, dict)]
    return "\n\n".join(
        f"[{message.get('role')}]\n{_content(message.get('content'))}" for message in chat
    )


def _content(content: Json) -> str:
    """Return the content of a message as text; of images and other files only the kind."""
    if not isinstance(content, list):
        return str(content or "")
    parts = [part for part in content if isinstance(part, dict)]
    return "\n".join(str(part.get("text", f"<{part.get('type')}>")) for part in parts)


def _request(rendered: RenderedPrompt[object], protocol: str) -> dict[str, Json]:
    """Return the request that a provider gets, without the model and its options."""
    from promptgraft.adapters import anthropic, openai, responses

    gpt = openai.OpenAIProfile(structured_output="native")
    claude = anthropic.AnthropicProfile(structured_output="native")
    wires: dict[str, Wire] = {
        "openai": openai.ChatWire(model="", profile=gpt, options={}),
        "responses": responses.ResponsesWire(model="", rules=gpt.rules, sees=None, options={}),
        "anthropic": anthropic.AnthropicWire(model="", profile=claude, effort=None, options={}),
    }
    request = wires[protocol].open(rendered)
    return {name: value for name, value in request.items() if name != "model"}


def _messages(rendered: RenderedPrompt[object]) -> list[Json]:
    """Return the messages that a model gets; the schema of the answer is a part of its own."""
    content = by_role(rendered, say_format=False)
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
        "applied": [applied_part.part for applied_part in rendered.applied],
        "skipped": [skipped_part.part for skipped_part in rendered.skipped],
    }


@options.command("describe", "describe", "describe support --json")
@click.argument("graph", metavar="[NAME]", required=False)
@options.project_option
@options.json_option
def describe_command(*, graph: str | None, project: str | None, as_json: bool) -> None:
    """List the nodes, edges and parts of a prompt or graph of the project.

    NAME is its name in the project. Runs, reports and settings use the same names for parts.
    Undeclared edges are known only from the traces of a run.
    """
    with loaded_project(project) as opened:
        described = describe(opened.prompt(graph))
    if as_json:
        print_json(described.as_json())
        return
    screen = Screen()
    screen.line(described.name, bold=True)
    screen.line()
    screen.table(
        [
            ("node", "kind", "prompt", "model"),
            *(
                (node.id, node.kind, node.prompt or "-", node.model or "-")
                for node in described.nodes
            ),
        ]
    )
    screen.line()
    screen.table(
        [
            ("part", "type", "characters", "may change"),
            *(
                (part.id, part.type, str(len(part.text)), "yes" if part.may_change else "no")
                for node in described.nodes
                for part in node.parts
            ),
        ]
    )
    if described.edges:
        screen.line()
        screen.line("edges:")
        screen.body("\n".join(f"{start} -> {end}" for start, end in described.edges))
    elif not described.declared:
        screen.line()
        screen.line("edges: not declared; the flow may take any")
