"""The contents of the report of a run, without a browser."""

from __future__ import annotations

import base64
import hashlib
import html
import math
import re
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from optimizers.worlds import PROMPT
from promptgraft.evals import metrics
from promptgraft.evals.metrics.judging import feedback_text
from promptgraft.evals.metrics.values import labels_in
from promptgraft.evals.types import Answer, Case, Verdict
from promptgraft.ground.strict import structure
from promptgraft.ground.text import visible
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.runs import read_run
from promptgraft.runs.folder import read_document
from promptgraft.runs.reading import summarize
from promptgraft.runs.report.data import ReportData
from promptgraft.runs.report.drawings import (
    HEIGHT,
    MOST_NODES,
    WIDTH,
    family_tree,
    length_chart,
    rollouts_chart,
    spending_chart,
)
from promptgraft.runs.report.page import (
    VERDICTS,
    comparison_page,
    history_page,
    render,
    write_report,
)
from promptgraft.runs.report.tables import LEVELS, UNSCORED, breakdown, frontier_rows, heat_map
from promptgraft.runs.report.texts import PageLimits, candidate_views, cropped, size
from promptgraft.search.events import CandidateAdded
from promptgraft.search.verdict import HeldOut, RunVerdict
from promptgraft.targets.types import RolloutFeedback
from runs.report_pages import HOSTILE, candidate, changed, hostile_run, overviews, said, small_run
from runs.toy_runs import kept_run, make_job, sulky


