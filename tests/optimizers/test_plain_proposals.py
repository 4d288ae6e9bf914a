"""Proposals for plain sections: taken literally, in the bytes of the text that they replace."""

from __future__ import annotations

import random
import re

import pytest

from optimizers.worlds import grafted, refusal_of, target_of
from plain_texts import QUERY, plain_texts
from promptgraft.ground.text import fenced
from promptgraft.prompt import Prompt, PromptTemplate, plain_section, text_of_section
from promptgraft.search import RejectionReason
from promptgraft.search.reflection import reflection_params
from promptgraft.targets.part_kinds import SectionModule
from promptgraft.targets.part_questions import REFLECT_ON_SECTION
from promptgraft.targets.prompt_target import PromptTarget
from promptgraft.targets.replies import new_text
from promptgraft.targets.types import Candidate

PATH = ("router",)


def target_for(text: str, *placeholders: str, max_part_chars: int = 6_000) -> PromptTarget:
    template = PromptTemplate[object](
        ns="toy", key="plain", sections=[plain_section("router", text, placeholders)]
    )
    return target_of(Prompt(template), PATH, max_part_chars=max_part_chars)


def proposed(target: PromptTarget, text: str, parent: Candidate | None = None) -> str:
    """Return what an agent is handed when a reflector has replied with ``text`` in a block."""
    candidate = grafted(target, parent or target.baseline(), PATH, new_text(fenced(text)).text)
    [prompt] = target.rollout.prompts_of(candidate).values()
    return text_of_section(prompt.render(), "router")


def described(target: PromptTarget) -> str:
    return target.describe(SectionModule(PATH), target.baseline()).text


def test_a_changed_line_changes_just_its_bytes_from_the_reply_to_the_agent() -> None:
    chance = random.Random("replies")
    changed = 0
    for text in plain_texts(450, seed="replies"):
        target = target_for(text)
        shown = described(target)
        if not shown.strip() or re.search(r"[\x00\x0b\x0c]", shown):
            continue  # no reply may hold these
        lines = shown.split("\n")
        at = chance.randrange(len(lines))
        new = f"changed {at} $HOME {{{{ y }}}}"
        found = proposed(target, "\n".join([*lines[:at], new, *lines[at + 1 :]]))
        content = text.lstrip("\ufeff\r\n")
        parts = re.split(r"(\r\n|\r|\n)", content)
        parts[2 * at] = new
        assert found == text[: len(text) - len(content)] + "".join(parts)
        changed += 1
    assert changed > 200


def test_the_reflector_is_shown_the_placeholders_and_losing_one_is_refused_by_name() -> None:
    target = target_for("\ufeffAsk {query}\r\nwith <<ctx>>.\r\n", QUERY, "<<ctx>>")
    description = target.describe(SectionModule(PATH), target.baseline())
    assert description.placeholders == (QUERY, "<<ctx>>")
    assert description.text == "Ask {query}\nwith <<ctx>>."
    assert target.text(SectionModule(PATH), target.baseline()) == description.text
    asked = Prompt(REFLECT_ON_SECTION).bind(reflection_params(description, [])).render().text
    assert "Keep each of these placeholders, spelled exactly so: {query}, <<ctx>>." in asked

    refusal = refusal_of(lambda: proposed(target, "Ask { query } with <<ctx>>."))
    assert refusal is not None
    assert refusal.reason is RejectionReason.LOST_PLACEHOLDER
    assert refusal.detail == "the text lost the placeholders {query}"


@pytest.mark.parametrize(
    ("text", "proposal", "after"),
    [
        ("a {query}", "b $x ${y} {{ z }} {other} {query}", "b $x ${y} {{ z }} {other} {query}"),
        ("\ufeffa {query}\r\n\r\n", "b\n{query}", "\ufeffb\r\n{query}\r\n\r\n"),
        ("\n\na {query}", "---\nns: x\n---\n{query}", "\n\n---\nns: x\n---\n{query}"),
        ("a {query}\n", "```\n{query}\n```", "```\n{query}\n```\n"),
    ],
)
def test_a_proposal_is_literal(text: str, proposal: str, after: str) -> None:
    assert proposed(target_for(text, QUERY), proposal) == after


def test_the_same_text_in_other_line_ends_is_no_proposal() -> None:
    target = target_for("\ufeffone\r\ntwo\rthree\r\n")
    refusal = refusal_of(lambda: proposed(target, "one\ntwo\nthree"))
    assert refusal is not None
    assert refusal.reason is RejectionReason.UNCHANGED


def test_a_text_that_leads_back_to_the_base_leaves_no_override_behind() -> None:
    target = target_for("\ufeffone\r\ntwo\nthree\n")
    child = grafted(target, target.baseline(), PATH, "one\ntwo\n3")
    assert grafted(target, child, PATH, "one\ntwo\nthree").digest == target.baseline().digest


def test_the_limit_counts_what_the_reflector_writes_and_not_the_bytes_of_the_file() -> None:
    target = target_for("a\r\n" * 10, max_part_chars=20)
    assert proposed(target, "b\n" * 19) == "b\r\n" * 19  # twice as long as it is
    refusal = refusal_of(lambda: proposed(target, "b\n" * 19 + "b"))
    assert refusal is not None
    assert refusal.reason is RejectionReason.TOO_LONG
