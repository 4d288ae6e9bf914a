"""Steps whose one question is on all parts of a prompt."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from json_replies import json_reply
from optimizers.several_world import NAMES, Rendered, search
from optimizers.several_world import teach as teach_one
from optimizers.test_meta_prompts import HOSTILE, MODULE, RECORD, blocks
from optimizers.worlds import answers, bound, hostile_text, instruction
from promptgraft import OfflineAdapter
from promptgraft.algorithms.gepa import (
    GepaCandidateAdded,
    GepaMutationProposed,
    GepaMutationRejected,
)
from promptgraft.algorithms.gepa.additions.whole_prompt import question_on_all
from promptgraft.algorithms.gepa.prompts import META_PROMPTS, WHOLE
from promptgraft.evals.types import Step
from promptgraft.ground.serde import HexDigest
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import Prompt
from promptgraft.runtime import Session
from promptgraft.search import RejectionReason
from promptgraft.search.reflection import NOT_REFUSED
from promptgraft.targets.evidence import Evidence
from promptgraft.targets.types import ModuleDescription, RolloutFeedback, RolloutRecord

ALL = {"whole_prompt": 1.0}
PARTS = re.compile(r"(?ms)^\*\*(P\d+):\*\* section (\w+)\n\n```\n(.*?)\n```$")


def parts(rendered: Rendered) -> dict[str, tuple[str, str]]:
    """Return name and text of the parts that a question is on, by mark."""
    found = PARTS.findall(bound(rendered, "current"))
    return {mark: (name, text) for mark, name, text in found}


def teach(rendered: Rendered) -> str:
    """Add the missing word to the parts that the first failure names, two at most."""
    blamed = re.search(r"([\w, ]+): missing (\w+)", bound(rendered, "examples"))
    assert blamed is not None
    names = blamed[1].split(", ")
    edits = [
        {"part": mark, "reason": f"it lacks {blamed[2]}", "text": f"{text} {blamed[2]}"}
        for mark, (name, text) in parts(rendered).items()
        if name in names
    ]
    return json_reply(edits=edits[:2])


def moody(rendered: Rendered) -> str:
    mood = random.Random(rendered.text).randrange(5)
    if rendered.key != WHOLE.key:
        return "I would rather not."
    replies = ("hm", json_reply(edits=[]), json_reply(edits=[{"part": "P9", "text": "x"}]))
    return replies[mood] if mood < len(replies) else teach(rendered)


def test_parts_at_fault_are_changed_together_by_one_question_and_tried_as_one() -> None:
    session, journal = Session(), MemoryJournal()
    context = {"session": session, "journal": journal}
    run = search(NAMES[:3], teach, context=context, **ALL)
    result = run.start()
    assert result.found_better
    proposed: dict[int, list[str]] = {}
    for event in session.select_all(GepaMutationProposed):
        if event.reason.startswith("it lacks"):  # and no line of an earlier reply
            proposed.setdefault(event.step, []).append(event.module)
    assert {len(changed) for changed in proposed.values()} == {1, 2}
    both = next(one for one in result.candidates[1:] if len(one.modules) == 2)
    assert len({one.name for one in both.modules}) == 2
    asked = [key for key in answers(journal) if key.startswith("step/1/reflect/")]
    assert asked == ["step/1/reflect/0"]
    assert result.total_reflections <= run.plan().reflections


def test_the_question_shows_all_parts_the_failures_and_two_successes_at_most() -> None:
    run = search(NAMES[:3], teach, minibatch_size=8, **ALL)
    run.start()
    for rendered in run.reflection.requests:
        assert [name for name, _ in sorted(parts(rendered).values())] == sorted(NAMES[:3])
        scores = re.findall(r"\*\*Score:\*\* (\S+)", rendered.text)
        assert any(float(score) < 1.0 for score in scores)
        assert scores.count("1") <= 2
        assert "Do you know" in bound(rendered, "neighbours")


def test_the_published_algorithm_and_turns_never_ask_it() -> None:
    for chosen in (
        {"preset": "paper"},
        {"module_choice": "turns", **ALL},
        {"additions": ["blame"]},
    ):
        run = search(NAMES[:2], lambda _: "hm", **chosen)
        run.start()
        assert WHOLE.key not in {request.key for request in run.reflection.requests}


def test_the_question_on_one_part_alone_shows_what_is_known_and_was_tried() -> None:
    asked: list[Rendered] = []

    def reply(rendered: Rendered) -> str:
        asked.append(rendered)
        return instruction(
            f"Words: nothing {len(asked)}" if len(asked) % 2 else teach_one(rendered)
        )

    search(NAMES[:1], reply, minibatch_size=4, **ALL).start()
    assert {rendered.key for rendered in asked} == {"reflect-section"}
    first, second, *_ = asked
    assert "What was tried" not in first.text
    assert "Tried, and not better" in bound(second, "tried")
    assert "+ Words: nothing 1" in bound(second, "tried")
    assert any("These are right now; keep them so" in rendered.text for rendered in asked)
    assert any("These failed as well, in short" in rendered.text for rendered in asked)


def test_what_was_kept_is_never_said_to_be_lost_though_later_changes_build_on_it() -> None:
    asked: list[Rendered] = []

    def reply(rendered: Rendered) -> str:
        asked.append(rendered)
        if len(asked) % 3:
            return teach(rendered)  # a part is one line, which each change makes longer
        mark, (_, text) = next(iter(parts(rendered).items()))
        useless = {"part": mark, "reason": "a guess", "text": f"{text} x{len(asked)}"}
        return json_reply(edits=[useless])

    session = Session()
    search(NAMES[:2], reply, context={"session": session}, rollout_budget=600, **ALL).start()
    pool = session.select_all(GepaCandidateAdded)
    entries = Counter[str]()
    for rendered in asked:
        if "What was tried" not in rendered.text:
            continue
        current = {f"section {name}": text for name, text in parts(rendered).values()}
        parent = next(one for one in pool if current.items() <= one.texts.items())
        former = [one.texts for one in with_ancestors(pool, parent.candidate)]
        for entry in bound(rendered, "tried").split("\n\n"):
            fate, *_ = entry.split(" (")
            entries[fate] += 1
            added = dict(re.findall(r"(?m)^(section \w+):\n(?:- .*\n)*\+ (.*)", entry))
            was_kept = any(added.items() <= texts.items() for texts in former)
            assert was_kept == fate.startswith("Kept"), entry
    assert {fate.split(",")[0].split(":")[0] for fate in entries} >= {"Kept", "Tried"}
    assert entries["Kept, and changed again since"] > 3


def with_ancestors(pool: Sequence[Any], position: int) -> list[Any]:
    """Return a candidate and its ancestors."""
    parents = pool[position].parents
    return [pool[position], *(one for at in parents for one in with_ancestors(pool, at))]


def test_a_model_that_leaves_the_only_part_as_it_is_is_asked_once_a_step() -> None:
    journal = MemoryJournal()
    unchanged = instruction("Words:")
    search(NAMES[:1], lambda _: unchanged, context={"journal": journal}, **ALL).start()
    asked = [key for key in answers(journal) if "/reflect/" in key]
    assert len(asked) > 3
    assert {key.rpartition("/")[2] for key in asked} == {"0"}


def test_a_reply_that_cannot_be_used_gets_one_repair_and_one_without_edits_none() -> None:
    session, journal = Session(), MemoryJournal()
    replies = iter(("hm", json_reply(edits=[{"part": "P1", "text": "Words:"}]), "hm", "hm"))

    def reply(rendered: Rendered) -> str:
        if rendered.key != WHOLE.key:
            return "I would rather not."
        return next(replies, json_reply(edits=[]))

    search(NAMES[:2], reply, context={"session": session, "journal": journal}, **ALL).start()
    told = session.select_all(GepaMutationRejected)
    both = ", ".join(f"section {name}" for name in NAMES[:2])
    first = [(one.module, one.reason, one.final) for one in told if one.step == 1]
    assert first == [
        (both, RejectionReason.UNPARSABLE, False),
        (both, RejectionReason.UNCHANGED, True),
    ]
    empty = [one.step for one in told if one.detail == "the reply edits no part"]
    assert empty
    asked = [key for key in answers(journal) if key.startswith(f"step/{empty[0]}/reflect/")]
    assert len(asked) == 1


def test_a_bad_edit_is_repaired_and_the_good_ones_beside_it_are_kept() -> None:
    session, journal = Session(), MemoryJournal()
    problems: list[str] = []

    def reply(rendered: Rendered) -> str:
        if rendered.key != WHOLE.key:
            return "I would rather not."
        [(first, (_, text)), (second, (_, old)), *_] = parts(rendered).items()
        good = {"part": first, "text": f"{text} w0 w1 w2"}
        if "leave them out" in rendered.text:
            problems.append(rendered.text)
            # Although it is told to leave the kept edit out, it repeats it in another form.
            return json_reply(
                edits=[{**good, "text": "gone"}, {"part": second, "text": f"{old} w0 w1 w2"}]
            )
        return json_reply(edits=[good, {"part": second, "text": 7}])

    context = {"session": session, "journal": journal}
    search(NAMES[:2], reply, context=context, **ALL).start()
    first = [one for one in session.select_all(GepaMutationProposed) if one.step == 1]
    assert {one.module: one.after for one in first} == {
        f"section {name}": "Words: w0 w1 w2" for name in NAMES[:2]
    }
    assert (
        "edit 2: text: expected a text, found 7; the edits of `P1` are kept, so leave them out"
    ) in problems[0]
    told = [one for one in session.select_all(GepaMutationRejected) if one.step == 1]
    assert [(one.reason, one.final) for one in told][:1] == [(RejectionReason.UNPARSABLE, False)]


def test_the_good_edits_are_tried_even_if_the_bad_one_is_not_repaired() -> None:
    session = Session()

    def reply(rendered: Rendered) -> str:
        if rendered.key != WHOLE.key or "leave them out" in rendered.text:
            return "I would rather not."
        [(first, (_, text)), *_] = parts(rendered).items()
        return json_reply(
            edits=[{"part": first, "text": f"{text} w0 w1"}, {"part": "P9", "text": "x"}]
        )

    search(NAMES[:2], reply, context={"session": session}, **ALL).start()
    first = [one for one in session.select_all(GepaMutationProposed) if one.step == 1]
    assert [one.after for one in first] == ["Words: w0 w1"]


def test_a_model_that_never_answers_it_is_mostly_asked_about_single_parts() -> None:
    def reply(rendered: Rendered) -> str:
        if rendered.key == WHOLE.key:
            return "I would rather not."
        missing = re.search(r"missing (\w+)", bound(rendered, "examples"))
        text = bound(rendered, "current").split("\n")[1]
        return f"```instruction\n{text} {missing[1] if missing else ''}\n```"

    run = search(NAMES[:2], reply, max_failed_reflections=50, rollout_budget=400, **ALL)
    result = run.start()
    keys = [request.key for request in run.reflection.requests]
    assert result.found_better
    assert 0 < keys.count(WHOLE.key) < len(keys) / 2


@pytest.mark.thorough
@given(seed=st.integers(0, 99), k=st.sampled_from((1, 3)), parts_=st.integers(2, 5))
@settings(max_examples=1, deadline=None)
def test_resumed_side_by_side_and_overlapping_it_is_the_same_run(
    seed: int, k: int, parts_: int
) -> None:
    journal = MemoryJournal()
    chosen: dict[str, Any] = {"seed": seed, "proposals_per_step": k, "rollout_budget": 120, **ALL}
    result = search(NAMES[:parts_], moody, context={"journal": journal}, **chosen).start()
    again = search(NAMES[:parts_], moody, context={"journal": journal}, **chosen)
    assert again.start() == result
    assert again.task.calls == again.reflection.calls == 0
    with ThreadPoolExecutor(4) as executor:
        beside = search(NAMES[:parts_], moody, context={"executor": executor}, **chosen)
        assert beside.start() == result


def asked(those: list[ModuleDescription], *records: RolloutRecord) -> Rendered:
    questions = {key: Prompt(template) for key, template in META_PROMPTS.items()}
    question = question_on_all(
        "step/1/reflect/0",
        those,
        records,
        meta_prompts=questions,
        evidence=Evidence(),
        refused=NOT_REFUSED,
    )
    return question.prompt.render()


def test_long_parts_that_cannot_change_are_shown_in_summary() -> None:
    long = attrs.evolve(MODULE, neighbours=(("section long", "line\n" * 900),))
    text = asked([long, attrs.evolve(MODULE, name="section other")], RECORD).text
    assert "[… the head of 900 lines, 4500 characters …]" in text
    assert len(text) < 6_000


@given(st.integers(0, 2**63))
@settings(max_examples=200, deadline=None)
def test_hostile_texts_are_shown_as_they_are(seed: int) -> None:
    chance = random.Random(seed)

    def text() -> str:
        return hostile_text(chance, HOSTILE) or "-"

    first = attrs.evolve(MODULE, text=text(), title=text(), neighbours=(("section x", text()),))
    second = attrs.evolve(MODULE, name="tool t", text=text(), schema=text())
    record = attrs.evolve(RECORD, output_repr=text())
    shown = blocks(asked([first, second], record).text)
    assert [shown[0], shown[1], shown[2]] == [first.text, second.text, second.schema]
    assert record.output_repr in shown


def offline(those: list[ModuleDescription], record: RolloutRecord) -> tuple[str, list[Any]]:
    questions = {key: Prompt(template) for key, template in META_PROMPTS.items()}
    question = question_on_all(
        "step/1/reflect/0",
        those,
        [record],
        meta_prompts=questions,
        evidence=Evidence(),
        refused=NOT_REFUSED,
    )
    said = OfflineAdapter().evaluate(question.prompt, session=Session()).text
    return said, json.loads("\n".join(said.split("```json\n")[1].split("\n")[:-1]))["edits"]


CHOICE = "One of: fruit, bird"
FAILED = RolloutRecord(
    example_id="n-1",
    inputs_repr="The feather fell from the nest.",
    output_repr="fruit",
    tool_trace_repr="",
    feedback=RolloutFeedback(score=0.0, feedback="expected `bird`, answered `fruit`"),
)


def test_the_embedded_offline_model_edits_the_section_that_tells_the_options() -> None:
    tone = attrs.evolve(MODULE, name="section tone", text="Be kind.", output=CHOICE)
    rules = attrs.evolve(MODULE, text="- fruit: sweet\n- bird: wings", output=CHOICE)
    _, [edit] = offline([tone, rules], FAILED)
    assert edit["part"] == "P2"
    assert "feather" in edit["text"].split("- bird")[1]


def test_the_embedded_offline_model_edits_each_prompt_by_the_cases_that_it_was_asked_in() -> None:
    kinds, colours, sizes = (
        attrs.evolve(MODULE, name=f"desk/{name}#instruction", text=text, output=output)
        for name, text, output in (
            ("kinds", "- fruit: sweet\n- bird: wings", CHOICE),
            ("colours", "- grey: fog\n- red: rose", "One of: grey, red"),
            ("sizes", "- big: whale\n- small: ant", "One of: big, small"),
        )
    )
    steps = [
        Step(id=str(number), node=part.title, kind="prompt", parts={part.name: HexDigest("0" * 64)})
        for number, part in enumerate((kinds, colours), start=1)
    ]
    verdicts = "kind: expected `bird`, found `fruit`\ncolour: expected `red`, found `grey`"
    feedback = RolloutFeedback(score=0.0, feedback=f"{verdicts}\nsize: expected `small`")
    failed = attrs.evolve(FAILED, feedback=feedback, steps=tuple(steps))
    _, edits = offline([kinds, colours, sizes], failed)
    assert [edit["part"] for edit in edits] == ["P1", "P2"]
    assert "feather" in edits[0]["text"].split("- bird")[1]
    assert "feather" in edits[1]["text"].split("- red")[1]


def test_the_embedded_offline_model_says_why_it_edits_nothing() -> None:
    tone = attrs.evolve(MODULE, name="section tone", text="Be kind.", output="Text.")
    said, [edit] = offline([tone, MODULE], attrs.evolve(FAILED, feedback=RECORD.feedback))
    assert edit == {"part": "P1", "text": "Be kind."}
    assert OfflineAdapter().nothing_learned([said])
