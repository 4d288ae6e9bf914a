"""Wrong use ends with one line that says how to fix it, and with an exit code."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from pathlib import Path

import attrs
import click
import pytest

from cli.console import FIRST, Console, write
from promptgraft.cli import main
from promptgraft.cli.exits import EXPECTED, ExitCode, conclude
from promptgraft.cli.stored import StoredTag
from promptgraft.errors import (
    BudgetExhaustedError,
    ConfigError,
    DeadlineExceededError,
    JournalLockedError,
    PermanentProviderError,
    PromptgraftError,
    RevisionNotFoundError,
    StoreError,
    TransientProviderError,
)
from promptgraft.ground.serde import HexDigest
from promptgraft.overrides import LocalPromptOverridesStore, OverrideAddress, Revision

NAME = "support/triage"
PROMPT_EXPECTED = "expected `namespace/key` in lower-case letters, digits, `_` and `-`"

# Command line, and what standard error says after `promptgraft: `. {first} and {second} are ids.
WRONG = {
    "shwo": "no such command `shwo` (did you mean `show`?); see `promptgraft --help`",
    "xyz": "no such command `xyz`; see `promptgraft --help`",
    "--jso": "no such option `--jso`; see `promptgraft --help`",
    "show --jsn": "show: no such option `--jsn` (did you mean `--json`?); see `promptgraft show "
    "--help`",
    "show --tag": "option '--tag' requires an argument",
    "show --json=1": "option '--json' does not take a value",
    "show a/b c/d": "show: got unexpected extra argument (c/d); see `promptgraft show --help`",
    "diff": "diff: PROMPT: expected `namespace/key`, found none, and no promptgraft.yaml in "
    "{project} or above it; `promptgraft show` lists the prompts of a store, `promptgraft init` "
    "makes a project",
    "compare": "compare: RUN is missing; `promptgraft runs` lists the runs; see "
    "`promptgraft compare --help`",
    "watch": "there are no runs in {project}/runs; `promptgraft optimize` makes one, --runs names "
    "another folder",
    "history triage": f"history: PROMPT: {PROMPT_EXPECTED}, found 'triage'; "
    "`promptgraft show` lists the prompts of a store",
    "rollback ../etc/x": f"rollback: PROMPT: {PROMPT_EXPECTED}, found '../etc/x'; "
    "`promptgraft show` lists the prompts of a store",
    "show support/Triage": f"show: PROMPT: {PROMPT_EXPECTED}, found 'support/Triage'; "
    "`promptgraft show` lists the prompts of a store",
    "show --tag ../x": "show: --tag: expected 1 to 64 lower-case letters, digits, `.`, `_` or `-`, "
    "starting with a letter or digit; found '../x'",
    "show --store . --project x.yaml": "--project and --store: both say where the store is; "
    "leave one out",
    f"history {NAME} --store . --project x.yaml": "--project and --store: both say where "
    "the store is; leave one out",
    "check --schema --project x.yaml": "check: --schema is the same for every project; leave "
    "--project out",
    "show --template prompts.py:TEMPLATE": "show: --template needs PROMPT; name the prompt as "
    "`namespace/key`",
    f"diff {NAME} --from abcd --template prompts.py:TEMPLATE": "diff: --from, --source and "
    "--template exclude each other; leave one",
    f"show {NAME} --store missing": "--store: expected a folder, found 'missing'; name one that "
    "exists",
    "history support/triag": "nothing is stored for prompt `support/triag` under tag `latest` in "
    "{project} (did you mean `support/triage`?); `promptgraft apply` stores the winner of a run, "
    "`promptgraft show` lists what is stored",
    f"history {NAME} --tag canery": f"prompt `{NAME}` has no tag `canery` (did you mean "
    "`canary`?); it has `canary`",
    f"diff {NAME} --from xyz": "revision: expected its number, or 4 to 64 hexadecimal "
    "digits of its id, found 'xyz'",
    f"diff {NAME} --to 0000": f"tag `canary` of prompt `{NAME}` has no revision `0000`; it has "
    "1 (`{first}`), 2 (`{second}`)",
    f"rollback {NAME} --to 0000": f"tag `canary` of prompt `{NAME}` has no revision `0000`; it "
    "has 1 (`{first}`), 2 (`{second}`)",
    f"show {NAME} --template prompts.py": "--template: expected `module:ATTRIBUTE` or "
    "`file.py:ATTRIBUTE`, found 'prompts.py'",
    f"show {NAME} --template missing.py:A": "--template: expected a Python file, found "
    "'missing.py'; name one that exists",
    f"show {NAME} --template nowhere:A": "--template: module `nowhere` cannot be imported: "
    "ModuleNotFoundError: No module named 'nowhere'",
    f"show {NAME} --template prompts.py:TEMPLAT": "--template: `prompts.py` has no `TEMPLAT` (did "
    "you mean `TEMPLATE`?); templates in it: TEMPLATE",
    f"show {NAME} --template prompts.py:Prompt": "--template: expected `prompts.py:Prompt` to be a "
    "PromptTemplate or a Prompt, found the class Prompt",
    f"show {NAME} --template other.py:OTHER": "--template: other.py:OTHER is prompt "
    f"`support/other`, not `{NAME}`; name the source of that prompt",
    f"diff {NAME} --template other.py:OTHER": f"the override is for prompt `{NAME}`, the source "
    "is `support/other`; compare those of one prompt",
    f"show {NAME} --template broken.py:A": "--template: broken.py cannot be imported: "
    "ZeroDivisionError: division by zero",
    f"show {NAME} --template leaving.py:A": "--template: leaving.py cannot be imported: "
    "SystemExit: 0",
    "demo --seed -1": "demo: --seed: expected an integer of at least 0, found '-1'",
    "demo --seed two": "demo: --seed: expected an integer of at least 0, found 'two'",
    "demo --seed ²": "demo: --seed: expected an integer of at least 0, found '²'",
    "demo --workers 0": "demo: --workers: expected an integer of at least 1, found '0'",
    "demo --budget 1e3": "demo: --budget: expected an integer of at least 1, found '1e3'",
    "demo --tag A": "demo: --tag: expected 1 to 64 lower-case letters, digits, `.`, `_` or `-`, "
    "starting with a letter or digit; found 'A'",
    "demo now": "demo: got unexpected extra argument (now); see `promptgraft demo --help`",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_use_is_one_line_and_exits_with_2(
    line: str, console: Console, project: Path, revisions: tuple[Revision, Revision]
) -> None:
    (project / "other.py").write_text(
        "from promptgraft import PromptTemplate\nOTHER = PromptTemplate(ns='support', key='other')",
        "utf-8",
    )
    (project / "broken.py").write_text("1 / 0", "utf-8")
    (project / "leaving.py").write_text("raise SystemExit(0)", "utf-8")
    first, second = (revision.id[:12] for revision in revisions)

    ended = console(*line.split())

    message = WRONG[line].format(first=first, second=second, project=project)
    assert ended.err == f"promptgraft: {message}\n"
    assert (ended.code, ended.out) == (2, "")


WITH_JSON = [line for line in WRONG if " " in line and "--json" not in line]


@pytest.mark.parametrize("line", WITH_JSON)
def test_wrong_use_says_the_same_with_json(
    line: str, console: Console, project: Path, revisions: tuple[Revision, Revision]
) -> None:
    plain = console(*line.split())
    ended = console(*line.split()[:1], "--json", *line.split()[1:])

    assert (ended.code, ended.out, ended.err) == (2, "", plain.err)


def test_an_unknown_command_of_a_group_is_named_with_its_neighbour(console: Console) -> None:
    assert console("meta", "lists").err == (
        "promptgraft: meta: no such command `lists` (did you mean `list`?); there: `apply`, "
        "`diff`, `list`, `reset`, `write`\n"
    )


def test_nothing_to_roll_back_is_wrong_use(
    console: Console, project: Path, revisions: tuple[Revision, Revision]
) -> None:
    console("rollback", NAME)
    console("rollback", NAME)

    ended = console("rollback", NAME, "--tag", "canary")

    assert ended.err == (
        f"promptgraft: tag `canary` of prompt `{NAME}` has nothing to roll back to; name a "
        "revision\n"
    )
    assert ended.code == 2
    shown = console("show", NAME, "--tag", "canary")
    assert shown.err == (
        f"promptgraft: tag `canary` of prompt `{NAME}` holds nothing now; it has "
        "2 earlier revisions, see `promptgraft history`\n"
    )
    assert shown.code == 2


def test_one_of_several_tags_must_be_chosen(console: Console, project: Path) -> None:
    write(project, FIRST, tag="blue")
    write(project, FIRST, tag="green")

    ended = console("rollback", NAME)

    assert ended.err == (
        f"promptgraft: prompt `{NAME}` has the tags `blue`, `green`; choose one with --tag\n"
    )
    write(project, FIRST, tag="latest")
    assert "tag `latest`" in console("history", NAME).out


def test_several_revisions_with_one_beginning_are_named(
    project: Path, revisions: tuple[Revision, Revision]
) -> None:
    store = LocalPromptOverridesStore(project)
    twins = tuple(
        attrs.evolve(one, id=HexDigest(f"abcd{one.number}".ljust(64, "0"))) for one in revisions
    )
    address = OverrideAddress("support", "triage", "canary")
    found = StoredTag(store=store, address=address, current=None, history=twins)

    with pytest.raises(RevisionNotFoundError) as raised:
        found.revision("abcd")

    assert str(raised.value) == (
        f"tag `canary` of prompt `{NAME}` has several revisions `abcd`; they are "
        "1 (`abcd10000000`), 2 (`abcd20000000`)"
    )
    assert found.revision("abcd2") is twins[1]


def test_a_damaged_store_is_named(
    console: Console, project: Path, revisions: tuple[Revision, Revision]
) -> None:
    document = project / ".promptgraft" / "overrides" / "support" / "triage" / "canary.json"
    document.write_text("{", "utf-8")

    for command in (("show",), ("show", NAME), ("history", NAME), ("rollback", NAME)):
        ended = console(*command)
        assert ended.code == 2
        assert ended.err.startswith(f"promptgraft: override file {document}:")
        assert ended.err.count("\n") == 1


def raising(error: BaseException) -> Callable[[list[str]], int]:
    def invoke(_: object) -> int:
        raise error

    return invoke


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("seed: no"), 2, "seed: no"),
        (StoreError("locked"), 2, "locked"),
        (JournalLockedError("in use"), 2, "in use"),
        (PromptgraftError("two\nlines \x1b[31m"), 2, "two lines \\x1b[31m"),
        (PermanentProviderError("no key"), 4, "no key"),
        (TransientProviderError("busy"), 4, "busy"),
        (DeadlineExceededError("late"), 3, "late"),
        (BudgetExhaustedError("spent"), 3, "spent"),
        (KeyboardInterrupt(), 3, "interrupted"),
        (click.Abort(), 3, "interrupted"),
        (
            OSError(28, "No space left on device", "x.json"),
            2,
            "x.json: No space left on device; make space on the disk",
        ),
        (
            PermissionError(13, "Permission denied", "x.json"),
            2,
            "x.json: Permission denied; give yourself access to it, or name another path",
        ),
    ],
)
def test_every_expected_error_has_its_exit_code(
    error: BaseException,
    code: int,
    line: str,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(main, "_invoke", raising(error))
    monkeypatch.setattr("promptgraft.cli.exits._abandon_output", lambda: None)

    ended = console("show")

    assert (ended.code, ended.err) == (code, f"promptgraft: {line}\n")


def test_an_unexpected_error_shows_its_traceback_and_is_no_verdict(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "_invoke", operator.neg)  # raises where no code of the user's is

    ended = console("show")

    assert ended.code == ExitCode.INTERNAL_ERROR
    assert "unary -: 'tuple'\npromptgraft: this is a bug in promptgraft;" in ended.err


def test_only_expected_errors_are_concluded() -> None:
    assert not issubclass(ValueError, EXPECTED)
    assert issubclass(BrokenPipeError, EXPECTED)
    assert conclude(ConfigError("x")) is ExitCode.WRONG_USE


def test_a_template_may_be_a_prompt_in_a_namespace(
    console: Console, project: Path, revisions: tuple[Revision, Revision]
) -> None:
    (project / "nested.py").write_text(
        "from prompts import TEMPLATE, Prompt\nclass All:\n    TRIAGE = Prompt(TEMPLATE)\n",
        "utf-8",
    )

    ended = console("show", NAME, "--template", f".{os.sep}nested.py:All.TRIAGE")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.count(": applied\n") == 2
