"""``promptgraft import`` of files of promptfoo and inspect_ai."""

from __future__ import annotations

import base64
import importlib
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.console import Console
from image_files import png
from promptgraft.bridges.inspect_ai import import_inspect
from promptgraft.bridges.promptfoo.configuration import import_promptfoo
from promptgraft.bridges.promptfoo.models import read_provider
from promptgraft.evals.metrics import judge_case
from promptgraft.evals.types import Answer, Case
from promptgraft.ground.content import Image
from promptgraft.ground.strict.nodes import Source
from promptgraft.project import Project, load_project
from promptgraft.project.imported import Foreign, Notes

NOTES = Path(__file__).with_name("import_notes.txt")
CONFIG = """\
description: Sorts messages
prompts:
  - file://prompt.txt
  - id: file://chat.json
    label: Chat
  - file://prompt.py
providers:
  - id: openai:chat:gpt-5-mini
    config: {temperature: 0, max_tokens: 50, apiKey: sk-0123456789abcdef, user: me, tools: []}
  - anthropic:messages:claude-sonnet-4-5
defaultTest: file://default.yaml
tests:
  - description: praise
    vars: {message: The bread was lovely.}
    assert:
      - {type: equals, value: praise, weight: 2}
      - {type: javascript, value: output.length < 10}
  - vars: {message: [When do you open?, Do you sell rye?]}
    assert:
      - type: assert-set
        assert: [{type: equals, value: "{{ label }}"}, {type: regex, value: "^q"}]
  - file://tests/*.csv
scenarios:
  - config: [{vars: {message: Burnt rolls.}}, {vars: {message: Cold rolls.}}]
    tests: [{vars: {label: complaint}, assert: [{type: equals, value: "{{ label }}"}]}]
evaluateOptions: {maxConcurrency: 2, repeat: 3, delay: 5}
outputPath: out.json
"""
FILES = {
    "promptfooconfig.yaml": CONFIG,
    "prompt.txt": "Name the kind of the message.\n\n# Message\n{{ message }}\n",
    "prompt.py": "print()",
    "chat.json": json.dumps(
        [
            {"role": "system", "content": "Name the kind."},
            {"role": "user", "content": [{"type": "text", "text": "{{message}}"}]},
        ]
    ),
    "default.yaml": "vars: {label: question}\nassert: [{type: not-contains, value: sorry}]\n",
    "tests/a.csv": (
        "message,__expected,__expected2,__description,__strange\n"
        'My cake was burnt.,complaint,"contains-any: com, x",burnt,y\n'
        "A warm place.,icontains:PRAISE,latency: 3000,,\n"
    ),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(files: Mapping[str, str | bytes]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())


def cases_of(project: Project) -> dict[str, Case]:
    parts = project.splits.parts().values()
    return {case.id: case for part in parts for case in part}


def test_a_configuration_of_promptfoo_is_a_project_that_runs(console: Console) -> None:
    write(FILES)
    ended = console("import", "promptfooconfig.yaml", "--json")
    assert (ended.code, ended.err) == (0, "")
    told = json.loads(ended.out)
    names = [str(Path(name).relative_to(Path.cwd())) for name in told["files"]]
    assert names == [
        *("promptgraft.yaml", "cases.jsonl", "prompts/prompt.md", "prompts/chat.md"),
        "promptgraft.schema.json",
    ]
    assert "sk-0123" not in "".join(Path(name).read_text("utf-8") for name in names)

    project = load_project("promptgraft.yaml")
    assert project.names == ("prompt", "chat")
    assert project.config.workers == 2
    task = project.config.models.task
    assert task is not None
    assert (task.provider, task.options["model"], task.options["max_output_tokens"]) == (
        *("openai", "gpt-5-mini"),
        50,
    )
    cases = cases_of(project)
    assert [cases[f"test-{n}"].input for n in range(1, 8)] == [
        {"message": text}
        for text in (
            *("The bread was lovely.", "When do you open?", "Do you sell rye?"),
            *("My cake was burnt.", "A warm place.", "Burnt rolls.", "Cold rolls."),
        )
    ]
    assert cases["test-1"].fields["description"] == "praise"
    assert cases["test-7"].expected == {"not_contains": "sorry", "equals_2": "complaint"}
    rendered = project.prompt("prompt").prompt.bind({"message": "Hello"}).render().text
    assert rendered == "Name the kind of the message.\n\n# Message\nHello"


def test_every_key_is_mapped_or_has_a_line(console: Console) -> None:
    write(FILES)
    notes = json.loads(console("import", "promptfooconfig.yaml", "--json").out)["notes"]
    assert notes == NOTES.read_text("utf-8").splitlines()


MAPPED = """
contains contains-all contains-any contains-json cost equals factuality g-eval icontains
icontains-all icontains-any is-json latency llm-rubric model-graded-closedqa
model-graded-factuality regex rouge-n starts-with word-count
"""
UNMAPPED = """
answer-relevance bleu classifier contains-html contains-sql contains-xml context-faithfulness
context-recall context-relevance conversation-relevance finish-reason gleu guardrails human is-html
is-refusal is-sql is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call
is-xml levenshtein max-score meteor moderation perplexity perplexity-score pi
search-rubric select-best similar similar:cosine similar:dot similar:euclidean skill-used
tool-call-f1 trace-error-spans trace-span-count trace-span-duration trajectory:goal-success
trajectory:step-count trajectory:tool-args-match trajectory:tool-sequence trajectory:tool-used
webhook
"""


def test_every_kind_of_assertion_is_a_metric_or_has_a_line(console: Console) -> None:
    values: Mapping[str, Any] = {
        "is-json": {"type": "object"},
        "contains-json": "",
        "word-count": 3,
    }
    tests = [
        {
            "vars": {"q": kind},
            "assert": [
                {"type": "contains", "value": "z"},
                {"type": kind, "value": values.get(kind, "a"), "threshold": 0.5},
            ],
        }
        for kind in (*MAPPED.split(), *UNMAPPED.split())
    ]
    document = {"prompts": ["{{q}}"], "providers": ["openai:gpt-5-mini"], "tests": tests}
    write({"p.json": json.dumps(document)})
    notes = json.loads(console("import", "p.json", "--json").out)["notes"]
    left_out = [note for kind in UNMAPPED.split() for note in notes if f"`{kind}` is left" in note]
    assert notes == left_out
    assert len(notes) == len(UNMAPPED.split())
    cases = cases_of(load_project("promptgraft.yaml"))
    for number, kind in enumerate(MAPPED.split(), start=1):
        asserts = cases[f"test-{number}"].fields["asserts"]
        assert isinstance(asserts, list)
        assert asserts[-1] in (kind.replace("-", "_"), f"{kind}_2")


HOLDS: Mapping[str, Any] = {
    "equals": lambda answer, value: answer == value,
    "contains": lambda answer, value: value in answer,
    "icontains": lambda answer, value: value.lower() in answer.lower(),
    "starts-with": lambda answer, value: answer.startswith(value),
    "contains-all": lambda answer, value: all(one in answer for one in value),
    "contains-any": lambda answer, value: any(one in answer for one in value),
}
WORDS = st.sampled_from(["a", "b", "c", "ab", "A", "bc"])


@st.composite
def assertions(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(HOLDS)))
    several = kind.endswith(("-all", "-any"))
    value = draw(st.lists(WORDS, min_size=1, max_size=3, unique=True) if several else WORDS)
    weight = draw(st.sampled_from([1, 1, 2]))
    prefix = draw(st.sampled_from(["", "", "not-"]))
    return {"type": f"{prefix}{kind}", "value": value, "weight": weight}


