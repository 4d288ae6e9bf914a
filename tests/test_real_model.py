"""The page on a real model: its outputs are those of its commands against a local server."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from programs import Programs

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.thorough
def test_the_page_shows_what_its_commands_print(programs: Programs) -> None:
    pytest.importorskip("openai", reason="openai is not installed")
    spec = importlib.util.spec_from_file_location("real_model", DOCS / "real_model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (DOCS / "with-a-real-model.md").read_text("utf-8")
    assert module.page_of_a_run(page, programs.promptgraft) == page, "run: make real-model"
