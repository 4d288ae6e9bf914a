"""An instruction that carries the answer to a training example is refused, and nothing else is."""

from __future__ import annotations

import dataclasses
import json
import unicodedata
from collections.abc import Callable, Mapping

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgraft import RunResult, optimize
from promptgraft.evals import metrics
from promptgraft.evals.types import Metric
from promptgraft.search.leak_guard import AnswerGuard, Copied
from promptgraft.targets.base import InvalidProposalError, RejectionReason
from promptgraft.targets.part_kinds import (
    GenerationModule,
    OutputFieldModule,
    SectionModule,
    TaskExampleModule,
    ToolExampleModule,
    ToolModule,
)
from promptgraft.targets.types import GepaExample, MetaPrompt, Module, ModuleDescription

ANSWER = "Send the lamp back within thirty days and we will refund the whole price"
RULE = "Say how long a customer has to return a thing, and what is paid back."
SECTION = SectionModule(("rules",))

# No word of the answers is made of these letters alone.
PROSE = st.text("xyzXYZ ,.\n*_-", max_size=200)
WORDS = st.lists(st.text("abcdé", min_size=1, max_size=5), min_size=4, max_size=20).map(" ".join)


def guard(*labels: object, words: int | None = 8) -> AnswerGuard:
    return AnswerGuard(
        [GepaExample(id=f"t-{n}", params=(), label=label) for n, label in enumerate(labels)], words
    )


def found(proposal: str, *labels: object, known: tuple[str, ...] = ()) -> Copied | None:
    return guard(*labels).find(proposal, known)


def describe(text: str) -> ModuleDescription:
    return ModuleDescription(
        name="section rules",
        meta_prompt=MetaPrompt.SECTION,
        title="Rules",
        text=text,
        max_chars=6_000,
        output="a text",
        neighbours=(),
    )


def tool(text: str) -> ModuleDescription:
    return attrs.evolve(describe(text), meta_prompt=MetaPrompt.TOOL, as_json=True)


DISGUISES: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "upper case": str.upper,
    "a word on each line": lambda text: "\n".join(text.split()),
    "emphasis": lambda text: " ".join(f"**{word}**" for word in text.split()),
    "underscores": lambda text: "_".join(text.split()),
    "quotes": lambda text: f"“{text.replace(' ', '” “')}”",
    "a list": lambda text: "- " + "\n- ".join(text.split()),
    "full width": lambda text: "".join(
        chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text
    ),
    "soft hyphens": lambda text: " ".join("\u00ad".join(word) for word in text.split()),
    "taken apart": lambda text: unicodedata.normalize("NFD", text),
}


@pytest.mark.parametrize("disguise", DISGUISES.values(), ids=DISGUISES)
@settings(max_examples=12)
@given(before=PROSE, after=PROSE, words=WORDS)
def test_a_pasted_answer_is_found_whatever_it_looks_like(
    disguise: Callable[[str], str], before: str, after: str, words: str
) -> None:
    answer = f"seven is {words} at last"
    copied = found(f"{before}\n{disguise(answer)}\n{after}", "no", answer)
    if len(answer.split()) < 8:
        assert copied is None
        return
    assert copied is not None
    assert copied.example_id == "t-1"
    assert copied.words is not None
    assert copied.words >= len(answer.split())


@settings(max_examples=25)
@given(text=st.text(max_size=80), words=WORDS)
def test_a_text_that_stays_as_it_is_is_never_refused(text: str, words: str) -> None:
    parent = f"{text} {ANSWER} {words}"
    assert found(parent, ANSWER, words, text, parent, known=(parent,)) is None


@settings(max_examples=25)
@given(PROSE, WORDS)
def test_other_prose_is_never_refused(prose: str, words: str) -> None:
    assert found(f"{RULE} {prose}", ANSWER, words) is None


