"""A search in one call is the search of `GepaOptimizer`, and refuses what that cannot use."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import attrs
import pytest

import promptgraft as pg
from programs import Programs
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals import metrics
from promptgraft.journal import MemoryJournal

EXAMPLE = Path(__file__).parents[2] / "examples" / "one_call"
FRUITS = ("ripe pear", "sweet plum", "ripe fig", "sweet peach", "ripe mango", "sweet grape")
TOOLS = ("steel saw", "sharp chisel", "steel file", "sharp axe", "steel drill", "sharp knife")


class Kind(StrEnum):
    FRUIT = "fruit"
    TOOL = "tool"


TEMPLATE = pg.PromptTemplate[object](
    ns="one",
    key="call",
    output_type=Kind,
    sections=(
        pg.MarkdownSection(title="Kinds", key="kinds", template="- fruit: apple\n- tool: hammer"),
        pg.MarkdownSection(title="Item", key="item", template="$item", overridable=False),
    ),
)
CASES = pg.Dataset.of(
    {"input": item, "expected": kind}
    for kind, items in (("fruit", FRUITS), ("tool", TOOLS))
    for item in items
)
SPLITS = pg.Splits.by_ratio(CASES, train=0.5, validation=0.25, test=0.25)
EXACT = [metrics.exact()]


def by_hand(**context: Any) -> pg.GepaResult:
    """Return what the parts of the call give when they are put together one by one."""
    made = {
        name: pg.examples_from(pg.Prompt(TEMPLATE), part, EXACT)
        for name, part in SPLITS.parts().items()
    }
    config = pg.GepaConfig(
        rollout_budget=60,
        pareto_set_size=3,
        training_examples=(*made["validation"], *made["train"]),
        data=pg.Data(held_out=made["test"]),
        feedback_fn=pg.feedback_from(EXACT),
        seed=3,
    )
    optimizer = pg.GepaOptimizer(pg.OptimizationContext(pg.OfflineAdapter(), **context), config)
    return optimizer.optimize(pg.Prompt(TEMPLATE))


def bare(result: pg.GepaResult) -> pg.GepaResult:
    """Return a result without the seconds that it took."""
    return attrs.evolve(result, ledger=())


def test_one_call_does_what_its_parts_do_plain_and_async() -> None:
    wanted = by_hand()
    assert wanted.found_better
    options: pg.OptimizeOptions = {"rollout_budget": 60, "seed": 3}
    found = pg.optimize(TEMPLATE, SPLITS, EXACT, model="offline", **options)
    assert bare(found) == bare(wanted)
    alone: pg.OptimizeOptions = {**options, "workers": 1}
    later = pg.aoptimize(pg.Prompt(TEMPLATE), SPLITS, EXACT, model=pg.OfflineAdapter(), **alone)
    assert bare(asyncio.run(later)) == bare(wanted)


def test_store_tag_and_journal_are_those_of_the_context() -> None:
    store, journal = pg.InMemoryPromptOverridesStore(), MemoryJournal()
    counting = pg.ScriptedAdapter(lambda _: "fruit", identity="counting")

    def run() -> pg.GepaResult:
        return pg.optimize(
            TEMPLATE,
            SPLITS,
            EXACT,
            model=counting,
            reflection_model="offline",
            rollout_budget=60,
            target_section_paths=[("kinds",)],
            limits=pg.Limits(max_idle_steps=1),
            overrides_store=store,
            overrides_tag="fresh",
            journal=journal,
        )

    first, calls = run(), counting.calls
    assert (first.tag, first.improved) == ("fresh", False)
    assert 0 < calls == first.total_rollouts
    assert bare(run()) == bare(first)
    assert counting.calls == calls

    improved = pg.optimize(
        TEMPLATE,
        SPLITS,
        EXACT,
        model="offline",
        overrides_store=store,
        overrides_tag="fresh",
        keep_anyway=True,
    )
    assert (improved.verdict, improved.persisted) == ("better on validation only", True)
    assert store.resolve(TEMPLATE.descriptor, "fresh") == improved.best_override


def test_the_path_of_a_journal_is_enough_to_resume_a_run(tmp_path: Path) -> None:
    counting = pg.ScriptedAdapter(lambda _: "fruit", identity="counting")
    options: pg.OptimizeOptions = {
        "reflection_model": "offline",
        "rollout_budget": 60,
        "limits": pg.Limits(max_idle_steps=1),
        "journal": tmp_path / "run.jsonl",
    }
    first = pg.optimize(TEMPLATE, SPLITS, EXACT, model=counting, **options)
    calls = counting.calls
    again = pg.optimize(TEMPLATE, SPLITS, EXACT, model=counting, **options)
    assert bare(again) == bare(first)
    assert counting.calls == calls == first.total_rollouts > 0
    with pg.FileJournal(tmp_path / "run.jsonl") as journal:  # nothing holds its lock any more
        assert any(record.kind == "rollout" for record in journal.records())


MAILS = [
    *((f"question {number} about a bill", "billing") for number in range(20)),
    *((f"question {number} about a bug", "tech") for number in range(20)),
]
TEXT = "Say which team answers. A letter costs $5."
BETTER = "A bill is for billing, a bug for tech. A letter costs $5."


def teams() -> pg.ScriptedAdapter:
    """Return a model that names the right team only if the text says which teams there are."""

    def answer(rendered: pg.RenderedPrompt[object]) -> str:
        return "billing" if BETTER in rendered.text and "a bill" in rendered.text[-20:] else "tech"

    return pg.ScriptedAdapter(answer, identity="teams")


def writer(text: str = BETTER) -> pg.ScriptedAdapter:
    """Return a model that proposes ``text``."""
    return pg.ScriptedAdapter(lambda _: f"```instruction\n{text}\n```", identity="writer")


def improved(prompt: Any, cases: Any = MAILS, scoring: Any = "exact") -> pg.GepaResult:
    return pg.optimize(
        prompt,
        cases,
        scoring,
        model=teams(),
        reflection_model=writer(),
        rollout_budget=200,
    )


def test_a_text_pairs_and_the_name_of_a_metric_are_enough() -> None:
    result = improved(TEXT)
    assert result.held_out is not None
    assert (result.held_out.baseline_mean, result.held_out.winner_mean) == (0.25, 1.0)
    assert result.text == f"{BETTER}\n\n$input"
    bound = result.prompt.bind({"input": "about a bug"})
    assert bound.render().text == f"{BETTER}\n\nabout a bug"
    # The text as it was returned can be improved further.
    assert improved(result.text).text == result.text


def right(case: pg.Case, answer: Any) -> float:
    return float(answer.text == case.expected)


def test_cases_and_metrics_have_the_same_meaning_in_every_form(tmp_path: Path) -> None:
    file = tmp_path / "mails.csv"
    rows = "".join(f"{text},{team}\n" for text, team in MAILS)
    file.write_text(f"input,expected\n{rows}", "utf-8")
    mappings = [{"input": text, "expected": team} for text, team in MAILS]
    wanted = bare(improved(TEXT))
    for cases in (str(file), file, mappings, iter(MAILS), pg.Dataset.of(mappings)):
        assert bare(improved(TEXT, cases)).candidates == wanted.candidates
    dataset = pg.Dataset.of(mappings)
    assert bare(improved(TEXT, pg.Splits.by_ratio(dataset))) == wanted
    for scoring in (metrics.exact(), ["exact"], [metrics.exact()], right):
        assert improved(TEXT, MAILS, scoring).means == wanted.means


def test_values_go_where_the_text_names_them_and_the_others_follow() -> None:
    cases = [
        {"input": {"sender_name": "Ann", "mail": text}, "expected": team} for text, team in MAILS
    ]
    named = improved("$mail by $sender_name for $$5 or $6", cases)
    assert named.sources["texts/prompt"].bind({"mail": "M", "sender_name": "S"}).render().text == (
        "M by S for $5 or $6"
    )
    following = improved("From $sender_name:", cases).sources["texts/prompt"]
    shown = following.bind({"mail": "M", "sender_name": "S"}).render().text
    assert shown.split() == ["From", "S:", "##", "Mail", "M"]


def test_texts_by_name_are_parts_of_one_prompt() -> None:
    result = improved({"rules": "Be brief.", "task": "Say which team answers $mail"})
    assert {section.key for section in result.sources["texts/rules"].template.sections} == {
        "rules",
        "task",
    }


def test_texts_of_a_function_and_an_agent_are_improved_by_the_same_call() -> None:
    def answer(texts: Any, mail: str) -> str:
        return "billing" if texts["task"] == BETTER and "bill" in mail else "tech"

    def agent(query: str, call: pg.AgentCall) -> str:
        return answer(call.texts, query)

    mine = pg.Texts({"task": TEXT}, run=answer)
    box = pg.BlackBox({"task": TEXT}, agent=agent)
    for subject in (mine, box):
        result = pg.optimize(
            subject, MAILS, "exact", model=writer(), rollout_budget=200, keep_anyway=True
        )
        assert result.text.split() == ["##", "task", *BETTER.split()]
        assert result.held_out is not None
        assert result.held_out.winner_mean == 1.0


PLAIN_ROWS = [{"mail": text, "team": team} for text, team in MAILS]


def said_right(case: pg.Case, answer: Any) -> bool:
    assert isinstance(case.input, dict)
    return bool(answer.text == case.input["team"])


def box_of(agent: Any) -> pg.BlackBox:
    return pg.BlackBox({"task": TEXT}, agent=agent)


@pytest.mark.parametrize(
    ("prompt", "unsaid"),
    [
        (TEXT, "`mail`, `team`"),
        ({"task": TEXT}, "`mail`, `team`"),
        ("Sort $mail", "`team`"),
        (box_of(lambda query, call: query), "`mail`, `team`"),
    ],
)
@pytest.mark.parametrize("kind", ["rows", "file", "data set", "splits"])
def test_columns_that_may_be_the_answer_are_not_shown(
    prompt: Any, unsaid: str, kind: str, tmp_path: Path
) -> None:
    file = tmp_path / "mails.csv"
    file.write_text("mail,team\n" + "".join(f"{text},{team}\n" for text, team in MAILS))
    dataset = pg.Dataset.of(PLAIN_ROWS)
    cases: dict[str, Any] = {
        "rows": PLAIN_ROWS,
        "file": file,
        "data set": dataset,
        "splits": pg.Splits.by_ratio(dataset),
    }
    with pytest.raises(DataFormatError) as caught:
        improved(prompt, cases[kind], said_right)
    told = f"nothing says whether the model may see {unsaid}; if `team` is the answer"
    assert told in str(caught.value)


def test_the_answer_at_the_end_of_a_chat_is_not_shown() -> None:
    rows = [
        {"chat": [{"role": "user", "content": text}, {"role": "assistant", "content": team}]}
        for text, team in MAILS
    ]
    with pytest.raises(DataFormatError, match=r'`chat`; .* fields=\{"turns": COLUMN\}\)`'):
        improved(TEXT, rows, said_right)
    assert improved("Sort $chat", rows, lambda case, answer: 1.0).total_rollouts > 0


def test_columns_are_shown_whose_use_is_said() -> None:
    def answer(texts: Any, row: Any) -> str:
        return str(row["team"])

    told = (
        (TEXT, pg.Dataset.of(PLAIN_ROWS, label="team"), "exact"),
        (TEXT, pg.Dataset.of(PLAIN_ROWS, input=["mail", "team"]), said_right),
        (TEXT, [{"input": row} for row in PLAIN_ROWS], said_right),
        ("Sort $mail of $team", PLAIN_ROWS, said_right),
        # The function takes what it needs.
        (pg.Texts({"task": TEXT}, run=answer), PLAIN_ROWS, said_right),
    )
    for prompt, cases, scoring in told:
        assert improved(prompt, cases, scoring).total_rollouts > 0


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("Sort {mail}.", "Sort MAIL."),
        ("Sort {mail} as {{team}}.", "Sort MAIL as {team}."),
        ('Sort {mail} as {{"team": ...}}.', 'Sort MAIL as {"team": ...}.'),
        ("Sort {{ mail }} for $5.", "Sort MAIL for $5."),
        ("Sort $mail as {mail}.", "Sort MAIL as {mail}."),
    ],
)
def test_a_text_may_name_values_as_f_strings_and_jinja_do(text: str, sent: str) -> None:
    asked: list[str] = []

    def model(question: str) -> str:
        asked.append(question)
        return "none"

    cases = [{"input": {"mail": mail}, "expected": team} for mail, team in MAILS]
    result = pg.optimize(text, cases, "exact", model=model, reflection_model=lambda _: "")
    assert result.text == text
    assert {*asked} <= {sent.replace("MAIL", mail) for mail, _ in MAILS}


def test_the_winner_is_printed_with_the_blocks_of_its_author() -> None:
    teams = dict(MAILS)

    def model(question: str) -> str:
        mail = next(mail for mail in teams if mail in question)
        return teams[mail] if "by team" in question else "none"

    result = pg.optimize(
        "Sort {{ mail }}.{% if mail %} Be quick.{% endif %}",
        [{"input": {"mail": mail}, "expected": team} for mail, team in MAILS],
        "exact",
        model=model,
        reflection_model=lambda _: "```instruction\nSort {{ mail }} by team.{{ if_1 }}\n```",
        rollout_budget=400,
        keep_anyway=True,
    )
    for shown in (result.text, str(result)):
        assert "Sort {{ mail }} by team.{% if mail %} Be quick.{% endif %}" in shown


def test_code_that_answers_needs_a_model_that_proposes_and_no_other() -> None:
    def sort(texts: Any, mail: object) -> str:
        return "none"

    texts = pg.Texts({"task": "Sort it."}, run=sort)
    questions: list[str] = []

    def propose(question: str) -> str:
        questions.append(question)
        return ""

    pg.optimize(texts, MAILS, "exact", reflection_model=propose)
    assert questions
    missing = "optimize: expected `model`, such as `openai/MODEL`, which answers"
    with pytest.raises(ConfigError, match=f"{missing}$"):
        pg.optimize(texts, MAILS, "exact")
    with pytest.raises(ConfigError, match=f"{missing}; `reflection_model` only proposes new texts"):
        pg.optimize("Sort it.", MAILS, "exact", reflection_model=propose)


@pytest.mark.parametrize(
    "text", ["Sort $input as {team}.", "Sort it as {team} or {nobody}.", "sort.md says: sort it."]
)
def test_names_in_braces_and_of_files_may_be_meant_as_they_are(text: str) -> None:
    assert improved(text, MAILS, "exact").total_rollouts > 0


@pytest.mark.parametrize(
    "text", ["$mailを分類。", "${mail}ä sort", "$mail, für $$5", "Sort for $5."]
)
def test_words_of_other_alphabets_may_touch_a_placeholder(text: str) -> None:
    assert improved(text, MAILS, "exact").total_rollouts > 0


WRONG: tuple[tuple[dict[str, object], str], ...] = (
    ({"prompt": 3}, "prompt: expected a text, texts by name, a PromptTemplate"),
    ({"prompt": " "}, "prompt: 'prompt': expected a text, found ' '"),
    ({"prompt": "prompts/a.md"}, "prompt: expected a text, found the file 'prompts/a.md'; read it"),
    ({"prompt": {}}, "prompt: expected texts by name, found none"),
    ({"prompt": {"A b": "x"}}, "prompt: name of a text: expected 1 to 64 lower-case letters"),
    ({"prompt": "$HOME and $mail"}, "the text names `$HOME`, which is not in the input"),
    (
        {
            "prompt": 'Sort {mail} as {"team": ...}.',
            "cases": [{"input": {"mail": mail}, "expected": team} for mail, team in MAILS],
        },
        "prompt: the text has `{mail}`, which is plain text; write `$mail`",
    ),
    (
        {
            "prompt": "Sort {mail!r} of {day}.",
            "cases": [{"input": {"mail": mail, "day": "May"}, "expected": t} for mail, t in MAILS],
        },
        "prompt: the text has `{mail!r}`, which is plain text; write `$mail`",
    ),
    (
        {"prompt": "Sort {mail}.", "cases": MAILS},
        "has `{mail}`, which is plain text; write `$mail`, or `$input` where the input goes",
    ),
    (
        {
            "prompt": "Sort {mail} for {nobody}.",
            "cases": [{"input": {"mail": mail}, "expected": team} for mail, team in MAILS],
        },
        "they have `mail`; write `{{nobody}}` for the characters themselves",
    ),
    (
        {"prompt": "Prüfe $größe.", "cases": MAILS},
        "has `$größe`, of which only `$gr` is a placeholder; write `$name`, of letters a to z,",
    ),
    (
        {"prompt": "分類: $件名", "cases": MAILS},
        "a lone `$`; write `$$` for a dollar sign or `$name`",
    ),
    ({"prompt": "Prüfe {größe}.", "cases": MAILS}, "plain text; write `$name`, of letters a to z"),
    ({"cases": 3}, "cases: expected a file, a Dataset, Splits or a list of cases, found 3"),
    ({"cases": {"input": "a"}}, "cases: expected a list of cases, found one mapping"),
    ({"cases": "missing.csv"}, "missing.csv: cannot be read"),
    ({"cases": [1]}, "cases:1: expected an object, found 1"),
    ({"metrics": "exakt"}, "exakt"),
    ({"metrics": []}, "metrics: expected at least one metric, found none"),
    ({"metrics": [metrics.exact]}, "metrics: expected metrics such as metrics.exact(), found <cl"),
    ({"model": "ofline"}, "found 'ofline' (did you mean `offline`?)"),
    ({"model": "offline/5"}, "model: expected `offline`, `PROVIDER/MODEL` or an adapter"),
    ({"model": "openai"}, "or an adapter, found 'openai'"),
    ({"model": "gpt-next-mini"}, "found 'gpt-next-mini' (write `openai/gpt-next-mini`)"),
    ({"model": "claude-next"}, "found 'claude-next' (write `anthropic/claude-next`)"),
    ({"model": "openai/gpt-5-mini"}, "OpenAIAdapter: there is no API key; set OPENAI_API_KEY"),
    ({"model": None}, "optimize: expected `model`, such as `openai/MODEL`, which answers"),
    ({"reflection_model": "gpt"}, "reflection_model: expected `offline`"),
    ({"workers": 0}, "workers: expected an integer of at least 1, found 0"),
    ({"rollout_budget": 5}, "rollout_budget: expected at least"),
    ({"sed": 1}, "optimize: there is no option `sed` (did you mean `seed`?)"),
    ({"target_section_paths": [("kind",)]}, "has no section `kind` (did you mean `kinds`?)"),
)


@pytest.mark.parametrize(("changes", "said"), WRONG, ids=lambda case: str(case)[:40])
def test_what_the_call_cannot_use_is_one_line(
    changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given: dict[str, Any] = {
        "prompt": TEMPLATE,
        "cases": SPLITS,
        "metrics": EXACT,
        "model": "offline",
    }
    with pytest.raises(pg.PromptgraftError) as caught:
        pg.optimize(**{**given, **changes})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_embedded_model_takes_the_answers_of_a_plain_text_from_the_cases() -> None:
    things = [(f"{case.input} {number}", case.expected) for number in range(10) for case in CASES]
    result = pg.optimize("Say what it is.", things, "exact", model="offline")
    assert result.improved
    first, *rules = result.text.splitlines()
    assert first == "Say what it is."
    assert {"- fruit", "- tool"} & {rule.partition(":")[0] for rule in rules}
    once = [(f"in {number}", f"out {number}") for number in range(30)]
    with pytest.raises(ConfigError, match=r"list the answers .*`output_type=Literal"):
        pg.optimize("Say it.", once, "exact", model="offline")


def test_the_example_prints_what_its_page_shows(tmp_path: Path, programs: Programs) -> None:
    done = programs("-W", "error", EXAMPLE / "one_call.py", folder=tmp_path)
    page = (EXAMPLE / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)
    assert list(tmp_path.iterdir()) == []


WITH_ANOTHER_MODEL = """
import sys
import promptgraft as pg
model = pg.ScriptedAdapter(lambda rendered: "```instruction\\nA fruit? $input\\n```")
cases = [(f"item {number}", ("fruit", "tool")[number % 2]) for number in range(20)]
ended = pg.optimize("Fruit or tool? $input", cases, "exact", model=model, rollout_budget=60)
assert ended.total_reflections
print([name for name in sys.modules if name.startswith("promptgraft.adapters.offline")])
"""


def test_a_run_with_another_model_never_loads_the_embedded_one() -> None:
    command = [sys.executable, "-c", WITH_ANOTHER_MODEL]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_a_winner_doubles_the_braces_of_its_text_as_f_strings_do() -> None:
    teams = dict(MAILS)

    def model(question: str) -> str:
        mail = next(mail for mail in teams if mail in question)
        return teams[mail] if '{"by": "team"}' in question else "none"

    result = pg.optimize(
        "Sort {mail} as {{team}}.",
        [{"input": {"mail": mail}, "expected": team} for mail, team in MAILS],
        "exact",
        model=model,
        reflection_model=lambda _: '```instruction\nSort {mail} as {team} {"by": "team"}.\n```',
        rollout_budget=400,
        keep_anyway=True,
    )
    assert result.text == 'Sort {mail} as {{team}} {{"by": "team"}}.'
