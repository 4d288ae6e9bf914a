"""Images and files in data sets: columns of paths, and parts in the shapes of messages."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from image_files import PDF, picture, png
from promptgraft import (
    Case,
    Dataset,
    File,
    GepaConfig,
    GepaOptimizer,
    Image,
    MarkdownSection,
    OpenAIAdapter,
    OptimizationContext,
    Prompt,
    PromptTemplate,
    evaluate,
    examples_from,
    feedback_from,
)
from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.dataset import cases_digest
from promptgraft.evals.metrics import Exact
from promptgraft.evals.types import Message, Speaker
from promptgraft.project import load_project
from promptgraft.search.targets import example_digest
from promptgraft.targets.formatting import default_example_formatter

DATA = base64.b64encode(png()).decode()
PHOTO = Image(data=png(), name="image")
CONTRACT = base64.b64encode(PDF).decode()


def loaded(folder: Path, *rows: object, **options: Any) -> Dataset:
    path = folder / "cases.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return Dataset.load(path, **options)


def content_of(case: Case) -> list[object]:
    assert isinstance(case.input, tuple)
    return [piece.read() if isinstance(piece, File) else piece for piece in case.input]


PARTS = [
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}", "detail": "low"}},
    {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
    {"inline_data": {"mime_type": "image/png", "data": DATA}},
    {"inlineData": {"mimeType": "image/png", "data": DATA, "displayName": "a.png"}},
    {"type": "image", "path": "photos/a.png"},
    {"type": "image", "image": f"data:image/png;base64,{DATA}"},
    {"type": "image", "image": "photos/a.png"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(png())
    (tmp_path / "photos" / "b.png").write_bytes(png(colour=(1, 1, 1)))
    (tmp_path / "contract.pdf").write_bytes(PDF)
    return tmp_path


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_an_image_in_whatever_shape(part: object, folder: Path) -> None:
    text = {"type": "text", "text": "What is it?"}
    message = {"role": "user", "content": [text, part]}
    rows = [
        {"id": "message", "input": [message], "expected": "x"},
        {"id": "parts", "input": [text, part], "expected": "x"},
        {"id": "alone", "input": part, "expected": "x"},
        {"id": "turn", "turns": [{"user": [text, part], "expected": "x"}]},
    ]
    cases = loaded(folder, *rows).cases
    assert [content_of(case) for case in cases] == [
        ["What is it?", png()],
        ["What is it?", png()],
        [png()],
        ["What is it?", png()],
    ]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_may_be_the_value_of_a_parameter(part: object, folder: Path) -> None:
    [case] = loaded(folder, {"question": "What?", "photo": part, "expected": "x"})
    assert isinstance(case.input, dict)
    assert isinstance(case.input["photo"], Image)
    assert case.input["photo"].read() == png()


def test_files_are_read_in_their_shapes(folder: Path) -> None:
    address = f"data:application/pdf;base64,{CONTRACT}"
    source = {"type": "base64", "media_type": "application/pdf", "data": CONTRACT}
    parts: list[object] = [
        {"type": "file", "file": {"filename": "c.pdf", "file_data": address}},
        {"type": "input_file", "filename": "c.pdf", "file_data": address},
        {"type": "document", "source": source, "title": "c.pdf"},
        {
            "inline_data": {
                "mime_type": "application/pdf",
                "data": CONTRACT,
                "display_name": "c.pdf",
            }
        },
        {"type": "file", "path": "contract.pdf", "name": "c.pdf"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Hi."}},
        {"type": "input_file", "file_url": "https://example.com/c.pdf"},
        {"file_data": {"mime_type": "image/png", "file_uri": "https://example.com/a.png"}},
    ]
    [case] = loaded(folder, {"input": parts, "expected": "x"})
    files = [piece for piece in case.input if isinstance(piece, File)]  # type: ignore[union-attr]
    assert files[:5] == [File(data=PDF, name="c.pdf")] * 5
    assert files[5].text == "Hi."
    assert [file.url for file in files[6:]] == [
        "https://example.com/c.pdf",
        "https://example.com/a.png",
    ]
    assert isinstance(files[7], Image)


def test_earlier_messages_may_hold_images(folder: Path) -> None:
    messages = [
        {"role": "user", "content": [PARTS[0], {"type": "text", "text": "And this?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        {"role": "user", "content": "Sure?"},
    ]
    [case] = loaded(folder, {"input": messages, "expected": "yes"})
    assert case.context == (
        Message(Speaker.USER, (PHOTO, "And this?")),
        Message(Speaker.ASSISTANT, "A cat."),
    )
    section = MarkdownSection(title="Talk", key="talk", template="$talk")
    prompt = Prompt(PromptTemplate[object](ns="tests", key="talk", sections=[section]))
    [example] = examples_from(prompt, [case])
    content = prompt.bind(*example.params).render().content
    assert content == (
        "## Talk\n\nuser:\n",
        PHOTO,
        "\nAnd this?\nassistant: A cat.\nuser: Sure?",
    )


def test_an_eval_set_holds_inline_data(folder: Path) -> None:
    parts = [{"text": "What is it?"}, PARTS[5]]
    turn = {
        "userContent": {"role": "user", "parts": parts},
        "finalResponse": {"role": "model", "parts": [{"text": "a cat"}]},
    }
    path = folder / "set.json"
    path.write_text(json.dumps({"evalCases": [{"evalId": "a", "conversation": [turn]}]}))
    [case] = Dataset.load(path)
    assert case.input == ("What is it?", Image(data=png(), name="a.png"))
    turn["finalResponse"] = {"role": "model", "parts": [PARTS[5]]}
    path.write_text(json.dumps({"evalCases": [{"evalId": "a", "conversation": [turn]}]}))
    with pytest.raises(DataFormatError, match="finalResponse: expected a text, found an image"):
        Dataset.load(path)


def test_what_is_expected_is_data_even_if_it_looks_like_a_part(folder: Path) -> None:
    use = {"name": "draw", "arguments": {"what": PARTS[6]}}
    [case] = loaded(folder, {"input": "x", "expected": PARTS[6], "tools": [use]})
    assert case.expected == PARTS[6]
    assert case.tools is not None
    assert case.tools[0].arguments == {"what": PARTS[6]}


def test_columns_of_a_table_name_images_and_files(folder: Path) -> None:
    (folder / "cases.csv").write_text(
        "id,question,photo,contract,kind\n"
        "1,What?,photos/a.png,contract.pdf,cat\n"
        "2,And this?,https://example.com/b.png,,dog\n"
    )
    first, second = Dataset.load(
        folder / "cases.csv", fields={"expected": "kind"}, images=["photo"], files=["contract"]
    )
    assert first.input == {
        "question": "What?",
        "photo": Image(folder / "photos" / "a.png"),
        "contract": File(folder / "contract.pdf"),
    }
    assert isinstance(second.input, dict)
    assert second.input["photo"] == Image(url="https://example.com/b.png")
    assert second.input["contract"] == ""


def test_a_column_of_images_may_be_the_input(folder: Path) -> None:
    (folder / "cases.csv").write_text("photo,kind\nphotos/a.png,cat\n")
    [case] = Dataset.load(
        folder / "cases.csv", fields={"input": "photo", "expected": "kind"}, images=["photo"]
    )
    assert case.input == (Image(folder / "photos" / "a.png"),)


def test_a_parameter_may_be_a_list_of_paths(folder: Path) -> None:
    row = {"photos": ["photos/a.png", "photos/b.png"], "expected": "x"}
    [case] = loaded(folder, row, images=["photos"])
    assert isinstance(case.input, dict)
    assert [image.read() for image in case.input["photos"]] == [
        png(),
        png(colour=(1, 1, 1)),
    ]


REFUSED = [
    ("../outside.png", "expected a path inside of"),
    ("/etc/hostname", "expected a path inside of"),
    ("photos/link.png", "expected a path inside of"),
    ("photos/none.png", r"none\.png: expected a file, found none"),
    ("photos", "expected a file, found none"),
    ("cases.jsonl", "expected an image of type png"),
    ("file:///etc/hostname", "expected an address with https"),
    ("gs://bucket/a.png", "expected an address with https"),
    ("data:image/png;base64,AAAA", "expected an image of type png"),
    ("data:image/png;base64,=", "expected Base64"),
    ("a\0b", "expected a path"),
]


@pytest.mark.parametrize(("place", "message"), REFUSED)
def test_other_places_are_refused_with_line_and_column(
    place: str, message: str, folder: Path
) -> None:
    (folder.parent / "outside.png").write_bytes(png())
    (folder / "photos" / "link.png").symlink_to(folder.parent / "outside.png")
    right = {"id": "a", "photo": "photos/a.png", "expected": "x"}
    with pytest.raises(DataFormatError, match=rf"cases\.jsonl:2: case `b`: photo: .*{message}"):
        loaded(folder, right, {"id": "b", "photo": place, "expected": "x"}, images=["photo"])


def test_all_faults_are_listed_at_once(folder: Path) -> None:
    rows = [
        {"id": "a", "input": [{"type": "text", "text": "x"}, {"type": "input_audio"}]},
        {"id": "b", "input": [{"role": "user", "content": [{"type": "image", "path": "no.png"}]}]},
    ]
    with pytest.raises(DataFormatError) as caught:
        loaded(folder, *rows)
    first, second = caught.value.faults
    assert "case `a`: input[1]: expected a text, an image or a file, found input_audio" in first
    assert "case `b`: input[0].content[0]: " in second


def test_paths_may_lie_in_the_folder_of_the_project(folder: Path) -> None:
    (folder / "data").mkdir()
    row = {"photo": "../photos/a.png", "expected": "x"}
    with pytest.raises(DataFormatError, match="expected a path inside of"):
        loaded(folder / "data", row, images=["photo"])
    [case] = loaded(folder / "data", row, images=["photo"], root=folder)
    assert case.input == {"photo": Image(folder / "photos" / "a.png")}


def test_mappings_and_tables_hold_values_or_bytes() -> None:
    rows = [
        {"photo": picture(), "kind": "cat"},
        {"photo": png(), "kind": "dog"},
        {"photo": {"bytes": png(), "path": "p.png"}, "kind": "cow"},
    ]
    cases = Dataset.of(rows, label="kind", images=["photo"]).cases
    assert [case.input for case in cases] == [
        {"photo": picture()},
        {"photo": Image(data=png())},
        {"photo": Image(data=png(), name="p.png")},
    ]
    with pytest.raises(DataFormatError, match="a path stands only in a file of cases"):
        Dataset.of([{"photo": "a.png", "kind": "cat"}], label="kind", images=["photo"])
    with pytest.raises(DataFormatError, match=r"\$\.photo: expected plain data"):
        Dataset.of([{"photo": b"x", "kind": "cat"}], label="kind")


def test_a_column_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "cases.csv").write_text("photo,expected\nphotos/a.png,cat\n")
    with pytest.raises(DataFormatError, match=r"there is no column 'foto' .did you mean `photo`"):
        Dataset.load(folder / "cases.csv", images=["foto"])
    with pytest.raises(ConfigError, match="images: expected a list of columns, found 'photo'"):
        Dataset.load(folder / "cases.csv", images="photo")


@pytest.mark.parametrize(
    ("row", "option", "fault"),
    [
        ({"input": {"photo": "photos/a.png"}, "expected": "x"}, "images", "no case has the column"),
        ({"foto": "photos/a.png", "expected": "x"}, "images", "did you mean `foto`?"),
        ({"input": "a", "expected": "x"}, "files", "columns: `input`, `expected`"),
    ],
)
def test_a_column_that_no_line_has_is_named(
    folder: Path, row: dict[str, object], option: str, fault: str
) -> None:
    with pytest.raises(DataFormatError, match=re.escape(fault)) as raised:
        loaded(folder, row, {**row, "expected": "y"}, **{option: ["photo"]})
    assert len(raised.value.faults) == 1


def test_one_line_with_a_named_column_is_enough(folder: Path) -> None:
    rows = ({"photo": "photos/a.png", "text": "a"}, {"photo": None, "text": "b"}, {"text": "c"})
    assert len(loaded(folder, *rows, images=["photo"])) == 3


def test_content_decides_digests_and_ids_and_not_its_place(folder: Path) -> None:
    by_path = loaded(folder, {"photo": "photos/a.png", "expected": "x"}, images=["photo"])
    part = {"inlineData": {"mimeType": "image/png", "data": DATA, "displayName": "a.png"}}
    inline = loaded(folder, {"photo": part, "expected": "x"})
    other = loaded(folder, {"photo": "photos/b.png", "expected": "x"}, images=["photo"])
    assert by_path.ids == inline.ids != other.ids
    assert cases_digest(by_path) == cases_digest(inline) != cases_digest(other)
    section = MarkdownSection(title="Photo", key="photo", template="$photo")
    prompt = Prompt(PromptTemplate[object](ns="tests", key="look", sections=[section]))
    digests = {example_digest(*examples_from(prompt, cases)) for cases in (by_path, inline, other)}
    assert len(digests) == 2


def test_a_reflection_is_told_the_names(folder: Path) -> None:
    cases = loaded(folder, {"question": "What?", "photo": PARTS[6], "expected": "x"})
    section = MarkdownSection(title="Photo", key="photo", template="$question $photo")
    prompt = Prompt(PromptTemplate[object](ns="tests", key="look", sections=[section]))
    [example] = examples_from(prompt, cases)
    shown, _ = default_example_formatter(example, None)
    name = str(Image(folder / "photos" / "a.png"))
    assert json.loads(shown) == {"question": "What?", "photo": name}


def test_a_project_names_its_columns(folder: Path) -> None:
    (folder / "prompt.md").write_text(
        "---\nns: tests\nkey: look\noutput: {choices: [cat, dog]}\n---\n\n"
        "# Photo {#photo}\n\n$photo\n"
    )
    (folder / "data").mkdir()
    rows = "".join(f"../photos/{'ab'[n % 2]}.png,{n},cat\n" for n in range(40))
    (folder / "data" / "cases.csv").write_text(f"photo,id,expected\n{rows}")
    (folder / "promptgraft.yaml").write_text(
        "version: 1\nprompts: {look: prompt.md}\n"
        "dataset: {path: data/cases.csv, images: [photo]}\n"
        "splits: {ratio: {train: 0.5, validation: 0.5}}\n"
        "metrics: [{name: exact}]\nmodels: {task: {provider: offline}}\n"
    )
    case = load_project(folder / "promptgraft.yaml").splits.train.cases[0]
    assert isinstance(case.input, dict)
    assert isinstance(case.input["photo"], Image)


def test_a_file_that_no_model_takes_is_found_before_the_first_call(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"\0\1")
    rows = [{"id": name, "file": name, "expected": "x"} for name in ("contract.pdf", "a.bin")]
    cases = loaded(folder, *rows, files=["file"])
    section = MarkdownSection(title="File", key="file", template="$file")
    prompt = Prompt(PromptTemplate[object](ns="tests", key="file", sections=[section]))
    adapter = OpenAIAdapter("m", api_key="unused", base_url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"a\.bin: expected an image, a PDF or a text"):
        evaluate(prompt, cases, [Exact()], adapter=adapter)
    examples = examples_from(prompt, cases, [Exact()])
    config = GepaConfig(
        rollout_budget=20,
        pareto_set_size=1,
        training_examples=examples,
        feedback_fn=feedback_from([Exact()]),
    )
    with pytest.raises(ConfigError, match=r"a\.bin: expected an image, a PDF or a text"):
        GepaOptimizer(OptimizationContext(adapter), config).optimize(prompt)
