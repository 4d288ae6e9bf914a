"""Lines that do not work: failures complain of what they say."""

from __future__ import annotations

import re
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from further import thorough
from json_replies import json_reply
from optimizers.worlds import (
    NOTES,
    PROMPT,
    RULES,
    TEMPLATE,
    Run,
    asked,
    bound,
    config,
    grafted,
    section,
    shown_rules,
    target_of,
    twins,
)
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import GepaMutationProposed, RolloutFeedback
from promptgraft.algorithms.gepa.additions.lines.addition import LineHistory, LinePlan
from promptgraft.algorithms.gepa.additions.lines.credit import (
    AddedLine,
    Rule,
    addressing,
    telling_words,
)
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import MarkdownSection, Prompt, RenderedPrompt
from promptgraft.runtime import Session
from promptgraft.search.scores import Scorer
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.text_lines import extended, lines_of
from promptgraft.targets.types import Candidate, Module, RolloutRecord

Rendered = RenderedPrompt[object]

IGNORED = "- maybe {}"


def known(rendered: Rendered) -> str:
    """Answer as the task model: it pays no attention to lines that say maybe."""
    lines = section(rendered, RULES).text.splitlines()
    return (
        "ok"
        if any(asked(rendered) in one.split() and "maybe" not in one for one in lines)
        else "no"
    )


class Teacher:
    """A reflection model that teaches two words at a time, each once, and never leaves a line out.

    Args:
        vain: which of the words it teaches in vain, in their order.
    """

    def __init__(self, *vain: int) -> None:
        self.vain = vain
        self.taught: list[str] = []

    def __call__(self, rendered: Rendered) -> str:
        shown = shown_rules(rendered)
        missing = dict.fromkeys(re.findall(r"missing (\w+)", bound(rendered, "examples")))
        new = [word for word in missing if word not in self.taught][:2]
        if shown is None or not new:
            return "I would rather not."
        mark, text = shown
        for word in new:
            form = IGNORED if len(self.taught) in self.vain else "- know {}"
            text += f"\n{form.format(word)}"
            self.taught.append(word)
        return json_reply(edits=[{"part": mark, "reason": "x", "text": text}])


def search(
    teacher: Teacher,
    session: Session,
    *,
    first: str = "Known words:",
    journal: MemoryJournal | None = None,
    task: Reply = known,
    executor: Executor | None = None,
    **changes: Any,
) -> Run:
    settings: dict[str, Any] = {
        "preset": "lean",
        "whole_prompt": 1.0,
        "minibatch_size": 4,
        "rollout_budget": 400,
        "training_examples": twins(10),
        "pareto_set_size": 10,
    }
    sections = (
        MarkdownSection(title="Rules", key="rules", template=first),
        MarkdownSection(title="Question", key="question", template="Do you know $word? $again"),
        *TEMPLATE.sections[2:],
    )
    return Run(
        config(**(settings | changes)),
        task=task,
        reflection=teacher,
        prompt=Prompt[object](attrs.evolve(TEMPLATE, sections=sections)),
        journal=MemoryJournal() if journal is None else journal,
        session=session,
        executor=executor,
    )


def changes_of(session: Session) -> list[tuple[str, str]]:
    """Return the rules before and after each proposal."""
    every = session.select_all(GepaMutationProposed)
    return [(one.before, one.after) for one in every if one.module == "section rules"]


def test_a_line_that_does_not_work_is_dropped_from_the_next_children() -> None:
    teacher, session = Teacher(1), Session()
    search(teacher, session).start()
    vain = IGNORED.format(teacher.taught[1])
    first, *later = changes_of(session)
    # It came with a line that works, so the child was accepted.
    assert vain in first[1]
    assert vain in later[0][0]
    assert [vain in after for _, after in later] == [False] * len(later)


def test_a_line_that_the_prompt_began_with_is_never_dropped() -> None:
    session = Session()
    vain = IGNORED.format("w8")
    search(Teacher(), session, first=f"Known words:\n{vain}").start()
    assert [vain in after for _, after in changes_of(session)] == [True] * len(changes_of(session))


