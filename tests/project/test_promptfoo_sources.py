"""Configurations of promptfoo in the forms that are found in public repositories.

Each row describes a form: small files of our own in that form, what the project asks, and what the
user still has to write. No code that a configuration names is ever run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest

from promptgraft.adapters.openai import ChatWire, OpenAIProfile
from promptgraft.bridges.promptfoo.asserts import conditions_of
from promptgraft.bridges.promptfoo.code import python_prompt
from promptgraft.bridges.promptfoo.configuration import import_promptfoo
from promptgraft.bridges.promptfoo.prompts import as_jinja
from promptgraft.errors import DataFormatError
from promptgraft.project.checking import Checked, check_project
from promptgraft.project.imported import Foreign, ImportedProject

HEAD = "providers: [openai:gpt-5-mini]\n"
TESTS = """\
tests:
  - vars: {note: maps}
    assert: [{type: icontains, value: travel}]
  - vars: {note: odes}
    assert: [{type: icontains, value: poetry}]
"""
NO_ASSERTS = "tests: [{vars: {note: maps}}, {vars: {note: odes}}]\n"
SHELF = "prompts: ['Name the shelf of {{note}}.']\n"
EQUALS = "assert: [{type: equals, value: travel}]"
NEVER = "raise SystemExit('code of a configuration was run')\n"
JS_NEVER = "throw new Error('code of a configuration was run')\n"


@attrs.frozen(kw_only=True)
class Form:
    """A form of configuration.

    Attributes:
        config: the configuration.
        files: the files beside it.
        first: the text of the first case's prompt; None if it cannot be rendered yet.
        metrics: the kinds of metrics.
        unwritten: what the user has to write.
        note: a part of the notes.
    """

    config: str
    files: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    first: str | None = "Name the shelf of maps."
    metrics: tuple[str, ...] = ("contains",)
    unwritten: tuple[str, ...] = ()
    note: str = ""


def prompted(entry: str) -> str:
    """Return a configuration with one entry under `prompts`."""
    return f"{HEAD}prompts: [{entry}]\n{TESTS}"


FORMS: Mapping[str, Form] = {
    "texts": Form(config=HEAD + SHELF + TESTS),
    "a file": Form(
        config=prompted("file://p.txt"), files={"p.txt": "Name the shelf of {{ note }}."}
    ),
    "a file without a scheme": Form(
        config=prompted("p.txt"), files={"p.txt": "Name the shelf of {{ note }}."}
    ),
    "a raw prompt that is a file": Form(
        config=prompted("{label: a, raw: 'file://p.md'}"),
        files={"p.md": "Name the shelf of {{ note }}."},
    ),
    "a table of prompts": Form(
        config=prompted("file://p.csv"), files={"p.csv": "prompt\nName the shelf of {{note}}.\n"}
    ),
    "no prompts": Form(
        config=HEAD + "tests:\n- vars: {prompt: a}\n  assert: [{type: contains, value: b}]\n"
        "- vars: {prompt: c}\n  assert: [{type: contains, value: b}]\n",
        first="a",
    ),
    "a chat in JSON": Form(
        config=prompted("file://c.json"),
        files={
            "c.json": json.dumps(
                [
                    {"role": "system", "content": "Name the shelf of"},
                    {"role": "user", "content": "{{note}}."},
                ]
            )
        },
        first="Name the shelf of\n\nmaps.",
    ),
    "a chat in JSON with a dumped value": Form(
        config=prompted("file://c.json"),
        files={"c.json": '[{"role": "user", "content": {{ note | dump }}}]'},
        first="maps",
    ),
    "a chat in the text, as YAML": Form(
        config=HEAD + "prompts:\n- |\n  - role: system\n    content: Name the shelf of\n"
        "  - role: user\n    content: '{{note}}.'\n" + TESTS,
        first="Name the shelf of\n\nmaps.",
    ),
    "a chat with a recording": Form(
        config=prompted("file://c.json"),
        files={
            "c.json": json.dumps(
                [
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "Name the shelf of {{note}}."},
                            {"type": "input_audio", "input_audio": {"data": "{{sound}}"}},
                        ],
                    }
                ]
            )
        },
        note="a part of a message that is no text and no image is left out",
    ),
    "a Python function that fills in a template": Form(
        config=prompted("file://p.py:shelf"),
        files={
            "p.py": NEVER + "def shelf(context):\n"
            "    note = context['vars']['note']\n    return f'Name the shelf of {note}.'\n"
        },
        note="`p.py:shelf` is a function, which is not run here",
    ),
    "a Python function that does more": Form(
        config=prompted("p.py:shelf"),
        files={"p.py": NEVER + "def shelf(context):\n    return open('x').read()\n"},
        first=None,
        unwritten=("prompts/shelf.md",),
        note="prompts[0]: `p.py:shelf` is a function, which is not run here: write its text",
    ),
    "a JavaScript function": Form(
        config=prompted("file://p.mjs:shelf"),
        files={"p.mjs": JS_NEVER},
        first=None,
        unwritten=("prompts/shelf.md",),
    ),
    "a prompt of a service": Form(
        config=prompted("langfuse://shelf:3"),
        first=None,
        unwritten=("prompts/prompt.md",),
        note="is kept by a service",
    ),
    "a function beside a text": Form(
        config=HEAD + "prompts: ['Name the shelf of {{note}}.', 'p.js:shelf']\n" + TESTS,
        files={"p.js": JS_NEVER},
        note="prompts[1]: `p.js:shelf` is a function",
    ),
    "aliases and merge keys": Form(
        config=HEAD + SHELF + "x: &a [{type: icontains, value: travel}]\n"
        "y: &b {vars: {note: maps}, assert: *a}\n"
        "tests: [*b, {<<: *b, vars: {note: routes}}]\n",
        note="`x` is left out",
    ),
    "references": Form(
        config=HEAD + SHELF + "assertionTemplates: {a: {type: icontains, value: travel}}\n"
        "tests: [{vars: {note: maps}, assert: [{$ref: '#/assertionTemplates/a'}]},\n"
        "  {vars: {note: sea}, assert: [{$ref: '#/assertionTemplates/a'}]}]\n",
    ),
    "scenarios": Form(
        config=HEAD + SHELF + "scenarios:\n- config: [{vars: {note: maps}}, {vars: {note: sea}}]\n"
        "  tests: [{assert: [{type: icontains, value: travel}]}]\n",
    ),
    "tests in a table": Form(
        config=HEAD + SHELF + "tests: file://t.csv\n",
        files={"t.csv": "note,__expected\nmaps,icontains:travel\nodes,icontains:poetry\n"},
    ),
    "a number of words in other digits": Form(
        config=HEAD
        + SHELF
        + "tests: [{vars: {note: maps}, assert: [{type: word-count, value: '²'},\n"
        "  {type: icontains, value: travel}]},\n"
        "  {vars: {note: sea}, assert: [{type: icontains, value: travel}]}]\n",
        note="`word-count` is left out",
    ),
    "functions in a table": Form(
        config=HEAD + SHELF + "tests: file://t.csv\n",
        files={
            "t.csv": "note,__expected\nmaps,file://shelf.py:right\nodes,file://shelf.py:right\n"
        },
        metrics=("python",),
        unwritten=("metrics.py:right",),
        note="the `python` code is not run here: write it in `metrics.py`",
    ),
    "tests in JSONL": Form(
        config=HEAD + SHELF + "tests: file://t.jsonl\n",
        files={
            "t.jsonl": "".join(
                json.dumps({"vars": {"note": note}, "assert": [{"type": "contains", "value": "t"}]})
                + "\n"
                for note in ("maps", "odes")
            )
        },
    ),
    "tests in a cases.jsonl of their own": Form(
        config=HEAD + SHELF + "tests: cases.jsonl\n",
        files={
            "cases.jsonl": "".join(
                json.dumps({"vars": {"note": note}, "assert": [{"type": "contains", "value": "t"}]})
                + "\n"
                for note in ("maps", "odes")
            )
        },
    ),
    "tests of a function": Form(
        config=HEAD + SHELF + "defaultTest: {assert: [{type: icontains, value: travel}]}\n"
        "tests: [{path: 'file://t.py:make', config: {n: 3}}]\n",
        files={"t.py": NEVER},
        first=None,
        unwritten=("cases.jsonl",),
        note="`file://t.py:make` makes tests",
    ),
    "tests of a sheet": Form(
        config=HEAD + SHELF + "tests: https://docs.google.com/spreadsheets/d/1/edit\n",
        first=None,
        metrics=("python",),
        unwritten=("metrics.py:quality", "cases.jsonl"),
        note="is not fetched: save it beside the configuration as CSV",
    ),
    "tests of a data set": Form(
        config=HEAD + SHELF + "tests: huggingface://datasets/a/b?split=test\n",
        first=None,
        metrics=("python",),
        unwritten=("metrics.py:quality", "cases.jsonl"),
    ),
    "tests of a workbook": Form(
        config=HEAD + SHELF + "tests: file://t.xlsx#Sheet1\n",
        first=None,
        metrics=("python",),
        unwritten=("metrics.py:quality", "cases.jsonl"),
        note="is a workbook: save the sheet as CSV",
    ),
    "attacks only": Form(
        config="targets: [openai:gpt-5-mini]\nredteam: {numTests: 5, plugins: [pii]}\n",
        first=None,
        metrics=("python",),
        unwritten=("metrics.py:quality", "cases.jsonl"),
        note="promptgraft makes no attacks",
    ),
    "tests without assertions": Form(
        config=HEAD + SHELF + NO_ASSERTS,
        metrics=("python",),
        unwritten=("metrics.py:quality",),
        note="no test says what a good answer is",
    ),
    "one test": Form(
        config=HEAD
        + SHELF
        + "tests: [{vars: {note: maps}, assert: [{type: contains, value: t}]}]\n",
        unwritten=("cases.jsonl",),
        note="1 case is too few for a search",
    ),
    "a function in Python as assertion": Form(
        config=HEAD
        + SHELF
        + "defaultTest: {assert: [{type: python, value: 'file://g.py:good'}]}\n"
        + NO_ASSERTS,
        files={"g.py": NEVER},
        metrics=("python",),
        unwritten=("metrics.py:good",),
        note="the `python` code is not run here: write it in `metrics.py`",
    ),
    "a program with several configurations as assertion": Form(
        config=HEAD
        + SHELF
        + "tests:\n"
        + "".join(
            f"- vars: {{note: {note}}}\n  assert: [{{type: javascript, value: 'file://t.js', "
            f"config: {{tool: {tool}}}}}]\n"
            for note, tool in (("maps", "find"), ("odes", "read"), ("seas", "find"))
        ),
        files={"t.js": JS_NEVER},
        metrics=("python",),
        unwritten=("metrics.py:javascript", "metrics.py:javascript_2"),
        note="the `javascript` code is not run here: write it in `metrics.py`; the same in 2 more",
    ),
    "a prompt in the syntax of Python": Form(
        config=HEAD + "prompts: ['Name the shelf of {note}.']\n" + TESTS,
        unwritten=("cases.jsonl",),
        note="all cases ask the same; `{note}` is plain text in promptfoo, too",
    ),
    "several tests of one question": Form(
        config=HEAD + "prompts: ['Name the shelf.']\n" + TESTS,
        unwritten=("cases.jsonl",),
        note="1 question in 2 cases is too few for a search",
    ),
    "a group of JavaScript with a name": Form(
        config=HEAD
        + SHELF
        + "defaultTest: {assert: [{type: regex, value: '(?<what>tr)a'}]}\n"
        + NO_ASSERTS,
        metrics=("regex",),
    ),
    "a schema of answers beside a prompt": Form(
        config=HEAD
        + "prompts: [{raw: 'Name the shelf of {{note}}.', config: {response_format: {type: x}}}]\n"
        + TESTS,
        note="`response_format` is left out: write it to a file, and `output: FILE.json` above",
    ),
    "code in JavaScript as assertion": Form(
        config=HEAD + SHELF + "defaultTest:\n  assert:\n  - type: javascript\n    metric: Polite!\n"
        "    value: |\n      const words = output.split(' ');\n      return words.length > 3;\n"
        + NO_ASSERTS,
        metrics=("python",),
        unwritten=("metrics.py:polite",),
    ),
    "a comparison in JavaScript": Form(
        config=HEAD + SHELF + "defaultTest: {assert: [{type: javascript, metric: accuracy,\n"
        "  value: 'output.shelf === context.vars.shelf'}]}\n"
        "tests: [{vars: {note: maps, shelf: travel}}, {vars: {note: odes, shelf: poetry}}]\n",
        metrics=("json_match",),
    ),
    "a provider over HTTP": Form(
        config="providers: [{id: 'https://example.org', config: {body: {q: '{{prompt}}'}}}]\n"
        + SHELF
        + TESTS,
        unwritten=("models.py:task",),
        note="no model here is `https://example.org`: write `models.py:task`",
    ),
    "a provider in a program": Form(
        config="providers: ['file://p.py']\n" + SHELF + TESTS,
        files={"p.py": NEVER},
        unwritten=("models.py:task",),
    ),
    "a variable that code computes": Form(
        config=HEAD + "prompts: ['Name the shelf of {{note}}. {{context}}']\n"
        "defaultTest: {vars: {context: 'file://c.py'}}\n" + TESTS,
        files={"c.py": NEVER},
        first=None,
        note="`context` comes from code: write its values in cases.jsonl",
    ),
    "a variable in a file of another language": Form(
        config=HEAD + SHELF + "tests: [{vars: {note: 'file://n.spec'}, assert: [{type: contains, "
        "value: t}]}, {vars: {note: sea}, assert: [{type: contains, value: t}]}]\n",
        files={"n.spec": "maps"},
    ),
    "a filter of a program": Form(
        config=HEAD + "nunjucksFilters: {loud: ./loud.js}\n"
        "prompts: ['Name the shelf of {{note | loud}}.']\n" + TESTS,
        note="the filter `loud` is left out",
    ),
    "values of the environment": Form(
        config=HEAD + "env: {WHAT: shelf}\n"
        "prompts: ['Name the {{env.WHAT}} of {{note}}{{ env.NONE }}.']\n" + TESTS,
        note="`env.NONE` is left empty",
    ),
    "conditions in a template": Form(
        config=HEAD + "prompts: ['Name the shelf of {% if note.length === 4 %}{{note}}"
        "{% elseif note !== null %}?{% endif %}.']\n" + TESTS,
    ),
    "a variable called input": Form(
        config=HEAD + "prompts: ['{{role}} {{input}}']\ntests:\n"
        "- {vars: {role: Name, input: maps}, assert: [{type: contains, value: t}]}\n"
        "- {vars: {role: Name, input: odes}, assert: [{type: contains, value: t}]}\n",
        first="Name maps",
    ),
    "plain scalars of JavaScript": Form(
        config=HEAD + SHELF + "version: 0x1\ntests:\n"
        "- {vars: {note: 1e3}, assert: [{type: contains, value: 007}]}\n"
        "- {vars: {note: no}, assert: [{type: contains, value: 1_000}]}\n",
        first="Name the shelf of 1000.",
    ),
}


def written(folder: Path, form: Form) -> ImportedProject:
    for name, text in {"promptfooconfig.yaml": form.config, **form.files}.items():
        (folder / name).write_text(text, "utf-8")
    imported = import_promptfoo(Foreign.of(folder / "promptfooconfig.yaml"))
    for name, text in imported.files.items():
        assert not (folder / name).exists()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    (folder / "promptgraft.yaml").write_text(json.dumps(dict(imported.document)), "utf-8")
    return imported


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_a_project_that_runs_or_names_what_is_to_be_written(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "unused")
    form = FORMS[name]
    imported = written(tmp_path, form)
    document: Any = imported.document
    kinds = tuple(
        dict.fromkeys(
            entry["kind"]
            for metric in document["metrics"]
            for entry in metric.get("metrics", [metric])
        )
    )
    assert (kinds, imported.unwritten) == (form.metrics, form.unwritten)
    assert form.note in "\n".join(imported.notes)
    checked = check_project(tmp_path / "promptgraft.yaml")
    if form.first is not None and not form.unwritten:
        assert checked.faults == ()
        assert checked.project is not None
        prompt = checked.project.prompt(next(iter(document["prompts"]))).prompt
        lines = (tmp_path / document["dataset"]["path"]).read_text("utf-8").splitlines()
        case = json.loads(lines[0])
        assert prompt.bind(case["input"]).render().text == form.first
    else:
        # What is missing is named, with the file in which it is to be written.
        told = " ".join((*checked.faults, *checked.warnings))
        for what in imported.unwritten or ("cases.jsonl",):
            assert (what in told) or ("write_this_prompt" in told and what.startswith("prompts/"))


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        ("javascript", "output === 'a'", [("exact", {}, "a", False)]),
        ("javascript", 'return output.trim() !== "a";', [("exact", {}, "a", True)]),
        ("javascript", "output == context.vars.v", [("exact", {}, "V", False)]),
        (
            "javascript",
            "output.toLowerCase().includes('it\\'s')",
            [("contains", {"ignore_case": True}, "it's", False)],
        ),
        ("javascript", "!output.includes(vars.v)", [("contains", {}, "V", True)]),
        ("javascript", "output.length <= 9", [("length", {"max": 9}, None, False)]),
        ("javascript", "// short\noutput.length > 0", [("length", {"min": 1}, None, False)]),
        ("javascript", "/^a\\d/i.test(output)", [("regex", {}, "(?i)^a\\d", False)]),
        ("javascript", "output.startsWith('a.')", [("regex", {}, "\\Aa\\.", False)]),
        (
            "javascript",
            "JSON.parse(output).a.b === 2 && output.length < 9",
            [
                ("json_match", {"paths": ["a.b"]}, {"a": {"b": 2}}, False),
                ("length", {"max": 8}, None, False),
            ],
        ),
        (
            "javascript",
            "output['a'] === context.vars['v']",
            [("json_match", {"paths": ["a"]}, {"a": "V"}, False)],
        ),
        ("javascript", "output.a === true", [("json_match", {"paths": ["a"]}, {"a": True}, False)]),
        ("python", "output == 'a'", [("exact", {}, "a", False)]),
        ("python", "'a' not in output.lower()", [("contains", {"ignore_case": True}, "a", True)]),
        (
            "python",
            "len(output) >= 3 and 'a' in output",
            [("length", {"min": 3}, None, False), ("contains", {}, "a", False)],
        ),
        (
            "python",
            "json.loads(output)['a']['b'] == context['vars']['v']",
            [("json_match", {"paths": ["a.b"]}, {"a": {"b": "V"}}, False)],
        ),
    ],
)
def test_simple_conditions_are_metrics(
    kind: str, code: str, expected: list[tuple[str, dict[str, Any], Any, bool]]
) -> None:
    found = conditions_of(kind, code)
    assert found is not None
    told = [(one.kind, dict(one.options), one.reference({"v": "V"}), one.inverted) for one in found]
    assert told == expected


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("javascript", "output.length > 3 || output === 'a'"),
        ("javascript", "output.a.length === 2"),
        ("javascript", "output[0].name === 'a'"),
        ("javascript", "output.includes('a') ? 1 : 0"),
        ("javascript", "context.vars.a === output.b"),
        ("javascript", "output.length < 0"),
        ("javascript", "process.exit()"),
        ("javascript", "output === context.vars.v.toLowerCase()"),
        ("javascript", "output.includes('A'.toLowerCase())"),
        ("javascript", "output.a === vars.v.toLowerCase()"),
        ("javascript", "`${output}` === 'a'"),
        ("python", "__import__('os').system('true')"),
        ("python", "import os"),
        ("python", "'a' in output or 'b' in output"),
        ("python", "output[0] == 'a'"),
        ("python", "(" * 300 + "output"),
        ("python", "'a' in output or " * 500),
        ("python", "-" * 600 + "output == 1"),
    ],
)
def test_other_conditions_are_left_to_the_user(kind: str, code: str) -> None:
    assert conditions_of(kind, code) is None


def test_what_a_stub_quotes_never_becomes_code(tmp_path: Path) -> None:
    code = 'const a = 1;\n"""\nraise SystemExit("run")\r\x0craise SystemExit("run")\x00'
    form = Form(config=HEAD + SHELF + NO_ASSERTS)
    document = {
        "prompts": ["Name {{note}}"],
        "providers": ["openai:gpt-5-mini"],
        "defaultTest": {"assert": [{"type": "javascript", "metric": 'a"\n()', "value": code}]},
        "tests": [{"vars": {"note": "a"}}, {"vars": {"note": "b"}}],
    }
    imported = written(tmp_path, attrs.evolve(form, config=json.dumps(document)))
    space: dict[str, Any] = {}
    exec(compile(imported.files["metrics.py"], "metrics.py", "exec"), space)
    with pytest.raises(NotImplementedError, match=r"write `a` in metrics\.py"):
        space["a"](None, None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return 'Say ' + context['vars']['q']", [("text", "Say {{ q }}")]),
        (
            '"""A prompt."""\n    v = context["vars"]\n    return f"Say {v[\'q\']}!"',
            [("text", "Say {{ q }}!")],
        ),
        ("return 'Say {{q}}'", [("text", "Say {{ '{' }}{q}}")]),
        (
            "a = [{'role': 'system', 'content': 'Be kind.'}]\n    return a",
            [("system", "Be kind.")],
        ),
        (
            "return json.dumps([{'role': 'user', 'content': context.get('vars').get('q')}])",
            [("user", "{{ q }}")],
        ),
        ("return HEAD + context['vars']['q']", [("text", "Head {{ q }}")]),
        ("if context:\n        return 'a'\n    return 'b'", None),
        ("return context['vars']['q'].upper()", None),
        ("print('x')\n    return 'a'", None),
        ("return f'{context}'", None),
    ],
)
def test_python_functions_that_fill_in_a_template_are_read(
    body: str, expected: list[tuple[str, str]] | None
) -> None:
    text = f"import json\nHEAD = 'Head '\ndef make(context):\n    {body}\n"
    assert python_prompt(text, "make") == expected


