"""A winner goes back into the files, and nothing else in them changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from promptgraft.errors import ConfigError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.descriptors import SectionVisibility
from promptgraft.project.markdown import MarkdownPrompt, load_markdown_prompt
from promptgraft.prompt import Prompt

TOOLS = """\
# What the agent can do.
tools:
  - name: find
    description: Finds things.  # short
    parameters:
      words:   {type: string}
      most: {type: integer, default: 3, description: 'How many.'}
    result: list of string
    examples:
      - description: Once.
        input:
          words: x   # a word
        output: [a]
  - name: stop
    description: >-
      Stops
      it.

"""
EXAMPLES = """\
examples:
  # the first
  - key: first
    objective: Do it.
    outcome: done
  # the second
  - key: second
    objective: |
      Do that.
    steps:
      - {tool: stop, output: ok}
    outcome: done   # at last
"""
HIDDEN = SectionVisibility.HIDDEN
STEP = '[{"tool_name": "stop", "description": "Halt: #1", "input": {}, "output": "ok"}]'


class Desk:
    """A prompt in files, and a store with a winner for it."""

    def __init__(self, folder: Path, text: str, **beside: str) -> None:
        self.folder = folder
        (folder / "p.md").write_bytes(text.encode())
        for name, other in beside.items():
            (folder / f"{name}.yaml").write_bytes(other.encode())
        self.store: Any = InMemoryPromptOverridesStore()

    @property
    def found(self) -> MarkdownPrompt:
        return load_markdown_prompt(self.folder / "p.md")

    def after(self) -> dict[str, str]:
        """Return what the files that change would hold."""
        override = self.store.resolve(self.found.prompt.descriptor, "latest")
        return {change.path.name: change.after for change in self.found.source.rewritten(override)}

    def body(self, body: str, *path: str) -> None:
        self.store.set_section_override(self.found.prompt, path=path, body=body)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    front = "---\ntools: t.yaml\nexamples: e.yaml\n---\n"
    return Desk(tmp_path, f"{front}Hello.\n", t=TOOLS, e=EXAMPLES)


def test_a_new_text_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "---\nns: a # b\n---\n\nOld $$1.\n\n\n# A  ##\nOld $x.\n## B\n\n## C")
    desk.body("New: $5,\n\n$x and $$x.\n\n", "a")
    desk.body("Now.", "a", "b")
    desk.body("Last.", "a", "c")
    assert desk.after() == {
        "p.md": "---\nns: a # b\n---\n\nOld $$1.\n\n\n# A  ##\nNew: $$5,\n\n$x and $$x.\n\n"
        "## B\n\nNow.\n\n## C\n\nLast."
    }


def test_line_breaks_byte_order_mark_and_a_missing_last_line_break_stay(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "\ufeff# A\r\n\r\nOld.\r\n\r\n# B\r\n\r\nKept.")
    desk.body("One\ntwo.", "a")
    assert desk.after() == {"p.md": "\ufeff# A\r\n\r\nOne\r\ntwo.\r\n\r\n# B\r\n\r\nKept."}


def test_lines_that_look_like_headings_stay_text(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "Old.\n\n# A\n\nOld.\n")
    desk.body("# No\n\nTwo\n---\n```\n# code\n```\n\\# x", "a")
    desk.body("---\nfirst", "intro")
    after = "\\---\nfirst\n\n# A\n\n\\# No\n\nTwo\n\\---\n```\n# code\n```\n\\\\# x\n"
    assert desk.after() == {"p.md": after}


def test_an_emptied_introduction_keeps_its_place(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "Old.\n\n## A\n\ntext\n\n### B")
    desk.body("", "intro")
    assert desk.after() == {"p.md": "## {#intro}\n\n## A\n\ntext\n\n### B"}


def test_a_plain_text_is_written_as_it_is(tmp_path: Path) -> None:
    front = "---\nsyntax: plain\nplaceholders: ['{q}']\n---\n"
    desk = Desk(tmp_path, f"\ufeff{front}Old $x {{q}}.\n\n# A\n{{{{ y }}}}")
    desk.body("New $$5 {% x %} {q}.\n{{ z }}", "intro")
    assert desk.after() == {
        "p.md": f"\ufeff{front}New $$5 {{% x %}} {{q}}.\n{{{{ z }}}}\n\n# A\n{{{{ y }}}}"
    }


def test_jinja_blocks_move_and_text_that_looks_like_jinja_stays_text(tmp_path: Path) -> None:
    text = "---\nsyntax: jinja\n---\n{%- for x in xs -%}\n{{ x }}\n{%- endfor %} {{ n|int }}."
    desk = Desk(tmp_path, text)
    desk.body("{{ n }} {% if %} {{ expr_1 }} of\n{{ for_1 }}\n{", "intro")
    assert desk.after() == {
        "p.md": "---\nsyntax: jinja\n---\n"
        "{% raw %}{{{% endraw %} n }} {% raw %}{%{% endraw %} if %} "
        "{{ n|int }} of\n{% for x in xs -%}\n{{ x }}\n{%- endfor %}\n{"
    }


def test_jinja_blocks_stay_behind_the_names_that_they_use(tmp_path: Path) -> None:
    text = "---\nsyntax: jinja\n---\n{% set a = 1 %}{{ a }}{% set a = 2 %}{{ a }}"
    desk = Desk(tmp_path, text)
    desk.body("First {{ expr_1 }}, then {{ expr_2 }}.", "intro")
    after = "First {% set a = 1 %}{{ a }}, then {% set a = 2 %}{{ a }}."
    assert desk.after() == {"p.md": f"---\nsyntax: jinja\n---\n{after}"}

    desk.body("{{ expr_2 }} {{ expr_1 }}", "intro")
    with pytest.raises(ConfigError, match=r"p\.md: section intro: the new text moves or repeats"):
        desk.after()


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("```\nopen", r"p\.md:1: section a: the new text leaves code or HTML open, which"),
        ("<!-- open", r"p\.md:1: section a: the new text leaves code or HTML open, which"),
        ("a\rb", r"p\.md: section a: the new text has a carriage return, which"),
    ],
)
def test_a_text_that_a_file_cannot_hold_is_refused(body: str, fault: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path, "# A\n\n# B\n")
    desk.body(body, "a")
    with pytest.raises(ConfigError, match=fault):
        desk.after()


def test_code_may_stay_open_where_nothing_follows(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "# A\n")
    desk.body("```\nopen", "a")
    assert desk.after() == {"p.md": "# A\n\n```\nopen\n"}


def test_what_is_stale_or_says_the_same_changes_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "# A\n\nOld.\n\n# B\n\n${x}y\n")
    desk.body("\nOld.\n", "a")
    desk.body("${x}y", "b")
    assert desk.after() == {}
    desk.body("New.", "a")
    (tmp_path / "p.md").write_text("# A\n\nOther.\n\n# B\n\n${x}y\n")
    assert desk.after() == {}


def test_descriptions_of_tools_are_changed_where_they_stand(desk: Desk) -> None:
    desk.store.set_tool_override(
        desk.found.prompt,
        name="find",
        description="Finds: all",
        param_descriptions={"words": "What for.", "most": "At\nmost."},
    )
    desk.store.set_tool_override(desk.found.prompt, name="stop", description="Stops.\n\n- now\n")
    after = (
        TOOLS.replace("Finds things.", '"Finds: all"')
        .replace("{type: string}", "{type: string, description: What for.}")
        .replace("'How many.'", '"At\\nmost."')
        .replace(">-\n      Stops\n      it.\n", "|\n      Stops.\n\n      - now\n")
    )
    assert desk.after() == {"t.yaml": after}


def test_lines_that_take_the_place_of_a_value_do_not_take_in_its_comment(desk: Desk) -> None:
    desk.store.set_tool_override(desk.found.prompt, name="find", description="Finds\nall.")
    assert desk.after() == {"t.yaml": TOOLS.replace("Finds things.", '"Finds\\nall."')}


def test_what_would_not_read_back_the_same_is_refused(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "Old.\n")
    desk.body("\ufeffNew.", "intro")  # a byte order mark, when it begins a file
    with pytest.raises(ConfigError, match=r"p\.md: section intro would not read back the same; "):
        desk.after()


def test_examples_of_tools_are_changed_value_by_value(desk: Desk) -> None:
    desk.store.set_tool_example_override(
        desk.found.prompt,
        tool_name="find",
        example_index=0,
        input_json='{"words": "no", "most": 1}',
        output_json='["a", "1e3"]',
    )
    after = TOOLS.replace("words: x   # a word", 'words: "no"   # a word\n          most: 1')
    assert desk.after() == {"t.yaml": after.replace("[a]", '[a, "1e3"]')}


def test_worked_examples_are_changed_added_and_removed(desk: Desk) -> None:
    store, prompt = desk.store, desk.found.prompt
    store.remove_task_example(prompt, path=("examples", "first"))
    store.set_task_example_override(
        prompt, path=("examples", "second"), objective="Do.", steps_json=STEP
    )
    store.add_task_example(
        prompt,
        container_path=("examples",),
        key="third",
        objective="More.",
        outcome_json='"so\\nbe it"',
        steps_json=STEP,
    )
    assert desk.after() == {
        "e.yaml": "examples:\n  # the first\n  # the second\n  - key: second\n    objective: Do.\n"
        '    steps:\n      - {tool: stop, output: ok, description: "Halt: #1"}\n'
        "    outcome: done   # at last\n"
        "  - key: third\n    objective: More.\n    steps:\n      - tool: stop\n"
        '        description: "Halt: #1"\n        input: {}\n        output: ok\n'
        "    outcome: |-\n      so\n      be it\n"
    }


def test_all_worked_examples_can_go(desk: Desk) -> None:
    for key in ("first", "second"):
        desk.store.remove_task_example(desk.found.prompt, path=("examples", key))
    assert desk.after() == {"e.yaml": "examples: []   # at last\n"}


def test_a_text_above_worked_examples_gets_a_heading(desk: Desk) -> None:
    desk.body("So it goes:", "examples")
    (desk.folder / "p.md").write_text(desk.after()["p.md"])
    assert desk.after() == {}
    text = (desk.folder / "p.md").read_text()
    assert text.endswith("Hello.\n\n# Tools {.frozen}\n\n# Examples\n\nSo it goes:\n")


def test_what_is_said_of_answers_goes_into_the_front_matter(tmp_path: Path) -> None:
    text = (
        "---\noutput:\n  name: Review # one\n  fields:\n    mark:\n      choices: [good, bad]\n"
        "    who: {fields: {name: {type: string, aliases: [n]}}}\n---\nx\n"
    )
    desk = Desk(tmp_path, text)
    prompt = desk.found.prompt
    desk.store.set_output_field_override(
        prompt, field="Review.mark", description="How?", value_descriptions={"good": "Fine."}
    )
    desk.store.set_output_field_override(prompt, field="ReviewWho.name", aliases=["full name"])
    assert desk.after() == {
        "p.md": text.replace(
            "[good, bad]", "{good: Fine., bad: null}\n      description: How?"
        ).replace("[n]", "[full name]")
    }


def test_what_is_said_of_a_choice_goes_into_the_front_matter(tmp_path: Path) -> None:
    text = "---\noutput:\n  choices:\n    yes: It is.\n    no:\n---\nx\n"
    desk = Desk(tmp_path, text)
    desk.store.set_output_field_override(
        desk.found.prompt,
        field="answer",
        description="Is it?",
        value_descriptions={"yes": "Yes: so.", "no": "Not so."},
    )
    assert desk.after() == {
        "p.md": text.replace("It is.", '"Yes: so."').replace(
            "no:\n", "no: Not so.\n  description: Is it?\n"
        )
    }


def test_a_python_type_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "kinds.py").write_text("import attrs\n@attrs.frozen\nclass A:\n    b: str\n")
    desk = Desk(tmp_path, "---\nns: a\noutput: kinds.py:A\n---\nx\n")
    desk.store.set_output_field_override(desk.found.prompt, field="A.b", description="B.")
    with pytest.raises(ConfigError, match=r"p\.md:3: output: output field `A\.b` is written in Py"):
        desk.after()


def test_a_change_says_what_the_file_holds_now(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "\ufeffOld.\r\n")
    desk.body("New.", "intro")
    override = desk.store.resolve(desk.found.prompt.descriptor, "latest")
    (change,) = desk.found.source.rewritten(override)
    assert (change.path, change.before) == (tmp_path / "p.md", "\ufeffOld.\r\n")
    assert isinstance(desk.found.prompt, Prompt)


def test_a_text_without_headings_is_emptied_and_hidden_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, "\r\n\\# no\r\n\r\n")
    desk.body("", "intro")
    desk.store.set_visibility_override(desk.found.prompt, path=("intro",), visibility=HIDDEN)

    assert desk.after() == {"p.md": "\r\n# {#intro .hidden}\r\n\r\n"}
