"""Lines that the winner can spare are dropped before a search ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from further import thorough
from optimizers.worlds import (
    NOTES,
    REFUSED,
    RULES,
    Question,
    Run,
    answer,
    answers,
    asked,
    bound,
    config,
    current_text,
    examples,
    instruction,
    numbered,
    optimize,
    section,
    twin,
    twins,
)
from promptgraft.adapters.scripted import Reply
from promptgraft.algorithms.gepa import GepaConfig, GepaResult, Shorten
from promptgraft.errors import ConfigError
from promptgraft.ground.serde import Json, digest_text
from promptgraft.journal import MemoryJournal
from promptgraft.prompt import RenderedPrompt
from promptgraft.search import StopReason
from promptgraft.search.place import Phase, Place
from promptgraft.search.validation import Full, Racing, Validation
from promptgraft.targets.text_lines import (
    lines_of,
    replaced,
    without,
)

IDLE = ("Think step by step.", "Never mention these rules.", "Be careful.")
PLACEHOLDERS = ("$name", "${order}")
PIECES = st.sampled_from(
    [
        "# Heading", "## Another", "Rules:", "- be brief", "* be brief", "1. Be  brief.",
        "- when w1 then w2", "- when w1 then w3", "  - a part of it", "and goes on", "| a | b |",
        "```", "~~~", "<rules>", "---", "", "  ", "Greet $name first.", "Look up ${order}",
        "Be polite. Always.", "\tindented", "Ärger vermeiden", "礼貌地回答。", "***",
    ]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=14).map("\n".join), st.text(max_size=60))


def is_part(lines: list[str], whole: list[str]) -> bool:
    """Tell whether lines are some of the whole, in their order."""
    rest = iter(whole)
    return all(line in rest for line in lines)


@given(TEXTS, st.data())
def test_a_shorter_text_is_made_of_lines_of_the_longer_one_and_is_never_empty(
    text: str, data: st.DataObject
) -> None:
    lines = lines_of(text, PLACEHOLDERS)
    dropped = data.draw(st.lists(st.sampled_from(lines), unique=True)) if lines else []
    shorter = without(text, dropped)
    assert is_part(shorter.split("\n"), text.split("\n"))
    assert bool(shorter.strip()) == bool(text.strip())


@given(TEXTS)
def test_headings_fences_tables_and_placeholders_stay(text: str) -> None:
    shorter = without(text, lines_of(text, PLACEHOLDERS))
    kept = re.compile(r"\s*(#|\||```|~~~|<rules>|---)|.*(\$name|\$\{order\}|:$)")
    wanted = [line for line in text.split("\n") if kept.match(line)]
    assert is_part(wanted, shorter.split("\n"))


@given(TEXTS)
def test_what_stands_in_a_fence_stays(text: str) -> None:
    whole = f"Before.\n```\n{text.replace('`', '').replace('~', '')}\n```\nAfter."
    inside = whole.split("\n")[1:-1]
    assert "\n".join(inside) in without(whole, lines_of(whole))


@given(TEXTS)
@example("\tindented\n# Heading\n\tindented")
def test_no_line_is_dropped_that_no_other_one_replaces(text: str) -> None:
    lines = lines_of(text, PLACEHOLDERS)
    left = lines_of(without(text, replaced(lines)), PLACEHOLDERS)
    assert bool(left) == bool(lines)
    assert {line.key for line in left} <= {line.key for line in lines}


def test_of_repeated_lines_the_last_one_stays() -> None:
    text = "Rules:\n- be brief\n- greet\n* Be  brief."
    assert without(text, replaced(lines_of(text))) == "Rules:\n- greet\n* Be  brief."


def test_a_line_is_dropped_with_what_belongs_to_it() -> None:
    text = "Rules:\n- ask for\n  - the order\n  - the date\n- greet them\nand be brief"
    first, second = lines_of(text)
    assert without(text, [first]) == "Rules:\n- greet them\nand be brief"
    assert without(text, [second]) == "Rules:\n- ask for\n  - the order\n  - the date"


def test_a_line_that_a_later_one_contradicts_is_replaced() -> None:
    text = "Rules:\n- when late then refund\n- when lost then resend\n- when late then apologise"
    assert [line.places for line in replaced(lines_of(text))] == [[1]]


def test_lines_that_share_common_words_only_are_not_replaced() -> None:
    text = "\n".join(f"- when w{number} then do v{number}" for number in range(8))
    assert not replaced(lines_of(text))


def wordy(rendered: RenderedPrompt[object]) -> str:
    """Reply as a reflection model does that adds the missing words, and lines that say nothing."""
    text = current_text(rendered)
    missing = dict.fromkeys(re.findall(r"missing (\w+)", bound(rendered, "examples")))
    idle = IDLE[len(text) % len(IDLE)]
    return instruction("\n".join([text, *(f"- {word}" for word in missing), idle, IDLE[0]]))


def lean(**changes: Any) -> GepaConfig:
    return config(
        **{"preset": "lean", "rollout_budget": 300, "training_examples": twins(8)} | changes
    )


def shortening(journal: MemoryJournal) -> list[Place]:
    """Return the places of the answers that shortening asked for."""
    places = [Place.of_rollout(key) for key in answers(journal)]
    return [one for one in places if one is not None and one.phase is Phase.SHORTEN]


def texts(result: GepaResult) -> str:
    return "\n".join(result.best_section_overrides.values())


def test_the_winner_does_without_the_lines_that_nothing_depends_on() -> None:
    long = optimize(lean(shorten_margin="off"), reflection=wordy)
    short = optimize(lean(), reflection=wordy)
    assert any(line in texts(long) for line in IDLE)
    assert not any(line in texts(short) for line in IDLE)
    assert short.best_pareto_mean == long.best_pareto_mean == 1.0
    assert short.best.changed.endswith(", shortened")
    assert 0 < short.shortened < 1
    assert short.ended.shortened == short.shortened
    assert "fewer tokens" in str(short._card())
    assert not long.shortened


def test_what_the_prompt_said_at_first_stays() -> None:
    result = optimize(lean(), reflection=wordy)
    rules = result.best_section_overrides.get(RULES, "Known words:")
    notes = result.best_section_overrides.get(NOTES, "More words:")
    assert rules.startswith("Known words:")
    assert notes.startswith("More words:")


@pytest.mark.parametrize("validation", [Racing(), Full()])
@pytest.mark.parametrize("spare", [23, 69, *thorough([0, 46, 92, 115, 138])])
def test_the_budget_is_never_exceeded(spare: int, validation: Validation) -> None:
    budget = lean(validation=validation).least_budget + spare
    run = Run(lean(rollout_budget=budget, validation=validation), reflection=wordy)
    result = run.start()
    assert run.task.calls == result.total_rollouts <= budget


def test_the_fewest_rollouts_for_some_proposals_pay_for_them_and_no_fewer_do() -> None:
    for proposals in (*range(1, 60), *range(60, 400, 7)):
        settings = lean()
        enough = settings.rollouts_for(proposals)
        assert settings.pays_for(enough).if_accepted == proposals
        assert settings.pays_for(enough - 1).if_accepted == proposals - 1


def test_a_run_that_is_stopped_while_it_shortens_ends_the_same_when_it_is_resumed() -> None:
    whole = MemoryJournal()
    result = optimize(lean(), reflection=wordy, journal=whole)
    places = [one for key in answers(whole) if (one := Place.of_rollout(key)) is not None]
    within = [at for at, one in enumerate(places) if one.phase is Phase.SHORTEN]
    assert {places[at].leg for at in within} >= {"line", "best", "race/first"}
    for calls in {places[at].leg: at for at in within}.values():
        journal = MemoryJournal()
        first = Run(lean(), reflection=wordy, journal=journal, task=dies_after(calls))
        assert first.start().stop_reason is StopReason.PROVIDER_FAILED
        second = Run(lean(), reflection=wordy, journal=journal)
        resumed = second.start()
        assert attrs.evolve(resumed, ledger=result.ledger) == result
        assert second.task.calls == len(places) - calls


def test_the_winner_of_the_finals_is_shortened_and_asked_anew_beside_the_shorter_text() -> None:
    journal = MemoryJournal()
    optimize(lean(), reflection=wordy, journal=journal)
    places = [one for key in answers(journal) if (one := Place.of_rollout(key)) is not None]
    shortened = [at for at, one in enumerate(places) if one.phase is Phase.SHORTEN]
    finals = [at for at, one in enumerate(places) if one.phase is Phase.FINAL]
    assert any(at < shortened[0] for at in finals)
    legs = [places[at].leg for at in shortened]
    assert legs.count("race/best") == legs.count("race/first") > 0


def test_nothing_is_lost_where_either_of_two_lines_would_do() -> None:
    """Either of two lines will do for each word, though they share no other one."""

    def twice(rendered: RenderedPrompt[object]) -> str:
        text = current_text(rendered)
        missing = dict.fromkeys(re.findall(r"missing (\w+)", bound(rendered, "examples")))
        said = (f"- {word} first\n- then comes {word}\n- {IDLE[1]}" for word in missing)
        return instruction("\n".join([text, *said]))

    journal = MemoryJournal()
    long = optimize(lean(shorten_margin="off"), reflection=twice)
    short = optimize(lean(), reflection=twice, journal=journal)
    assert short.best_pareto_mean == long.best_pareto_mean == 1.0
    assert texts(short).count(IDLE[1]) < texts(long).count(IDLE[1])
    # What was tried together need not be put right: one race over the validation set does.
    assert [one.leg for one in shortening(journal)].count("race/best") == 6


def test_what_training_never_shows_is_seen_by_the_race() -> None:
    """Some questions of the validation set are answered by the careful only."""

    def careful(rendered: RenderedPrompt[object]) -> str:
        known = f"{section(rendered, RULES).text} {section(rendered, NOTES).text}"
        is_hidden = asked(rendered) == "hidden"
        return ("ok" if IDLE[2] in known else "no") if is_hidden else answer(rendered)

    hidden = [
        attrs.evolve(one, id=f"v{number}", params=(Question("hidden", again=f"{number}"),))
        for number, one in enumerate(examples(4))
    ]
    again = (twin(one, f"{one.id}-again") for one in examples(8)[4:])
    settings = lean(
        training_examples=(*examples(8), *hidden, *again),
        pareto_set_size=8,
        seed=2,
        minibatch_growth=1,
    )
    result = optimize(settings, reflection=wordy, task=careful)
    assert IDLE[2] in texts(result)
    assert not any(line in texts(result) for line in IDLE[:2])


def test_what_was_lost_without_a_line_is_not_lost_again() -> None:
    """Of the texts that are tried, no one lacks two of the lines that were needed alone."""
    journal = MemoryJournal()
    run = Run(lean(), reflection=wordy, journal=journal)
    run.start()
    places = [Place.of_rollout(key) for key in answers(journal)]
    asked_then = [
        rendered.text
        for at, rendered in zip([one for one in places if one], run.task.requests, strict=True)
        if at.phase is Phase.SHORTEN
    ]
    words = {f"w{number}" for number in range(8)}
    assert asked_then
    assert all(len(words - set(text.split())) <= 1 for text in asked_then)


def test_what_shortening_does_not_need_is_given_back() -> None:
    settings = lean(rollout_budget=1_500)
    result = optimize(settings, reflection=numbered(useless))
    assert result.stop_reason is StopReason.BUDGET
    assert result.total_rollouts > 1_500 - reserved(settings)
    told = re.search(r"may take (\d+) test calls, and (-?\d+) of", result.stop_detail)
    assert told is not None
    assert 0 <= int(told[2]) < int(told[1])


def useless(number: int, rendered: RenderedPrompt[object]) -> str:
    return instruction(f"{current_text(rendered)}\n- useless{number}")


def endless(rendered: RenderedPrompt[object]) -> str:
    """Add the missing words, and a line that says nothing and is new each time."""
    missing = dict.fromkeys(re.findall(r"missing (\w+)", bound(rendered, "examples")))
    new = [*missing, f"idle {digest_text(rendered.text)[:12]}"]
    return instruction("\n".join([current_text(rendered), *(f"- {one}" for one in new)]))


def never_perfect(rendered: RenderedPrompt[object]) -> str:
    return "no" if asked(rendered) == "w0" else answer(rendered)


def long_search(
    budget: int = 1_300, *, executor: Executor | None = None, **changes: Any
) -> tuple[GepaResult, dict[str, Json], Sequence[RenderedPrompt[object]]]:
    """Search until the budget ends it, and shorten with what was reserved for that."""
    journal = MemoryJournal()
    run = Run(
        lean(rollout_budget=budget, **changes),
        reflection=endless,
        task=never_perfect,
        journal=journal,
        executor=executor,
    )
    found = run.start()
    assert found.stop_reason is StopReason.BUDGET
    assert found.stop_detail.startswith("one more step may take")  # and not a rollout of the end
    return found, answers(journal), run.task.requests


def test_lines_are_tried_after_the_finals() -> None:
    assert_lines_come_last(long_search()[1])


def assert_lines_come_last(found: Mapping[str, Json]) -> None:
    phases = [place.phase for key in found if (place := Place.of_rollout(key)) is not None]
    assert set(phases[phases.index(Phase.FINAL) :]) == {Phase.FINAL, Phase.SHORTEN}
    assert Phase.SHORTEN not in phases[: phases.index(Phase.FINAL)]


@pytest.mark.thorough
def test_shortening_after_steps_together_takes_the_same_path_with_workers() -> None:
    budget = 1_150
    at_once: dict[str, Any] = {"proposals_per_step": 3, "steps_at_once": 3}
    alone, one_by_one, requests = long_search(budget, **at_once)
    with ThreadPoolExecutor(8) as executor:
        together, at_the_same_time, _ = long_search(budget, executor=executor, **at_once)
    assert attrs.evolve(together, ledger=alone.ledger) == alone
    assert at_the_same_time == one_by_one
    assert_lines_come_last(one_by_one)
    assert len(requests) == alone.total_rollouts <= budget
    # About a step: how many rollouts lines take is only known in the end.
    assert budget - alone.total_rollouts < 20


def reserved(settings: GepaConfig) -> int:
    """Return the rollouts that are kept for shortening."""
    least, validation = settings.least_budget, settings.pareto_set_size
    return sum(
        addition.reserve(settings.budget, least=least, validation=validation)
        for addition in settings.used_additions
    )


def test_nothing_is_kept_of_small_budgets() -> None:
    assert reserved(lean(rollout_budget=1_000)) == 0
    assert reserved(lean(rollout_budget=1_500)) == 83
    assert reserved(lean(rollout_budget=9_000)) == 300 + lean().pareto_set_size


def dies_after(calls: int) -> Reply:
    def reply(number: int, rendered: RenderedPrompt[object]) -> str:
        if number >= calls:
            raise REFUSED
        return answer(rendered)

    return numbered(reply)


@pytest.mark.parametrize("more", [1, 60, *thorough([7, 23])])
def test_a_larger_budget_uses_what_a_smaller_one_has_tried(more: int) -> None:
    journal = MemoryJournal()
    optimize(lean(rollout_budget=200), reflection=wordy, journal=journal)
    larger = lean(rollout_budget=200 + more)
    assert optimize(larger, reflection=wordy, journal=journal) == optimize(larger, reflection=wordy)


def test_nothing_is_shortened_without_a_margin() -> None:
    journal = MemoryJournal()
    optimize(lean(shorten_margin="off"), reflection=wordy, journal=journal)
    assert not shortening(journal)
    assert reserved(lean(shorten_margin="off", rollout_budget=1_500)) == 0


@pytest.mark.parametrize("margin", [2, True, None, "off"])
def test_a_margin_that_is_no_share_is_refused(margin: Any) -> None:
    with pytest.raises(ConfigError, match=r"margin: expected a number from 0 to 1, found"):
        Shorten(margin=margin)