def test_a_function_of_very_many_parts_is_left_to_the_user() -> None:
    # The parser of Python takes as many, and the recursion over them ends somewhere in between.
    for parts in (1_000, 2_000, 4_000):
        text = f"def make(context):\n    return {'+'.join(['chr(1)'] + ['0'] * parts)}\n"
        assert python_prompt(text, "make") is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ a | dump }}", "{{ a | dump }}"),
        ("{% if a.length === 2 %}x{% elseif b !== null %}y{% endif %}", None),
        ("a === b {{ '=== null' }}", "a === b {{ '=== null' }}"),
        ("{{ a | mine(1) | upper }}", "{{ a  | upper }}"),
        ("{{ a.trim().toLowerCase() }}", "{{ a.strip().lower() }}"),
    ],
)
def test_nunjucks_is_converted_inside_of_tags_only(template: str, expected: str | None) -> None:
    wanted = "{% if a|length == 2 %}x{% elif b != none %}y{% endif %}"
    assert as_jinja(template).text == (wanted if expected is None else expected)


@pytest.mark.parametrize(
    "template", ["{{ " * 200_000, "{% " * 200_000, "{{ " + r"\"" * 200_000, "{{ " + r"\'" * 200_000]
)
def test_what_never_ends_is_converted_in_linear_time(template: str) -> None:
    assert as_jinja(template).text == template


