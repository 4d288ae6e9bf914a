"""The embedded model as an agent: everything it does comes from the prompt."""

from __future__ import annotations

import json
import random

import attrs
import pytest

from adapters.agent_world import (
    BARE_CALL,
    GOOD,
    ONE_CALL,
    PLANTS,
    Bed,
    Card,
    Garden,
    Look,
    Plant,
    Taste,
    Visit,
    ask,
    garden_prompt,
    step,
)
from promptgraft.adapters.base import ToolInvoked
from promptgraft.adapters.offline import OfflineAdapter
from promptgraft.adapters.offline.words import invented, names_in
from promptgraft.algorithms.gepa.prompts import META_PROMPTS
from promptgraft.errors import DeadlineExceededError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import (
    MarkdownSection,
    Prompt,
    PromptTemplate,
    TaskExample,
    TaskExamplesSection,
)
from promptgraft.prompt.schema import schema_of
from promptgraft.runtime import Deadline, Session
from promptgraft.search.reflection import reflection_params
from promptgraft.targets.part_json import read_named_texts, read_task_example, read_tool_example
from promptgraft.targets.replies import JSON_TAG, TEXT_TAG, new_text
from promptgraft.targets.types import (
    MetaPrompt,
    ModuleDescription,
    RolloutFeedback,
    RolloutRecord,
)
from promptgraft.testing import FakeClock

SORREL = "What does the herb `wood_sorrel` taste of?"
CICELY = "What does the herb `sweet_cicely` taste of?"


def test_a_worked_example_is_followed_step_by_step_with_values_of_its_own() -> None:
    garden = Garden()
    card, session, _ = ask(garden_prompt(garden, examples=[GOOD]), CICELY)
    assert garden.looked == ["herb:sweet_cicely"]
    assert garden.visited == ["bed south"]
    assert card == Card(Taste.SWEET, "bed south", 90)
    assert session.select_all(ToolInvoked) == (
        ToolInvoked(
            name="look", params=Look("herb:sweet_cicely"), result=PLANTS["herb:sweet_cicely"]
        ),
        ToolInvoked(name="visit", params=Visit("bed south"), result=Bed("sun, sugar")),
    )


def test_a_worked_example_that_shows_less_finds_out_less() -> None:
    garden = Garden()
    poor = attrs.evolve(GOOD, steps=(step("look", Look("water_mint"), PLANTS["herb:red_dock"]),))
    card, session, _ = ask(garden_prompt(garden, examples=[poor]), CICELY)
    assert garden.looked == ["sweet_cicely"]
    assert garden.visited == []
    (call,) = session.select_all(ToolInvoked)
    assert call.result is None
    assert call.error == "KeyError: 'sweet_cicely'"
    assert card is not None
    assert card.bed != "bed south"


def test_a_step_that_needs_what_was_not_found_is_not_made() -> None:
    garden = Garden()
    card, session, _ = ask(
        garden_prompt(garden, examples=[GOOD]), "What does the herb `hemlock` taste of?"
    )
    assert [call.name for call in session.select_all(ToolInvoked)] == ["look"]
    assert card == Card(card.taste, "", 30) if card else False


@pytest.mark.parametrize(("call", "found"), [(ONE_CALL, "bed north"), (BARE_CALL, "")])
def test_without_a_worked_example_calls_are_made_like_the_example_calls(
    call: object, found: str
) -> None:
    garden = Garden()
    calls = [ONE_CALL] if call is ONE_CALL else [BARE_CALL]
    card, _, _ = ask(garden_prompt(garden, calls=calls), "Tell me of the herb `wood_sorrel`")
    assert garden.looked == ["herb:wood_sorrel" if found else "wood_sorrel"]
    assert card is not None
    assert card.bed == found


def test_a_description_decides_which_tool_is_called() -> None:
    text = 'Is the soil of "bed west" damp?'
    plain, described = Garden(), Garden()
    ask(garden_prompt(plain), text)
    ask(garden_prompt(described, visits="Tells of the soil, damp or dry."), text)
    assert plain.visited == []
    assert described.visited == ["bed west"]


