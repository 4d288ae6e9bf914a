"""The embedded offline model learns from the prompt, and from nothing else."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
from enum import Enum
from typing import Any, Literal

import attrs
import pytest

from promptgraft import (
    Data,
    Deadline,
    GepaConfig,
    GepaExample,
    GepaOptimizer,
    InMemoryPromptOverridesStore,
    MarkdownSection,
    OfflineAdapter,
    OptimizationContext,
    Prompt,
    PromptResponse,
    PromptTemplate,
    RolloutFeedback,
    Session,
)
from promptgraft.adapters.base import PromptExecuted
from promptgraft.errors import ConfigError, DeadlineExceededError
from promptgraft.prompt import PromptRendered
from promptgraft.runtime import SessionProtocol
from promptgraft.testing import FakeClock


class Kind(Enum):
    FRUIT = "fruit"
    BIRD = "bird"
    HAND_TOOL = "hand_tool"
    WEATHER = "weather"


@attrs.frozen
class Note:
    text: str


NOTES = (
    ("It was juicy and sweet, with a stone inside.", Kind.FRUIT),
    ("We peeled it and ate the sour segments.", Kind.FRUIT),
    ("A bowl of ripe ones, red and yellow, from the orchard.", Kind.FRUIT),
    ("It sang on the branch and flew off to its nest.", Kind.BIRD),
    ("Black feathers and a long beak.", Kind.BIRD),
    ("It spread its wings and sang again.", Kind.BIRD),
    ("Drive the nail in, then saw the plank.", Kind.HAND_TOOL),
    ("The handle broke while I was tightening the screws.", Kind.HAND_TOOL),
    ("The blade needs sharpening before you saw.", Kind.HAND_TOOL),
    ("Thunder all night, and then hail.", Kind.WEATHER),
    ("The storm brought ten centimetres of rain.", Kind.WEATHER),
    ("Clouds in the morning, a little rain later.", Kind.WEATHER),
)
TERSE = "- fruit: sweet\n- bird: feathers\n- hand_tool: nail\n- weather: rain"
THOROUGH = """\
- fruit: sweet or sour, ripe, juicy, peeled, with a stone, from an orchard
- bird: feathers, beak, wings, nest, it sings or sang
- hand_tool: nails, screws, a saw, a blade, a handle
- weather: rain, storms, thunder, hail, clouds"""
WRONG = """\
- fruit: feathers, beak, wings, nest, it sings or sang
- bird: sweet or sour, ripe, juicy, peeled, with a stone, from an orchard
- hand_tool: rain, storms, thunder, hail, clouds
- weather: nails, screws, a saw, a blade, a handle"""


def template(rules: str, question: str = "The note: $text") -> PromptTemplate[Kind]:
    return PromptTemplate[Kind](
        ns="toy",
        key="notes",
        output_type=Kind,
        sections=(
            MarkdownSection(title="Rules", key="rules", template=rules.replace("$", "$$")),
            MarkdownSection(title="Question", key="question", template=question),
        ),
    )


def answer(rules: str, text: str, adapter: OfflineAdapter | None = None) -> Kind | None:
    prompt = Prompt(template(rules)).bind(Note(text))
    return (adapter or OfflineAdapter()).evaluate(prompt, session=Session()).output


def accuracy(prompt: Prompt[Kind], adapter: OfflineAdapter | None = None) -> float:
    chosen = adapter or OfflineAdapter()
    right = [
        chosen.evaluate(prompt.bind(Note(text)), session=Session()).output is kind
        for text, kind in NOTES
    ]
    return sum(right) / len(right)


def test_a_better_prompt_scores_better_and_a_wrong_one_worse() -> None:
    wrong, terse, thorough = (
        accuracy(Prompt(template(rules))) for rules in (WRONG, TERSE, THOROUGH)
    )
    assert wrong < 0.2
    assert 0.4 < terse < 0.7
    assert thorough > 0.9


def test_an_empty_prompt_teaches_nothing() -> None:
    assert accuracy(Prompt(template("Sort the note."))) == 0.25


def test_words_that_move_between_rules_move_the_answer() -> None:
    text = "The gadget hums."
    assert answer("- fruit: gadgets\n- bird: none", text) is Kind.FRUIT
    assert answer("- fruit: none\n- bird: gadgets", text) is Kind.BIRD


def test_without_the_placeholder_it_does_not_see_the_input() -> None:
    blind = Prompt(template(THOROUGH, question="What is it?"))
    assert accuracy(blind) == 0.25


def test_without_evidence_it_takes_the_first_choice() -> None:
    assert answer(THOROUGH, "Xylophone.") is Kind.FRUIT
    assert answer(THOROUGH, "") is Kind.FRUIT


@pytest.mark.parametrize(
    "rules",
    [
        "- hand_tool: rivets",
        "* **hand_tool**: rivets",
        "1. `hand_tool` - rivets",
        "Hand tool: rivets.",
        "hand-tool:\nrivets and such",
        "### hand_tool\n\nAnything about rivets.",
        "Anything about rivets is hand_tool.",
        "Is it about rivets? Then hand_tool.",
        "Cherries are fruit, rivets are hand_tool.",
        "We had to drill the rivets out.\nAnswer: hand_tool",
        "We had to drill the rivets out.\n→ hand_tool",
    ],
)
def test_it_reads_rules_and_examples_in_many_forms(rules: str) -> None:
    assert answer(rules, "Where did the rivet go?") is Kind.HAND_TOOL


def test_the_name_of_a_choice_speaks_for_it() -> None:
    assert answer("Sort the note.", "Strange weather today") is Kind.WEATHER


def test_a_clause_that_says_not_speaks_against_a_choice() -> None:
    text = "ripe plastic"
    assert answer("- bird: plastic\n- fruit: ripe", text) is Kind.FRUIT
    assert answer("- bird: plastic\n- fruit: ripe, not plastic", text) is Kind.BIRD


def test_a_clause_that_concedes_says_nothing() -> None:
    rules = "Whistling is bird, even if it is about weather and kettles.\n- weather: breeze"
    assert answer(rules, "kettles, breeze") is Kind.WEATHER


def test_words_that_all_choices_share_count_less_than_one_that_is_telling() -> None:
    rules = "\n".join(f"- {kind.value}: big heavy old" for kind in Kind) + "\nMoss is weather."
    assert answer(rules, "big heavy old moss") is Kind.WEATHER


def test_a_word_that_is_said_more_often_counts_more() -> None:
    rules = "- fruit: grey shell\n- bird: grey stone, grey tail, grey eye"
    assert answer(rules, "grey") is Kind.BIRD


def test_words_behind_perhaps_count_less_up_to_the_end_of_the_brackets() -> None:
    rules = "- fruit: sweet (plum; perhaps gadget, hinge) or hammer\n- bird: gadget, hammer"
    assert answer(rules, "gadget") is Kind.BIRD
    assert answer(rules, "hinge") is Kind.FRUIT


def test_rule_words_beyond_the_attention_are_not_heard() -> None:
    rules = "- bird: one1 two2 three3 gadget\n- fruit: none"
    assert answer(rules, "gadget", OfflineAdapter(attention=4)) is Kind.BIRD
    assert answer(rules, "gadget", OfflineAdapter(attention=3)) is Kind.FRUIT


def test_lines_beyond_the_first_two_hundred_are_not_heard() -> None:
    padding = "Nothing to say.\n\n"  # the heading of the section is a line, too
    assert answer(padding * 198 + "- bird: gadget", "gadget") is Kind.BIRD
    assert answer(padding * 199 + "- bird: gadget", "gadget") is Kind.FRUIT


def test_noise_dilutes_a_rule() -> None:
    rules = "- fruit: none\n- bird: gadget {}\n- weather: gadget"
    noise = " ".join(f"noise{number}x" for number in range(40))
    assert answer(rules.format(""), "gadget") is Kind.BIRD
    assert answer(rules.format(noise), "gadget") is Kind.WEATHER


def test_literal_choices_are_served() -> None:
    size: Any = Literal["small", "large"]
    sizes = PromptTemplate[str](
        ns="toy",
        key="sizes",
        output_type=size,
        sections=(MarkdownSection(title="Q", key="q", template="- large: elephants\n\n$text"),),
    )
    prompt = Prompt(sizes).bind(Note("an elephant"))
    assert OfflineAdapter().evaluate(prompt, session=Session()).output == "large"


def test_threads_get_the_answers_that_one_thread_gets() -> None:
    adapter = OfflineAdapter()
    texts = [text for text, _ in NOTES] * 20
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda text: answer(THOROUGH, text, adapter), texts))
    assert together == [answer(THOROUGH, text) for text in texts]


def test_the_hash_seed_of_a_process_changes_nothing() -> None:
    script = (
        "from promptgraft.adapters.offline.learner import learn\n"
        "rules = '- a: red green blue grey pink\\n- b: grey red teal, not blue\\n- c: pink teal'\n"
        "print(repr(learn(rules, ('a', 'b', 'c')).scores('pink grey teal red blue green')))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1


def test_rendering_and_answering_are_told_to_the_session() -> None:
    session = Session()
    OfflineAdapter().evaluate(Prompt(template(TERSE)).bind(Note("sweet")), session=session)
    rendered = session.latest(PromptRendered)
    executed = session.latest(PromptExecuted)
    assert rendered is not None
    assert rendered.prompt.key == "notes"
    assert executed is not None
    assert executed.response.output is Kind.FRUIT
    assert executed.response.text == "fruit"


@pytest.mark.parametrize("output_type", [None, str])
def test_a_prompt_that_is_no_choice_is_refused_with_the_mend(output_type: type | None) -> None:
    sections = (MarkdownSection(title="Q", key="q", template="Write a poem."),)
    poem = PromptTemplate[object](ns="toy", key="poem", output_type=output_type, sections=sections)
    with pytest.raises(ConfigError, match=r"embedded offline model .*`toy/poem`.*choice"):
        OfflineAdapter().evaluate(Prompt(poem), session=Session())


def test_a_deadline_that_has_passed_is_respected() -> None:
    clock = FakeClock()
    deadline = Deadline.after(1.0, clock=clock)
    clock.advance(1.0)
    with pytest.raises(DeadlineExceededError):
        OfflineAdapter().evaluate(Prompt(template(TERSE)), session=Session(), deadline=deadline)


def test_the_identity_tells_other_options() -> None:
    assert OfflineAdapter().identity == "offline/5"
    assert OfflineAdapter(attention=7).identity == "offline/5 attention=7"
    assert OfflineAdapter(identity="mine", words_per_failure=3).identity == (
        "mine words_per_failure=3"
    )


@pytest.mark.parametrize("value", [0, -1, True, 2.0, "9"])
def test_options_that_are_no_positive_integer_are_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="OfflineAdapter: attention: expected an integer of at"):
        OfflineAdapter(attention=value)


def judged(
    example: GepaExample, response: PromptResponse[object], session: SessionProtocol
) -> RolloutFeedback:
    kind = Kind(example.label)
    right = response.output is kind
    return RolloutFeedback(
        score=float(right), feedback=f"expected `{kind.value}`, the answer was `{response.text}`"
    )


def test_it_improves_a_prompt_on_notes_that_the_search_never_saw() -> None:
    words = {
        Kind.FRUIT: ["peel", "ripe", "juicy", "orchard", "seed", "pip", "jam", "squeeze"],
        Kind.BIRD: ["wing", "beak", "nest", "chirp", "flock", "egg", "perch", "feather"],
        Kind.HAND_TOOL: ["hammer", "screw", "blade", "handle", "saw", "drill", "plank", "bolt"],
        Kind.WEATHER: ["rain", "storm", "cloud", "thunder", "hail", "fog", "frost", "gust"],
    }
    examples = [
        GepaExample(
            id=f"{kind.value}-{first}-{second}",
            params=(Note(f"Yesterday there was {one} and {other}, said Ann."),),
            label=kind,
        )
        for kind, known in words.items()
        for first, one in enumerate(known)
        for second, other in enumerate(known)
        if first < second
    ]
    training, unseen = examples[::2], examples[1::2]
    store = InMemoryPromptOverridesStore()
    plain = Prompt(template("- fruit: ripe\n- bird: nest\n- hand_tool: saw\n- weather: rain"))
    config = GepaConfig(
        rollout_budget=300,
        minibatch_size=6,
        pareto_set_size=16,
        target_section_paths=(("rules",),),
        training_examples=training,
        feedback_fn=judged,
        data=Data(shuffle=True),
    )
    context = OptimizationContext(adapter=OfflineAdapter(), overrides_store=store)
    result = GepaOptimizer(context, config).optimize(plain)
    improved = Prompt(plain.template, overrides_store=store)

    def share(prompt: Prompt[Kind]) -> float:
        adapter = OfflineAdapter()
        bound = ((prompt.bind(*example.params), example) for example in unseen)
        answers = [
            adapter.evaluate(asked, session=Session()).output is example.label
            for asked, example in bound
        ]
        return sum(answers) / len(answers)

    assert result.found_better
    assert share(plain) < 0.55
    assert share(improved) > share(plain) + 0.25
