"""Values in notebooks and in ``print``: readable, with all of their texts escaped."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree as ET

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from optimizers.worlds import PROMPT, answer, config, instruction
from promptgraft import (
    Case,
    Dataset,
    Evaluation,
    GepaResult,
    MarkdownSection,
    OptimizationContext,
    OptimizationJob,
    Prompt,
    PromptTemplate,
    ScriptedAdapter,
    Splits,
    evaluate,
)
from promptgraft.evals.gains import Gain
from promptgraft.evals.metrics import Exact
from promptgraft.ground.notebook import (
    MOST_ROWS,
    Card,
    LongText,
    Shown,
    as_html,
    as_text,
    first_rows,
)
from promptgraft.runs import RunFolder, RunRecord, RunSummary, State
from promptgraft.search.events import CandidateAdded, RunPlanned, RunStarted
from promptgraft.testing import FakeClock

MARKUP = "<script>alert(1)</script></pre></td>\"'><img src=x onerror=alert(1)>&amp;"
HOSTILE = f"{MARKUP}\x1b[31m\x00\u202eevil"
SPELLED = HOSTILE.replace("\x1b", "\\x1b").replace("\x00", "\\x00").replace("\u202e", "\\u202e")
TAGS = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "pre"}
ATTRIBUTES = {"class", "style", "dir", "open"}


@attrs.frozen
class Reply:
    text: str


def parsed(html: str) -> ET.Element:
    """Return the HTML as a tree, which it is only when it is well-formed; check what it holds."""
    tree = ET.fromstring(html)
    assert {element.tag for element in tree.iter()} <= TAGS
    assert {name for element in tree.iter() for name in element.attrib} <= ATTRIBUTES
    return tree


def told(html: str) -> str:
    return " ".join(parsed(html).itertext())


def template() -> PromptTemplate[object]:
    return PromptTemplate(
        ns="support",
        key="triage",
        name=HOSTILE,
        sections=(
            MarkdownSection(title=HOSTILE, key="rules", template=f"{HOSTILE} for $word"),
            MarkdownSection(title="Tone", key="tone", template="Kind.", overridable=False),
        ),
    )


def dataset() -> Dataset:
    return Dataset.of(
        [Case(id=f"{HOSTILE}{n}", input=f"{HOSTILE} {n}", expected=HOSTILE) for n in range(30)],
        name=HOSTILE,
    )


def splits() -> Splits:
    return Splits.by_ratio(dataset(), train=0.5, validation=0.3, test=0.2)


def evaluation() -> Evaluation:
    return evaluate(
        Prompt(template()),
        [Case(id=HOSTILE, input="w0", expected="ok")],
        [Exact(name=HOSTILE.replace("\x00", ""))],
        adapter=ScriptedAdapter(lambda _: HOSTILE),
        num_runs=2,
    )


def run() -> GepaResult:
    context = OptimizationContext(
        ScriptedAdapter(answer, identity=HOSTILE),
        reflection_adapter=ScriptedAdapter(
            lambda _: instruction(f"w0 w1 {MARKUP}"), identity="writer"
        ),
    )
    return OptimizationJob(PROMPT, context, config(rollout_budget=40)).run()


RESULT = run()
PLAN = OptimizationJob(
    PROMPT, OptimizationContext(ScriptedAdapter(answer, identity=HOSTILE)), config()
).plan()

GAIN = Gain(
    mean_before=0.0,
    mean_after=1.0,
    mean_gain=1.0,
    level=0.95,
    low=-0.95,
    high=1.0,
    won=(HOSTILE,),
    lost=(),
    tied=(),
    unscored=("b", "c"),
)

MOMENT = FakeClock().now()
RUN = RunRecord(
    folder=RunFolder(Path("runs/20260101-000000-words")),
    state=State.INTERRUPTED,
    config={},
    created=MOMENT,
    prompt="toy/words",
    started=RunStarted(
        run_id="0123456789ab",
        prompt="toy/words",
        seed=0,
        settings={},
        modules=("section rules",),
        texts={},
        pareto_ids=("a", "b"),
    ),
    plan=RunPlanned(budget=100, line="plan"),
    candidates=[
        CandidateAdded(
            candidate=n,
            best=n,
            step=n,
            parents=() if n == 0 else (0,),
            module=None if n == 0 else f"section {HOSTILE}",
            texts={"section rules": HOSTILE},
            entries={},
            scores=(0.0, mean),
            objectives={},
            mean=mean,
            rollouts=n,
            reflections=n,
            cost=Decimal("0.5"),
            tokens=10,
        )
        for n, mean in enumerate((0.25, None, 0.5))
    ],
    steps=2,
    rollouts=40,
    cost=Decimal("0.5"),
    best=2,
)

SHOWN: dict[str, Callable[[], Shown]] = {
    "template": template,
    "prompt": lambda: Prompt(template()).bind({"word": HOSTILE}),
    "rendered": lambda: Prompt(template()).bind({"word": HOSTILE}).render(),
    "dataset": dataset,
    "splits": splits,
    "evaluation": evaluation,
    "report": lambda: evaluation().report,
    "gain": lambda: GAIN,
    "result": lambda: RESULT,
    "run": lambda: RUN,
    "plan": lambda: attrs.evolve(PLAN, warnings=(HOSTILE,)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_hostile_texts_are_text(name: str) -> None:
    value = SHOWN[name]()

    html = value._repr_html_()
    assert SPELLED in told(html)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", html)


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - {"rendered"}))
def test_print_shows_the_same_and_nothing_that_a_terminal_obeys(name: str) -> None:
    text = str(SHOWN[name]())

    assert SPELLED in text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202e]", text)


def test_a_rendered_prompt_prints_as_the_text_that_a_model_receives() -> None:
    rendered = Prompt(template()).bind({"word": HOSTILE}).render()

    assert str(rendered) == rendered.text


def test_a_choice_says_what_may_be_answered() -> None:
    kinds: list[Any] = [Literal["yes", "no"], Reply, str]
    told = [str(PromptTemplate(ns="a", key="b", output_type=kind)) for kind in kinds]

    assert [text.splitlines()[1] for text in told] == [
        "  answer  one of yes, no",
        "  answer  Reply",
        "  answer  text",
    ]


def test_ipython_shows_what_print_shows() -> None:
    class Printer:
        said = ""

        def text(self, text: str) -> None:
            self.said += text

    printer = Printer()
    RESULT._repr_pretty_(printer, False)
    assert printer.said == str(RESULT)


def test_a_result_says_first_whether_it_improved() -> None:
    assert RESULT.found_better
    assert str(RESULT).splitlines()[:2] == [
        "toy/words: better on validation, not checked",
        "  validation  0.000 -> 0.333 (+0.333) on 6 cases",
    ]
    assert (
        "<RunResult toy/words: better on validation, not checked, 0.000 -> 0.333 (+0.333) in "
        in repr(RESULT)
    )
    cells = [cell.text for cell in parsed(RESULT._repr_html_()).iter("td")]
    assert cells[cells.index("best, best on a case") - 2] == "0.333"
    assert any(
        MARKUP in "".join(pre.itertext()) for pre in parsed(RESULT._repr_html_()).iter("pre")
    )


def test_figures_have_a_short_repr() -> None:
    found = evaluation()

    assert repr(found.report) == (
        "<EvaluationReport 1 cases: 0 passed, 1 failed, 0 crashed, 0 unscored>"
    )
    assert repr(found) == f"<Evaluation 2 runs, the first: {found.report!r}>"
    assert repr(RUN) == (
        "<RunRecord 20260101-000000-words interrupted: toy/words, 0.250 -> 0.500 (+0.250) on "
        "the validation set, 3 candidates, 40 rollouts>"
    )
    # In a race the one with the highest mean may have been tried on little.
    assert "0.250 -> 0.250 (+0.000) on" in repr(attrs.evolve(RUN, best=0))
    guess = replace(RUN.candidates[2], scores=(0.5, None))
    assert "0.250 -> ~0.500 (~+0.250) on" in repr(
        attrs.evolve(RUN, candidates=[*RUN.candidates[:2], guess])
    )
    listed = RunSummary(
        folder=RUN.folder, state=State.RUNNING, created=MOMENT, prompt="toy/words", best_mean=0.5
    )
    assert repr([listed]) == (
        "[<RunSummary 20260101-000000-words running: toy/words, none -> 0.500 on the "
        "validation set>]"
    )
    assert repr(GAIN).startswith("<Gain not shown: gain +1.000 (95 % interval ")


def test_what_a_fingerprint_may_be_taken_of_keeps_its_whole_repr() -> None:
    # A metric of the user may hold a prompt: another wording of it is another run.
    one = PromptTemplate[object](ns="a", key="b", sections=[MarkdownSection(title="T", key="t")])
    other = attrs.evolve(one, sections=[MarkdownSection(title="T", key="t", template="new")])

    assert repr(one) != repr(other)
    assert repr(Prompt(one)) != repr(Prompt(other))


def test_long_tables_show_their_first_rows_and_count_the_rest() -> None:
    text = str(dataset())

    assert text.count("\n") == MOST_ROWS + 2
    assert text.endswith("and 10 more")
    assert "and 10 more" in told(dataset()._repr_html_())


TEXTS = st.text(st.characters(exclude_categories=()), max_size=20)


@given(title=TEXTS, lead=TEXTS, cells=st.tuples(TEXTS, TEXTS, TEXTS), long=TEXTS)
def test_whatever_a_card_holds_its_html_is_well_formed(
    title: str, lead: str, cells: tuple[str, str, str], long: str
) -> None:
    card = Card(
        title=title,
        lead=lead,
        fields=((title, lead),),
        blocks=(first_rows([cells], cells), LongText(title=lead, text=long)),
    )

    parsed(as_html(card))
    assert len(as_text(card).splitlines()) >= 5


@pytest.mark.parametrize("lead", ["", "a lead"])
def test_titles_and_names_of_a_card_are_spelled_in_text(lead: str) -> None:
    text = as_text(Card(title=HOSTILE, lead=lead, fields=((HOSTILE, HOSTILE),)))
    assert text.count(SPELLED) == 3
    assert "\x1b" not in text