def test_rules_and_meanings_of_options_are_applied_to_what_the_tools_found() -> None:
    garden = Garden()
    store = InMemoryPromptOverridesStore()
    plain = garden_prompt(garden, calls=[ONE_CALL])
    text = "Tell me of the herb `sweet_cicely`"
    assert_taste(plain, text, Taste.SOUR)
    assert_taste(garden_prompt(garden, calls=[ONE_CALL], rules="- sweet: sugar"), text, Taste.SWEET)

    store.set_output_field_override(
        plain, field="Card.taste", value_descriptions={"sweet": "full of sugar"}
    )
    assert_taste(attrs.evolve(plain, overrides_store=store), text, Taste.SWEET)


def assert_taste(prompt: Prompt[Card], text: str, taste: Taste) -> None:
    card, _, _ = ask(prompt, text)
    assert card is not None
    assert card.taste is taste


def test_answers_use_the_names_that_are_shown() -> None:
    store = InMemoryPromptOverridesStore()
    prompt = garden_prompt(Garden(), examples=[GOOD])
    store.set_output_field_override(prompt, field="Card.bed", aliases=("place", "spot"))
    card, _, text = ask(attrs.evolve(prompt, overrides_store=store), CICELY)
    assert json.loads(text) == {"taste": "sweet", "place": "bed south", "height": 90}
    assert card == Card(Taste.SWEET, "bed south", 90)


def test_the_same_prompt_has_the_same_answer() -> None:
    texts = {ask(garden_prompt(Garden(), examples=[GOOD]), SORREL)[2] for _ in range(5)}
    assert len(texts) == 1


def test_a_deadline_that_has_passed_stops_it() -> None:
    clock = FakeClock()
    prompt = garden_prompt(Garden(), examples=[GOOD])
    deadline = Deadline.after(1.0, clock=clock)
    clock.advance(2.0)
    with pytest.raises(DeadlineExceededError):
        OfflineAdapter().evaluate(prompt, session=Session(), deadline=deadline)


