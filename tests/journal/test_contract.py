"""What every journal promises, in a file or in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from promptgraft.errors import DataFormatError, JournalError, JournalMismatchError
from promptgraft.ground.serde import Json, digest_text, parse_json
from promptgraft.journal import Answer, FileJournal, Journal, MemoryJournal, Record

ASKED = digest_text("what is asked")
OTHER = digest_text("something else")
RUN: dict[str, Json] = {"seed": 7, "dataset": digest_text("data"), "config": {"steps": 3}}


@pytest.fixture(params=["file", "memory"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    made: FileJournal | MemoryJournal = (
        FileJournal(tmp_path / "journal.jsonl") if request.param == "file" else MemoryJournal()
    )
    with made as journal:
        yield journal


@pytest.fixture
def journal(fresh: Journal) -> Journal:
    fresh.begin(RUN)
    return fresh


def test_an_answer_is_found_under_its_key(journal: Journal) -> None:
    journal.append("step/1/child/0", ASKED, "rollout", {"score": 0.5})

    assert journal.find("step/1/child/0", ASKED) == Answer({"score": 0.5}, "rollout")
    assert journal.find("step/1/child/1", ASKED) is None


def test_a_null_answer_is_an_answer(journal: Journal) -> None:
    journal.append("k", ASKED, "reflection", None)

    assert journal.find("k", ASKED) == Answer(None, "reflection")


def test_an_empty_journal_has_no_records(journal: Journal) -> None:
    assert len(journal) == 0
    assert list(journal.records()) == []


def test_the_calls_inside_an_answer_are_found_by_its_key(journal: Journal) -> None:
    calls = ["a/4/call/1.1/sent/1", "a/4/call/1.1", "a/4/call/judge.1"]
    journal.append_all([Record(key, ASKED, "call", {}) for key in calls])
    journal.append("b/call/2/call/1", ASKED, "call", {})
    journal.append("a/5", ASKED, "rollout", {})

    assert list(journal.calls_of("a/4")) == calls
    assert list(journal.calls_of("b/call/2")) == ["b/call/2/call/1"]
    assert list(journal.calls_of("a/5")) == []
    assert list(journal.with_calls) == ["a/4", "b/call/2"]


def test_the_record_under_a_key_is_found_whatever_was_asked(journal: Journal) -> None:
    journal.append("k", ASKED, "spent", [1])

    assert journal.record("k") == Record("k", ASKED, "spent", [1])
    assert journal.record("other") is None


def test_records_come_in_the_order_of_their_recording(journal: Journal) -> None:
    for key in ("b", "c", "a"):
        journal.append(key, ASKED, "rollout", key)

    assert len(journal) == 3
    assert list(journal.records()) == [Record(k, ASKED, "rollout", k) for k in ("b", "c", "a")]


def test_records_recorded_after_the_question_are_not_listed(journal: Journal) -> None:
    journal.append("a", ASKED, "rollout", 1)
    listed = journal.records()
    journal.append("b", ASKED, "rollout", 2)

    assert [record.key for record in listed] == ["a"]


def test_a_key_is_recorded_once(journal: Journal) -> None:
    journal.append("step/1", ASKED, "rollout", 1)

    with pytest.raises(JournalError, match="holds an answer under `step/1` already"):
        journal.append("step/1", ASKED, "rollout", 1)
    assert journal.find("step/1", ASKED) == Answer(1, "rollout")
    assert len(journal) == 1


def test_another_question_under_the_same_key_names_both_digests(journal: Journal) -> None:
    journal.append("step/1", ASKED, "rollout", 1)

    with pytest.raises(JournalMismatchError) as caught:
        journal.find("step/1", OTHER)
    message = str(caught.value)
    assert "`step/1`" in message
    assert f"{ASKED[:12]}… in the journal, {OTHER[:12]}… here" in message
    assert "start a new run or restore" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "key", ["step/1", 'a"b', "caf\u00e9", "\ud800", "a\\", 'x","digest":"', ""]
)
@pytest.mark.parametrize("kind", ["rollout", '","answer":', 'a","', "\\", "caf\u00e9"])
def test_the_json_of_an_answer_is_that_of_its_value(journal: Journal, key: str, kind: str) -> None:
    value: Json = {"text": '","answer":', "scores": [0.5, None], "caf\u00e9": 1}
    assert key not in journal
    assert journal.find_texts([key], [ASKED]) == [None]
    journal.append(key, ASKED, kind, value)

    [found] = journal.find_texts([key], [ASKED])
    assert found is not None
    assert parse_json(found, where="it") == value
    assert key in journal
    with pytest.raises(JournalMismatchError, match="holds the answer to another question"):
        journal.find_texts([key], [OTHER])


def test_the_json_of_several_answers_comes_in_the_order_of_their_keys(journal: Journal) -> None:
    for key in ("a", "b", "c"):
        journal.append(key, ASKED, "rollout", key)

    found = journal.find_texts(["c", "none", "a"], [ASKED] * 3)
    assert found == [b'"c"', None, b'"a"']
    with pytest.raises(JournalMismatchError, match="under `b`"):
        journal.find_texts(["a", "b"], [ASKED, OTHER])


def test_a_journal_tells_whether_it_holds_any_of_some_keys(journal: Journal) -> None:
    journal.append("a", ASKED, "rollout", None)
    assert journal.holds_any(["none", "a"])
    assert not journal.holds_any(["none", "a/spent/0"])
    assert not journal.holds_any([])


def test_nobody_can_change_an_answer_that_was_recorded(journal: Journal) -> None:
    given: dict[str, Json] = {"scores": [1]}
    journal.append("k", ASKED, "rollout", given)
    given["scores"] = [2]
    found = journal.find("k", ASKED)
    assert found is not None
    assert isinstance(found.value, dict)
    found.value["scores"] = [3]

    assert journal.find("k", ASKED) == Answer({"scores": [1]}, "rollout")


def test_an_answer_that_cannot_be_recorded_leaves_its_key_free(journal: Journal) -> None:
    with pytest.raises(DataFormatError, match="expected a finite number, found nan"):
        journal.append("k", ASKED, "rollout", float("nan"))
    assert journal.find("k", ASKED) is None

    journal.append("k", ASKED, "rollout", 0.0)
    assert len(journal) == 1


def test_beginning_the_same_run_again_changes_nothing(journal: Journal) -> None:
    journal.append("k", ASKED, "rollout", 1)
    journal.begin(dict(reversed(RUN.items())))

    assert journal.find("k", ASKED) == Answer(1, "rollout")


def test_beginning_another_run_names_each_key_that_differs(journal: Journal) -> None:
    changed: dict[str, Json] = {
        "seed": 7.0,
        "dataset": digest_text("other data"),
        "config": {"steps": 4, "merge": True},
    }
    with pytest.raises(JournalMismatchError) as caught:
        journal.begin(changed)

    message = str(caught.value)
    there, here = digest_text("data")[:12], digest_text("other data")[:12]
    assert "belongs to another run: `config.merge` is absent in the journal, True here; " in message
    assert "`config.steps` is 3 in the journal, 4 here; " in message
    assert f"`dataset` is {there}… in the journal, {here}… here; " in message
    assert "`seed` is 7 in the journal, 7.0 here; " in message
    # In a job the other mend is a fork, elsewhere a new run.
    assert "restore what differs" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("there", "here", "phrase"),
    [
        (
            "a" * 90 + "b",
            "a" * 90 + "c",
            f"has '{'a' * 20}b' from character 71 on in the journal, '{'a' * 20}c' here",
        ),
        (
            ["x" * 90, "y", "z"],
            ["x" * 90, "y"],
            "has 'z' as item 3 in the journal, absent here",
        ),
        ({"deep": [["a" * 90, 1]]}, {"deep": [["a" * 90, 2]]}, "has 'aaaa"),
    ],
)
def test_values_that_look_alike_when_cut_short_are_told_apart(
    fresh: Journal, there: Json, here: Json, phrase: str
) -> None:
    fresh.begin({"hashes": there, "same": 1})
    with pytest.raises(JournalMismatchError) as caught:
        fresh.begin({"hashes": here, "same": 1})
    name = "hashes.deep" if isinstance(there, dict) else "hashes"
    assert f"belongs to another run: `{name}` {phrase}" in str(caught.value)
    before, _, after = str(caught.value).partition(" in the journal, ")
    assert before.partition(" has ")[2] != after.partition(" here")[0]
    assert "`same`" not in str(caught.value)


ITEMS = {"example `a`": "1111", "example `b`": "2222", "example `c`": "3333"}


@pytest.mark.parametrize(
    ("items", "phrase"),
    [
        ({**ITEMS, "example `b`": "9999"}, " (example `b` has changed);"),
        ({**ITEMS, "example `d`": "4444"}, " (example `d` is not in the journal);"),
        ({"example `b`": "2222"}, " (example `a` is not here, and 1 more);"),
        (dict(reversed(ITEMS.items())), " (example `c` is in another place);"),
        ({"example `x`": "1111"}, " (example `x` is not in the journal, and 3 more);"),
        (ITEMS, "… here;"),
        ({f"example {n}": "1" for n in range(5_001)}, "… here;"),
    ],
)
def test_the_first_item_of_a_digest_that_differs_is_named(
    fresh: Journal, items: dict[str, str], phrase: str
) -> None:
    run = {**RUN, "dataset": digest_text("data")}
    fresh.begin(run, contents={"dataset": ITEMS, "other": {"x": "y"}})
    fresh.begin(run)
    with pytest.raises(JournalMismatchError) as caught:
        fresh.begin({**run, "dataset": digest_text("new")}, contents={"dataset": items})
    assert phrase in str(caught.value)


def test_a_journal_without_contents_names_the_digests_alone(fresh: Journal) -> None:
    fresh.begin({**RUN, "dataset": digest_text("data")})
    with pytest.raises(JournalMismatchError, match=r"… in the journal, [0-9a-f]{12}… here; \w"):
        fresh.begin({**RUN, "dataset": digest_text("new")}, contents={"dataset": ITEMS})


def test_a_run_refused_does_not_bind_the_journal(fresh: Journal) -> None:
    with pytest.raises(DataFormatError, match=r"\$\.rate: expected a finite number"):
        fresh.begin({"rate": float("nan")})

    with pytest.raises(JournalError, match="call `begin` first"):
        fresh.append("k", ASKED, "rollout", 1)
    fresh.begin(RUN)
    fresh.append("k", ASKED, "rollout", 1)


def test_nothing_is_found_or_recorded_before_the_run_begins(fresh: Journal) -> None:
    with pytest.raises(JournalError, match="call `begin` first"):
        fresh.find("k", ASKED)
    with pytest.raises(JournalError, match="call `begin` first"):
        fresh.append("k", ASKED, "rollout", 1)
    assert list(fresh.records()) == []


def test_a_closed_journal_says_so(journal: Journal) -> None:
    journal.append("k", ASKED, "rollout", 1)
    listed = journal.records()
    journal.sync()
    journal.close()
    journal.close()

    with pytest.raises(JournalError, match="is closed"):
        journal.find("k", ASKED)
    with pytest.raises(JournalError, match="is closed"):
        journal.append("l", ASKED, "rollout", 1)
    with pytest.raises(JournalError, match="is closed"):
        journal.begin(RUN)
    with pytest.raises(JournalError, match="is closed"):
        journal.sync()
    with pytest.raises(JournalError, match="is closed"):
        journal.records()
    with pytest.raises(JournalError, match="is closed"):
        next(listed)


def test_threads_may_share_a_journal(journal: Journal) -> None:
    missing: list[str] = []

    def work(thread: int) -> None:
        for step in range(50):
            key = f"{thread}/{step}"
            journal.append(key, ASKED, "rollout", {"key": key, "text": "x" * 50 * thread})
            found = journal.find(key, ASKED)
            if found is None or not isinstance(found.value, dict) or found.value["key"] != key:
                missing.append(key)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert missing == []
    assert len(journal) == 200
    assert {record.key for record in journal.records()} == {
        f"{thread}/{step}" for thread in range(4) for step in range(50)
    }
