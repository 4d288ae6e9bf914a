"""What the right project files take from Python."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import attrs

from promptgraft import (
    AgentCall,
    GepaExample,
    InMemoryPromptOverridesStore,
    MarkdownSection,
    OfflineAdapter,
    Prompt,
    PromptResponse,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
    Tool,
    ToolExample,
)
from promptgraft.evals.types import Case
from promptgraft.graphs import Graph, Node, Run


class Queue(Enum):
    """Where a ticket goes."""

    BILLING = "billing"
    LOGIN = "login"


@attrs.frozen
class Search:
    """What is looked for."""

    words: str


SEARCH = Tool(
    name="search",
    description="Find articles.",
    params_type=Search,
    result_type=str,
    handler=lambda params: params.words,
    examples=(ToolExample(description="a refund", input=Search("refund"), output="none"),),
)
TRIAGE = PromptTemplate[object](
    ns="right",
    key="triage",
    output_type=Queue,
    sections=(
        MarkdownSection(
            title="Rules",
            key="rules",
            template="- billing: money\n- login: access",
            children=(MarkdownSection(title="Tone", key="tone", template="Be short."),),
            tools=(SEARCH,),
        ),
        TaskExamplesSection(
            title="Guide",
            key="guide",
            examples=(TaskExample(key="one", objective="a refund", outcome=Queue.BILLING),),
        ),
        MarkdownSection(title="Ticket", key="ticket", template="$text", overridable=False),
    ),
)
OTHER = Prompt(attrs.evolve(TRIAGE, key="other"), overrides_store=InMemoryPromptOverridesStore())


class Inputs:
    """Holds a function."""

    @staticmethod
    def params(case: Case) -> Mapping[str, object]:
        """Return the parameters of a case."""
        return {"text": f"{case.input}!"}


MODEL = OfflineAdapter(identity="python")


def model() -> OfflineAdapter:
    """Return who answers."""
    return OfflineAdapter(identity="made-by-python")


def needs_a_secret() -> OfflineAdapter:
    """Fail, as code does that looks for a key that is not there."""
    raise KeyError("SOME_API_KEY")


def shown_example(example: GepaExample, response: PromptResponse[object] | None) -> tuple[str, str]:
    """Show an example to the reflector."""
    return example.id, "" if response is None else response.text


def forgets_to_return() -> None:
    OfflineAdapter()


class Named:
    """An adapter whose identity is its own."""

    def __init__(self) -> None:
        self.identity = "named"
        self.evaluate = MODEL.evaluate


NAMED = Named()
MUTE = Named()
del MUTE.evaluate

TEXTS = {"system": "Name the team."}


class Stored:
    """A text in a service."""

    def read(self) -> str:
        return "Be polite."

    async def write(self, text: str) -> None:
        raise ConnectionError(text)


STORED = Stored()


def answer_folder(query: str, call: AgentCall) -> str:
    """Answer from the files of the candidate."""
    assert call.folder is not None
    return f"{query} {(call.folder / 'rules.md').read_text()}"


def twice(run: Run, ticket: str) -> str:
    """Have a ticket read twice."""
    run.ask("first", {"text": ticket})
    return str(run.ask("second", {"text": ticket}))


DESK = Graph("right/desk", flow=twice, nodes=[Node("first", TRIAGE), Node("second", TRIAGE)])