class Page(HTMLParser):
    """What a browser makes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._inside.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if not {"script", "style"} & set(self._inside):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def values(self, name: str) -> list[str]:
        return [value for _, found, value in self.attributes if found == name]


def section(text: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', text, re.DOTALL)
    assert found is not None
    return Page(found[0]).text


def test_the_held_out_result_comes_first_then_the_verdict() -> None:
    page = render(small_run())
    assert re.findall(r'<section id="([^"]+)"', page) == [
        "held-out",
        "verdict",
        "changes",
        "ledger",
        "whole",
        "scores",
        "cases",
        "answers",
        "score",
        "family",
        "frontier",
        "rounds",
        "every",
        "rejected",
    ]
    assert page.index('<details class="fold" id="search">') < page.index('<section id="score"')
    told = section(page, "held-out")
    assert "The winner on 7 cases that no part of the search has seen." in told
    assert "Your prompt 0.000 Winner 1.000 Gain +1.000 95 % interval +0.181 to +1.000" in told
    assert "Significant at 95 %: mean +1.000, interval above 0." in told
    assert "7 better, 0 worse, 0 the same; 1 unscored." in told
    assert "Stopped Too few test calls left for another step and the final test." in section(
        page, "verdict"
    )
    assert "It ended here: 1 of 60 test calls is left." in Page(page).text


@pytest.mark.parametrize(
    ("scores", "sentence"),
    [
        ((0.0,) * 7 + (None,), "Significantly worse at 95 %: mean -1.000, interval below 0."),
        ((1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0), "Not significant at 95 %."),
    ],
)
def test_the_side_of_zero_on_which_the_interval_lies_is_said(
    scores: tuple[float | None, ...], sentence: str
) -> None:
    ids = tuple("abcdefgh")
    before = tuple(None if score is None else 1.0 - score for score in scores)
    run = small_run(held_out=HeldOut(ids=ids, baseline_scores=before, winner_scores=scores))
    assert sentence in section(render(run), "held-out")


def test_held_out_answers_come_first_and_some_of_them_are_open() -> None:
    page = render(small_run())
    told = section(page, "answers")
    assert told.index("Unseen cases") < told.index("red, says 3") < told.index("Validation set")
    assert "unseen-0 ▲ better which color has unseen-0; false 0.000 → 0.500" in told
    assert len(re.findall(r"<details class=\"row\"[^>]* open>", page)) == 6


def test_scores_are_told_by_metric_and_by_label_and_confusions_as_a_matrix() -> None:
    told = section(render(small_run()), "scores")
    assert "On 6 of the unseen cases." in told
    assert "color 6 0.000 1.000 +1.000" in told
    assert "tone 6 0.312 0.312 +0.000" in told
    assert "red 6 0.156 0.656 +0.500" in told
    assert "Your prompt Expected red blue red · 6 Winner Expected red blue red 6 ·" in told
    without = small_run(unseen={})
    assert "There is one metric, and no label to compare" in section(render(without), "scores")


def test_answers_without_a_known_label_have_a_column_of_their_own() -> None:
    run = small_run()
    lost = attrs.evolve(
        run.answers.unseen[3, "unseen-0"],
        feedback=RolloutFeedback(
            score=0.0,
            feedback='[failed] color 0: expected one of `red`, `blue`, found "grue"',
            objectives={"color": 0.0, "tone": 0.0},
        ),
    )
    found = breakdown(changed(run, unseen={**run.answers.unseen, (3, "unseen-0"): lost}))
    assert found is not None
    (labels,) = found.labels
    assert labels.found == ("red", "blue", "no known label")
    assert dict(labels.confusions) == {
        "Your prompt": {"red": [0, 6, 0]},
        "Winner": {"red": [5, 0, 1]},
    }


@given(
    st.lists(st.sampled_from(("red", "not, red", "b`ue", "größe", "x" * 90)), min_size=1),
    st.booleans(),
    st.sampled_from(("", "desk/color")),
)
def test_labels_are_read_back_from_what_the_metric_said(
    answers: list[str], several: bool, node: str
) -> None:
    labels = ("red", "not, red", "größe")
    metric = metrics.classification(name="color 2: x", labels=labels, several=several)
    for text in answers:
        case = Case(id="c", input="?", expected="red")
        verdict = metric.judge(case, Answer(text=text))
        assert isinstance(verdict, Verdict)
        verdict = attrs.evolve(verdict, node=node)
        found = labels_in(feedback_text(case, [verdict]), metric.name)
        if text in labels and not (several and "," in text):
            assert found == ("red", text)
        else:
            assert found is None or found[0] == "red"
        assert labels_in(feedback_text(case, [verdict]), "color") is None


def test_the_whole_prompt_stands_there_with_its_length_and_what_an_answer_costs() -> None:
    run = small_run(unseen={}, warnings=("it is long",))
    told = section(render(run), "whole")
    assert "characters 17 38 2.24" in told
    assert "tokens sent for an answer 100.0 250.0 2.50" in told
    assert "tokens received for an answer 2.0 2.0 1.00" in told
    assert "dollars for an answer $0.002000 $0.002000 1.00" in told
    assert "It is long." in told
    assert "support/triage Copy ## Rules Answer in one word. $ticket" in told
    lost = section(render(changed(run, winner=0, verdict=RunVerdict.NOT_IMPROVED)), "whole")
    assert "## Rules Answer." in lost
    assert "Winner" not in lost
    assert "characters" not in section(render(changed(run, prompts={})), "whole")
    long = {"a/b": {"baseline": "", "winner": "w" * 400_000}}
    cut = section(render(changed(run, prompts=long)), "whole")
    assert "promptgraft export --run 20260101-000000-triage prints it whole." in cut


def test_a_kept_run_knows_the_prompt_over_what_the_store_held_at_first(tmp_path: Path) -> None:
    job = make_job()
    (address,) = job.prompts
    store = InMemoryPromptOverridesStore()
    store.set_section_override(PROMPT, path=("notes",), body="From the store.")
    context = attrs.evolve(job.context, overrides_store=store)
    folder = kept_run(tmp_path, attrs.evolve(job, context=context))
    texts = read_document(folder.result)["prompts"]
    assert isinstance(texts, dict)
    found = structure(texts[address], dict[str, str], where="prompts")
    assert found["baseline"].endswith("## Notes\n\nFrom the store.")
    assert "## Notes\n\nFrom the store. w" in found["winner"]
    assert "From the store. w" in section(folder.report.read_text("utf-8"), "whole")


def test_what_was_not_measured_is_said_with_its_reason() -> None:
    run = small_run(held_out=HeldOut(ids=("a",), why_not="no new text was better than yours"))
    told = section(render(run), "held-out")
    assert "Not measured. No new text was better than yours." in told
    assert "overestimate the winner" in told


def test_too_few_cases_to_tell_are_said_to_be_too_few() -> None:
    few = HeldOut(ids=("a", "b"), baseline_scores=(0, 1), winner_scores=(1, 1))
    told = section(render(small_run(held_out=few)), "held-out")
    assert "Gain +0.500 95 % interval -0.776 to +0.987" in told
    assert "Not significant: 2 cases cannot prove a gain" in told
    page = Page(render(small_run(held_out=few, verdict=RunVerdict.NOT_SHOWN)))
    assert "better on validation only" in " ".join(page.texts)


def test_held_out_cases_without_a_score_are_no_result() -> None:
    none = HeldOut(ids=("a",), baseline_scores=(None,), winner_scores=(1.0,))
    told = section(render(small_run(held_out=none)), "held-out")
    assert "Not measured. No case has a score on both sides." in told


def test_every_part_of_a_run_is_in_its_report() -> None:
    page = render(small_run())

    changes = section(page, "every")
    assert "Merge of #2 and #1" in changes
    assert "#3 merge winner frontier" in changes
    assert "Think 2 3 times." in changes
    rejected = section(page, "rejected")
    assert "The child has 0.250, the parent 0.500." in rejected
    assert "Mean on the cases that it was written for: parent 0.500, child 0.250." in rejected
    assert "There is no block." in rejected
    assert "The reply had no usable text." in rejected
    assert "Rejected merges" in rejected
    answers = section(page, "answers")
    case = "t-1 ▲ better question 1 0.000 → 1.000 Input question 1 Your prompt: 0.000 0.0 s, $0.0"
    assert case in answers
    assert "promptgraft show 20260101-000000-triage --case ID" in answers
    assert "task some-model $0.40 60 1 1,200 0 300 12.5" in section(page, "ledger")
    assert "t-2 question 2 0 0.5 0.5 0.5" in section(page, "cases")
    assert "Mean 0.00" not in section(page, "cases")


def test_the_ledger_shows_thoughts_where_there_are_any() -> None:
    plain = small_run()
    assert "Thinking" not in section(render(plain), "ledger")
    [row] = plain.end.ledger
    thought = attrs.evolve(row, usage=attrs.evolve(row.usage, reasoning_tokens=250))
    ledger = section(render(changed(plain, ledger=(thought,))), "ledger")
    assert "Tokens out Thinking Seconds" in ledger
    assert "task some-model $0.40 60 1 1,200 0 300 250 12.5" in ledger


@pytest.mark.parametrize("verdict", RunVerdict)
def test_every_verdict_is_shown_with_what_it_means(verdict: RunVerdict) -> None:
    page = render(changed(small_run(), verdict=verdict))
    words = VERDICTS[verdict]
    assert f"{words.sign} {verdict}" in Page(page).text
    assert f"{words.sentence} {words.next_step}" in section(page, "verdict")
    is_praised = verdict is RunVerdict.IMPROVED
    is_unproven = verdict not in (RunVerdict.IMPROVED, RunVerdict.GAMED, RunVerdict.NOT_IMPROVED)
    assert words.next_step.startswith("Keep your prompt") is is_unproven
    assert ("promptgraft apply 20260101-000000-triage" in page) == is_praised
    assert (words.kind == "good") == is_praised
    assert ("card wide good" in page) == is_praised


def test_a_run_in_progress_or_interrupted_says_so() -> None:
    going = render(attrs.evolve(ReportData(run_id="r", prompt="a/b"), state="running"))
    assert "not yet: the run was in progress" in section(going, "verdict")
    broken = changed(
        small_run(), state="interrupted", verdict=None, stopped="", winner=0, ledger=()
    )
    told = section(render(broken), "verdict")
    assert "promptgraft resume 20260101-000000-triage resumes it" in told
    assert "60 test calls of 61, 5 reflection calls, $0.40" in told
    assert "There is no winner yet." in section(render(broken), "changes")


def test_the_policy_allows_just_the_style_and_the_script_of_the_page() -> None:
    page = render(small_run())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    for kind in ("style", "script"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src &#39;sha256-{found}&#39;" in policy
    without_hashes = re.sub(r"'sha256-[^']+'", "HASH", html.unescape(policy))
    assert without_hashes == (
        "default-src 'none'; style-src HASH; script-src HASH; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )


def test_nothing_in_the_page_leads_out_of_it(tmp_path: Path) -> None:
    for page in (render(small_run()), render(hostile_run()), *overviews(kept_run(tmp_path))):
        found = Page(page)
        assert {value[:1] for value in found.values("href")} <= {"#", "d"}
        assert all(value.startswith("data:") for value in found.values("src"))
        names = {name for _, name, _ in found.attributes}
        assert not [name for name in names if name.startswith("on") or name == "style"]


def test_every_link_has_a_target_and_every_id_is_there_once() -> None:
    found = Page(render(small_run()))
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    targets = [value[1:] for value in found.values("href") if value.startswith("#")]
    assert set(targets) <= set(ids)
    labels = " ".join(found.values("aria-labelledby")).split()
    assert set(labels) <= set(ids)


def test_hostile_texts_are_texts(tmp_path: Path) -> None:
    plain = Page(render(small_run()))
    for page in (render(hostile_run()), *overviews(kept_run(tmp_path))):
        found = Page(page)
        assert set(found.tags) <= {*plain.tags, "img"}
        assert found.tags.count("script") == found.tags.count("style") == 1
        assert "base" not in found.tags
        for text in HOSTILE:
            assert visible(text) in "".join(found.texts)
        assert not re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", page
        )


@settings(max_examples=10, deadline=None)
@given(st.text(min_size=1), st.sampled_from(HOSTILE))
def test_no_text_becomes_part_of_the_page(text: str, hostile: str) -> None:
    told, label = f"{hostile}{text}", f"{text}{hostile}"
    run = small_run()
    answers = {
        (number, f"unseen-{case}"): said(number, told, label, f"{label}{number}", tone=0.5)
        for number in (0, 3)
        for case in range(2)
    }
    prompts = {told: {"baseline": label, "winner": told}}
    found = Page(render(changed(run, unseen=answers, prompts=prompts, warnings=(told,))))
    plain = Page(render(run))
    assert set(found.tags) <= set(plain.tags)
    assert {name for _, name, _ in found.attributes} <= {name for _, name, _ in plain.attributes}
    assert visible(told) in "".join(found.texts)


def test_two_runs_have_a_page_with_figures_changes_and_scores(tmp_path: Path) -> None:
    first, second = (read_run(kept_run(tmp_path / name)) for name in "ab")
    page = comparison_page(first, second)
    found = Page(page)
    assert found.tags.count("h1") == 1
    for title in ("Figures", "Result on unseen cases", "Prompt changes", "Cases"):
        assert title in found.texts
    assert "unseen cases, gain" in page
    assert "The winner of B against that of A: gain +0.000 (95 % interval" in page
    assert "They have the same texts." in page
    assert page.count('<tr data-outcome="same">') == 9
    other = read_run(kept_run(tmp_path / "c", make_job(pareto_set_size=4)))
    differing = comparison_page(first, other)
    assert "Scores of validation cases cannot be compared: the examples" in differing
    assert "the examples of the validation set differ: 6 in A, 4 in B, 4 in both" in differing
    assert comparison_page(first, other) == differing


@pytest.mark.parametrize("mean", [0.0, 1.0], ids=["low", "high"])
def test_runs_whose_curves_coincide_have_a_label_each(tmp_path: Path, mean: float) -> None:
    run = read_run(kept_run(tmp_path))
    begin, end = run.candidates[0], 1 - mean
    alike = attrs.evolve(run, candidates=[replace(begin, mean=mean)], best=0)
    # Another one, so that they are at the bottom or at the top.
    other = attrs.evolve(run, candidates=[replace(begin, mean=end)], best=0)
    page = comparison_page(*[alike] * 7, other)
    labels = re.findall(r'class="label" x="([\d.]+)" y="([\d.]+)">(\w)<', page)
    assert [name for *_, name in labels] == [*"ABCDEFGH"]
    heights = sorted(float(y) for _, y, _ in labels)
    assert all(after - before >= 13 for before, after in pairwise(heights))
    assert 13 <= heights[0] <= heights[-1] <= 250


def test_the_runs_of_a_folder_have_a_page_with_the_gain_of_each(tmp_path: Path) -> None:
    folder = kept_run(tmp_path)
    summary = summarize(folder)
    assert summary.ended is not None
    assert summary.held_out is not None
    unmeasured = attrs.evolve(summary, ended=replace(summary.ended, held_out=None))
    page = history_page("runs", [summary, unmeasured])
    told = " ".join(Page(page).texts)
    assert "2 runs in runs" in told
    assert summary.held_out.short in told
    assert page.count("Interval of the gain: ") == 1
    assert "0 runs in runs" in history_page("runs", [])


def test_a_merge_hangs_on_both_of_its_parents() -> None:
    tree = family_tree(small_run())
    assert tree is not None
    assert [node.value.candidate for node in tree.nodes] == [0, 1, 2, 3]
    assert [(node.x - 18, node.y - 18) for node in tree.nodes] == [
        (0, 0),
        (18, 26),
        (0, 52),
        (0, 78),
    ]
    assert len(tree.edges) == 4
    assert sum(is_second for _, _, is_second in tree.edges) == 1
    assert [node.value.candidate for node in tree.nodes if node.is_on_line] == [0, 2, 3]
    assert [is_on_line for _, is_on_line, _ in tree.edges] == [False, False, True, True]


def test_a_prompt_that_nothing_beat_is_no_winner_in_a_drawing() -> None:
    chart = rollouts_chart(small_run(winner=0))
    assert chart is not None
    assert chart.winner is None
    assert "winner" not in chart.summary


def test_estimates_are_drawn_unlike_means_over_all_cases() -> None:
    run = small_run()
    assert [one.estimated for one in run.candidates] == [False, True, False, False]
    page = render(run)
    assert len(re.findall(r'class="node guess', page)) == 1
    assert len(re.findall(r'<path class="guesses"', page)) == 3  # two charts and their legend
    assert "an estimate, from some of the cases" in section(page, "score")
    (guessed,) = (one for one in run.candidates if one.estimated)
    seen = [value for value in guessed.scores if value is not None]
    where = f"Evaluated on {len(seen)} of {len(guessed.scores)} cases"
    assert f"{where}: {sum(seen) / len(seen):.3f} there." in section(page, "every")
    plain = tuple(one for one in run.candidates if not one.estimated)[:1]
    without = section(render(attrs.evolve(run, candidates=plain, winner=0, frontier=())), "score")
    assert "an estimate" not in without


def test_the_frontier_says_on_how_many_cases_nobody_is_better_and_nobody_as_good() -> None:
    scores = ((1.0, 0.0, None), (1.0, 0.5, 0.0), (0.0, 1.0, None))
    pool = tuple(
        candidate(number, parents=(0,) if number else (), scores=own, mean=sum(own[:2]) / 2)
        for number, own in enumerate(scores)
    )
    run = small_run(case_ids=("a", "b", "c"), candidates=pool, winner=1, frontier=(0, 1, 2))
    rows = frontier_rows(run)
    assert [(one.candidate, leads, alone) for one, leads, alone in rows] == [
        (1, 2, 1),
        (0, 1, 0),
        (2, 1, 1),
    ]


def test_a_merge_says_what_it_took_from_its_second_parent() -> None:
    run = small_run()
    better, other = (
        replace(run.candidates[number], texts={"section tone": f"Be {word}."})
        for number, word in ((2, "kind"), (1, "brief"))
    )
    merge = replace(run.candidates[3], texts={"section tone": "Be brief."})
    run = attrs.evolve(run, candidates=(run.candidates[0], other, better, merge))
    row = next(view for view in candidate_views(run, PageLimits()) if view.value.candidate == 3)
    assert [(change.part, change.origin) for change in row.changes or ()] == [("section tone", 1)]
    assert "section tone taken from #1" in section(render(run), "every")


@settings(max_examples=20)
@given(st.lists(st.integers(0, 10**6), max_size=160), st.integers(0, 10**6))
def test_every_candidate_has_a_row_of_its_own_below_its_parent_in_a_tree_that_fits(
    choices: list[int], winner: int
) -> None:
    pool = [candidate(0)]
    for number, choice in enumerate(choices, 1):
        parents = tuple(dict.fromkeys((choice % number, choice // 7 % number)))
        pool.append(candidate(number, parents=parents[: 1 + choice % 2]))
    run = small_run(candidates=tuple(pool), winner=winner % len(pool), frontier=(len(pool) - 1,))

    tree = family_tree(run)

    assert tree is not None
    places = {node.value.candidate: (node.x, node.y) for node in tree.nodes}
    assert len({y for _, y in places.values()}) == len(places)
    assert tree.width <= 300 + 2 * 18 + 18 * math.log2(len(places))
    assert len(places) + tree.left_out == len(pool)
    assert set(run.line_of(run.winner)) <= set(places)
    for number, (x, y) in places.items():
        assert 0 < x < tree.width
        assert 0 < y < tree.height
        for parent in [at for at in pool[number].parents if at in places][:1]:
            assert places[parent][1] < y
            assert places[parent][0] <= x
    if len(pool) <= MOST_NODES:
        assert not tree.left_out


@settings(max_examples=20)
@given(
    st.lists(
        st.none() | st.floats(-1e6, 1e6) | st.floats(0, 1) | st.just(0.5), min_size=1, max_size=8
    ),
    st.integers(0, 10**7),
)
def test_every_dot_lies_inside_its_chart(means: list[float | None], rollouts: int) -> None:
    pool = tuple(
        candidate(number, parents=(0,) if number else (), mean=mean, rollouts=number * 10)
        for number, mean in enumerate(means)
    )
    run = small_run(candidates=pool, winner=0, rollouts=rollouts)

    chart = rollouts_chart(run)

    if chart is None:
        assert all(mean is None for mean in means)
        return
    guessed = [one for one in pool if one.estimated]
    assert len(chart.guesses) == len(guessed)
    assert len(chart.dots) == sum(mean is not None for mean in means) - len(guessed)
    for x, y in (*chart.dots, *chart.guesses):
        assert chart.left <= x <= chart.right <= WIDTH
        assert chart.top <= y <= chart.bottom <= HEIGHT
    assert 2 <= len(chart.y_ticks) <= 8
    assert len({label for _, label in chart.x_ticks}) == len(chart.x_ticks)


@pytest.mark.parametrize(
    ("means", "lowest", "highest"),
    [([0.35, 0.367], "0.3", "0.425"), ([0.99, 1.0], "0.9", "1"), ([50, 51], "44", "52")],
)
def test_a_small_difference_is_drawn_small(means: list[float], lowest: str, highest: str) -> None:
    pool = tuple(candidate(at, parents=(0,) if at else (), mean=means[at]) for at in range(2))

    chart = rollouts_chart(small_run(candidates=pool, winner=0))

    assert chart is not None
    assert [chart.y_ticks[0][1], chart.y_ticks[-1][1]] == [lowest, highest]


def test_money_that_is_not_known_or_not_spent_has_no_drawing() -> None:
    drawn, why = spending_chart(small_run())
    assert drawn is not None
    assert (drawn.what, why) == ("dollars", "")
    unknown = tuple(candidate(number, cost=None, tokens=number + 1) for number in range(2))
    drawn, why = spending_chart(small_run(candidates=unknown, winner=0))
    assert drawn is not None
    assert (drawn.what, why) == (
        "tokens",
        "The price of a model is not known, so the drawing is against tokens.",
    )
    free = tuple(candidate(number, cost=Decimal(0)) for number in range(2))
    drawn, why = spending_chart(small_run(candidates=free, winner=0, ledger=()))
    assert drawn is None
    assert why == "This run cost nothing, so there is no drawing against money."


def test_the_drawing_against_length_shows_what_more_text_brings() -> None:
    texts = {0: "a" * 100, 1: "a" * 900, 2: "a" * 300, 3: "a" * 200, 4: "a" * 150}
    means = {0: 0.2, 1: 0.7, 2: 0.8, 3: 0.1, 4: 0.9}
    pool = tuple(
        candidate(
            number,
            parents=(0,) if number else (),
            texts={"section rules": texts[number]},
            mean=means[number],
            # The last one is an estimate: it has no score on one case.
            scores=(means[number],) * 3 + ((None,) if number == 4 else (means[number],)),
        )
        for number in texts
    )
    chart = length_chart(small_run(candidates=pool, winner=1))
    assert chart is not None
    assert chart.what == "characters of text"
    assert len(chart.guesses) == 1
    at = {x: number for number, (x, _) in enumerate(chart.dots)}
    # Candidate 2 is better than the winner and shorter; 3 is longer than 0 and worse.
    drawn = [at[float(x)] for x in re.findall(r"[MH]([\d.]+)[ V]", chart.best)]
    assert drawn == [0, 0, 2]
    assert chart.winner == chart.dots[1]
    assert "against characters" in section(render(small_run(candidates=pool, winner=1)), "score")
    same = tuple(candidate(number, texts={"section rules": "same"}) for number in range(3))
    assert length_chart(small_run(candidates=same, winner=0)) is None


def test_of_a_large_map_the_leaders_are_shown_and_the_rest_is_counted() -> None:
    pool = tuple(candidate(number, parents=(0,) if number else ()) for number in range(100))
    run = small_run(candidates=pool, winner=99, frontier=(5, 99))
    found = heat_map(run)
    assert found is not None
    assert found.candidates == (0, 99, 5)
    assert [level for level, _ in found.rows[0].cells] == [LEVELS] * 3
    assert [level for level, _ in found.legend] == [*range(0, LEVELS + 1, 2)]
    assert "97 other candidates not" in section(render(run), "cases")


def test_a_small_map_is_a_table_of_all_scores() -> None:
    found = heat_map(small_run())
    assert found is not None
    assert found.candidates == (0, 1, 2, 3)
    assert [text for _, text in found.rows[3].cells] == ["0", "–", "0", "0"]
    assert found.rows[3].cells[1][0] == UNSCORED
    assert found.has_unscored


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_all_text_has_enough_contrast_in_both_schemes() -> None:
    (style,) = re.findall(r"<style>(.*?)</style>", render(small_run()), re.DOTALL)
    schemes = re.findall(r":root\{(--bg[^}]+);color-scheme", style)
    assert len(schemes) == 2
    for scheme in schemes:
        colors = dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{6})", scheme))
        for text in ("text", "muted", "accent", "good", "bad", "mark"):
            assert contrast(colors[text], colors["bg"]) >= 4.5, text
            assert contrast(colors[text], colors["panel"]) >= 4.5, text
        for name in ("good", "bad", "mark", "accent"):
            assert contrast(colors[name], colors[f"{name}-soft"]) >= 4.5, name
    cells = re.findall(r"\.h\d+\{background:(#\w{6});color:(#\w{6})\}", style)
    assert len(cells) == 2 * (LEVELS + 1)
    assert min(contrast(*cell) for cell in cells) >= 4.5


@settings(max_examples=30)
@given(st.text(max_size=400), st.integers(100, 300))
def test_a_cropped_text_keeps_its_head_and_its_tail_within_the_limit(text: str, most: int) -> None:
    found = cropped(text, most)
    assert size(found) <= most + 60
    if size(text) <= most:
        assert found == text
    else:
        head, _, rest = found.partition("\n[… ")
        left_out, _, tail = rest.partition(" characters left out …]\n")
        assert text.startswith(head)
        assert text.endswith(tail)
        assert len(head) + len(tail) + int(left_out.replace(",", "")) == len(text)


def huge_run(candidates: int, cases: int) -> ReportData:
    """Return a run with more text than fits, in words that are quick to compare."""
    filling = "w" * 2_000
    name = "<" * 400
    run = small_run()

    def one(number: int) -> CandidateAdded:
        return replace(
            run.candidates[min(number, 1)],
            candidate=number,
            module=name,
            texts={name: f"{filling}{number}"},
            scores=(0.5,) * cases,
            objectives={f"{name}{objective}": 0.5 for objective in range(12)},
        )

    answer = attrs.evolve(
        run.answers.seen[0, "t-1"],
        output_repr=filling,
        feedback=RolloutFeedback(score=0.0, feedback=filling),
    )
    ids = tuple(f"{name}{case}" for case in range(cases))
    return changed(
        run,
        stop_detail=filling,
        case_ids=ids,
        candidates=tuple(map(one, range(candidates))),
        winner=candidates - 1,
        frontier=tuple(range(candidates)),
        rejections=tuple(
            replace(run.steps.rejections[0], step=step, module=name, detail=filling, text=filling)
            for step in range(candidates)
        ),
        merges=run.steps.merges * candidates,
        seen={(number, id_): answer for number in (0, candidates - 1) for id_ in ids},
    )


def test_no_run_has_a_report_beyond_the_limit_and_what_is_left_out_is_said() -> None:
    page = render(huge_run(100, 20), 250_000)
    assert len(page.encode()) <= 250_000
    changes, rejected = section(page, "every"), section(page, "rejected")
    assert "Left out to keep this page small. promptgraft show 20260101" in changes
    assert re.search(r"\d+ candidates have no line here", changes)
    assert "Its text is left out to keep this page small." in rejected
    assert re.search(r"\d+ later rewrites have no line here", rejected)
    assert re.search(r"\d+ cases did not fit into this page", section(page, "answers"))
    # What matters most is there.
    assert 'class="row" data-number="99"' in page


def test_a_kept_run_has_its_report_beside_it(tmp_path: Path) -> None:
    folder = kept_run(tmp_path, make_job(reflection=sulky))
    record = read_run(folder)
    page = folder.report.read_text("utf-8")

    assert record.ended is not None
    assert f"Run <code>{record.id}</code>" in page
    for one in record.candidates:
        assert f'id="c{one.candidate}"' in page
    assert "I would rather not." in section(page, "rejected")
    assert "on 3 cases that no part of the search has seen" in section(page, "held-out")
    assert f"winner #{record.ended.best}" in section(page, "verdict")
    answers = section(page, "answers")
    assert all(case in answers for case in record.pareto_ids)
    assert record.ended.held_out is not None
    cases = [*record.pareto_ids, *record.ended.held_out.ids]
    assert answers.count("Your prompt: ") == len(cases)
    assert answers.count(f"Winner, #{record.ended.best}: ") == len(cases)
    assert write_report(folder, tmp_path / "other.html").read_text("utf-8") == page


def test_an_interrupted_run_has_a_report_too(tmp_path: Path) -> None:
    folder = kept_run(tmp_path)
    lines = folder.events.read_bytes().splitlines(keepends=True)
    for gone in (folder.result, folder.frontier, folder.ledger, folder.report):
        gone.unlink()
    folder.events.write_bytes(b"".join(lines[:-3]) + lines[-3][:20])

    page = write_report(folder).read_text("utf-8")

    assert "interrupted" in section(page, "verdict")
    assert "The run has not ended." in section(page, "held-out")
    assert 'id="c1"' in page