HOSTILE = (
    "",
    "`" * 5_000,
    '"' * 5_000,
    "a/" * 5_000,
    "a_" * 20_000 + "!",
    "Objective: x\n\nSteps:\n1. `look`: y\n   input: {\n   output: [\n\nOutcome: {",
    "{" * 5_000,
    "\ud800 \x00 \u2028 ﷽",
    "### Example x\n**Score:** nan\n```\n",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_no_input_breaks_it(text: str) -> None:
    bad = attrs.evolve(GOOD, key="bad", objective=text or "x")
    card, _, _ = ask(garden_prompt(Garden(), examples=[GOOD, bad], calls=[ONE_CALL]), text)
    assert isinstance(card, Card)


def test_names_are_what_stands_in_quotes_or_is_spelled_like_one() -> None:
    found = names_in('See a/b.py, `run`, "two words", some_name, SomeName, A_B and 3 more words.')
    assert [(name.value, name.kind) for name in found] == [
        ("a/b.py", "path"),
        ("run", "identifier"),
        ("two words", "text"),
        ("some_name", "identifier"),
        ("SomeName", "type"),
        ("A_B", "constant"),
        ("3", "number"),
    ]
    assert invented("`run` and a/b.py") == {"run": "sample_name", "a/b.py": "folder/sample.txt"}


def log(label: str, plant: Plant) -> str:
    look = {"label": label}
    visit = {"bed": plant.bed}
    return (
        f"[look]\n  params: {json.dumps(look)}\n  result: {json.dumps(attrs.asdict(plant))}\n"
        f"[visit]\n  params: {json.dumps(visit)}\n  result: {json.dumps({'soil': 'acid'})}"
    )


def failures() -> list[RolloutRecord]:
    return [
        RolloutRecord(
            example_id=f"e{number}",
            inputs_repr=json.dumps({"text": text}),
            output_repr='{"taste": "sweet", "bed": "", "height": 0}',
            tool_trace_repr='[visit]\n  params: {"bed": "x"}\n  error: KeyError',
            feedback=RolloutFeedback(
                score=0.2,
                feedback=f"taste: expected `sour`, found `sweet`\nbed: expected `{plant.bed}`",
                eval_trace=log(label, plant),
            ),
        )
        for number, (text, label, plant) in enumerate(
            [
                (SORREL, "herb:wood_sorrel", PLANTS["herb:wood_sorrel"]),
                ("How sharp is `red_dock`?", "herb:red_dock", PLANTS["herb:red_dock"]),
            ]
        )
    ]


CURRENT = {
    MetaPrompt.SECTION: ("section rules", "- sweet: good\n- sour: bad"),
    MetaPrompt.TOOL: ("tool look", '{"description": "Looks.", "param label": ""}'),
    MetaPrompt.TOOL_EXAMPLE: (
        "tool example look/0",
        '{"description": "x", "input": {"label": "a"}, "output": {"bed": "b", "height": 1}}',
    ),
    MetaPrompt.TASK_EXAMPLE: (
        "task example done/good",
        '{"objective": "x", "steps": [], "outcome": {"taste": "sweet", "bed": "b", "height": 1}}',
    ),
    MetaPrompt.GENERATION: ("new task example in done", ""),
    MetaPrompt.OUTPUT_FIELD: (
        "output field Card.taste",
        '{"description": "How it tastes.", "aliases": [], "value sour": "", "value sweet": "good"}',
    ),
}


def asked(
    meta: MetaPrompt,
    records: list[RolloutRecord],
    *,
    current: str | None = None,
    previous: str = "",
) -> Prompt[object]:
    part, text = CURRENT[meta]
    description = ModuleDescription(
        name=part,
        meta_prompt=meta,
        is_new=meta is MetaPrompt.GENERATION,
        title=part,
        text=text if current is None else current,
        max_chars=6_000,
        output=f"A JSON object of type Card, with this schema: {json.dumps(schema_of(Card))}",
        neighbours=(),
        schema="Tool `look`: Looks.\ninput: {}\noutput: {}\n\nTool `visit`: Visits.",
    )
    params = reflection_params(description, records, refused=("no" if previous else "", previous))
    return Prompt(META_PROMPTS[meta]).bind(params)


def reply(prompt: Prompt[object]) -> str:
    return OfflineAdapter().evaluate(prompt, session=Session()).text


def proposal(meta: MetaPrompt, prompt: Prompt[object]) -> str:
    return new_text(reply(prompt), tag=TEXT_TAG if meta is MetaPrompt.SECTION else JSON_TAG).text


def test_a_tool_example_is_written_from_the_right_call_with_other_names() -> None:
    read = read_tool_example(
        proposal(MetaPrompt.TOOL_EXAMPLE, asked(MetaPrompt.TOOL_EXAMPLE, failures())), "look"
    )
    assert read.description == "What does the herb `sample_name` taste of?"
    assert json.loads(read.input_json) == {"label": "herb:sample_name"}
    assert json.loads(read.output_json)["height"] == 12


@pytest.mark.parametrize("meta", [MetaPrompt.TASK_EXAMPLE, MetaPrompt.GENERATION])
def test_a_worked_example_is_written_that_the_agent_can_follow(meta: MetaPrompt) -> None:
    key, read = read_task_example(proposal(meta, asked(meta, failures())), outcome_is_text=False)
    assert "wood_sorrel" not in read.objective
    assert [s.tool_name for s in read.steps] == ["look", "visit"]
    outcome = json.loads(read.outcome_json)
    assert outcome["taste"] == "sour"
    assert (key is None) == (meta is MetaPrompt.TASK_EXAMPLE)

    look, visit = (json.loads(s.input_json) for s in read.steps)
    plant = Plant(**json.loads(read.steps[0].output_json))
    bed = Bed(**json.loads(read.steps[1].output_json))
    written = TaskExample(
        key="written",
        objective=read.objective,
        steps=[step("look", Look(**look), plant), step("visit", Visit(**visit), bed)],
        outcome=Card(Taste.SOUR, outcome["bed"], outcome["height"]),
    )
    garden = Garden()
    card, _, _ = ask(garden_prompt(garden, examples=[written]), CICELY)
    assert garden.visited == ["bed south"]
    assert card is not None
    assert card.bed == "bed south"


@attrs.frozen
class Raised:
    """What a text says is raised."""

    error: str


def raised_prompt(*examples: TaskExample) -> Prompt[Raised]:
    sections = (
        MarkdownSection(title="Task", key="task", template="Which error does the text name?"),
        TaskExamplesSection(title="Done", key="done", template="Like these:", examples=examples),
        MarkdownSection(title="Text", key="text", template="$text", overridable=False),
    )
    template = PromptTemplate(ns="docs", key="raised", sections=sections, output_type=Raised)
    return Prompt(template)


MISSING = TaskExample(
    key="missing",
    objective="Remove a message with its headers; raise KeyError if it is missing.",
    steps=(),
    outcome=Raised("KeyError"),
)


@pytest.mark.parametrize(
    ("text", "error"),
    [("Return the header or raise LookupError.", "LookupError"), ("Nothing of the kind.", "")],
)
def test_without_tools_a_distant_worked_example_is_better_than_none(text: str, error: str) -> None:
    found = OfflineAdapter().evaluate(
        raised_prompt(MISSING).bind({"text": text}), session=Session()
    )
    assert found.output == Raised(error)


def test_without_tools_a_worked_example_shows_the_answer_that_was_expected() -> None:
    def written(feedback: str, schema: str = "") -> str:
        description = ModuleDescription(
            name="new task example in done",
            meta_prompt=MetaPrompt.GENERATION,
            is_new=True,
            title="Done",
            text="",
            max_chars=6_000,
            output=f"An object with this schema: {json.dumps(schema_of(Raised))}",
            neighbours=(),
            schema=schema,
        )
        record = RolloutRecord(
            example_id="e1",
            inputs_repr=json.dumps({"text": MISSING.objective}),
            output_repr='{"error": ""}',
            tool_trace_repr="",
            feedback=RolloutFeedback(score=0.0, feedback=feedback),
        )
        params = reflection_params(description, [record])
        return reply(Prompt(META_PROMPTS[MetaPrompt.GENERATION]).bind(params))

    expected = 'error: expected "KeyError", found ""'
    _, read = read_task_example(
        new_text(written(expected), tag=JSON_TAG).text, outcome_is_text=False
    )
    assert read.objective == MISSING.objective.replace("KeyError", "SampleName")
    assert json.loads(read.outcome_json) == {"error": "SampleName"}
    assert list(read.steps) == []
    # Nobody has said what would have been right, or which calls lead to it.
    assert "learned nothing" in written("wrong")
    assert "learned nothing" in written(expected, schema="Tool `look`: Looks.")


def test_words_of_failures_go_into_descriptions_rules_and_meanings() -> None:
    tool = proposal(MetaPrompt.TOOL, asked(MetaPrompt.TOOL, failures()))
    said = read_named_texts(tool, ["description", "param label"])
    assert {"herb", "taste", "sharp"} <= set(said["description"].replace(",", " ").split())

    rules = proposal(MetaPrompt.SECTION, asked(MetaPrompt.SECTION, failures()))
    sour = next(line for line in rules.split("\n") if line.startswith("- sour"))
    assert "acid" in sour

    field = proposal(MetaPrompt.OUTPUT_FIELD, asked(MetaPrompt.OUTPUT_FIELD, failures()))
    meanings = read_named_texts(field, ["description", "aliases", "value sour", "value sweet"])
    assert "acid" in meanings["value sour"]
    assert meanings["description"] == "How it tastes."


@pytest.mark.parametrize("meta", list(MetaPrompt))
def test_replies_are_one_block_with_the_right_tag_whatever_is_read(meta: MetaPrompt) -> None:
    random_ = random.Random(meta.value)
    pieces = [*HOSTILE, "```\n", "~~~\n", "[look]\n  params: {}\n  result: 1\n", "taste: expected"]
    for _ in range(6):
        text = "".join(random_.choices(pieces, k=3)).replace("\ud800", "")
        record = attrs.evolve(
            random_.choice(failures()),
            inputs_repr=text,
            tool_trace_repr=random_.choice(pieces).replace("\ud800", ""),
            output_repr=random_.choice(pieces).replace("\ud800", ""),
        )
        question = asked(meta, [record, *failures()][: random_.randint(0, 3)])
        assert proposal(meta, question) if meta is not MetaPrompt.GENERATION else True
        assert reply(question) == reply(question)
