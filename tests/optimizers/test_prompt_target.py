"""Texts grafted onto a prompt: literal, with every placeholder, once and for all."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import partial

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agent_prompts
from further import some
from optimizers.worlds import (
    NOTES,
    PROMPT,
    QUESTION,
    RULES,
    CountingStore,
    Question,
    examples,
    grafted,
    hostile_text,
    refusal_of,
    section,
    target_of,
)
from promptgraft.overrides import (
    InMemoryPromptOverridesStore,
    RemovedTaskExample,
    SectionOverride,
)
from promptgraft.overrides.parts.descriptors import SectionPath
from promptgraft.overrides.parts.validation import MAX_BODY_CHARS
from promptgraft.overrides.types import Provenance
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.search import RejectionReason
from promptgraft.targets.base import InvalidProposalError
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.types import Candidate, GepaExample

DOLLAR: SectionPath = ("dollar",)
JINJA: SectionPath = ("jinja",)
TEMPLATE = PromptTemplate[object](
    ns="toy",
    key="both",
    sections=(
        MarkdownSection(title="D", key="dollar", template="Do you know $word, in $tone?"),
        MarkdownSection(
            title="J",
            key="jinja",
            syntax="jinja",
            template="Know {{ word }}? {% if tone %}In {{ tone }}.{% endif %}",
        ),
    ),
)
# Values that look like markers themselves: nothing is ever replaced twice.
VALUES = {"word": "<$tone {{ tone }} $$>", "tone": "<${word} \\{{ word }}>"}
SHOWN = {DOLLAR: VALUES, JINJA: {"word": VALUES["word"], "if_1": f"In {VALUES['tone']}."}}
EXAMPLE = GepaExample(id="e", params=(VALUES,))
TARGET = target_of(Prompt(TEMPLATE), DOLLAR, JINJA, max_part_chars=300)
REASONS = {
    RejectionReason.UNUSABLE_TEXT,
    RejectionReason.LOST_PLACEHOLDER,
    RejectionReason.INVENTED_PLACEHOLDER,
    RejectionReason.TOO_LONG,
    RejectionReason.UNCHANGED,
}


def shown(text: str, path: SectionPath) -> str:
    """Read a body by hand, and return what a model must be shown of it."""
    escape, values = ("$", SHOWN[DOLLAR]) if path == DOLLAR else ("\\", SHOWN[JINJA])
    marker = (
        re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
        if path == DOLLAR
        else re.compile(r"\{\{[ \t\r\n]*([A-Za-z_][A-Za-z0-9_]*)[ \t\r\n]*()\}\}")
    )
    out, at = [], 0
    while at < len(text):
        run = len(text) - at - len(text[at:].lstrip(escape))
        start = at + run - (1 if path == DOLLAR and run else 0)
        found = marker.match(text, start)
        name = (found[1] or found[2]) if found else ""
        if found and name in values:
            escapes = start - at
            out.append(escape * (escapes // 2))
            out.append(found[0] if escapes % 2 else values[name])
            at = found.end()
        else:
            out.append(text[at : at + max(run, 1)])
            at += max(run, 1)
    return "".join(out)


def body_of(candidate: Candidate, path: SectionPath) -> str:
    return candidate.section_bodies[path]


def rendered(candidate: Candidate, path: SectionPath, values: Mapping[str, str]) -> str:
    """Store a candidate as strictly as any other override, and render it."""
    store = InMemoryPromptOverridesStore()
    store.upsert(TEMPLATE.descriptor, candidate.override)
    found = section(Prompt(TEMPLATE, overrides_store=store).bind(values).render(), path)
    assert found.overridden
    return found.text


MARKERS = {
    DOLLAR: ("$word", "${word}", "$tone", "${tone}"),
    JINJA: ("{{ word }}", "{{word}}", "{{ if_1 }}", "{{\nif_1\t}}"),
}
FRAGMENTS = (
    *("$", "$$", "$$$", "$5", "${", "}", "$word", "${word}", "$$word", "$$$word", "$$${word}"),
    *("$wordy", "$other", "${other}", "${word", "{{", "}}", "{", "{{ word }}", "{{{ word }}}"),
    *("{{ other }}", "{{ word | upper }}", "{{ 6 * 7 }}", "{% if x %}", "{% endif %}", "{# c #}"),
    *("\\", "\\\\", "\\{{ word }}", "\\\\{{ word }}", "{{ if_1 }}", "{{ if_2 }}", "word", "_"),
    *("a", "1", " ", "\n", "\r\n", "\r", "\t", "```", "é", "😀", "\x00", "\u2028", "Be brief."),
)


TEXTS_PER_SEED = 10


def any_text(chance: random.Random, path: SectionPath) -> str:
    """Return a text that mostly has the placeholders that it must have."""
    text = hostile_text(chance, (*FRAGMENTS, *MARKERS[path] * 4))
    if chance.random() < 0.7:
        both = [chance.choice(MARKERS[path][:2]), chance.choice(MARKERS[path][2:])]
        chance.shuffle(both)
        text = chance.choice(("{0}{2}{1}", "{2}{0}{1}", "{0} {1}{2}")).replace("{2}", text)
        text = text.replace("{0}", both[0]).replace("{1}", both[1])
    return text


def check_any_text(target: PromptTarget, path: SectionPath, text: str) -> None:
    propose_text = partial(grafted, target, target.baseline(), path, text, EXAMPLE)
    if refusal := refusal_of(propose_text):
        assert refusal.reason in REASONS, repr(text)
        assert refusal.detail
        return
    child = propose_text()
    literal = shown(text, path)
    assert rendered(child, path, VALUES) == literal
    body = body_of(child, path)
    assert shown(body, path) == literal
    again = refusal_of(partial(grafted, target, child, path, body, EXAMPLE))
    assert again is not None
    assert again.reason is RejectionReason.UNCHANGED
    assert grafted(target, target.baseline(), path, body, EXAMPLE).digest == child.digest
    for _ in range(3):
        body += "!"
        if len(body) <= target.max_part_chars:
            child = grafted(target, child, path, body, EXAMPLE)
            assert body_of(child, path) == body


@pytest.mark.parametrize("path", [DOLLAR, JINJA], ids=["dollar", "jinja"])
@given(seed=st.integers(0, 2**63))
@settings(max_examples=10, deadline=None)
def test_any_text_is_shown_literally_or_refused(seed: int, path: SectionPath) -> None:
    chance = random.Random(seed)
    for _ in range(TEXTS_PER_SEED):
        check_any_text(TARGET, path, any_text(chance, path))


@pytest.mark.parametrize("path", [DOLLAR, JINJA], ids=["dollar", "jinja"])
@given(middle=st.text(st.sampled_from("$\\{}word_ \n"), max_size=20))
@settings(max_examples=50, deadline=None)
def test_any_text_made_of_marks_is_shown_literally_or_refused(
    middle: str, path: SectionPath
) -> None:
    check_any_text(TARGET, path, f"{MARKERS[path][0]}{middle}{MARKERS[path][2]}")


GRAFTED = {
    "braces where they are needed": (DOLLAR, "${word}s $tone", "${word}s $tone"),
    "braces where they are not": (DOLLAR, "${word}. ${tone}", "$word. $tone"),
    "money": (DOLLAR, "$word $tone costs $5 or $$5", "$word $tone costs $5 or $$5"),
    "a literal marker": (DOLLAR, "$word $tone, not $$word", "$word $tone, not $$word"),
    "a template": (DOLLAR, "$word $tone {{ 6 * 7 }} {% if %}", "$word $tone {{ 6 * 7 }} {% if %}"),
    "a Jinja marker": (DOLLAR, "$word $tone {{ word }}", "$word $tone {{ word }}"),
    "close braces": (JINJA, "{{word}} {{  if_1\n}}", "{{ word }} {{ if_1 }}"),
    "a literal Jinja marker": (
        JINJA,
        "{{ word }} {{ if_1 }} \\{{ word }}",
        "{{ word }} {{ if_1 }} \\{{ word }}",
    ),
    "an expression": (
        JINJA,
        "{{ word }} {{ if_1 }} {{ word|upper }} {{ ''.x }} {% for %} $word",
        "{{ word }} {{ if_1 }} {{ word|upper }} {{ ''.x }} {% for %} $word",
    ),
}

REFUSED = {
    "a lost placeholder": (DOLLAR, "Be brief, $tone.", RejectionReason.LOST_PLACEHOLDER, "$word"),
    "an escaped placeholder": (
        DOLLAR,
        "$tone $$word",
        RejectionReason.LOST_PLACEHOLDER,
        "$word",
    ),
    "a longer name": (DOLLAR, "$wordy $tone", RejectionReason.LOST_PLACEHOLDER, "$word"),
    "an invented placeholder": (
        DOLLAR,
        "$word $tone $name",
        RejectionReason.INVENTED_PLACEHOLDER,
        "$name",
    ),
    "a lost block": (JINJA, "{{ word }}", RejectionReason.LOST_PLACEHOLDER, "{{ if_1 }}"),
    "a rewritten block": (
        JINJA,
        "{{ word }} {% if tone %}In {{ tone }}.{% endif %}",
        RejectionReason.LOST_PLACEHOLDER,
        "{{ if_1 }}",
    ),
    "an invented Jinja placeholder": (
        JINJA,
        "{{ word }} {{ if_1 }} {{ name }}",
        RejectionReason.INVENTED_PLACEHOLDER,
        "{{ name }}",
    ),
    "too long": (
        DOLLAR,
        "$word $tone" + "x" * 290,
        RejectionReason.TOO_LONG,
        "301 characters; at most 300",
    ),
    "too long once it is spelled out": (
        JINJA,
        "{{word}} {{if_1}}".ljust(299, "x"),
        RejectionReason.TOO_LONG,
        "303 characters; at most 300",
    ),
    "a lone surrogate": (DOLLAR, "$word $tone \ud800", RejectionReason.UNUSABLE_TEXT, "surrogate"),
    "the same": (
        DOLLAR,
        "Do you know ${word}, in $tone?",
        RejectionReason.UNCHANGED,
        "the same as the current one",
    ),
    "the same with blank lines": (
        DOLLAR,
        "\n\nDo you know $word, in $tone?\n",
        RejectionReason.UNCHANGED,
        "the same as the current one",
    ),
}


@pytest.mark.parametrize("case", GRAFTED)
def test_a_text_is_kept_in_its_usual_spelling(case: str) -> None:
    path, text, body = GRAFTED[case]
    child = grafted(TARGET, TARGET.baseline(), path, text, EXAMPLE)
    assert body_of(child, path) == body
    assert TARGET.describe(SectionModule(path), child).text == body


@pytest.mark.parametrize("case", REFUSED)
def test_a_text_that_cannot_be_used_is_refused_with_what_to_mend(case: str) -> None:
    path, text, reason, detail = REFUSED[case]
    with pytest.raises(InvalidProposalError) as caught:
        grafted(TARGET, TARGET.baseline(), path, text, EXAMPLE)
    assert caught.value.reason is reason
    assert detail in caught.value.detail


LONG = {
    "dollars": (DOLLAR, "$" * 180_000 + "word $tone"),
    "escaped dollars": (DOLLAR, "$word $tone " + "$$word" * 15_000),
    "open braces": (DOLLAR, "$word $tone " + "${" * 90_000),
    "long names": (DOLLAR, "$word $tone $$" + "a" * 180_000),
    "Jinja braces": (JINJA, "{{ word }} {{ if_1 }} " + "{{" * 90_000),
    "Jinja spaces": (JINJA, "{{ word }} {{ if_1 }} {{" + " " * 180_000),
    "Jinja spaces and braces": (JINJA, "{{ word }} {{ if_1 }} " + "{{ " * 60_000),
    "backslashes": (JINJA, "\\" * 180_000 + "{{ word }} {{ if_1 }}"),
    "markers": (JINJA, "{{ word }}" * 10_000 + "{{ if_1 }}"),
}


@pytest.mark.parametrize("case", some(LONG))
def test_very_long_texts_are_grafted_in_one_pass(case: str) -> None:
    path, text = LONG[case]
    target = target_of(Prompt(TEMPLATE), path, max_part_chars=MAX_BODY_CHARS)
    propose_text = partial(grafted, target, target.baseline(), path, text, EXAMPLE)
    if refusal := refusal_of(propose_text):
        assert refusal.reason in REASONS
        return
    child = propose_text()
    assert rendered(child, path, {"word": "W", "tone": "T"}).count("W") >= 1


def test_a_text_that_goes_back_to_the_baseline_is_the_baseline() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=RULES, body="\nKnown words: w0\n")
    target = target_of(PROMPT, RULES, NOTES, store=store)
    changed = grafted(target, target.baseline(), RULES, "Known words: w1")
    both = grafted(target, changed, NOTES, "More words: w2")
    back = grafted(target, both, RULES, "Known words: w0")
    assert set(back.section_bodies) == {NOTES}
    home = grafted(target, back, NOTES, "More words:")
    assert home.section_bodies == {}
    assert home.digest == target.baseline().digest


def test_a_child_is_rendered_with_the_examples_it_will_be_tried_on() -> None:
    template = PromptTemplate[object](
        ns="toy",
        key="fragile",
        sections=(
            MarkdownSection(
                title="R", key="rules", syntax="jinja", template="{{ 12 // (word|length) }}"
            ),
        ),
    )
    target = target_of(Prompt[object](template), RULES)
    good, bad = examples(1)[0], GepaExample(id="empty", params=(Question(""),))
    child = grafted(target, target.baseline(), RULES, "Divide: {{ expr_1 }}", good)
    assert body_of(child, RULES) == "Divide: {{ expr_1 }}"
    with pytest.raises(InvalidProposalError, match=r"with example `empty`: .*division") as caught:
        grafted(target, target.baseline(), RULES, "Divide: {{ expr_1 }}", good, bad)
    assert caught.value.reason is RejectionReason.DOES_NOT_RENDER


def test_placeholders_that_the_parent_shows_literally_are_no_invention() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=RULES, body="Write $name like this.")
    target = target_of(PROMPT, RULES, store=store)
    child = grafted(target, target.baseline(), RULES, "Write $name like that.")
    assert body_of(child, RULES) == "Write $name like that."
    with pytest.raises(InvalidProposalError, match=re.escape("the text uses $other")):
        grafted(target, target.baseline(), RULES, "Write $name like $other.")


def test_a_module_is_described_with_all_that_a_writer_must_know() -> None:
    target = target_of(Prompt(TEMPLATE), JINJA, max_part_chars=444, max_example_chars=100)
    described = target.describe(SectionModule(JINJA), target.baseline())
    assert described.name == "section jinja"
    assert described.title == "J"
    assert described.text == "Know {{ word }}? {{ if_1 }}"
    assert described.placeholders == ("{{ word }}", "{{ if_1 }}")
    assert dict(described.opaque) == {"{{ if_1 }}": "{% if tone %}In {{ tone }}.{% endif %}"}
    assert described.max_chars == 444
    assert described.neighbours == [("section dollar", "Do you know $word, in $tone?")]


def test_long_neighbours_are_clipped_and_empty_ones_left_out() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=RULES, body="r" * 500)
    store.set_section_override(PROMPT, path=NOTES, body="")
    target = target_of(PROMPT, QUESTION, store=store, max_example_chars=100)
    [(name, text)] = target.describe(SectionModule(QUESTION), target.baseline()).neighbours
    assert name == "section rules"
    assert len(text) <= 100
    assert "of 500 characters left out" in text


def test_a_candidate_is_kept_in_one_write_or_nowhere() -> None:
    store = CountingStore()
    target = target_of(PROMPT, RULES, NOTES, store=store)
    child = grafted(target, target.baseline(), RULES, "Known words: w1")
    both = grafted(target, child, NOTES, "More words: w2")
    assert target.persist(both, Provenance(run_id="r"), pool=[both])
    assert len(store.writes) == 1
    assert store.resolve(PROMPT.descriptor) == both.override
    assert not target_of(PROMPT, RULES).persist(child, Provenance(), pool=[child])


def test_of_an_earlier_winner_of_the_run_nothing_stays_beside_the_new_one() -> None:
    store = CountingStore()
    target = target_of(PROMPT, RULES, NOTES, QUESTION, store=store)
    rules = grafted(target, target.baseline(), RULES, "Known words: w1")
    both = grafted(target, rules, NOTES, "More words: w2")
    other = grafted(target, target.baseline(), RULES, "Known words: w3")
    pool = [target.baseline(), rules, both, other]
    assert target.persist(both, Provenance(), pool=pool)
    store.set_section_override(PROMPT, path=QUESTION, body="Theirs: $word")
    assert target.persist(other, Provenance(), pool=pool)
    held = store.resolve(PROMPT.descriptor)
    assert held is not None
    assert {path: one.body for path, one in held.sections.items()} == {
        RULES: "Known words: w3",
        QUESTION: "Theirs: $word",
    }


def test_what_an_earlier_winner_of_the_run_replaced_is_in_force_again() -> None:
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=NOTES, body="Base notes.")
    store.set_section_override(PROMPT, path=RULES, body="Base rules.")
    target = target_of(PROMPT, RULES, NOTES, store=store)
    notes = grafted(target, target.baseline(), NOTES, "More words: w2")
    rules = grafted(target, target.baseline(), RULES, "Known words: w1")
    for winner, expected in [
        (notes, {NOTES: "More words: w2", RULES: "Base rules."}),
        (rules, {NOTES: "Base notes.", RULES: "Known words: w1"}),
    ]:
        assert target.persist(winner, Provenance(), pool=[notes, rules])
        held = store.resolve(PROMPT.descriptor)
        assert held is not None
        assert {path: one.body for path, one in held.sections.items()} == expected


def test_an_example_that_an_earlier_winner_of_the_run_removed_is_back() -> None:
    prompt = agent_prompts.SOURCE.prompt()
    store = InMemoryPromptOverridesStore()
    base = agent_prompts.add_leak(store, prompt)
    target = target_of(prompt, ("role",), store=store)
    baseline = target.baseline()
    [(address, change)] = baseline.overrides.items()
    removal = RemovedTaskExample(
        path=agent_prompts.LEAK, expected_hash=prompt.descriptor.interface_hash
    )
    gone = attrs.evolve(baseline, changes={address: change.holding([removal])})
    role = grafted(target, target.baseline(), ("role",), "Review $language code twice.")
    assert target.persist(gone, Provenance(), pool=[gone, role])
    assert store.resolve(prompt.descriptor) == base.holding([removal])
    assert target.persist(role, Provenance(), pool=[gone, role])
    assert store.resolve(prompt.descriptor) == base.merged_with(role.override)


def _texts(least: int) -> st.SearchStrategy[dict[SectionPath, str]]:
    words = st.sampled_from(["a", "b", "c"])
    return st.dictionaries(st.sampled_from([RULES, NOTES]), words, min_size=least)


@given(
    base=_texts(0),
    is_shared=st.booleans(),
    winners=st.lists(_texts(1), min_size=1, max_size=4),
)
@settings(max_examples=30, deadline=None)
def test_whatever_winners_follow_each_other_the_store_holds_the_last_one(
    base: Mapping[SectionPath, str],
    is_shared: bool,
    winners: list[dict[SectionPath, str]],
) -> None:
    store, descriptor = InMemoryPromptOverridesStore(), PROMPT.descriptor
    for path, text in base.items():
        store.set_section_override(PROMPT, path=path, body=f"base {text}")
    target = target_of(PROMPT, RULES, NOTES, store=store)
    [(address, empty)] = target.baseline().overrides.items()
    expected = {path: f"base {text}" for path, text in base.items()}
    if is_shared:  # what somebody else writes elsewhere stays
        expected[QUESTION] = "Theirs: $word"
        store.set_section_override(PROMPT, path=QUESTION, body=expected[QUESTION])
    pool = [
        attrs.evolve(
            target.baseline(),
            changes={
                address: empty.holding(
                    SectionOverride(
                        path=path,
                        expected_hash=one.content_hash,
                        body=text,
                    )
                    for path, text in winner.items()
                    if (one := descriptor.section(path)) is not None
                )
            },
        )
        for winner in winners
    ]
    for winner, texts in zip(pool, winners, strict=True):
        target.persist(winner, Provenance(), pool=pool)
        held = store.resolve(descriptor)
        assert held is not None
        found = {path: one.body for path, one in held.sections.items()}
        assert found == {**expected, **texts}
