"""`promptgraft eval`: output, files and exit codes."""

from __future__ import annotations

import io
import json
import re
import shutil
from decimal import Decimal
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console as RichConsole

from cli.console import Console, Ended, on_terminals
from integrations.words import AGENT, WORDS, calls, case, write_project
from programs import Programs
from promptgraft.adapters.base import ModelCalled, Usage
from promptgraft.cli.panel import EvalPanel
from promptgraft.evals.aggregate import CaseOutcome, CaseStatus
from promptgraft.evals.attempt import CaseAttempt
from promptgraft.testing import FakeClock

EXAMPLE = Path(__file__).parents[2] / "examples" / "closed_loop"


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of words; two of its three test cases pass, the critical one does not."""
    monkeypatch.chdir(tmp_path)
    return write_project(tmp_path)


def test_the_summary_has_the_figures_and_the_failing_cases_with_reasons(
    words: Path, console: Console
) -> None:
    ended = console("eval", "words")
    reason = 'exact 0: expected "BREAD", found "bread"; they differ in upper and lower case only'

    assert ended.code == 0
    assert ended.out.splitlines() == [
        "docs/words: 3 test cases",
        "tried       your source (nothing is applied under tag `latest`)",
        "model       scripted",
        "mean score  0.667",
        "pass rate   0.667  2 of 3 answers pass",
        "",
        "1 case that does not pass",
        f"  bread  0.000  critical {reason}",
        "",
        "gate: passed (no threshold set, see `--fail-under`)",
    ]
    assert ended.err == ""


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--fail-under", "0.6"), 0, "gate: passed\n"),
        (("--fail-under", "0.7"), 1, "  mean score: 0.6667, at least 0.7 wanted\n"),
        (("--min-pass-rate", "0.7"), 1, "  pass rate: 0.6667, at least 0.7 wanted\n"),
        (("--split", "all", "--fail-under", "0.7"), 0, "docs/words: all 5 cases\n"),
        (("--split", "train", "--num-runs", "2"), 0, "2 of 2 answers in 2 runs pass\n"),
    ],
)
def test_the_exit_code_is_1_when_the_scores_are_not_what_was_asked_for(
    options: tuple[str, ...], code: int, said: str, words: Path, console: Console
) -> None:
    ended = console("eval", *options)
    assert (ended.code, ended.err) == (code, "")
    assert said in ended.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("other",), "has no prompt `other`; there: `words`"),
        (("--fail-under", "80"), "expected a number from 0 to 1, found '80'"),
        (("--fail-under", "nan"), "expected a number from 0 to 1, found 'nan'"),
        (("--refuse-unclear",), "--refuse-unclear needs a baseline to compare with"),
        (("--tolerance", "0"), "--tolerance needs a baseline to compare with; give --baseline"),
        (("--num-runs", "0"), "expected an integer of at least 1, found '0'"),
        (("--split", "tset"), "found 'tset' (did you mean `test`?)"),
        (("--source", "--tag", "x"), "expected one of a tag, the source and a run"),
        (("--candidate", "1"), "candidate: expected a run with it"),
        (("--tag", "canary"), "tag `canary` holds nothing for `docs/words`"),
        (("--run", "latest"), "there are no runs in"),
        (("--baseline", "none.json"), "baseline none.json: cannot be read"),
        (("--junit", "."), "expected a file to write, found a folder"),
        (("--project", "none.yaml"), "expected a project file, found none at none.yaml"),
    ],
)
def test_wrong_use_is_one_line_and_calls_no_model(
    options: tuple[str, ...], said: str, words: Path, console: Console
) -> None:
    ended = console("eval", *options)
    assert ended.code == 2
    assert ended.out == ""
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert calls(words) == []


def test_unscored_answers_end_with_4_and_are_never_a_pass(words: Path, console: Console) -> None:
    write_project(words, case("apple"), case("overloaded"), *WORDS[3:])

    ended = console("eval", "--fail-under", "0.1", "--save-baseline", "kept.json")
    assert ended.code == 4
    assert "pass rate   1.000  1 of 2 answers pass, 1 unscored\n" in ended.out
    assert "unscored: the model's provider failed: the provider is overloaded" in ended.out
    assert "gate: unscored\n" in ended.out
    assert ended.err == (
        "promptgraft: no verdict: 1 of 2 answers unscored, at most 0 allowed; the first, case "
        "`overloaded`: the model's provider failed: the provider is overloaded; run it again, or "
        "allow them with `--max-unscored`\n"
    )
    assert not (words / "kept.json").exists()
    assert console("eval", "--fail-under", "0.1", "--max-unscored", "1").code == 0


def test_answers_that_all_have_no_score_end_with_the_first_reason(
    words: Path, console: Console
) -> None:
    down = AGENT.replace('if word == "overloaded"', 'if "e" in word')
    write_project(words, case("egg-1"), case("egg-2"), *WORDS[3:], files={"agent.py": down})

    ended = console("eval")
    assert ended.code == 4
    assert ended.err == (
        "promptgraft: no verdict: 2 of 2 answers unscored, at most 0 allowed; the first, case "
        "`egg-1`: the model's provider failed: the provider is overloaded; no answer has a score: "
        "mend that before you run it again\n"
    )


JUDGED = """
version: 1
prompts: {words: "agent.py:TEMPLATE"}
dataset: {path: words.jsonl, keep: [split]}
splits: {field: split}
metrics: [{name: good, kind: llm_rubric_response, judges: [strict], rubrics: [It is right.]}]
models: {task: {python: "agent.py:adapter"}, judges: {strict: {python: "agent.py:adapter"}}}
"""


def test_a_judge_that_never_gives_a_judgement_is_what_to_mend(
    words: Path, console: Console
) -> None:
    write_project(words, *WORDS, files={"promptgraft.yaml": JUDGED})

    ended = console("eval", "--split", "all")
    assert ended.code == 4
    assert "; the first, case `date`: good: the judge's replies are void: " in ended.err
    assert ended.err.endswith(
        "; no answer has a score: mend the metric, or what it asks, before you run it again\n"
    )


def test_an_outage_of_the_first_cases_ends_the_evaluation(words: Path, console: Console) -> None:
    down = AGENT.replace('if word == "overloaded"', 'if "e" in word')
    cases = [case(f"egg-{number}") for number in range(30)]
    write_project(words, *cases, *WORDS[3:], files={"agent.py": down})

    ended = console("eval", "--workers", "1")
    assert (ended.code, ended.out) == (4, "")
    assert ended.err == (
        "promptgraft: nothing has answered, and the first 5 cases were all tried in vain: the "
        "provider is overloaded; mend that, then run it again\n"
    )


def test_a_provider_that_refuses_for_good_ends_with_4_and_no_summary(
    words: Path, console: Console
) -> None:
    write_project(words, case("forbidden"), *WORDS[3:])
    ended = console("eval")
    assert (ended.code, ended.out) == (4, "")
    assert "the key is refused" in ended.err


PRESSED = """