@pytest.mark.parametrize("workers", [4, *thorough([1])])
def test_lines_are_dropped_alike_with_any_number_of_workers(workers: int) -> None:
    sizes: dict[str, Any] = {"proposals_per_step": 2, "steps_at_once": 2}
    alone, beside = Session(), Session()
    first = search(Teacher(1, 3), alone, **sizes).start()
    with ThreadPoolExecutor(workers) as executor:
        again = search(Teacher(1, 3), beside, executor=executor, **sizes).start()
    assert changes_of(beside) == changes_of(alone)
    assert again.candidates == first.candidates


def test_a_resumed_run_drops_the_same_lines() -> None:
    journal = MemoryJournal()
    first = search(Teacher(1, 3), Session(), journal=journal).start()
    again = search(Teacher(1, 3), Session(), journal=journal)
    assert again.start().candidates == first.candidates
    assert not again.task.requests
    assert not again.reflection.requests


PART = SectionModule(path=RULES)
LINES = """\
- route refunds to billing
- answer in one sentence
- route invoices to billing, and write down the number of the customer"""


@pytest.mark.parametrize(
    ("complaint", "asked_for", "found"),
    [
        ("refunds billing", "where is my money", [0]),
        ("refunds billing", "an invoice of mine", [0]),
        ("billing", "where are my refunds", []),  # most lines say that
        ("invoices billing", "an invoice of mine", []),  # the last line is about much else
        ("invoices billing customer", "write down my number", [2]),
        ("sentence", "answer me", [1]),
        ("late", "where are my refunds", []),
        ("", "route refunds to billing", []),
    ],
)
def test_lines_address_complaints_that_say_the_same(
    complaint: str, asked_for: str, found: list[int]
) -> None:
    lines = lines_of(LINES)
    said = frozenset(complaint.split())
    places = addressing(telling_words({PART: lines}), said, asked_for.split())
    assert places == tuple((PART, lines[number].key) for number in found)


def record(name: str, feedback: str, *, score: float = 0.0) -> RolloutRecord:
    return RolloutRecord(
        example_id=name,
        inputs_repr=name,
        output_repr="",
        tool_trace_repr="",
        feedback=RolloutFeedback(score=score, feedback=feedback),
    )


NOTE = SectionModule(path=NOTES)
LINE = "- route refunds to billing"
OTHERS = "\n".join(f"- {words}" for words in ("be polite", "be brief", "sign it", "add a date"))
RULED, NOTED = (f"{head}\n{LINE}\n{OTHERS}" for head in ("Known words:", "More words:"))
KEYS = {module: lines_of(text)[0].key for module, text in ((PART, RULED), (NOTE, NOTED))}
COMPLAINT = record("refund", "refunds billing")
RIGHT = record("refund", "right", score=1.0)
NOTHING = frozenset[str]()


class Judged:
    """A history of lines, with candidates that have the line in the rules, the notes, or both."""

    def __init__(self) -> None:
        target = target_of(PROMPT, RULES, NOTES)
        self.history = LineHistory(target, Scorer({}, perfect_score=1.0))
        self.neither = target.baseline()
        self.ruled = grafted(target, self.neither, RULES, RULED)
        self.noted = grafted(target, self.neither, NOTES, NOTED)
        self.both = grafted(target, self.ruled, NOTES, NOTED)

    def learn(self, candidate: Candidate, *records: RolloutRecord) -> None:
        self.history.learn(candidate, records, NOTHING)

    def helped(self, module: SectionModule) -> None:
        key = KEYS[module]
        rule = Rule(module=module, text=LINE, key=key)
        line = AddedLine(rule=rule, words=[], failure=0, enough=0.0, helped=True)
        self.history.note(LinePlan(), [line])

    def tried(self) -> bool:
        """Record a child of the candidate that has the line in the rules."""
        self.history.note(self.history.of(self.ruled), [])
        return True

    def idle(self, parent: Candidate) -> list[Module]:
        return [module for module, _ in self.history.of(parent).idle]

    def carried(self, parent: Candidate) -> list[Module]:
        return [rule.module for rule in self.history.of(parent).carried]


