"""Overrides of what is said of the answer's fields: from the store to the schema and the parser."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import pytest

from agent_prompts import (
    ADDRESS,
    SAYS_SEVERITY,
    SOURCE,
    STORES,
    TEMPLATE,
    AnyPrompt,
    FinerSeverity,
    Review,
    Severity,
    Source,
    Store,
    Write,
    check_refused,
    check_skipped,
    edits,
    fields_class,
    holding,
    received,
    set_severity,
)
from promptgraft.errors import (
    HashMismatchError,
    InvalidOverrideError,
    OutputError,
    UnknownPartError,
)
from promptgraft.overrides import (
    AddedTaskExample,
    InMemoryPromptOverridesStore,
    OutputFieldOverride,
    OverlayPromptOverridesStore,
    RemovedTaskExample,
    SkipReason,
    TaskExampleOverride,
    VisibilityOverride,
)
from promptgraft.overrides.parts.entry import Entry
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.prompt import Described, Prompt, PromptTemplate

STALE, UNKNOWN, TAKEN = SkipReason.STALE, SkipReason.UNKNOWN_PART, SkipReason.NAME_TAKEN


@attrs.frozen
class Owner:
    name: Annotated[str, Described("Who.", aliases=("who",))]
    team: str = ""


@attrs.frozen
class Finding:
    """A finding."""

    title: str
    owner: Owner | None = None
    others: tuple[Owner, ...] = ()
    kind: Annotated[Literal["bug", "idea"] | None, Described(values={"bug": "Broken."})] = None


class Verdict(Enum):
    ACCEPT = "accept"
    REJECT = "reject"


FINDING = PromptTemplate(ns="tests/agents", key="finding", output_type=Finding)
VERDICT = PromptTemplate(ns="tests/agents", key="verdict", output_type=Verdict)


def review(**changed: Any) -> type[Any]:
    """Return the type of the answer after its author changed what is said of ``severity``."""
    return _review(Severity, attrs.evolve(SAYS_SEVERITY, **changed))


def _review(severity: type[Enum], said: Described, **note: Any) -> type[Any]:
    return fields_class(
        "Review",
        severity=(Annotated[severity, said], attrs.NOTHING),
        note=(Annotated[str, Described("One sentence.", **note)], ""),
    )


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return STORES[request.param](tmp_path)


def changed_lines(prompt: AnyPrompt) -> tuple[list[str], list[str]]:
    return edits(received(SOURCE.prompt()), received(prompt))


def properties(prompt: AnyPrompt) -> dict[str, Any]:
    schema = prompt.render().output_schema
    assert schema is not None
    found = schema["properties"]
    assert isinstance(found, dict)
    return found


def named(name: str) -> list[str]:
    """Return the lines that name the severity: of each task example, and of the schema."""
    outcomes = (
        ("high", "One query is built from input."),
        ("low", ""),
        ("low", "Two names are short."),
    )
    lines = [f'Outcome: {{"{name}": "{value}", "note": "{note}"}}' for value, note in outcomes]
    return [*lines, f'"{name}": {{', f'"{name}"']


# From the store to the model


def test_the_description_of_a_field_reaches_the_schema_of_the_answer(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_output_field_override(prompt, field="Review.note", description="At most 10 words.")

    assert changed_lines(prompt) == (
        ['"description": "One sentence."'],
        ['"description": "At most 10 words."'],
    )
    assert [found.part for found in prompt.render().applied] == ["output field Review.note"]


def test_the_first_alias_of_a_field_is_the_name_that_the_model_is_shown(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_output_field_override(prompt, field="Review.severity", aliases=("urgency", "grade"))

    assert changed_lines(prompt) == (named("level"), named("urgency"))
    assert list(properties(prompt)) == ["urgency", "note"]


def test_a_field_without_aliases_has_its_own_name_again(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_output_field_override(prompt, field="Review.severity", aliases=())

    assert changed_lines(prompt) == (named("level"), named("severity"))


def test_the_meanings_of_options_reach_the_description_of_the_field(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_output_field_override(
        prompt, field="Review.severity", value_descriptions={"low": "Can wait."}
    )

    assert properties(prompt)["level"] == {
        "enum": ["high", "low"],
        "description": "How bad it is.\n- high: Blocks the release.\n- low: Can wait.",
    }


def test_a_field_of_a_class_inside_reaches_its_definition(store: Store) -> None:
    prompt = Prompt(FINDING, overrides_store=store)
    store.set_output_field_override(
        prompt, field="Owner.name", description="A person.", aliases=("person",)
    )

    schema = prompt.render().output_schema
    assert schema is not None
    assert schema["$defs"] == {
        "Owner": {
            "title": "Owner",
            "type": "object",
            "properties": {
                "person": {"type": "string", "description": "A person."},
                "team": {"type": "string", "default": ""},
            },
            "required": ["person"],
        }
    }


def test_the_options_of_an_optional_field_may_be_described(store: Store) -> None:
    prompt = Prompt(FINDING, overrides_store=store)
    store.set_output_field_override(
        prompt, field="Finding.kind", value_descriptions={"idea": "Could be better."}
    )

    described = properties(prompt)["kind"]["description"]
    assert described == "- bug: Broken.\n- idea: Could be better."


def test_an_answer_that_is_a_choice_may_be_described(store: Store) -> None:
    prompt = Prompt(VERDICT, overrides_store=store)
    store.set_output_field_override(
        prompt,
        field="Verdict",
        description="Your decision.",
        value_descriptions={"reject": "It breaks a test."},
    )

    assert prompt.render().output_schema == {
        "enum": ["accept", "reject"],
        "description": "Your decision.\n- reject: It breaks a test.",
    }


def test_an_override_of_a_field_replaces_the_one_before(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_output_field_override(prompt, field="Review.severity", description="Gone.")
    store.set_output_field_override(prompt, field="Review.severity", aliases=("urgency",))

    assert changed_lines(prompt)[1] == named("urgency")


# Back from the model


def test_an_answer_is_read_by_the_names_that_the_override_gives(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    store.set_output_field_override(prompt, field="Review.severity", aliases=("how urgent", "u"))

    parse = prompt.render().parse
    expected = Review(Severity.HIGH, "x")
    for name in ("how urgent", "How_Urgent", "U", "severity", "SEVERITY"):
        assert parse(f'{{"{name}": "HIGH", "note": "x"}}') == expected
    with pytest.raises(OutputError, match=r"answer: required key missing @ \$\.severity"):
        parse('{"level": "high"}')


def test_an_answer_inside_an_answer_is_read_by_the_names_that_the_override_gives(
    store: Store,
) -> None:
    prompt = Prompt(FINDING, overrides_store=store)
    store.set_output_field_override(prompt, field="Owner.name", aliases=("person",))

    text = '{"title": "t", "owner": {"person": "Ada"}, "others": [{"Person": "Bob"}]}'
    assert prompt.render().parse(text) == Finding("t", Owner("Ada"), (Owner("Bob"),))


# Sources that change


@pytest.mark.parametrize(
    ("edited", "skipped"),
    [
        pytest.param(
            Source(review_type=review(description="How grave it is.")),
            {OutputFieldOverride: STALE},
            id="the description",
        ),
        pytest.param(
            Source(review_type=review(aliases=("grade",))),
            {OutputFieldOverride: STALE},
            id="the aliases",
        ),
        pytest.param(
            Source(review_type=review(values={"high": "Blocks."})),
            {OutputFieldOverride: STALE},
            id="the meaning of an option",
        ),
        pytest.param(
            Source(
                review_type=_review(
                    FinerSeverity,
                    SAYS_SEVERITY,
                ),
                severity_type=FinerSeverity,
            ),
            {OutputFieldOverride: STALE, AddedTaskExample: STALE},
            id="an option",
        ),
        pytest.param(
            Source(
                review_type=fields_class("Review", grade=(Severity, attrs.NOTHING), note=(str, ""))
            ),
            {
                OutputFieldOverride: UNKNOWN,
                AddedTaskExample: STALE,
                TaskExampleOverride: STALE,
                RemovedTaskExample: STALE,
                VisibilityOverride: STALE,  # of a section with an example
            },
            id="the field is gone",
        ),
        pytest.param(
            Source(
                review_type=_review(
                    Severity,
                    SAYS_SEVERITY,
                    aliases=("Urgency",),
                )
            ),
            {OutputFieldOverride: TAKEN},
            id="another field takes the name",
        ),
    ],
)
def test_a_source_that_changes_makes_the_override_stale(
    edited: Source, skipped: dict[type[Entry], SkipReason], store: Store
) -> None:
    check_skipped(store, edited, skipped)


def test_of_two_stores_that_give_two_fields_one_name_one_applies() -> None:
    base, overlay = InMemoryPromptOverridesStore(), InMemoryPromptOverridesStore()
    prompt = SOURCE.prompt()
    base.set_output_field_override(prompt, field="Review.severity", aliases=("remark",))
    overlay.set_output_field_override(prompt, field="Review.note", aliases=("re_mark",))
    both = SOURCE.prompt(OverlayPromptOverridesStore(base=base, overlay=overlay))

    rendered = both.render()
    assert [found.part for found in rendered.applied] == ["output field Review.note"]
    (skipped,) = rendered.skipped
    assert (skipped.part, skipped.reason) == ("output field Review.severity", TAKEN)
    assert skipped.expected_hash == skipped.found_hash
    assert list(properties(both)) == ["level", "re_mark"]
    assert rendered.parse('{"level": "low", "remark": "x"}') == Review(Severity.LOW, "x")


# Wrong writes


def _field(field: str = "Review.severity", **replaced: Any) -> Write:
    return lambda store, prompt: store.set_output_field_override(prompt, field=field, **replaced)


PART = "output field Review.severity"

REFUSED: list[tuple[str, Write, type[Exception], tuple[str, ...]]] = [
    (
        "an unknown field",
        _field("Review.severty", description="x"),
        UnknownPartError,
        (
            "prompt `tests/agents/review` has no output field `Review.severty`",
            "(did you mean `Review.severity`?)",
            "overridable: `Review.severity`, `Review.note`",
        ),
    ),
    (
        "a field without its class",
        _field("severity", description="x"),
        UnknownPartError,
        ("has no output field `severity`",),
    ),
    ("nothing replaced", _field(), InvalidOverrideError, (f"{PART}: replaces nothing",)),
    (
        "an empty description",
        _field(description=" "),
        InvalidOverrideError,
        (f"{PART}: description: expected a text, found nothing",),
    ),
    (
        "a description that is no text",
        _field(description=7),
        InvalidOverrideError,
        (f"{PART}: description: expected text, found 7",),
    ),
    (
        "a lone surrogate",
        _field(description="\ud800"),
        InvalidOverrideError,
        (f"{PART}: description: expected Unicode text, found a lone surrogate at character 0",),
    ),
    (
        "a description that is too long",
        _field(description="x" * (MAX_BODY_CHARS + 1)),
        InvalidOverrideError,
        (f"{PART}: description: expected at most 1000000 characters, found 1000001",),
    ),
    (
        "an empty alias",
        _field(aliases=("",)),
        InvalidOverrideError,
        (f"{PART}: alias: expected a text, found nothing",),
    ),
    (
        "an alias that is no text",
        _field(aliases=(7,)),
        InvalidOverrideError,
        (f"{PART}: alias: expected text, found 7",),
    ),
    (
        "an alias with a lone surrogate",
        _field(aliases=("a\udbff",)),
        InvalidOverrideError,
        (f"{PART}: alias: expected Unicode text, found a lone surrogate at character 1",),
    ),
    (
        "one text for the aliases",
        _field(aliases="urgency"),
        InvalidOverrideError,
        ("aliases: expected a list of texts, found 'urgency'",),
    ),
    (
        "the name of another field",
        _field(aliases=("urgency", "note")),
        InvalidOverrideError,
        (f"{PART}: the name 'note' is taken",),
    ),
    (
        "the name of another field, spelled otherwise",
        _field(aliases=("NO-TE",)),
        InvalidOverrideError,
        (f"{PART}: the name 'NO-TE' is taken",),
    ),
    (
        "an alias of another field",
        _field("Review.note", aliases=("Level",)),
        InvalidOverrideError,
        ("output field Review.note: the name 'Level' is taken",),
    ),
    (
        "the field's own name",
        _field(aliases=("severity",)),
        InvalidOverrideError,
        (f"{PART}: the name 'severity' is taken",),
    ),
    (
        "an alias twice",
        _field(aliases=("urgency", "urgency")),
        InvalidOverrideError,
        (f"{PART}: the name 'urgency' is taken",),
    ),
    (
        "an unknown option",
        _field(value_descriptions={"hihg": "x"}),
        InvalidOverrideError,
        (f"{PART}: there is no option 'hihg'; options: high, low",),
    ),
    (
        "an option by its member's name",
        _field(value_descriptions={"HIGH": "x"}),
        InvalidOverrideError,
        (f"{PART}: there is no option 'HIGH'; options: high, low",),
    ),
    (
        "an option of a field that is no choice",
        _field("Review.note", value_descriptions={"short": "x"}),
        InvalidOverrideError,
        ("output field Review.note: there is no option 'short'; options: none",),
    ),
    (
        "an empty meaning",
        _field(value_descriptions={"low": ""}),
        InvalidOverrideError,
        (f"{PART}: option `low`: expected a text, found nothing",),
    ),
]


@pytest.mark.parametrize(
    ("write", "error", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_a_wrong_write_is_refused(
    write: Write, error: type[Exception], said: tuple[str, ...], store: Store
) -> None:
    check_refused(store, write, error, *said)


def test_a_prompt_for_text_has_no_fields(store: Store) -> None:
    template: PromptTemplate[None] = PromptTemplate(ns="tests", key="text")
    prompt = Prompt(template, overrides_store=store)
    with pytest.raises(
        UnknownPartError, match=r"has no output field `Review\.note`; overridable: "
    ):
        store.set_output_field_override(prompt, field="Review.note", description="x")


def test_an_answer_that_is_a_choice_has_no_aliases(store: Store) -> None:
    prompt = Prompt(VERDICT, overrides_store=store)
    with pytest.raises(InvalidOverrideError, match="output field Verdict: an answer that is a ch"):
        store.set_output_field_override(prompt, field="Verdict", aliases=("decision",))


def test_a_name_that_the_override_of_another_field_gives_is_refused(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    kept = set_severity(store, prompt)
    with pytest.raises(
        InvalidOverrideError,
        match=r"output field Review\.note: the name 'Ur_gency' is taken by the override of "
        r"`Review\.severity`",
    ):
        store.set_output_field_override(prompt, field="Review.note", aliases=("why", "Ur_gency"))

    assert store.resolve(TEMPLATE.descriptor) == kept


def test_two_fields_may_exchange_names_in_one_write(store: Store) -> None:
    prompt = SOURCE.prompt(store)
    for names in (("a", "b"), ("b", "a")):
        entries = [
            OutputFieldOverride(
                field=field.field, expected_hash=field.content_hash, aliases=(name,)
            )
            for field, name in zip(prompt.descriptor.output_fields, names, strict=True)
        ]
        store.upsert(prompt.descriptor, ADDRESS.empty().holding(entries))
        assert tuple(properties(prompt)) == names


def test_fields_of_two_classes_may_have_one_name(store: Store) -> None:
    prompt = Prompt(FINDING, overrides_store=store)
    store.set_output_field_override(prompt, field="Owner.name", aliases=("text",))
    store.set_output_field_override(prompt, field="Finding.title", aliases=("text",))

    parsed = prompt.render().parse('{"text": "t", "owner": {"text": "Ada"}}')
    assert parsed == Finding("t", Owner("Ada"))


def test_a_stale_override_takes_no_name(store: Store) -> None:
    set_severity(store, SOURCE.prompt(store))
    edited = Source(review_type=review(description="How grave it is.")).prompt(store)
    store.set_output_field_override(edited, field="Review.note", aliases=("urgency",))

    assert list(properties(edited)) == ["level", "urgency"]


def test_an_override_written_for_another_field_text_is_refused(store: Store) -> None:
    old = Source(review_type=review(description="Old.")).prompt()
    override = set_severity(InMemoryPromptOverridesStore(), old)

    check_refused(
        store,
        lambda store, _: store.upsert(TEMPLATE.descriptor, override),
        HashMismatchError,
        f"{PART}: the override was written for source ",
        override.output_overrides["Review.severity"].expected_hash[:12],
        TEMPLATE.descriptor.output_fields[0].content_hash[:12],
    )


def test_what_was_not_replaced_is_the_sources_also_when_the_store_is_unchecked() -> None:
    field = TEMPLATE.descriptor.output_fields[0]
    nothing = OutputFieldOverride(field=field.field, expected_hash=field.content_hash)
    prompt = SOURCE.prompt(holding(ADDRESS.empty().holding([nothing])))

    assert received(prompt) == received(SOURCE.prompt())
