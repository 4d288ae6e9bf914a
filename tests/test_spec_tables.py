"""What the code enumerates stands in the page that lists it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest

from promptgraft.evals.metrics import METRICS
from promptgraft.overrides.parts import KINDS
from promptgraft.overrides.parts.entry import SkipReason
from promptgraft.project import project_schema
from promptgraft.search.stopping import StopReason
from promptgraft.search.verdict import RunVerdict
from promptgraft.service.jobs import JobState
from promptgraft.service.server import Limits
from promptgraft.targets.base import RejectionReason

ROOT = Path(__file__).parents[1]

PROPERTIES = project_schema()["properties"]
assert isinstance(PROPERTIES, dict)
ENUMERATED: dict[str, tuple[str, Iterable[str]]] = {
    "reasons to refuse a proposal": ("specs/gepa/replies.md", RejectionReason),
    "reasons to skip an override": ("docs/json.md", SkipReason),
    "verdicts": ("specs/honesty.md", RunVerdict),
    "limits of the server": ("specs/server.md", [field.name for field in attrs.fields(Limits)]),
    "metrics": ("specs/metrics.md", METRICS.names),
    "lists of overrides": ("specs/overrides.md", KINDS),
    "keys of a project": ("specs/project.md", PROPERTIES),
}


def quoted(*pages: str) -> set[str]:
    """Return what stands in backticks on some pages, of `key: value` the key."""
    text = "\n".join((ROOT / page).read_text("utf-8") for page in pages)
    names = re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
    return {name.partition(":")[0] for name in names}


@pytest.mark.parametrize("name", ENUMERATED)
def test_a_page_lists_what_the_code_enumerates(name: str) -> None:
    page, values = ENUMERATED[name]
    assert [str(value) for value in values if str(value) not in quoted(page)] == []


def test_each_reason_to_stop_is_on_a_page() -> None:
    names = quoted("specs/gepa.md", "specs/stopping.md", "specs/ledger.md", "specs/engine.md")
    assert [reason for reason in StopReason if not {reason.name, str(reason)} & names] == []


def test_each_state_of_a_job_is_in_the_table_of_states() -> None:
    page = (ROOT / "specs" / "jobs.md").read_text("utf-8")
    table = page.partition("| state | next states |")[2].partition("\n\n")[0]
    first_cells = re.findall(r"(?m)^\| ([a-z, ]+) \|", table)
    assert sorted(", ".join(first_cells).split(", ")) == sorted(map(str, JobState))