def test_a_line_stays_while_it_works_as_often_as_it_fails() -> None:
    judged = Judged()
    judged.learn(judged.ruled, COMPLAINT)
    assert judged.idle(judged.ruled) == [PART]
    judged.learn(judged.ruled, RIGHT)
    assert judged.idle(judged.ruled) == []
    judged.learn(judged.ruled, COMPLAINT, COMPLAINT)
    assert judged.idle(judged.ruled) == [PART]
    # The feedback complains of something else now.
    judged.learn(judged.ruled, record("refund", "politeness"), record("refund", "politeness"))
    assert judged.idle(judged.ruled) == []


def test_an_answer_without_a_complaint_judges_no_line() -> None:
    judged = Judged()
    judged.learn(
        judged.ruled, COMPLAINT, record("refund", ""), record("invoice", "right", score=1.0)
    )
    assert judged.idle(judged.ruled) == [PART]


def test_what_another_copy_does_is_not_credited_to_a_line() -> None:
    judged = Judged()
    judged.learn(judged.ruled, COMPLAINT)
    judged.learn(judged.both, RIGHT, RIGHT)
    assert judged.idle(judged.ruled) == [PART]
    judged.learn(judged.noted, RIGHT)
    assert judged.idle(judged.both) == [PART]
    assert judged.idle(judged.noted) == []


def test_of_two_copies_that_with_less_credit_is_dropped() -> None:
    judged = Judged()
    judged.helped(PART)
    assert judged.idle(judged.both) == [NOTE]
    judged.helped(NOTE)
    assert judged.idle(judged.both) == []


def test_a_line_is_dropped_from_a_limited_number_of_children() -> None:
    judged = Judged()
    judged.learn(judged.ruled, COMPLAINT)
    tries = [judged.history.of(judged.ruled).idle for _ in range(20) if judged.tried()]
    assert [bool(one) for one in tries] == [True] * 11 + [False] * 9


def test_what_failures_complain_of_more_often_than_it_helps_is_not_carried() -> None:
    judged = Judged()
    judged.helped(PART)
    judged.learn(judged.ruled, COMPLAINT)
    assert judged.carried(judged.neither) == [PART]
    judged.learn(judged.ruled, COMPLAINT)
    assert judged.carried(judged.neither) == []


def test_the_last_thousand_lines_that_helped_are_remembered() -> None:
    judged = Judged()
    for number in range(1_003):
        text = f"- know {number}"
        rule = Rule(module=PART, text=text, key=f"\n{text}")
        line = AddedLine(rule=rule, words=[], failure=0, enough=0.0, helped=True)
        judged.history.note(LinePlan(), [line])
    texts = [rule.text for rule in judged.history.of(judged.neither).carried]
    assert texts == [f"- know {number}" for number in range(3, 1_003)]


def test_the_last_complaints_of_an_example_are_remembered() -> None:
    for others, idle in ((7, []), (8, [PART])):
        judged = Judged()
        judged.learn(judged.ruled, COMPLAINT)
        for number in range(others):
            judged.learn(judged.neither, record("refund", f"other{number}"))
        judged.learn(judged.ruled, RIGHT)
        assert judged.idle(judged.ruled) == idle


def test_a_line_is_carried_where_it_helped_most() -> None:
    judged = Judged()
    assert judged.carried(judged.neither) == []
    judged.helped(PART)
    judged.helped(NOTE)
    assert judged.carried(judged.neither) == [PART]
    judged.helped(NOTE)
    assert judged.carried(judged.neither) == [NOTE]
    # Where the parent has a copy, only a better one is carried.
    assert judged.carried(judged.noted) == []
    assert judged.carried(judged.ruled) == [NOTE]
    judged.learn(judged.noted, *[COMPLAINT] * 3)
    assert judged.carried(judged.neither) == [PART]