def combinations(lists: int, values: int) -> str:
    held = {f"v{n}": list(map(str, range(values))) for n in range(lists)}
    tests = [{"vars": {"note": "a", **held}, "assert": [{"type": "contains", "value": "a"}]}]
    return HEAD + SHELF + f"tests: {json.dumps(tests)}\n"


def references(depth: int) -> str:
    levels = {f"a{n}": [{"$ref": f"#/x/a{n + 1}"} for _ in range(10)] for n in range(depth)}
    return HEAD + SHELF + f"x: {json.dumps({**levels, f'a{depth}': 'end'})}\n" + TESTS


def aliases(depth: int) -> str:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, depth)]
    return HEAD + SHELF + "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(levels) + TESTS


def loops(depth: int) -> str:
    opening = "".join(f"{{% for a{n} in range(1000) %}}" for n in range(depth))
    body = f"{opening}x{'{% endfor %}' * depth}"
    tests = [
        {"vars": {"note": body, "b": list(map(str, range(60)))}, "assert": [{"type": "is-json"}]}
    ]
    return HEAD + SHELF + f"tests: {json.dumps(tests)}\n"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            combinations(5, 20),
            "yaml:3: tests[0].vars: expected at most 100,000 cases in all, found 3,200,000;",
        ),
        (aliases(12), "`*a4`: expected at most 1,000,000 iterations in all, found"),
    ],
    ids=["combinations", "aliases"],
)
def test_work_is_bounded_before_it_is_done(tmp_path: Path, config: str, said: str) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text(config)
    with pytest.raises(DataFormatError) as caught:
        import_promptfoo(Foreign.of(tmp_path / "promptfooconfig.yaml"))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("config", "where"), [(references(9), "nested `$ref`"), (loops(3), "tests[0]")]
)
def test_work_that_is_found_on_the_way_is_bounded(tmp_path: Path, config: str, where: str) -> None:
    (tmp_path / "promptfooconfig.yaml").write_text(config)
    files = Foreign.of(tmp_path / "promptfooconfig.yaml")
    files.budget.iterations = 20_000  # with the million that there usually are, it takes seconds
    with pytest.raises(DataFormatError) as caught:
        import_promptfoo(files)
    assert f"{where}: expected at most 20,000 iterations in all, found" in str(caught.value)


