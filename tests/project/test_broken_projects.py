"""Every kept broken project file gives exactly the lines that stand beside it."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from expected_lines import check_lines
from promptgraft.errors import DataFormatError
from promptgraft.ground.yaml_text import read_yaml
from promptgraft.project import load_project, open_project, project_schema

BROKEN = Path(__file__).parent / "broken"
FILES = sorted(BROKEN.glob("*.yaml"))

# An editor cannot know these of a file: the reader can.
SEEN_ONLY_BY_THE_READER = {
    "aggregation_weights.yaml",
    "graph_named_like_a_prompt.yaml",
    "metric_of_an_unknown_node.yaml",
    "model_plain_headers.yaml",
    "teacher_without_a_prompt.yaml",
}
# The reader finds these when it makes the metrics.
SEEN_LATER_BY_THE_READER = {"metrics_none.yaml", "metrics_without_names.yaml"}


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    monkeypatch.setenv("HOME", str(BROKEN))


def test_there_are_sixty_broken_files_each_with_what_is_expected() -> None:
    assert len(FILES) >= 60
    assert {f"{path.name}.expected" for path in FILES} == {
        path.name for path in BROKEN.glob("*.expected")
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_project_gives_exactly_the_expected_lines(path: Path) -> None:
    with pytest.raises(DataFormatError) as caught:
        load_project(path.name)

    assert "\n" not in str(caught.value)
    found = [fault.replace(f"{BROKEN}/", "") for fault in caught.value.faults]
    check_lines(found, Path(f"{path.name}.expected"))


def test_no_secret_of_a_broken_file_is_shown() -> None:
    for name in ("model_plain_key", "model_plain_headers", "model_address_with_password"):
        with pytest.raises(DataFormatError) as caught:
            load_project(f"{name}.yaml")
        assert "secret" not in str(caught.value).replace("put the secret into", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_refuses_what_the_reader_refuses_and_nothing_else(path: Path) -> None:
    notes: list[str] = []
    try:
        document = read_yaml(path.read_text("utf-8"), lambda _, text: notes.append(text))
    except UnicodeDecodeError:
        return
    if document is None or notes:
        return  # an editor shows that it is no YAML

    try:
        open_project(path.name)
        right = path.name not in SEEN_LATER_BY_THE_READER
    except DataFormatError:
        right = path.name in SEEN_ONLY_BY_THE_READER
    assert jsonschema.Draft202012Validator(project_schema()).is_valid(document.value) == right
