"""Task examples and the sections that hold them: checked when the prompt is made, and shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import attrs
import pytest
from jsonschema import Draft202012Validator

from agent_prompts import SOURCE, Hit, Hits, ReadParams, Review, SearchParams, Severity, received
from promptgraft import hash_task_example, hash_tool_example
from promptgraft.errors import InvalidIdentifierError, PromptDefinitionError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.prompt import (
    Described,
    MarkdownSection,
    Prompt,
    PromptTemplate,
    SectionVisibility,
    TaskExample,
    TaskExamplesSection,
    TaskStep,
    Tool,
    ToolExample,
)

SEARCH: Tool[SearchParams, Hits] = Tool(
    name="search", description="Search.", params_type=SearchParams, result_type=Hits
)
READ: Tool[Any, Any] = Tool(
    name="read", description="Read.", params_type=ReadParams, result_type=str
)
TOOLS = MarkdownSection(title="Tools", key="tools", tools=(SEARCH, READ))


class Verdict(Enum):
    ACCEPT = "accept"
    REJECT = "reject"


@dataclass(frozen=True)
class Answer:
    text: str
    sure: bool = False


def step(given: object, result: object, *, tool: str = "search") -> TaskStep:
    example: ToolExample[Any, Any] = ToolExample(description="Why.", input=given, output=result)
    return TaskStep(tool_name=tool, example=example)


FITS = step(SearchParams("x"), Hits())


def example(key: str = "one", **changed: Any) -> TaskExample:
    return TaskExample(**{"key": key, "objective": "Do it.", "outcome": "Done.", **changed})


def examples_section(*examples: TaskExample, **changed: Any) -> TaskExamplesSection:
    said: dict[str, Any] = {"title": "Examples", "key": "examples", "examples": examples}
    return TaskExamplesSection(**{**said, **changed})


def template(*sections: MarkdownSection, output_type: Any = None) -> PromptTemplate[Any]:
    return PromptTemplate(ns="tests", key="task", sections=sections, output_type=output_type)


# What a model is shown


def test_an_example_is_shown_with_objective_steps_and_outcome() -> None:
    steps = (
        step(SearchParams("ä", 2), Hits((Hit("a.py", 1), Hit("b.py", 2)))),
        step(ReadParams("a.py"), 'x = "1"\n', tool="read"),
    )
    shown = examples_section(example(steps=steps), template="Like this.")

    assert Prompt(template(shown, TOOLS)).render().text == (
        "## Examples\n\n"
        "Like this.\n\n"
        "### Example: one\n\n"
        "Objective: Do it.\n\n"
        "Steps:\n"
        "1. `search`: Why.\n"
        '   input: {"query": "ä", "limit": 2}\n'
        '   output: {"hits": [{"file": "a.py", "line": 1}, {"file": "b.py", "line": 2}]}\n'
        "2. `read`: Why.\n"
        '   input: {"path": "a.py"}\n'
        '   output: "x = \\"1\\"\\n"\n\n'
        "Outcome: Done.\n\n"
        "## Tools"
    )


@pytest.mark.parametrize(
    ("output_type", "outcome", "shown"),
    [
        (None, "A text\nof two lines.", "A text\nof two lines."),
        (str, "A text.", "A text."),
        (Verdict, Verdict.ACCEPT, "accept"),
        (Review, Review(Severity.HIGH, "ä"), '{"level": "high", "note": "ä"}'),
        (Answer, Answer("x", sure=True), '{"text": "x", "sure": true}'),
    ],
    ids=["text", "str", "choice", "attrs", "dataclass"],
)
def test_an_outcome_is_of_the_type_of_the_answer(
    output_type: Any, outcome: object, shown: str
) -> None:
    made = template(examples_section(example(outcome=outcome)), output_type=output_type)

    assert Prompt(made).render().text.endswith(f"Objective: Do it.\n\nOutcome: {shown}")


@attrs.frozen
class Finding:
    where: Annotated[str, Described(aliases=("place",))]
    reviews: tuple[Review, ...] = ()


def test_an_outcome_is_shown_under_the_names_that_its_schema_asks_for() -> None:
    """The first alias, in the source and as an override leaves it, at every depth."""
    outcome = Finding("a.py", (Review(Severity.HIGH, "ä"),))
    made = template(examples_section(example(outcome=outcome)), output_type=Finding)
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(made, overrides_store=store)

    def shown() -> Any:
        rendered = prompt.render()
        told = json.loads(rendered.text.partition("Outcome: ")[2])
        schema = rendered.output_schema
        assert schema is not None
        Draft202012Validator({**schema, "additionalProperties": False}).validate(told)
        assert rendered.parse(json.dumps(told)) == outcome
        return told

    assert shown() == {"place": "a.py", "reviews": [{"level": "high", "note": "ä"}]}
    store.set_output_field_override(prompt, field="Review.severity", aliases=("grade",))
    store.set_output_field_override(prompt, field="Finding.where", aliases=())
    assert shown() == {"where": "a.py", "reviews": [{"grade": "high", "note": "ä"}]}
    stored = '{"where": "b.py", "reviews": []}'
    store.set_task_example_override(prompt, path=("examples", "one"), outcome_json=stored)
    outcome = Finding("b.py")
    store.set_output_field_override(prompt, field="Finding.where", aliases=("path",))
    assert shown() == {"path": "b.py", "reviews": []}
    kept = store.resolve(prompt.descriptor)
    assert kept is not None
    assert kept.task_example_overrides[("examples", "one")].outcome_json == stored


def test_examples_stand_between_the_text_of_their_section_and_its_children() -> None:
    child = MarkdownSection(title="Child", key="child", template="Below.")
    inner = examples_section(example("deep"), key="inner", title="Inner")
    outer = examples_section(example("a"), example("b"), template="Text.", children=(child, inner))

    sections = Prompt(template(outer)).render().sections
    assert [(found.path, found.heading) for found in sections] == [
        (("examples",), "## Examples"),
        (("examples", "a"), "### Example: a"),
        (("examples", "b"), "### Example: b"),
        (("examples", "child"), "### Child"),
        (("examples", "inner"), "### Inner"),
        (("examples", "inner", "deep"), "#### Example: deep"),
    ]


def test_several_sections_may_hold_examples_of_the_same_keys() -> None:
    made = template(
        examples_section(example(objective="First.")),
        examples_section(example(objective="Second."), key="more", title="More"),
    )

    assert [found.path for found in made.descriptor.task_examples] == [
        ("examples", "one"),
        ("more", "one"),
    ]
    text = Prompt(made).render().text
    assert text.index("Objective: First.") < text.index("## More") < text.index("Second.")


def test_the_tools_of_a_section_stand_before_its_examples() -> None:
    made = template(examples_section(example(steps=(FITS,)), tools=(SEARCH,)))

    assert [found.name for found in Prompt(made).render().tools] == ["search"]


def test_the_texts_of_examples_are_no_templates() -> None:
    said = "Pay $5 to $name {{ name }} {% if %}"
    made = template(examples_section(example(objective=said, outcome=said)))

    text = Prompt(made).bind({"name": "Ada"}).render().text
    assert f"Objective: {said}\n\nOutcome: {said}" in text


@pytest.mark.parametrize(
    "hidden",
    [
        pytest.param({"visibility": SectionVisibility.SUMMARY}, id="collapsed"),
        pytest.param(
            {"visibility": lambda values: SectionVisibility(values["how"])},
            id="collapsed by a function",
        ),
        pytest.param({"enabled": lambda values: values["how"] == "full"}, id="disabled"),
    ],
)
def test_a_section_that_is_not_shown_in_full_hides_its_examples(hidden: dict[str, Any]) -> None:
    shown = examples_section(example(objective="Shown."), key="shown")
    away = examples_section(
        example(objective="Secret."),
        summary="One example.",
        children=(examples_section(example(objective="Secret.")),),
        **hidden,
    )
    rendered = Prompt(template(away, shown)).bind({"how": "summary"}).render()

    assert "Secret." not in rendered.text
    assert "Shown." in rendered.text
    collapsed = "enabled" not in hidden
    assert ("## Examples\n\nOne example.\n\n## Examples" in rendered.text) is collapsed


def test_overrides_of_a_collapsed_section_are_neither_shown_nor_said_to_be_applied() -> None:
    away = examples_section(
        example(), summary="S.", visibility=lambda values: SectionVisibility(values["how"])
    )
    store = InMemoryPromptOverridesStore()
    prompt = Prompt(template(away), overrides_store=store)
    store.set_task_example_override(prompt, path=("examples", "one"), objective="Replaced.")
    store.add_task_example(
        prompt,
        container_path=("examples",),
        key="two",
        objective="Added.",
        outcome_json='"Done."',
        steps_json="[]",
    )

    collapsed = prompt.bind({"how": "summary"}).render()
    assert collapsed.text == "## Examples\n\nS."
    assert (collapsed.applied, collapsed.skipped) == ((), ())
    full = prompt.bind({"how": "full"}).render()
    assert "Objective: Replaced." in full.text
    assert "Objective: Added." in full.text
    assert [found.part for found in full.applied] == [
        "task example examples/one",
        "added task example examples/two",
    ]


def test_a_prompt_without_overrides_renders_the_same_with_and_without_a_store() -> None:
    assert received(SOURCE.prompt(InMemoryPromptOverridesStore())) == received(SOURCE.prompt())


# What is refused when the prompt is made


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        pytest.param(
            {"steps": (FITS, step(SearchParams(5), Hits()))},  # type: ignore[arg-type]
            "step 1: input: expected a string, found 5 @ $.query",
            id="the input of a step",
        ),
        pytest.param(
            {"steps": (step(SearchParams("x"), "nothing"),)},
            "step 0: output: expected an object, found 'nothing' @ $",
            id="the output of a step",
        ),
        pytest.param(
            {"steps": (step({"query": "x"}, Hits()),)},
            "step 0: input: {'query': 'x'} does not survive JSON",
            id="a mapping for an instance",
        ),
        pytest.param(
            {"steps": (step(SearchParams(object()), Hits()),)},  # type: ignore[arg-type]
            "step 0: input: $.query: expected plain data",
            id="what JSON cannot hold",
        ),
        pytest.param(
            {"steps": (FITS, FITS, step(SearchParams("x"), Hits(), tool="serch"))},
            "step 2: there is no tool `serch` (did you mean `search`?); tools: search, read",
            id="an unknown tool",
        ),
        pytest.param(
            {"steps": (step(SearchParams("x"), Hits(), tool="read"),)},
            "step 0: input: required key missing @ $.path",
            id="another tool's input",
        ),
        pytest.param(
            {"outcome": 5}, "outcome: expected a string, found 5 @ $", id="an outcome of no text"
        ),
        pytest.param(
            {"outcome": Verdict.ACCEPT},
            "outcome: <Verdict.ACCEPT: 'accept'> does not survive JSON; it comes back as 'accept'",
            id="an outcome of another type",
        ),
    ],
)
def test_an_example_that_does_not_fit_is_refused_with_its_place(
    changed: dict[str, Any], said: str
) -> None:
    wrong = examples_section(example("fits"), example("wrong", **changed))
    guide = MarkdownSection(title="G", key="guide", children=(wrong,))
    with pytest.raises(PromptDefinitionError) as caught:
        template(guide, TOOLS)

    place = "prompt `tests/task`: guide/examples/wrong: "
    assert str(caught.value).startswith(f"{place}{said}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("output_type", "outcome", "said"),
    [
        (Review, "high", "expected an object, found 'high' @ $"),
        (Review, Review("high"), "does not survive JSON; it comes back as Review(severity=<Sever"),  # type: ignore[arg-type]
        (Review, Review(Severity.LOW, 5), "expected a string, found 5 @ $.note"),  # type: ignore[arg-type]
        (Review, Answer("x"), "required key missing @ $.severity"),
        (Verdict, "accept", "'accept' does not survive JSON; it comes back as <Verdict.ACCEPT"),
        (Verdict, "maybe", "expected one of 'accept', 'reject', found 'maybe' @ $"),
        (Answer, Answer("x", sure=1), "expected true or false, found 1 @ $.sure"),  # type: ignore[arg-type]
    ],
)
def test_an_outcome_that_is_no_answer_is_refused_with_its_place(
    output_type: Any, outcome: object, said: str
) -> None:
    with pytest.raises(PromptDefinitionError) as caught:
        template(examples_section(example(outcome=outcome)), output_type=output_type)

    assert str(caught.value).startswith("prompt `tests/task`: examples/one: outcome: ")
    assert said in str(caught.value)


def test_an_example_without_tools_to_call_says_so() -> None:
    with pytest.raises(PromptDefinitionError, match="there is no tool `search`; tools: none"):
        template(examples_section(example(steps=(FITS,))))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: examples_section(example(), example()), id="two examples"),
        pytest.param(
            lambda: examples_section(
                example(), children=(MarkdownSection(title="One", key="one", template="x"),)
            ),
            id="an example and a child",
        ),
    ],
)
def test_two_parts_of_one_key_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(
        PromptDefinitionError, match="section `examples`: two parts have the key `one`"
    ):
        make()


@pytest.mark.parametrize("key", ["", "Two words", "a/b", "ä", "a" * 65, "-a"])
def test_a_key_that_is_no_identifier_is_refused(key: str) -> None:
    with pytest.raises(
        InvalidIdentifierError, match="task example key: expected 1 to 64"
    ) as caught:
        example(key)
    assert str(caught.value).endswith(f"found {key!r}")


# What overrides are bound to


def test_the_hash_of_an_example_covers_everything_in_it() -> None:
    def content_hash(**changed: Any) -> str:
        made = template(examples_section(example(**{"steps": (FITS,), **changed})), TOOLS)
        (found,) = made.descriptor.task_examples
        return found.content_hash

    read = step(ReadParams("x"), "", tool="read")
    hashes = [
        content_hash(),
        content_hash(objective="Do that."),
        content_hash(outcome="Undone."),
        content_hash(steps=()),
        content_hash(steps=(FITS, FITS)),
        content_hash(steps=(step(SearchParams("y"), Hits()),)),
        content_hash(steps=(step(SearchParams("x", 6), Hits()),)),
        content_hash(steps=(step(SearchParams("x"), Hits((Hit("a", 1),))),)),
        content_hash(steps=(read,)),
        content_hash(
            steps=(attrs.evolve(FITS, example=attrs.evolve(FITS.example, description="Other.")),)
        ),
        content_hash(steps=(FITS, read)),
        content_hash(steps=(read, FITS)),
    ]
    assert len(set(hashes)) == len(hashes)
    assert content_hash(key="renamed") == content_hash()


def test_the_interface_of_a_prompt_is_its_types_and_not_its_words() -> None:
    def interface(*tools: Tool[Any, Any], output_type: Any = None) -> str:
        section = MarkdownSection(title="T", key="t", tools=tools)
        return template(
            section, examples_section(), output_type=output_type
        ).descriptor.interface_hash

    @attrs.frozen
    class Params:
        """Said in the source."""

        path: str

    undocumented = attrs.make_class("Params", {"path": attrs.field(type=str)})
    plain = attrs.evolve(READ, params_type=undocumented)

    assert interface(attrs.evolve(READ, params_type=Params)) == interface(plain)
    assert interface(attrs.evolve(READ, description="Other.")) == interface(READ)
    assert interface(READ, SEARCH) == interface(SEARCH, READ)
    others = [
        interface(READ),
        interface(),
        interface(READ, SEARCH),
        interface(attrs.evolve(READ, name="open")),
        interface(attrs.evolve(READ, result_type=int)),
        interface(READ, output_type=Verdict),
        interface(READ, output_type=Answer),
    ]
    assert len(set(others)) == len(others)


def test_the_public_hashes_are_those_that_overrides_expect() -> None:
    made = template(examples_section(example(steps=(FITS,))), TOOLS)
    (found,) = made.descriptor.task_examples
    (source,) = examples_section(example(steps=(FITS,))).examples
    assert hash_task_example(source) == found.content_hash
    assert hash_task_example(attrs.evolve(source, objective="Other.")) != found.content_hash
    (call,) = source.steps
    (step,) = found.example.steps
    assert hash_tool_example(call.example) == step.content_hash
    assert hash_tool_example(attrs.evolve(call.example, description="x")) != step.content_hash