@settings(max_examples=15)
@given(
    default=st.lists(assertions(), max_size=1),
    tests=st.lists(st.lists(assertions(), min_size=1, max_size=3), min_size=2, max_size=4),
    answer=st.text("abcA", max_size=4),
)
def test_a_test_passes_here_where_it_passes_in_promptfoo(
    tmp_path_factory: pytest.TempPathFactory,
    default: list[dict[str, Any]],
    tests: list[list[dict[str, Any]]],
    answer: str,
) -> None:
    folder = tmp_path_factory.mktemp("promptfoo")
    document = {
        "prompts": ["Say {{q}}"],
        "providers": ["openai:gpt-5-mini"],
        "defaultTest": {"assert": default},
        "tests": [{"vars": {"q": f"q{n}"}, "assert": one} for n, one in enumerate(tests)],
    }
    (folder / "p.yaml").write_text(yaml.safe_dump(document))
    imported = import_promptfoo(Foreign.of(folder / "p.yaml"))
    assert imported.notes == ()
    for name, text in imported.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "promptgraft.yaml").write_text(json.dumps(dict(imported.document)))
    project = load_project(folder / "promptgraft.yaml")
    cases = cases_of(project)
    for number, own in enumerate(tests, start=1):
        verdicts = judge_case(project.metrics, cases[f"test-{number}"], Answer(text=answer))
        asked = [*default, *own]
        held = [
            HOLDS[one["type"].removeprefix("not-")](answer, one["value"])
            is not one["type"].startswith("not-")
            for one in asked
        ]
        assert all(verdict.passed for verdict in verdicts) == all(held)


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"c.yaml": "prompts: []\ntests: []\n"}, "c.yaml:1: prompts: expected at least one prompt"),
        (
            {"c.yaml": "prompts: [file://no.txt]\ntests: []\n"},
            "expected a file, found none at 'no.txt'",
        ),
        ({"c.yaml": "prompts: ['{{ q']\ntests: []\n"}, "templates here are those of Jinja"),
        ({"c.yaml": "prompts: ['{{q}}']\ntests: [3]\n"}, "tests[0]: expected a test, or a file"),
        (
            {"c.yaml": "prompts: ['{{q}}']\ntests: t.csv\n"},
            "expected a file, found none at 't.csv'",
        ),
        (
            {"c.yaml": "prompts: p.txt\n", "p.txt": b"\xff"},
            "c.yaml:1: prompts: p.txt: expected UTF-8",
        ),
        ({"c.yaml": "prompts: *a\ntests: []\n"}, "c.yaml:1: there is no anchor `&a` before `*a`"),
        (
            {"c.csv": "q,target\na,b\nc,d\n"},
            "c.csv:1: no sample has the column `input`; the columns are `q`, `target`: name the",
        ),
        ({"c.jsonl": "{\n"}, "c.jsonl:1: not JSON"),
    ],
)
def test_what_cannot_be_imported_is_one_line(
    console: Console, files: dict[str, str | bytes], said: str
) -> None:
    write(files)
    ended = console("import", next(iter(files)))
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(path.name for path in Path().iterdir()) == sorted(files)