def test_files_outside_are_read_only_below_the_root(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret.txt").write_text("Name the shelf of {{note}}.")
    (inner / "link.txt").symlink_to(tmp_path / "secret.txt")
    absolute = str(tmp_path / "secret.txt")
    path = inner / "promptfooconfig.yaml"
    for name in ("file://../secret.txt", f"file://{absolute}", "file://link.txt"):
        path.write_text(prompted(f"'{name}'"))
        with pytest.raises(DataFormatError, match=r"would be copied into the project and sent"):
            import_promptfoo(Foreign.of(path))
        imported = import_promptfoo(Foreign.of(path, root=tmp_path))
        assert "Name the shelf of {{note}}." in "".join(imported.files.values())
        assert "which lies outside of the folder of" in imported.notes[0]
    # A repository is one project.
    (tmp_path / ".git").mkdir()
    assert import_promptfoo(Foreign.of(path)).notes


def test_a_fault_names_the_included_file_and_its_line(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "t.yaml").write_text(
        "\n\n- vars: {note: 'file://gone.txt'}\n  assert: [{type: icontains, value: travel}]\n"
    )
    path = tmp_path / "promptfooconfig.yaml"
    path.write_text(HEAD + SHELF + "tests: more/t.yaml\n")
    with pytest.raises(
        DataFormatError, match=r"more/t\.yaml:3: \[0\]\.vars\.note: expected a file"
    ):
        import_promptfoo(Foreign.of(path))


def test_messages_of_the_system_stay_open_to_change(tmp_path: Path) -> None:
    chat = [
        {"role": "system", "content": "Name the shelf for {{reader}}."},
        {"role": "user", "content": "{{note}}"},
    ]
    tests = "tests:\n" + "".join(
        f"- {{vars: {{note: {note}, reader: me}}, assert: [{{type: contains, value: t}}]}}\n"
        for note in ("maps", "odes")
    )
    form = Form(
        config=HEAD + "prompts: [file://c.json]\n" + tests, files={"c.json": json.dumps(chat)}
    )
    imported = written(tmp_path, form)
    checked = check_project(tmp_path / "promptgraft.yaml")
    assert checked.project is not None
    sections = checked.project.prompt("c").prompt.template.sections
    assert [(section.key, section.overridable) for section in sections] == [
        ("system", True),
        ("user", False),
    ]
    assert imported.unwritten == ()
    assert sent(checked, {"note": "maps", "reader": "me"}) == [
        {"role": "system", "content": "Name the shelf for me."},
        {"role": "user", "content": "maps"},
    ]


def sent(checked: Checked, values: dict[str, str]) -> list[dict[str, str]]:
    """Return the messages that a provider gets."""
    assert checked.project is not None, checked.faults
    rendered = checked.project.prompt().prompt.bind(values).render()
    wire = ChatWire(model="m", profile=OpenAIProfile(), options={})
    return wire.open(rendered)["messages"]  # type: ignore[return-value]  # what `open` declares is wider


@pytest.mark.parametrize(
    ("chat", "roles", "note"),
    [
        ([("system", "Be {{tone}}."), ("user", "{{note}}")], "system user", ""),
        ([("user", "hi"), ("assistant", "yes"), ("user", "{{note}}")], "user", "by `assistant`"),
        ([("user", "{{note}}"), ("system", "Be {{tone}}.")], "system user", ""),
        ([("system", "Shelve {{note}}.")], "user", "by `system` alone is sent as the user's"),
    ],
)
def test_messages_keep_their_roles(
    tmp_path: Path, chat: list[tuple[str, str]], roles: str, note: str
) -> None:
    messages = [{"role": role, "content": text} for role, text in chat]
    form = Form(
        config=f"{HEAD}prompts: [file://c.json]\n{TESTS}defaultTest: {{vars: {{tone: kind}}}}\n",
        files={"c.json": json.dumps(messages)},
    )
    imported = written(tmp_path, form)
    checked = check_project(tmp_path / "promptgraft.yaml")
    messages_sent = sent(checked, {"note": "n", "tone": "kind"})
    assert " ".join(message["role"] for message in messages_sent) == roles
    assert note in "\n".join(imported.notes)


def test_a_list_of_objects_is_one_value_and_a_list_of_texts_is_a_test_each(tmp_path: Path) -> None:
    form = Form(
        config=HEAD
        + "prompts: ['{% for turn in turns %}{{turn.user}} {% endfor %}{{note}}']\n"
        + "tests:\n- vars: {turns: [{user: a}, {user: b}], note: [x, y]}\n"
        + "  assert: [{type: contains, value: a}]\n"
    )
    written(tmp_path, form)
    lines = (tmp_path / "cases.jsonl").read_text("utf-8").splitlines()
    turns = [{"user": "a"}, {"user": "b"}]
    assert [json.loads(line)["input"] for line in lines] == [
        {"turns": turns, "note": note} for note in ("x", "y")
    ]


def test_a_single_test_can_be_checked_rendered_and_evaluated(tmp_path: Path) -> None:
    written(tmp_path, Form(config=f"{SHELF}{HEAD}tests: [{{vars: {{note: maps}}, {EQUALS}}}]\n"))
    checked = check_project(tmp_path / "promptgraft.yaml")
    assert checked.faults == ()
    assert any("a run needs them" in line for line in checked.warnings)
    assert checked.project is not None
    assert [case.input for part in checked.project.parts.values() for case in part] == [
        {"note": "maps"}
    ]
    with pytest.raises(DataFormatError, match="no cases for train"):
        checked.project.job()


def test_a_single_test_that_does_not_fit_its_prompt_is_a_fault(tmp_path: Path) -> None:
    written(tmp_path, Form(config=f"{SHELF}{HEAD}tests: [{{vars: {{note: maps}}, {EQUALS}}}]\n"))
    (tmp_path / "cases.jsonl").write_text('{"input": {"text": "maps"}, "expected": "travel"}\n')
    (fault,) = check_project(tmp_path / "promptgraft.yaml").faults
    assert "no placeholder `text`; open placeholders: `note`" in fault
