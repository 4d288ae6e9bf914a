"""``promptgraft apply``: the winner of a run becomes one revision of the store."""

from __future__ import annotations

import json

import pytest

from apply.world import NEW_TEAMS, OLD, World
from cli.console import Console

PART = "section teams"


def test_the_winner_is_one_revision_that_says_where_it_comes_from(
    console: Console, world: World
) -> None:
    ended = console("apply")

    (revision,) = world.history()
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(
        f"run `{world.run.name}`, candidate 1: validation 0.600 -> 1.000 (+0.400)\n"
        "prompt  depot/triage, tag `live`\n"
        "from    the source\n"
        f"to      revision 1 ({revision.id[:12]})\n"
        f"file    {world.folder}/.promptgraft/overrides/depot/triage/live.json\n"
        "\n"
        "--- section teams (before)\n"
        "+++ section teams (after)\n"
        "@@ -1,2 +1,2 @@\n"
        "-- lamps: light\n"
    )
    assert ended.out.endswith("Take it back:\n  promptgraft rollback depot/triage --tag live\n")
    assert revision.provenance.run_id == world.run.name
    assert revision.provenance.note == "candidate 1, 32 test calls, seed 0"
    assert revision.provenance.scores == {"baseline": 0.6, "best": 1.0}
    (entry,) = revision.override.sections.values()
    assert entry.body == world.teams
    assert world.texts == OLD


def test_applied_once_more_it_is_there_already_and_rollback_takes_it_back(
    console: Console, world: World
) -> None:
    console("apply")

    again = console("apply")

    assert again.code == 0
    assert "already applied" in again.out
    assert len(world.history()) == 1
    assert console("rollback", "triage").code == 0
    assert world.held() == {}


def test_a_dry_run_shows_the_same_and_writes_nothing(console: Console, world: World) -> None:
    before = sorted(world.folder.rglob("*"))

    ended = console("apply", "--dry-run")

    assert ended.code == 0
    assert "--- section teams (before)\n" in ended.out
    assert ended.out.endswith("a dry run: nothing was written\n")
    assert sorted(world.folder.rglob("*")) == before


def test_what_others_have_changed_elsewhere_stays(console: Console, world: World) -> None:
    world.hold(world.section("task", "Name the one team."))
    world.edit("prompts/tools.yaml", "Look up a word.", "Find a word.")

    assert console("apply").code == 0

    assert set(world.held()) == {PART, "section task"}
    assert world.history()[1].parent == world.history()[0].id