def test_nothing_is_written_where_a_file_takes_the_place_of_a_folder(console: Console) -> None:
    write({**FILES, "prompts": "mine"})
    before = sorted(Path.cwd().rglob("*"))
    ended = console("import", "promptfooconfig.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert "prompts already exists; nothing was written" in ended.err
    assert sorted(Path.cwd().rglob("*")) == before


def test_an_option_of_another_tool_is_refused(console: Console) -> None:
    write({"c.csv": "input,target\na,b\n"})
    said = "import: --offline is not for a data set of inspect_ai; leave it out"
    assert said in console("import", "c.csv", "--offline").err
    assert "expected NAME=COLUMN" in console("import", "c.csv", "--field", "inpt=q").err


def test_choices_without_a_letter_are_refused(console: Console) -> None:
    choices = [f"choice {number}" for number in range(27)]
    row = {"input": "Which?", "target": "A", "choices": choices}
    write({"s.jsonl": json.dumps(row)})
    ended = console("import", "s.jsonl")
    assert ended.code == 2
    assert "[0].choices: expected at most 26 choices, one a letter, found 27" in ended.err


def test_a_data_set_of_inspect_ai_is_a_project_that_runs(console: Console) -> None:
    rows = [
        {"question": f"Which is {n}?", "target": "AB"[n % 2], "choices": ["one", "two"], "id": n}
        for n in range(12)
    ]
    write({"s.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows)})
    assert console("import", "s.jsonl", "--field", "input=question").code == 0
    assert console("check").code == 0
    ended = console("eval", "--split", "all")
    assert (ended.code, ended.err) == (0, "")
    assert "all 12 cases" in ended.out


def test_samples_with_several_right_choices_ask_for_all_of_them(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    row = {"input": "Which?", "choices": ["one", "two", "three"], "target": ["A", "C"]}
    rows = [{**row, "input": f"Which of {n}?", "sandbox": "docker", "mood": "x"} for n in range(4)]
    write({"s.json": json.dumps(rows)})
    ended = console("import", "s.json")
    assert "checked: promptgraft.yaml is valid\n" in ended.out
    assert "`sandbox` is left out: an agent sets it up itself" in ended.out
    assert "`mood` is left out: it is no field of a sample" in ended.out
    assert "the letters of all right choices" in Path("prompts/question.md").read_text()


def test_a_target_that_is_an_object_has_a_note(console: Console) -> None:
    write({"s.json": json.dumps([{"input": f"Q{n}", "target": {"text": ["a"]}} for n in range(4)])})
    assert (
        "an object is looked for as its text, as inspect_ai does" in console("import", "s.json").out
    )


SHAPES = {
    "image_url": {"type": "image_url", "image_url": {"url": "{{photo}}"}},
    "image_url of bytes": {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64,{{ photo }}"},
    },
    "input_image": {"type": "input_image", "image_url": "{{photo}}"},
    "source": {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "{{photo}}"},
    },
    "inline_data": {"inline_data": {"mime_type": "image/png", "data": "{{photo}}"}},
}
PHOTOS = [png(colour=(9 + n, 9, 9), caption=f"a shelf with {n} books") for n in range(3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_image_of_a_chat_of_promptfoo_is_an_input_of_cases(
    console: Console, shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    chat = [
        {"role": "system", "content": "Count the books."},
        {"role": "user", "content": [{"type": "text", "text": "{{what}}?"}, SHAPES[shape]]},
    ]
    photos = ["file://shelves/0.png", base64.b64encode(PHOTOS[1]).decode(), "https://a.org/2.png"]
    tests = [
        {
            "vars": {"what": "How many", "photo": photo},
            "assert": [{"type": "equals", "value": f"{n}"}],
        }
        for n, photo in enumerate(photos)
    ]
    providers = ["openai:gpt-5-mini"]
    configuration = {"prompts": ["file://chat.json"], "providers": providers, "tests": tests}
    write({"chat.json": json.dumps(chat), "p.json": json.dumps(configuration)})
    write({"shelves/0.png": PHOTOS[0]})
    ended = console("import", "p.json")
    assert (ended.code, ended.err) == (0, "")
    assert "left out" not in ended.out
    assert "checked: promptgraft.yaml is valid" in ended.out

    project = load_project("promptgraft.yaml")
    cases = cases_of(project)
    inputs = [cases[f"test-{n}"].input for n in (1, 2, 3)]
    images = [case_input["photo"] for case_input in inputs if isinstance(case_input, Mapping)]
    assert images == [
        *(Image(data=PHOTOS[0], name="0.png"), Image(data=PHOTOS[1])),
        Image(url="https://a.org/2.png"),
    ]
    prompt = project.prompt("chat").prompt
    assert prompt.bind(inputs[0]).render().content[-1] == images[0]


def test_an_image_may_be_named_in_a_file_of_variables_or_be_absent(console: Console) -> None:
    chat = [{"role": "user", "content": [{"text": "{{what}}?"}, SHAPES["image_url"]]}]
    asserts = [{"type": "equals", "value": "0"}]
    tests: list[dict[str, object]] = [
        {"vars": "file://first.json", "assert": asserts},
        {"vars": {"what": "Which", "photo": None}, "assert": asserts},
    ]
    configuration = {"prompts": [json.dumps(chat)], "tests": tests}
    write({"p.json": json.dumps(configuration), "0.png": PHOTOS[0]})
    write({"first.json": json.dumps({"what": "How many", "photo": "file://0.png"})})
    ended = console("import", "p.json")
    assert (ended.code, ended.err) == (0, "")
    lines = Path("cases.jsonl").read_text("utf-8").splitlines()
    photos = [json.loads(line)["input"]["photo"] for line in lines]
    assert photos == [{"type": "image", "path": "0.png"}, ""]


def test_an_image_outside_of_the_folder_of_a_configuration_is_a_fault(console: Console) -> None:
    chat = [{"role": "user", "content": [{"text": "Which?"}, SHAPES["image_url"]]}]
    tests = [{"vars": {"photo": "file://../0.png"}, "assert": [{"type": "equals", "value": "0"}]}]
    configuration = {"prompts": [json.dumps(chat)], "tests": tests}
    write({"a/p.json": json.dumps(configuration), "0.png": PHOTOS[0]})
    ended = console("import", "a/p.json", "--root", ".")
    assert ended.code == 2
    assert "expected an image in" in ended.err.splitlines()[-1]
    assert not Path("a/promptgraft.yaml").exists()


def test_an_image_of_a_sample_of_inspect_ai_is_a_part_of_the_question(console: Console) -> None:
    rows = [
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": f"How many on shelf {n}?"},
                        {"type": "image", "image": f"{n}.png"},
                        {"type": "audio", "audio": "a.mp3", "format": "mp3"},
                    ],
                }
            ],
            "target": f"{n}",
        }
        for n in range(3)
    ]
    write({f"{n}.png": photo for n, photo in enumerate(PHOTOS)})
    write({"s.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows)})
    ended = console("import", "s.jsonl")
    assert (ended.code, ended.err) == (0, "")
    assert "a part of a message that is no text and no image is left out" in ended.out
    cases = cases_of(load_project("promptgraft.yaml"))
    assert [cases[f"{n}"].input for n in (1, 2, 3)] == [
        {"question": [f"How many on shelf {n}?", Image(data=photo, name=f"{n}.png")]}
        for n, photo in enumerate(PHOTOS)
    ]


needs_inspect = pytest.mark.skipif(
    importlib.util.find_spec("inspect_ai") is None, reason="inspect_ai is not installed"
)
WORD = st.text("abc", min_size=1, max_size=5)
SAMPLES = st.lists(
    st.fixed_dictionaries(
        {"input": WORD, "target": WORD | st.lists(WORD, min_size=1, max_size=2)},
        optional={
            "choices": st.lists(WORD, min_size=2, max_size=3),
            "metadata": st.dictionaries(WORD, st.integers() | WORD, max_size=2),
        },
    ),
    min_size=2,
    max_size=5,
    unique_by=lambda sample: str(sample["input"]),
)


@needs_inspect
@settings(max_examples=20)
@given(samples=SAMPLES, ending=st.sampled_from(["json", "jsonl", "csv"]))
def test_samples_are_those_that_inspect_ai_reads(
    tmp_path_factory: pytest.TempPathFactory, ending: str, samples: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.mktemp("inspect") / f"s.{ending}"
    numbered = [{"id": f"n{n}", **sample} for n, sample in enumerate(samples)]
    path.write_text(written(numbered, ending), "utf-8")
    data = importlib.import_module("inspect_ai.dataset")
    theirs = (data.csv_dataset if ending == "csv" else data.json_dataset)(str(path))
    ours = list(
        map(json.loads, import_inspect(Foreign.of(path), {}).files["cases.jsonl"].splitlines())
    )
    assert len(ours) == len(theirs)
    for case, sample in zip(ours, theirs, strict=True):
        assert case["id"] == str(sample.id)
        assert case["input"]["question"] == sample.input
        assert case["expected"] == sample.target
        assert case.get("fields", {}).get("metadata", {}) == (sample.metadata or {})
        lettered = [f"{'ABC'[n]}) {one}" for n, one in enumerate(sample.choices or ())]
        assert case["input"].get("choices", "") == "\n".join(lettered)


def written(samples: list[dict[str, Any]], ending: str) -> str:
    if ending == "json":
        return json.dumps(samples)
    if ending == "jsonl":
        return "".join(f"{json.dumps(sample)}\n" for sample in samples)
    rows = ["id,input,target,choices,metadata"]
    for sample in samples:
        target, metadata = sample["target"], json.dumps(sample.get("metadata", {}))
        cells = [sample["id"], sample["input"], target if isinstance(target, str) else target[0]]
        cells += [",".join(sample.get("choices", ())), metadata]
        rows.append(",".join(f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in cells))
    return "\n".join(rows)


PROVIDERS: Mapping[str, dict[str, Any] | None] = {
    "openai:gpt-5-mini": {"provider": "openai", "model": "gpt-5-mini"},
    "openai:chat:ft:gpt-4o:me": {"provider": "openai", "model": "ft:gpt-4o:me"},
    "azure:chat:mine": {"provider": "azure", "model": "mine"},
    "bedrock:anthropic.claude-sonnet-4-5-20250929-v1:0": {
        "provider": "bedrock",
        "model": "anthropic.claude-sonnet-4-5-20250929-v1:0",
    },
    "ollama:chat:llama3:8b": {
        "provider": "openai",
        "model": "llama3:8b",
        "base_url": "http://localhost:11434/v1",
        "api_key": "none",
    },
    "groq:llama-3.1-8b-instant": {
        "provider": "openai",
        "model": "llama-3.1-8b-instant",
        "base_url": "https://api.groq.com/openai/v1",
        "api_key": "${GROQ_API_KEY}",
    },
    "bedrock:converse:us.anthropic.claude-sonnet-4-6": {
        "provider": "bedrock",
        "model": "us.anthropic.claude-sonnet-4-6",
    },
    "openai:chat:{{env.MODEL}}": {"provider": "openai", "model": "${MODEL}"},
    "vertex:gemini-2.5-pro": None,
    "bedrock:us.meta.llama4-scout-17b-instruct-v1:0": None,
    "openai:embedding:text-embedding-3-small": None,
    "openai:chat": None,
    "openai:codex-sdk": None,
    "anthropic:claude-agent-sdk": None,
    "exec:python mine.py": None,
    "https://example.org/chat": None,
    "echo": None,
}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_provider_is_a_model_or_none(provider: str) -> None:
    notes = Notes()
    assert read_provider(Source.of(provider, "c.yaml").root, notes) == PROVIDERS[provider]
    assert notes.lines == ()


@pytest.mark.parametrize(
    ("provider", "config", "options", "left_out"),
    [
        ("openai:gpt-4o", {"temperature": 0.5}, {"temperature": 0.5}, []),
        ("openai:gpt-5-mini", {"temperature": 0.5}, {}, ["temperature"]),
        ("anthropic:messages:claude-haiku-4-5", {"temperature": 0}, {"temperature": 0}, []),
        ("anthropic:messages:claude-opus-4-8", {"temperature": 0}, {}, ["temperature"]),
        ("anthropic:messages:claude-haiku-4-5", {"temperature": 2}, {}, ["temperature"]),
        ("anthropic:messages:claude-haiku-4-5", {"seed": 3}, {}, ["seed"]),
        (
            "bedrock:eu.anthropic.claude-sonnet-4-6",
            {"temperature": 1, "max_tokens": 9, "region": "eu-west-1"},
            {"temperature": 1, "max_output_tokens": 9, "region": "eu-west-1"},
            [],
        ),
        ("vertex:claude-sonnet-4-5", {"top_p": 0.2, "maxTokens": 5}, {"top_p": 0.2}, []),
        (
            "openai:gpt-4o",
            {"max_tokens": "many", "stop": ["END"]},
            {"stop": ["END"]},
            ["max_tokens"],
        ),
        ("azure:chat:mine", {"apiVersion": "2025-01-01"}, {"api_version": "2025-01-01"}, []),
        ("openai:gpt-4o", {"apiVersion": "2025-01-01"}, {}, ["apiVersion"]),
        ("openai:gpt-4o", {"model": "gpt-4o"}, {"model": "gpt-4o"}, []),
        ("openai:chat", {"model": "gpt-4o"}, {"model": "gpt-4o"}, []),
        ("openai:gpt-4o", {"apiKey": "{{env.MINE}}"}, {"api_key": "${MINE}"}, []),
        ("openai:gpt-4o", {"apiBaseUrl": "{{env.URL}}"}, {"base_url": "${URL}"}, []),
    ],
)
def test_options_that_a_model_does_not_take_are_left_out(
    provider: str, config: dict[str, Any], options: dict[str, Any], left_out: list[str]
) -> None:
    notes = Notes()
    root = Source.of({"id": provider, "config": config}, "c.yaml").root
    found = read_provider(root, notes)
    assert found is not None
    assert {name: found[name] for name in options} == options
    assert not {*left_out} & found.keys()
    assert [f"`{name}: " in note for name, note in zip(left_out, notes.lines, strict=True)] == [
        True for _ in left_out
    ]


def test_headers_are_taken_over_but_no_secret_in_plain_text() -> None:
    key, notes = f"sk-proj-{'a1B2c3D4' * 5}", Notes()
    headers = {
        "X-Team": "blue",
        "Authorization": "Bearer {{env.MINE}}",
        "X-Api-Key": "abc",
        "X-Any": key,
        "X-Both": f"${{MINE}} {key}",
    }
    provider: dict[str, Any] = {"id": "openai:gpt-4o", "config": {"headers": headers}}
    assert read_provider(Source.of(provider, "c.yaml").root, notes) == {
        "provider": "openai",
        "model": "gpt-4o",
        "headers": {"X-Team": "blue", "Authorization": "Bearer ${MINE}"},
    }
    for name, note in zip(("X-Api-Key", "X-Any", "X-Both"), notes.lines, strict=True):
        assert f"header `{name}`: a secret is not copied: export it" in note
        assert key not in note


def test_a_cell_of_a_table_that_is_no_number_is_said_by_check(console: Console) -> None:
    rows = "message,__expected,__threshold\na,equals: b,much\nb,equals: c,much\n"
    write({"c.yaml": "prompts: ['{{message}}']\ntests: t.csv\n", "t.csv": rows})
    assert console("import", "c.yaml").code == 0
    ended = console("check")
    assert ended.code == 2
    assert "metrics[0].threshold: expected a number from 0 to 1, found 'much'" in ended.out


def test_columns_of_metadata_are_kept_in_the_cases(console: Console) -> None:
    write(
        {
            "c.yaml": "prompts: ['Say {{q}}']\nproviders: [openai:gpt-4o]\ntests: t.csv\n",
            "t.csv": 'q,__expected,__metadata:level,__metadata:tags[]\na,b,easy,"x, y"\nc,d,,\n',
        }
    )
    assert console("import", "c.yaml", "--json").code == 0
    cases = cases_of(load_project("promptgraft.yaml"))
    assert cases["test-1"].fields == {"metadata": {"level": "easy", "tags": ["x", "y"]}}
    assert cases["test-2"].fields == {}


def test_of_many_functions_to_write_ten_are_named(console: Console) -> None:
    tests = [
        {"vars": {"q": f"q{n}"}, "assert": [{"type": "javascript", "value": f"judge({n})"}]}
        for n in range(12)
    ]
    write({"c.yaml": json.dumps({"prompts": ["Say {{q}}"], "tests": tests})})
    out = console("import", "c.yaml").out
    assert "write it in `metrics.py`; the same in 11 more\n" in out
    assert "metrics.py:javascript_10 and 2 more\n" in out


def test_an_import_may_be_repeated_beside_the_same_schema(console: Console) -> None:
    write({"c.yaml": "prompts: ['Say {{q}}']\ntests: [{vars: {q: a}}, {vars: {q: b}}]\n"})
    schema = Path("promptgraft.schema.json")
    assert console("import", "c.yaml").code == 0
    Path("promptgraft.yaml").unlink()
    assert (console("import", "c.yaml").code, schema.is_file()) == (0, True)
    Path("promptgraft.yaml").unlink()
    schema.write_text("{}")
    ended = console("import", "c.yaml")
    assert (ended.code, schema.read_text()) == (2, "{}")
    assert "promptgraft.schema.json already exists" in ended.err


def test_parts_of_a_configuration_may_stand_elsewhere(console: Console) -> None:
    write(
        {
            "c.yaml": (
                "prompts: file://prompts.yaml\nproviders: file://providers.yaml\n"
                "tests:\n- vars: {q: file://vars/*.txt}\n"
                "  assert: [{$ref: '#/assertionTemplates/a'}]\n"
                "assertionTemplates:\n  a: {type: contains, value: x}\n"
            ),
            "prompts.yaml": "- 'Say {{q}}'\n- {id: loud, raw: 'Shout {{q}}', label: loud}\n",
            "providers.yaml": "providers:\n- anthropic:messages:claude-sonnet-4-5\n",
            "vars/a.txt": "one",
            "vars/b.txt": "two",
        }
    )
    ended = console("import", "c.yaml", "--json")
    assert (json.loads(ended.out)["notes"], ended.err) == ([], "")
    project = load_project("promptgraft.yaml")
    assert project.names == ("prompt", "loud")
    task = project.config.models.task
    assert task is not None
    assert task.provider == "anthropic"
    cases = cases_of(project)
    assert [cases[f"test-{n}"].input for n in (1, 2)] == [{"q": "one"}, {"q": "two"}]
    assert cases["test-1"].expected == "x"