import signal
import threading


class Pressed(ScriptedAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        answered = super().evaluate(prompt, session=session, deadline=deadline)
        stopped = threading.Event()
        undo = deadline.cancellation.listen(stopped.set)
        stopped.wait(0.1)  # the main thread waits by then, and is not awake by chance
        signal.raise_signal(signal.SIGINT)
        stopped.wait()
        undo()
        return answered


def adapter():
    return Pressed(answer)
"""


@pytest.mark.parametrize(
    ("name", "reason"),
    [("SIGINT", "interrupted (Ctrl+C)"), ("SIGTERM", "asked to end (SIGTERM)")],
)
def test_a_signal_ends_with_3_and_says_what_was_not_tried(
    name: str, reason: str, words: Path, console: Console
) -> None:
    (words / "agent.py").write_text(AGENT + PRESSED.replace("SIGINT", name), "utf-8")

    ended = console("eval", "--workers", "1")
    assert ended.code == 3
    assert f"stopped     the run was stopped: {reason}\n" in ended.out
    assert "  cheese   none  unscored: not " in ended.out
    assert "gate: stopped early\n" in ended.out
    assert ended.err == f"promptgraft: stopped early: the run was stopped: {reason}\n"
    assert calls(words) == ["apple"]


HANGING = """

import threading
from promptgraft.adapters import FunctionAdapter


def adapter():
    return FunctionAdapter(lambda text: threading.Event().wait(10))
"""


def test_a_timeout_ends_with_3_although_a_model_hangs(words: Path, console: Console) -> None:
    (words / "agent.py").write_text(AGENT + HANGING, "utf-8")

    ended = console("eval", "--workers", "1", "--timeout", "0.5")
    assert ended.code == 3
    assert "  cheese   none  unscored: not " in ended.out
    assert ended.err == "promptgraft: stopped early: the deadline of the run has passed\n"


FORKING = """

import multiprocessing
import signal


def wait(ready):
    ready.set()
    signal.pause()


class Forking(ScriptedAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        context = multiprocessing.get_context("fork")
        ready = context.Event()
        child = context.Process(target=wait, args=(ready,), daemon=True)
        child.start()
        ready.wait()
        child.terminate()
        child.join(20)
        assert child.exitcode == -signal.SIGTERM
        return super().evaluate(prompt, session=session, deadline=deadline)


def adapter():
    return Forking(answer)
"""


def test_the_end_of_a_process_of_a_user_is_not_that_of_the_run(
    words: Path, console: Console
) -> None:
    (words / "agent.py").write_text(AGENT + FORKING, "utf-8")
    ended = console("eval")
    assert (ended.code, ended.err) == (0, "")
    assert "stopped" not in ended.out


ASYNC = """

import asyncio

from promptgraft import PromptResponse


class Async:
    identity = "async"

    async def evaluate(self, prompt, *, session, deadline=None):
        await asyncio.sleep(0)
        return PromptResponse(text=answer(prompt.render(session)))


async def judged(case, answer):
    await asyncio.sleep(0)
    return answer.text == case.expected


async def adapter():
    asyncio.get_running_loop()
    return Async()
"""


@pytest.mark.parametrize("workers", ["1", "4"])
def test_adapters_and_metrics_may_be_async(workers: str, words: Path, console: Console) -> None:
    (words / "agent.py").write_text(AGENT + ASYNC, "utf-8")
    project = words / "promptgraft.yaml"
    metric = "{name: python, function: agent.py:judged}"
    project.write_text(project.read_text("utf-8").replace("{name: exact}", metric), "utf-8")

    ended = console("eval", "--workers", workers, "--fail-under", "0.6")
    assert (ended.code, ended.err) == (0, "")
    assert "model       async\nmean score  0.667\n" in ended.out
    assert sorted(calls(words)) == ["apple", "bread", "cheese"]


def test_the_document_has_every_case_and_the_decision(words: Path, console: Console) -> None:
    ended = console("eval", "--json", "--fail-under", "0.9")
    document = json.loads(ended.out)

    assert ended.code == document["exit_code"] == 1
    assert document["prompt"] == "docs/words"
    assert [case["id"] for case in document["cases"]] == ["apple", "bread", "cheese"]
    assert [case["passed"] for case in document["cases"]] == [True, False, True]
    assert document["cases"][1]["critical"] is True
    assert document["cases"][1]["answers"][0]["verdicts"][0]["metric"] == "exact"
    assert document["gate"]["outcome"] == "failed"
    assert [rule["rule"] for rule in document["gate"]["rules"]] == ["scored", "mean score"]
    assert document["baseline"] is None


def test_a_kept_baseline_holds_whoever_comes_later(words: Path, console: Console) -> None:
    kept = console("eval", "--save-baseline", "gate/kept.json")
    assert kept.code == 0
    assert kept.out.endswith("saved as baseline gate/kept.json\n")
    assert console("eval", "--baseline", "gate/kept.json").code == 0

    worse = AGENT.replace("return word.upper()", "return '?' if word == 'apple' else word.upper()")
    (words / "agent.py").write_text(
        worse.replace(' if "capital"', " if 'apple' in word or 'capital'")
    )
    ended = console("eval", "--baseline", "gate/kept.json", "--save-baseline", "gate/kept.json")
    assert ended.code == 1
    assert "  baseline: worse: mean score 0.3333, the baseline's 0.6667; 3 cases: too " in ended.out
    assert "0 better, 1 worse" in ended.out
    assert '"mean_score": 0.6666' in (words / "gate" / "kept.json").read_text("utf-8")
    assert console("eval", "--baseline", "gate/kept.json", "--tolerance", "0.4").code == 0


@pytest.mark.parametrize(
    ("good", "code", "asked"), [((2,), 0, 2), ((3,), 0, 3), ((), 1, 3)], ids=str
)
def test_a_critical_case_is_asked_again_before_it_fails_the_gate(
    good: tuple[int, ...], code: int, asked: int, words: Path, console: Console
) -> None:
    (words / "agent.py").write_text(AGENT.replace('"capital" in', '"bread" in'), "utf-8")
    assert console("eval", "--save-baseline", "kept.json").code == 0
    (words / "calls.log").unlink()

    flaky = f'word == "bread" and CALLS.read_text().split().count(word) in {good}'
    (words / "agent.py").write_text(AGENT.replace('"capital" in prompt.text', flaky), "utf-8")
    ended = console("eval", "--baseline", "kept.json", "--tolerance", "0.5", "--json")
    document = json.loads(ended.out)

    assert (ended.code, document["gate"]["passed"]) == (code, code == 0)
    assert document["baseline"]["verdict"] == "unclear"
    assert document["baseline"]["lost"] == ([] if code == 0 else ["bread"])
    assert [len(case["again"]) for case in document["cases"]] == [0, asked - 1, 0]
    assert document["mean_score"] == pytest.approx(2 / 3)
    assert calls(words).count("bread") == asked


def test_what_is_unclear_passes_unless_it_is_refused(words: Path, console: Console) -> None:
    many = [case(f"w{number}") for number in range(8)]
    write_project(words, *many, *WORDS[3:])
    assert console("eval", "--save-baseline", "kept.json").code == 0

    (words / "agent.py").write_text(AGENT.replace('"capital" in', '"w0" in'), "utf-8")
    passed = console("eval", "--baseline", "kept.json")
    assert (passed.code, passed.err) == (0, "")
    said = (
        "  baseline: unclear: mean score 0.875, the baseline's 1; "
        "a loss of up to 0.53 cannot be excluded\n"
    )
    assert f"gate: passed\n{said}" in passed.out
    refused = console("eval", "--baseline", "kept.json", "--refuse-unclear")
    assert refused.code == 1
    assert f"gate: failed\n{said}" in refused.out


def test_a_baseline_of_other_data_is_refused_before_a_call(words: Path, console: Console) -> None:
    assert console("eval", "--save-baseline", "kept.json").code == 0
    write_project(words, case("apple"), *WORDS[3:])
    (words / "calls.log").unlink()

    ended = console("eval", "--baseline", "kept.json")
    assert ended.code == 2
    assert "baseline kept.json is of other data: dataset digest" in ended.err
    assert ended.err.count("\n") == 1
    assert calls(words) == []


def test_junit_is_written_whatever_the_gate_says(words: Path, console: Console) -> None:
    assert console("eval", "--fail-under", "1", "--junit", "out/gate.xml").code == 1

    root = ET.parse(words / "out" / "gate.xml").getroot()
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "2", "0")
    failing = [
        test.get("name") for test in root.iter("testcase") if test.find("failure") is not None
    ]
    assert failing == ["bread", "mean score"]


@pytest.mark.parametrize("option", ["--junit", "--save-baseline"])
def test_a_file_that_cannot_be_written_is_told_before_a_call(
    option: str, words: Path, console: Console
) -> None:
    Path("kept").write_text("mine")
    ended = console("eval", option, "kept/gate.xml")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    unwritable = console("eval", option, "/proc/gate.xml")
    assert (unwritable.code, unwritable.err.count("\n")) == (2, 1)
    assert "/proc/gate.xml" in unwritable.err
    assert calls(words) == []


def test_two_outputs_need_two_files(words: Path, console: Console) -> None:
    ended = console("eval", "--junit", "out", "--save-baseline", "./out")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert not (words / "out").exists()
    assert calls(words) == []


def test_answers_are_shown_although_a_file_cannot_be_written_any_more(
    words: Path, console: Console
) -> None:
    code = words / "agent.py"
    code.write_text(
        AGENT.replace(
            "    word = prompt",
            "    import shutil\n    shutil.rmtree('out', ignore_errors=True)\n    word = prompt",
        ),
        "utf-8",
    )

    ended = console("eval", "--junit", "out/gate.xml", "--save-baseline", "kept.json")
    assert ended.code == 2
    assert "mean score  0.667" in ended.out
    assert "saved as baseline" not in ended.out
    assert "promptgraft: out/gate.xml: No such file or directory" in ended.err

    plain = console("eval", "--junit", "out/gate.xml", "--json")
    assert (plain.code, json.loads(plain.out)["exit_code"]) == (2, 2)
    assert json.loads(plain.out)["saved"] is None


def test_many_failing_cases_are_cropped_and_hostile_texts_stay_texts(
    words: Path, console: Console
) -> None:
    odd = case("\x1b[31mred\nline", expected="\x1b]0;title\x07")
    many = [case(f"word-{n:02}", expected="other" * 100) for n in range(24)]
    write_project(words, odd, *many, *WORDS[3:])

    ended = console("eval")
    lines = ended.out.splitlines()
    assert "\x1b" not in ended.out
    assert "  and 5 more; `--json` has all" in lines
    assert (
        sum(line.startswith("warning: metric `exact` gave all 25 answers") for line in lines) == 1
    )
    assert len(lines) == 31
    assert max(map(len, lines)) <= 170


def test_a_reason_of_several_lines_is_one_row(words: Path, console: Console) -> None:
    scoring = (
        "def rules(case, answer):\n    return 0, '0 of 2 rules\\n  no verb\\n\\n  no number'\n"
    )
    ruled = JUDGED.replace(
        "{name: good, kind: llm_rubric_response, judges: [strict], rubrics: [It is right.]}",
        '{name: rules, kind: python, function: "scoring.py:rules"}',
    )
    write_project(words, *WORDS, files={"promptgraft.yaml": ruled, "scoring.py": scoring})
    ended = console("eval", "--split", "all")
    assert "  0.000  rules 0: 0 of 2 rules; no verb; no number\n" in ended.out


def test_a_fault_that_cases_share_is_told_once(words: Path, console: Console) -> None:
    down = AGENT.replace('if word == "overloaded"', 'if "o" in word')
    faulty = [case(f"over-{number:02}") for number in range(30)]
    write_project(words, case("apple"), *faulty, *WORDS[3:], files={"agent.py": down})

    ended = console("eval")
    assert ended.code == 4
    lines = ended.out.splitlines()
    first = lines.index("30 cases that do not pass") + 1
    assert lines[first] == (
        "  over-00   none  and 29 more (`over-01`, `over-02`, …): unscored: the model's provider "
        "failed: the provider is overloaded"
    )
    assert lines[first + 1] == ""

    write_project(words, *faulty[:3], case("apple"), *WORDS[3:], files={"agent.py": down})
    assert console("eval").out.count("the provider is overloaded") == 3


WAITING = """

from promptgraft.adapters.base import CallWaiting


class Waiting(ScriptedAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        session.notify(CallWaiting(model="m", seconds=7, reason="too many requests"))
        return super().evaluate(prompt, session=session, deadline=deadline)


def adapter():
    return Waiting(answer)
"""


def test_in_a_pipe_only_what_calls_wait_for_is_said(words: Path, console: Console) -> None:
    (words / "agent.py").write_text(AGENT + WAITING, "utf-8")

    assert console("eval").err == "waiting 7 s for m: too many requests\n" * 3
    assert console("eval", "--quiet").err == ""


REFUSED = """

import threading

from promptgraft.errors import PermanentProviderError

FIRST = threading.Lock()
BOTH = threading.Barrier(2)


class Refused(ScriptedAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        is_first, stopped = FIRST.acquire(blocking=False), threading.Event()
        BOTH.wait(20)
        if is_first:
            raise PermanentProviderError("401: no such key")
        deadline.cancellation.listen(stopped.set)
        with open("ended.txt", "a") as file:
            file.write(f"{stopped.wait(20)}")


def adapter():
    return Refused(answer)
"""


def test_a_provider_that_refuses_ends_the_calls_that_still_wait(
    words: Path, console: Console
) -> None:
    (words / "agent.py").write_text(AGENT + REFUSED, "utf-8")

    ended = console("eval", "--workers", "2")
    assert (ended.code, ended.err) == (4, "promptgraft: 401: no such key\n")
    while not (words / "ended.txt").exists() or not (words / "ended.txt").read_text():
        pass
    assert (words / "ended.txt").read_text() == "True"


PRICED = """

from decimal import Decimal

from promptgraft.adapters.base import CallWaiting, ModelCalled, Usage


class Priced(ScriptedAdapter):
    def evaluate(self, prompt, *, session, deadline=None):
        session.notify(CallWaiting(model="m", seconds=None, reason="too \\x1b]0;many\\x07"))
        usage = Usage(input_tokens=900, output_tokens=100)
        called = ModelCalled(
            model="m", requests=1, usage=usage, cost=Decimal("0.25"), seconds=1.0
        )
        session.dispatch(called)
        return super().evaluate(prompt, session=session, deadline=deadline)


def adapter():
    return Priced(answer)
"""


def test_on_a_terminal_a_panel_shows_the_evaluation_and_is_gone_at_the_end(
    words: Path, programs: Programs
) -> None:
    (words / "agent.py").write_text(AGENT + PRICED, "utf-8")
    large = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    code, [got] = on_terminals(programs, "eval", "--workers", "1", environment=large)
    assert code == 0

    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", got)
    assert "╭─ promptgraft eval words ─" in shown
    assert "│ calls       1 in flight; waiting for m: too \\x1b]0;many\\x07" in shown
    assert re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\s", "", got[got.rindex("╯") + 1 :]) == ""


def test_on_a_narrow_terminal_reasons_are_wrapped_and_not_cut(
    words: Path, programs: Programs
) -> None:
    narrow = {"TERM": "dumb", "COLUMNS": "50", "LINES": "24"}
    code, [out, _] = on_terminals(programs, "eval", "--quiet", number=2, environment=narrow)
    lines = out.splitlines()
    assert code == 0

    begin = lines.index("1 case that does not pass") + 1
    assert " ".join(line.strip() for line in lines[begin : lines.index("", begin)]) == (
        'bread  0.000  critical exact 0: expected "BREAD", found "bread"; they differ in upper and '
        "lower case only"
    )
    assert max(map(len, lines)) <= 50


def test_the_panel_of_an_evaluation_says_what_it_costs_so_far_and_in_all() -> None:
    screen, clock = io.StringIO(), FakeClock()
    console = RichConsole(file=screen, force_terminal=True, width=80, height=24, _environ={})
    called = ModelCalled(
        model="m", requests=1, usage=Usage(input_tokens=900), cost=Decimal("0.25"), seconds=1.0
    )
    with EvalPanel("title", 4, console=console, clock=clock, tick=None) as panel:
        for score in (0.0, 1.0):
            panel.begun()
            clock.advance(5)
            outcome = CaseOutcome(case_id="a", status=CaseStatus.FAILED, score=score)
            panel.ended(CaseAttempt(case_id="a", run=0, outcome=outcome, task_calls=(called,)))

    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).rpartition("╭")[2]
    assert "mean score  0.500  ▁█" in last
    assert "2/4 │" in last
    assert "used        $0.50 of about $1.00, 1,800 tokens" in last
    assert "time        10 s, about 10 s left" in last


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example of the closed loop with a run."""
    folder = tmp_path_factory.mktemp("eval") / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    from promptgraft.cli.main import run

    assert run(["optimize", "--quiet", "--project", str(folder / "promptgraft.yaml")]) == 0
    return folder


@pytest.fixture
def closed_loop(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it to work on."""
    shutil.copytree(finished, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def mean(ended: Ended) -> float:
    found: float = json.loads(ended.out)["mean_score"]
    return found


def test_candidates_of_a_run_are_tried_as_the_run_tried_them(
    closed_loop: Path, console: Console
) -> None:
    winner = console("eval", "--run", "latest", "--json", "--baseline", "baseline.json")
    assert winner.code == 0
    assert mean(winner) > 0.9
    assert json.loads(winner.out)["baseline"]["low"] > 0
    assert mean(console("eval", "--run", "latest", "--candidate", "0", "--json")) == 0.5

    missing = console("eval", "--run", "latest", "--candidate", "99")
    assert missing.code == 2
    assert "has no candidate 99; it has 0 to" in missing.err

    prompt = closed_loop / "prompts" / "desk.md"
    prompt.write_text(prompt.read_text("utf-8").replace("medicine", "pills"), "utf-8")
    stale = console("eval", "--run", "latest")
    assert stale.code == 2
    assert "the source has changed since: section desks: stale" in stale.err


def test_answers_that_were_recorded_are_judged_without_a_search(
    words: Path, console: Console
) -> None:
    rows = [
        case(word, recorded={"text": word.removesuffix("y")}) for word in ("cherry", *"abcdefgh")
    ]
    project = (words / "promptgraft.yaml").read_text("utf-8")
    by_ratio = re.sub(r"(?m)^splits:.*\n(?: .*\n)*", "", project)
    write_project(words, *rows, files={"promptgraft.yaml": by_ratio})
    ended = console("eval", "words")
    assert (ended.code, ended.err) == (0, "")
    assert "8 of 9 answers pass" in ended.out
    assert not calls(words)
    assert "expected cases without a recorded answer, found none" in console("check").out
    refused = console("optimize", "words")
    assert refused.code == 2
    assert "has a recorded answer, which no prompt changes" in refused.err