@settings(max_examples=40)
@given(st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abc"), max_size=40))
def test_it_finds_just_what_a_search_of_all_passages_finds(
    ours: list[str], theirs: list[str]
) -> None:
    shared = [
        place
        for place in range(len(ours) - 4)
        if any(ours[place : place + 5] == theirs[at : at + 5] for at in range(len(theirs) - 4))
    ]
    copied = guard(" ".join(theirs), words=5).find(" ".join(ours), ())

    assert (copied is not None) == bool(shared)
    if copied:
        words = copied.passage.split()
        assert ours[shared[0] : shared[0] + len(words)] == words
        assert f" {copied.passage} " in f" {' '.join(theirs)} "


def test_the_refusal_names_example_passage_and_what_to_do_instead() -> None:
    with pytest.raises(InvalidProposalError) as refused:
        guard("no", ANSWER).check(SECTION, describe(RULE), f"{RULE}\nE.g. *{ANSWER[:48]}*!")
    assert refused.value.reason is RejectionReason.COPIED_ANSWER
    assert refused.value.detail == (
        "carries 9 words of the answer to training example `t-1`: “Send the lamp back within "
        "thirty days and we”; describe the rule instead of the answer"
    )


def test_a_long_passage_is_cut_in_the_refusal_and_stays_on_one_line() -> None:
    long = "\n".join(f"word{number}" for number in range(100))
    copied = found(long, long)
    assert copied is not None
    assert copied.detail.startswith("carries 100 words of the answer")
    assert len(copied.detail) < 300
    assert "\n" not in copied.detail


def test_seven_words_in_a_row_are_no_copy_and_eight_are() -> None:
    words = ANSWER.split()
    assert found(" ".join(words[2:9]), ANSWER) is None
    assert found(" ".join(words[2:10]), ANSWER) is not None
    assert found(" ".join([*words[:7], "or", *words[7:13]]), ANSWER) is None
    assert guard(ANSWER, words=3).find("the lamp back", ()) is not None


@pytest.mark.parametrize(
    "described",
    [
        attrs.evolve(describe(RULE), neighbours=(("section tone", ANSWER),)),
        attrs.evolve(describe(RULE), siblings=(ANSWER,)),
        attrs.evolve(describe(RULE), opaque={"$loop": ANSWER}),
        attrs.evolve(describe(RULE), schema=ANSWER),
        attrs.evolve(describe(RULE), output=ANSWER),
        attrs.evolve(describe(RULE), title=ANSWER),
        describe(f"{ANSWER}. {RULE}"),
    ],
)
def test_what_the_prompt_says_already_may_be_said_again(described: ModuleDescription) -> None:
    watch = guard(ANSWER)
    watch.check(SECTION, described, f"Note: {ANSWER}.")
    with pytest.raises(InvalidProposalError):
        watch.check(SECTION, describe(RULE), f"Note: {ANSWER}.")


def test_the_form_of_many_answers_is_no_answer() -> None:
    letters = [f"Dear customer, thank you for writing to us today. {n}" for n in range(10)]
    assert found("Begin: dear customer, thank you for writing to us today.", *letters) is None

    others = [f"number {n}" for n in range(8)]
    assert found("dear customer, thank you for writing to us", *letters[:2], *others) is not None
    assert found("dear customer, thank you for writing to us", *letters[:3], *others) is None


def test_an_answer_of_two_examples_out_of_few_is_its_form_and_of_one_is_not() -> None:
    assert found(ANSWER, ANSWER, ANSWER, "no") is None
    assert found(ANSWER, ANSWER, "yes", "no") is not None


CODE = "https://shop.example/returns?id=4711"


@pytest.mark.parametrize(
    "proposal", [f"Send them to {CODE}.", f"<{CODE.upper()}>", f"**{CODE}**", f"[here]({CODE}),"]
)
def test_codes_and_addresses_are_copies_whatever_their_words(proposal: str) -> None:
    copied = found(proposal, f"Go to {CODE}!")
    assert copied is not None
    assert copied.words is None
    assert "carries 36 characters of the answer to training example `t-0`" in copied.detail


def test_short_codes_long_words_and_codes_of_the_prompt_are_no_copies() -> None:
    assert found("ask for AB-4711-X", "it is AB-4711-X") is None
    long = "Rechtsschutzversicherungsgesellschaften"
    assert found(f"name {long}", f"the {long}") is None
    assert found(f"see {CODE}", CODE, known=(f"Help is at ({CODE}).",)) is None
    assert found("token 9f86d081884c7d659a2feaa0c55ad015", "9F86D081884C7D659A2FEAA0C55AD015")


JAPANESE = "商品は三十日以内に返送していただければ全額を返金いたします。"
CHINESE = "请在三十天内把台灯寄回,我们会退还全部货款。"


@pytest.mark.parametrize("answer", [JAPANESE, CHINESE])
def test_two_characters_of_a_script_without_spaces_count_as_a_word(answer: str) -> None:
    assert found(f"例:{answer[:12]}", answer) is None
    copied = found(f"例:「{answer[:10]}\n{answer[10:]}」", answer)
    assert copied is not None
    assert "characters of the answer to training example `t-0`" in copied.detail


def test_scripts_may_be_mixed() -> None:
    mixed = "Kyoto 支店 opened 三月 and closed 八月 again after six days"
    assert found(f"x {mixed} y", mixed) is not None
    assert found("Kyoto 支店 opened 三月 and closed", mixed) is None


@attrs.frozen
class Reply:
    text: str
    marks: tuple[str, ...] = ()


@dataclasses.dataclass
class Ticket:
    number: int
    reply: Reply


@pytest.mark.parametrize(
    "label",
    [
        ANSWER,
        {"kind": "refund", "says": [1, None, {"text": ANSWER}]},
        Reply("no", ("a", ANSWER)),
        Ticket(1, Reply(ANSWER)),
    ],
)
def test_texts_anywhere_in_a_label_are_answers(label: object) -> None:
    assert found(f"{RULE} {ANSWER}", label) is not None


def test_texts_of_a_label_do_not_run_into_each_other() -> None:
    words = ANSWER.split()
    assert found(ANSWER, (" ".join(words[:7]), " ".join(words[7:]))) is None


@pytest.mark.parametrize("label", [None, 7, 1.5, True, object(), float("nan"), "", "  ", []])
def test_labels_without_texts_hold_nothing(label: object) -> None:
    assert found(ANSWER, label) is None


@pytest.mark.parametrize(
    ("module", "refused"),
    [
        (SECTION, True),
        (ToolModule("search"), True),
        (OutputFieldModule("Reply.text"), True),
        (ToolExampleModule("search", 0), False),
        (TaskExampleModule(("examples", "one")), False),
        (GenerationModule(("examples",)), False),
    ],
)
def test_instructions_may_not_carry_answers_and_examples_may(module: Module, refused: bool) -> None:
    if not refused:
        guard(ANSWER).check(module, describe(RULE), ANSWER)
        return
    with pytest.raises(InvalidProposalError):
        guard(ANSWER).check(module, describe(RULE), ANSWER)


def test_an_answer_is_found_however_json_spells_it() -> None:
    lines = ANSWER.replace(" ", "\n").replace("e", "\u00e9")
    said = json.dumps({"description": f"{RULE} {lines}"})
    assert "\\n" in said
    for reply in (said, f"```json\n{said}\n```", said.replace('"', "'")):
        with pytest.raises(InvalidProposalError):
            guard(lines).check(ToolModule("search"), tool("{}"), reply)
    guard(lines).check(ToolModule("search"), tool(json.dumps({"description": lines})), said)


def test_the_guard_can_be_turned_off_and_does_without_examples() -> None:
    guard(ANSWER, words=None).check(SECTION, describe(RULE), ANSWER)
    guard().check(SECTION, describe(RULE), ANSWER)


@pytest.mark.parametrize(
    "text",
    ["a" * 300_000, "((((" * 75_000, ".*+?|" * 60_000, "\u0301\u0327" * 100_000, "\ud800" * 100_000,
     "日本" * 10_000, "é-" * 20_000, "\ufdfa" * 10_000],
    ids=["one word", "brackets", "patterns", "marks", "halves", "han", "accents", "ligatures"],
)  # fmt: skip
def test_hostile_texts_are_answers_and_proposals_like_others(text: str) -> None:
    watch = guard(text, "no")
    assert watch.find(text, (text,)) is None
    copied = watch.find(f"x {text}", ())
    assert copied is None or len(copied.detail) < 300


# What a question says of it

TOLD = "a text that repeats 8 words in a row of what the answers are judged by is refused."
SENTENCE = "Please note that this is no legal advice, ask a lawyer"


def asked_with(
    metric: Metric, prompt: str | Mapping[str, str] = "Answer."
) -> tuple[list[str], RunResult]:
    """Return what the reflection model is asked, and the result of the run."""
    questions: list[str] = []

    def reflect(question: str) -> str:
        questions.append(question)
        return f"```instruction\nEnd with: {SENTENCE}.\n```"

    cases = [(f"May I sue, case {number}?", "yes") for number in range(40)]
    result = optimize(prompt, cases, metric, model=lambda _: "No.", reflection_model=reflect)
    return questions, result


@pytest.mark.filterwarnings("ignore:there are only")
def test_questions_say_that_words_of_metrics_are_refused_and_the_stop_how_to_allow_them() -> None:
    questions, result = asked_with(metrics.contains(texts=(SENTENCE,)))
    assert all(TOLD in question for question in questions)
    assert result.total_reflections == len(questions) > 1
    assert "set guards.max_copied_words to 0 if such words must be in the prompt" in (
        result.stop_detail
    )


@pytest.mark.filterwarnings("ignore:there are only")
def test_a_question_on_several_parts_says_it_once() -> None:
    texts = {"role": "You are a clerk.", "task": "Answer."}
    questions, _ = asked_with(metrics.contains(texts=(SENTENCE,)), texts)
    on_both = [question for question in questions if all(map(question.count, texts.values()))]
    assert on_both
    assert {question.count(TOLD) for question in on_both} == {1}


@pytest.mark.filterwarnings("ignore:there are only")
def test_metrics_with_nothing_to_copy_put_no_rule_into_questions() -> None:
    for metric in (metrics.contains(texts=("lawyer",)), metrics.exact()):
        questions, result = asked_with(metric)
        assert questions
        assert not any("is refused" in question for question in questions)
        assert "max_copied_words" not in result.stop_detail
