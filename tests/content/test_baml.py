"""Images among the arguments of BAML tests: values of cases, and what a provider is sent."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from image_files import PDF, png
from promptgraft import File, Image
from promptgraft.errors import DataFormatError
from promptgraft.project import load_project

pytest.importorskip("baml_py")

FUNCTION = """client<llm> Local {
  provider openai-generic
  options {
    base_url "http://127.0.0.1:9"
    model "m"
  }
}
class Page {
  number int
  picture image
}
function Describe(page: Page, more: image[], terms: pdf) -> string {
  client Local
  prompt #"Describe. {{ page.picture }} {% for one in more %}{{ one }}{% endfor %} {{ terms }}"#
}
"""
TEST = """test T%(number)d {
  functions [Describe]
  args {
    page {
      number 3
      picture { file "%(file)s" }
    }
    more [
      {
        url "https://example.com/a.png"
      },
      {
        base64 "%(data)s"
        media_type "image/png"
      }
    ]
    terms { file "terms.pdf" }
  }
  @@assert({{ this|length > %(number)d }})
}
"""
PROJECT = """version: 1
prompts: {describe: {baml: baml_src, function: Describe}}
splits: {ratio: {train: 0.5, validation: 0.5}}
models: {reflection: {provider: offline}}
"""


def project(folder: Path, *, file: str = "dot.png") -> Any:
    source = folder / "baml_src"
    source.mkdir()
    (source / "terms.pdf").write_bytes(PDF)
    tests = []
    for number in range(24):
        data = base64.b64encode(png(colour=(number, 0, 0))).decode()
        tests.append(TEST % {"number": number, "data": data, "file": file})
    (source / "dot.png").write_bytes(png())
    (source / "main.baml").write_text(FUNCTION + "".join(tests))
    (folder / "promptgraft.yaml").write_text(PROJECT)
    return load_project(folder / "promptgraft.yaml")


def test_the_images_of_a_test_are_values_of_its_case(tmp_path: Path) -> None:
    cases = {case.id: case for case in project(tmp_path).splits.train}
    name, case = next(iter(cases.items()))
    source = tmp_path / "baml_src"
    assert case.input == {
        "page": {"number": 3, "picture": Image(source / "dot.png")},
        "more": [
            Image(url="https://example.com/a.png"),
            Image(data=png(colour=(int(name[1:]), 0, 0)), name="image"),
        ],
        "terms": File(source / "terms.pdf"),
    }


def test_baml_is_given_the_same_bytes(tmp_path: Path) -> None:
    found = project(tmp_path)
    prompt = found.prompt("describe")
    sent = json.dumps(prompt.source.messages(prompt.prompt, "T5"))
    assert base64.b64encode(png()).decode() in sent
    assert base64.b64encode(png(colour=(5, 0, 0))).decode() in sent
    assert "https://example.com/a.png" in sent


@pytest.mark.parametrize("file", ["none.png", "../../outside.png", "terms.pdf"])
def test_a_file_that_is_no_image_of_the_project_is_refused(file: str, tmp_path: Path) -> None:
    (tmp_path.parent / "outside.png").write_bytes(png())
    with pytest.raises(DataFormatError, match=r"main\.baml:\d+: .*" + Path(file).name):
        project(tmp_path, file=file).splits  # noqa: B018 - a property that raises
