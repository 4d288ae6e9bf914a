"""A little world that the embedded model knows nothing of: herbs in a garden."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Annotated

import attrs

from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.prompt import (
    Described,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)
from promptgraft.runtime import Session


class Taste(Enum):
    SOUR = "sour"
    SWEET = "sweet"


@attrs.frozen
class Card:
    """The answer."""

    taste: Annotated[Taste, Described("How it tastes.")]
    bed: Annotated[str, Described("The bed.")]
    height: int = 0


@attrs.frozen
class Wish:
    text: str


@attrs.frozen
class Look:
    label: str


@attrs.frozen
class Plant:
    bed: str
    height: int
    note: str


@attrs.frozen
class Visit:
    bed: str


@attrs.frozen
class Bed:
    soil: str


PLANTS = {
    "herb:wood_sorrel": Plant("bed north", 12, "leaves full of acid, like a lemon"),
    "herb:sweet_cicely": Plant("bed south", 90, "leaves full of sugar, like anise"),
    "herb:red_dock": Plant("bed west", 40, "acid, too"),
}
BEDS = {
    "bed north": Bed("shade, acid"),
    "bed south": Bed("sun, sugar"),
    "bed west": Bed("marsh, acid"),
}


class Garden:
    """Tools with real handlers, and what they were called with."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.visited: list[str] = []

    def look(self, params: Look) -> Plant:
        self.looked.append(params.label)
        return PLANTS[params.label]

    def visit(self, params: Visit) -> Bed:
        self.visited.append(params.bed)
        return BEDS[params.bed]


MINT = Plant("bed east", 30, "leaves full of sugar")


def step(tool: str, given: object, result: object) -> TaskStep:
    return TaskStep(
        tool_name=tool, example=ToolExample(description="go on", input=given, output=result)
    )


GOOD = TaskExample(
    key="good",
    objective="What does the herb `water_mint` taste of?",
    steps=[
        step("look", Look("herb:water_mint"), MINT),
        step("visit", Visit("bed east"), Bed("sun, sugar")),
    ],
    outcome=Card(Taste.SWEET, "bed east", 30),
)
ONE_CALL = ToolExample(
    description="The herb `water_mint`", input=Look("herb:water_mint"), output=MINT
)
BARE_CALL = attrs.evolve(ONE_CALL, input=Look("water_mint"))


def garden_prompt(
    garden: Garden,
    *,
    rules: str = "Answer.",
    calls: Sequence[ToolExample[Look, Plant]] = (),
    examples: Sequence[TaskExample] = (),
    visits: str = "Visits.",
) -> Prompt[Card]:
    look = Tool[Look, Plant](
        name="look",
        description="Looks.",
        params_type=Look,
        result_type=Plant,
        handler=garden.look,
        examples=tuple(calls),
    )
    visit = Tool[Visit, Bed](
        name="visit", description=visits, params_type=Visit, result_type=Bed, handler=garden.visit
    )
    template = PromptTemplate[Card](
        ns="toy",
        key="garden",
        output_type=Card,
        sections=(
            MarkdownSection(title="Role", key="role", template="Help.", tools=(look, visit)),
            MarkdownSection(title="Rules", key="rules", template=rules),
            TaskExamplesSection(title="Done before", key="done", examples=tuple(examples)),
            MarkdownSection(
                title="Wish", key="wish", template="$text", params_type=Wish, overridable=False
            ),
        ),
    )
    return Prompt(template)


def ask(prompt: Prompt[Card], text: str) -> tuple[Card | None, Session, str]:
    session = Session()
    response = OfflineAdapter().evaluate(prompt.bind(Wish(text)), session=session)
    return response.output, session, response.text
