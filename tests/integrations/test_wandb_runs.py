"""Tracking in Weights & Biases, offline; skipped if its package is missing."""

from __future__ import annotations

import importlib
import importlib.util
import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from promptgraft import EventBus
from promptgraft.bridges.wandb_runs import tracked
from promptgraft.cli.main import run
from promptgraft.errors import ConfigError
from promptgraft.runs import RunFolder, read_run

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("wandb") is None, reason="wandb is not installed"
)
BLOCK = 32_768  # bytes; no record crosses the end of one in one piece


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    yield
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # its process ends with the test


def records(path: Path) -> Iterator[Any]:
    """Yield what an offline run keeps, as `wandb sync` reads it: records in the form of LevelDB."""
    kinds = importlib.import_module("wandb.proto.wandb_internal_pb2")
    data, at, piece = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        room = BLOCK - at % BLOCK
        if room < 7:
            at += room
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        piece += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield kinds.Record.FromString(piece)
            piece = b""


def items(entries: Any) -> dict[str, Any]:
    return {
        ".".join(one.nested_key) or one.key: json.loads(one.value_json)
        for one in entries
        if one.value_json
    }


@pytest.mark.thorough
def test_a_project_that_names_it_keeps_its_runs_there() -> None:
    run(["init"])
    with Path("promptgraft.yaml").open("a", encoding="utf-8") as file:
        file.write("trackers: {wandb: {project: council}}\n")
    cases = Path("data/reports.jsonl")
    cases.write_text("".join(cases.read_text("utf-8").splitlines(keepends=True)[:60]), "utf-8")
    assert run(["optimize", "-q", "--budget", "80"]) == 1
    importlib.import_module("wandb").teardown()  # which has written all before it returns
    [result] = Path("runs").glob("*/result.json")
    [kept] = Path("wandb").glob("offline-run-*/run-*.wandb")
    found = list(records(kept))

    [opened] = [one.run for one in found if one.WhichOneof("record_type") == "run"]
    name = json.loads(result.with_name("config.json").read_text())["tracked_as"]
    assert (opened.run_id, opened.project) == (name, "council")
    history = [items(one.history.item) for one in found if one.HasField("history")]
    ended = read_run(RunFolder(result.parent)).ended
    assert ended is not None
    assert history[-1]["_step"] == ended.steps
    assert {row["candidates"] for row in history if "candidates" in row} >= {ended.candidates}
    summary: dict[str, Any] = {}
    for one in found:
        summary |= items(one.summary.update)
    assert summary["verdict"] == ended.verdict
    means = ended.baseline_mean, ended.best_mean
    assert (summary["baseline_score"], summary["best_score"]) == means
    [artifact] = [one.artifact for one in found if one.HasField("artifact")]
    assert (artifact.type, artifact.name) == ("run", f"run-{name}")
    assert [one.exit.exit_code for one in found if one.HasField("exit")] == [0]


def test_a_run_without_a_key_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    with pytest.raises(ConfigError, match="No API key configured"), tracked(EventBus()):
        pass