def test_a_source_that_has_changed_is_refused_with_both_hashes_and_the_mend(
    console: Console, world: World
) -> None:
    then = world.section("teams", "").expected_hash
    world.edit("prompts/triage.md", "- bins: rubbish", "- bins: rubbish, litter")
    now = world.section("teams", "").expected_hash

    for arguments in ((), ("--dry-run",), ("--to-source",), ("--patch",), ("--json",)):
        ended = console("apply", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err == (
            f"promptgraft: section teams: stale: the winner was made for source {then[:12]}, the "
            f"source is now {now[:12]}; run `promptgraft optimize` on the new source, or restore "
            "the old one\n"
        )
    assert world.history() == ()


def test_a_tag_that_has_changed_in_a_part_of_the_winner_is_refused(
    console: Console, world: World
) -> None:
    world.hold(world.section("teams", "- lamps: all\n- bins: none"))

    ended = console("apply")

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(
        "promptgraft: section teams: tag `live` has changed since the run began: expected no "
        "override, found override "
    )
    assert len(world.history()) == 1


def test_every_stale_part_has_a_line(console: Console, world: World) -> None:
    world.let_the_winner_say(*world.both())
    world.edit("prompts/triage.md", "- bins: rubbish", "- bins: rubbish, litter")
    world.edit("prompts/tools.yaml", "Look up a word.", "Find a word.")

    ended = console("apply")

    assert ended.code == 2
    assert [line.split(": ")[1] for line in ended.err.splitlines()] == [PART, "tool lookup"]


def test_a_source_that_says_it_already_needs_no_override(console: Console, world: World) -> None:
    world.edit("prompts/triage.md", "- lamps: light\n- bins: rubbish", world.teams)

    ended = console("apply")

    assert ended.code == 0
    assert "already applied" in ended.out
    assert world.history() == ()


def test_a_run_that_found_nothing_better_exits_with_1_and_writes_nothing(
    console: Console, world: World
) -> None:
    world.let_the_run_end(verdict="not improved", best=0)

    ended = console("apply")

    assert ended.code == 1
    assert ended.out.startswith(f"run `{world.run.name}`: no candidate beat your prompt (")
    assert (
        "; nothing was written\n--candidate N applies one of its candidates; "
        f"`promptgraft show {world.run.name}` lists them\n" in ended.out
    )
    assert world.history() == ()
    document = json.loads(console("apply", "--json").out)
    assert (document["outcome"], document["candidate"]) == ("not improved", None)


def test_a_candidate_that_is_named_is_applied_whatever_the_run_says(
    console: Console, world: World
) -> None:
    world.let_the_run_end(verdict="not improved", best=0)
    assert console("apply", "--candidate", "1").code == 0
    assert set(world.held()) == {PART}


@pytest.mark.parametrize(
    ("number", "said"),
    [("0", "0 is your prompt itself"), ("7", "has no candidate 7; it has 1"), ("x", "integer")],
)
def test_a_candidate_that_is_none_is_refused(
    number: str, said: str, console: Console, world: World
) -> None:
    ended = console("apply", "--candidate", number)
    assert ended.code == 2
    assert said in ended.err
    assert ended.err.count("\n") == 1


def test_a_run_that_was_interrupted_has_no_winner_but_candidates(
    console: Console, world: World
) -> None:
    path = world.run / "events.jsonl"
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"ended"' not in line), "utf-8")

    ended = console("apply")

    assert ended.code == 2
    assert f"continue it with `promptgraft resume {world.run.name}`" in ended.err
    assert console("apply", "--candidate", "1").code == 0


def test_another_tag_gets_the_winner_with_what_it_was_tried_with(
    console: Console, world: World
) -> None:
    assert console("apply", "--tag", "canary").code == 0

    assert set(world.held("canary")) == {PART}
    assert world.held() == {}


def test_the_document_has_the_revision_and_the_changes(console: Console, world: World) -> None:
    document = json.loads(console("apply", "--json").out)

    assert document["run"] == world.run.name
    assert (document["candidate"], document["prompt"]) == (1, "depot/triage")
    assert (document["where"], document["outcome"], document["dry_run"]) == (
        "store",
        "applied",
        False,
    )
    assert document["scores"] == {"baseline": 0.6, "best": 1.0}
    assert (document["from"], document["to"]["id"]) == (None, world.history()[0].id)
    (part,) = document["parts"]
    assert (part["part"], part["after"]) == (PART, world.teams)


def test_a_project_that_was_moved_is_found_around_the_current_folder(
    console: Console, world: World
) -> None:
    config = json.loads((world.run / "config.json").read_text("utf-8"))
    assert not config["origin"]["path"].startswith(str(world.folder))
    assert console("apply", world.run.name[:15]).code == 0
    assert set(world.held()) == {PART}


def test_a_run_of_another_project_is_refused(console: Console, world: World) -> None:
    world.edit("prompts/triage.md", "key: triage", "key: other")
    ended = console("apply")
    assert ended.code == 2
    assert "is of prompt `depot/triage`, the source is `depot/other`" in ended.err


def test_prompts_are_named_as_the_project_names_them(console: Console, world: World) -> None:
    console("apply")
    for command in ("history", "diff", "rollback"):
        assert console(command, "triage").out.startswith("prompt `depot/triage`, tag `live`\n")
    assert console("history", "triange").code == 2
    assert "has no prompt `triange` (did you mean `triage`?)" in console("history", "triange").err
    assert console("show", "triage").out == console("show", "depot/triage").out
    # The only one need not be named; and the project may be named, too.
    file = str(world.folder / "promptgraft.yaml")
    assert console("history", "--project", file).out == console("history", "depot/triage").out


def test_a_label_moves_to_what_was_applied(console: Console, world: World) -> None:
    console("apply")
    assert console("tag", "triage", "stable").code == 0
    assert world.held("stable").keys() == {PART}
    assert world.history("stable")[0].provenance.run_id == world.run.name
    assert NEW_TEAMS not in world.texts["prompts/triage.md"]


def test_the_winner_of_a_job_goes_where_the_job_keeps_its_overrides(
    console: Console, world: World
) -> None:
    (world.folder / "jobs.py").write_text(
        "from pathlib import Path\n"
        "from promptgraft.project import open_project\n"
        "def job():\n"
        "    print('made')\n"
        "    return open_project(Path(__file__).parent / 'promptgraft.yaml').job()\n",
        "utf-8",
    )
    assert console("optimize", "jobs.py:job", "--runs", "kept", "--quiet").code == 1
    refused = console("apply", "--runs", "kept")
    assert refused.code == 1
    assert "better on validation, not checked; --keep-anyway applies it" in refused.out
    assert world.held() == {}

    ended = console("apply", "--runs", "kept", "--keep-anyway", "--json")

    assert ended.code == 0
    assert json.loads(ended.out)["outcome"] == "applied"
    assert "made" in ended.err
    assert set(world.held()) == {PART}
    # The project around the job has its prompt in files.
    written = console("apply", "--runs", "kept", "--keep-anyway", "--to-source")
    [entry] = world.held().values()
    assert (written.code, "prompts/triage.md" in written.out) == (0, True)
    assert entry.show() in world.texts["prompts/triage.md"]


def test_of_a_candidate_that_was_applied_before_nothing_stays_beside_another(
    console: Console, world: World
) -> None:
    world.hold(world.section("task", "Name the one team."))
    world.let_the_winner_say(*world.both())
    assert console("apply").code == 0
    assert set(world.held()) == {PART, "tool lookup", "section task"}
    world.add_a_candidate(world.section("teams", "- lamps: light, lamp\n- bins: rubbish"))

    ended = console("apply", "--candidate", "2", "--json")

    assert (ended.code, ended.err) == (0, "")
    teams, tool = json.loads(ended.out)["parts"]
    assert (teams["part"], teams["before"]) == (PART, NEW_TEAMS)
    assert (tool["part"], tool["after"]) == ("tool lookup", "description: Look up a word.")
    held = world.held()
    assert set(held) == {PART, "section task"}
    assert held[PART] == world.section("teams", "- lamps: light, lamp\n- bins: rubbish")
    assert "already applied" in console("apply", "--candidate", "2").out
    assert console("apply").code == 0
    assert set(world.held()) == {PART, "tool lookup", "section task"}
