"""Every fault of a prompt's files is one line with its place, and all come at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from expected_lines import check_lines
from promptgraft.errors import DataFormatError
from promptgraft.project.markdown import load_markdown_prompt

BROKEN = sorted((Path(__file__).parent / "broken").iterdir())


@pytest.mark.parametrize("folder", BROKEN, ids=lambda folder: folder.name)
def test_each_fault_of_a_prompt_is_one_line_with_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (prompt,) = folder.glob("*.md")

    with pytest.raises(DataFormatError) as caught:
        load_markdown_prompt(Path(prompt.name))

    check_lines(caught.value.faults, folder / "expected.txt")