WORDS = st.frozensets(st.sampled_from("abcdefgh"), max_size=8)


@given(st.lists(WORDS.filter(bool), min_size=1, max_size=6), WORDS, WORDS)
def test_a_line_shares_half_with_a_complaint_that_it_addresses(
    lines: list[frozenset[str]], complaint: frozenset[str], asked_for: frozenset[str]
) -> None:
    text = "\n".join(f"- {' '.join(sorted(words))}" for words in lines)
    words = telling_words({PART: lines_of(text)})
    found = addressing(words, complaint, asked_for)
    said = {line.key: frozenset(line.words) for line in lines_of(text)}
    for _, key in found:
        assert 2 * len(said[key] & complaint) >= len(complaint) > 0
    # More input never unsays a line.
    more = addressing(words, complaint, asked_for | complaint)
    assert set(found) <= set(more)


DEFINED = """\
Queues:
- billing: refunds and invoices
- **Outages** — anything that is down
Note that this is a sentence: it has a colon, but too many words stand before it.
- answer in one sentence
Shipping: parcels
- when unsure, ask - but once"""


def test_definitions_are_told_from_sentences() -> None:
    labels = [line.label.partition("\n")[2] for line in lines_of(DEFINED)]
    assert labels == ["billing", "outages", "", "", "shipping", ""]


def carried_rule(text: str, replaces: str = "") -> Rule:
    [line] = lines_of(f"Queues:\n{text}")
    return Rule(
        module=PART,
        text=text,
        key=line.key,
        label=line.label,
        replaces=replaces and key_of(replaces),
    )


def key_of(text: str) -> str:
    return lines_of(f"Queues:\n{text}")[0].key


def carried_into(text: str, rule: Rule) -> str:
    return extended(text, rule.text, label=rule.label, replaces=rule.replaces)


OLD, NEW = "- billing: refunds", "- billing: refunds and invoices"


@pytest.mark.parametrize(
    ("before", "rule", "after"),
    [
        # A definition takes the place of the wording that it replaced.
        (f"{OLD}\n- sales: offers", carried_rule(NEW, OLD), f"{NEW}\n- sales: offers"),
        # What says it otherwise is left as it is.
        ("- billing: money", carried_rule(NEW, OLD), "- billing: money"),
        ("- billing: money", carried_rule(NEW), "- billing: money"),
        ("- sales: offers", carried_rule(NEW, OLD), "- sales: offers"),
        ("- billing:\n- sales: offers", carried_rule(NEW), "- billing:\n- sales: offers"),
        # A new definition is added where there is none.
        ("- sales: offers", carried_rule(NEW), f"- sales: offers\n{NEW}"),
    ],
)
def test_a_definition_is_carried_in_place_or_not_at_all(
    before: str, rule: Rule, after: str
) -> None:
    assert carried_into(f"Queues:\n{before}", rule) == f"Queues:\n{after}"


@pytest.mark.parametrize(
    "text",
    ["- billing: money", "- sales: offers", "Queues:\n- sales: offers\nTone:\n- thanks: never"],
)
def test_a_new_definition_is_not_carried_below_another_heading(text: str) -> None:
    assert carried_into(text, carried_rule(NEW)) == text


def test_a_line_is_not_carried_beside_its_paraphrase_however_often_that_is_repeated() -> None:
    said = "Rules:\n- route all refunds to billing\n- route every refunds request to billing"
    rule = carried_rule("- route refunds to billing")
    assert carried_into(said, rule) == said
    assert carried_into("Rules:\n- be brief", rule) == f"Rules:\n- be brief\n{rule.text}"


def test_a_definition_is_never_dropped() -> None:
    judged = Judged()
    defined = grafted(
        target_of(PROMPT, RULES, NOTES),
        judged.neither,
        RULES,
        "Known words:\n- refunds: route to billing",
    )
    for _ in range(3):
        judged.learn(defined, record("refund", "refunds billing"))
    assert judged.idle(defined) == []
