"""Which message a section belongs to, and files that are sent as they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.adapters.openai import ChatWire, OpenAIProfile
from promptgraft.cli.main import run
from promptgraft.errors import DataFormatError, PromptDefinitionError
from promptgraft.ground.content import Image
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.project.markdown import load_markdown_prompt
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate

RoleOrNone = Literal["system", "user"] | None
ROLES: tuple[RoleOrNone, ...] = (None, "system", "user")
TEMPLATES = {"task": "Sort it.", "rules": "Rules of $shop.", "mail": "$text", "end": "Go."}


def messages(roles: dict[str, RoleOrNone]) -> dict[str, list[str]]:
    """Return the titles of the sections in each message that a provider gets."""
    template = PromptTemplate[str](
        ns="shop",
        key="mail",
        sections=tuple(
            MarkdownSection(title=key, key=key, template=text, role=roles.get(key))
            for key, text in TEMPLATES.items()
        ),
    )
    rendered = Prompt(template).bind({"shop": "Hill", "text": "Late."}).render()
    wire = ChatWire(model="m", profile=OpenAIProfile(), options={})
    sent = wire.open(rendered)["messages"]
    assert isinstance(sent, list)
    return {
        str(message["role"]): [key for key in TEMPLATES if f"## {key}" in str(message["content"])]
        for message in sent
        if isinstance(message, dict)
    }


@pytest.mark.parametrize(
    ("roles", "system"),
    [
        ({}, ["task"]),
        ({"rules": "system"}, ["task", "rules"]),
        ({"rules": "system", "end": "system"}, ["task", "rules", "end"]),
        ({"task": "user"}, []),
        ({"task": "user", "rules": "system"}, ["rules"]),
        ({"rules": "user"}, ["task"]),
    ],
)
def test_a_role_decides_and_the_first_value_where_there_is_none(
    roles: dict[str, RoleOrNone], system: list[str]
) -> None:
    sent = messages(roles)
    assert sent.get("system", []) == system
    assert sent["user"] == [key for key in TEMPLATES if key not in system]


@given(st.fixed_dictionaries({key: st.sampled_from(ROLES) for key in TEMPLATES}))
def test_every_section_is_sent_once_and_in_its_role(roles: dict[str, RoleOrNone]) -> None:
    if set(roles.values()) == {"system"}:
        with pytest.raises(PromptDefinitionError, match="all sections are the system's"):
            messages(roles)
        return
    sent = messages(roles)
    assert sorted([*sent.get("system", []), *sent.get("user", [])]) == sorted(TEMPLATES)
    for key, role in roles.items():
        assert role is None or key in sent[role]


def test_sections_below_have_the_role_of_their_parent() -> None:
    child = MarkdownSection(title="Shop", key="shop", template="$shop")
    template = PromptTemplate[str](
        ns="shop",
        key="mail",
        sections=(
            MarkdownSection(title="Task", key="task", role="system", children=(child,)),
            MarkdownSection(title="Mail", key="mail", template="$text"),
        ),
    )
    rendered = Prompt(template).bind({"shop": "Hill", "text": "Late."}).render()
    assert [section.role for section in rendered.sections] == ["system", "system", None]


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(PromptDefinitionError, match="role: expected 'system' or 'user'"):
        MarkdownSection(title="Task", key="task", role="tool")  # type: ignore[arg-type]


def written(folder: Path, front: str, body: str) -> Path:
    path = folder / "mail.md"
    path.write_text(f"---\n{front}---\n{body}", "utf-8")
    return path


def test_front_matter_sets_roles_and_refuses_those_of_unknown_sections(tmp_path: Path) -> None:
    body = "# Task\n\nSort.\n\n# Mail\n\n$text\n"
    found = load_markdown_prompt(written(tmp_path, "roles: {task: user}\n", body))
    assert [section.role for section in found.prompt.template.sections] == ["user", None]

    with pytest.raises(
        DataFormatError, match=r"no section has the key `taks` .did you mean `task`"
    ):
        load_markdown_prompt(written(tmp_path, "roles: {taks: user}\n", body))


_LINES = st.sampled_from(
    ["# A", "## B {#b}", "### C ###", "D", "===", "", "", "* x", "$text", "    code", "#"]
)


@given(st.lists(_LINES, min_size=1, max_size=12))
def test_a_verbatim_file_is_sent_as_it_is_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    body = "\n".join(lines).strip("\n")
    path = written(tmp_path_factory.mktemp("v"), "verbatim: true\n", f"{body}\n")
    try:
        found = load_markdown_prompt(path)
    except DataFormatError:
        return  # such as two sections with one key
    text = found.prompt.bind({"text": "$text"}).render().text

    assert text == body.replace(" {#b}", "")
    assert found.source.sent_differently() == ""


def test_a_new_text_in_a_verbatim_file_leaves_all_around_it(tmp_path: Path) -> None:
    body = "# Task\nSort.\n\n\n### Mail ###\n$text\n"
    found = load_markdown_prompt(written(tmp_path, "verbatim: true\n", body))
    store = InMemoryPromptOverridesStore()
    store.set_section_override(found.prompt, path=("task",), body="Sort well.")
    override = store.resolve(found.prompt.descriptor, "latest")
    assert override is not None

    overridden = Prompt(found.prompt.template, overrides_store=store).bind({"text": "$text"})
    [change] = found.source.rewritten(override)

    assert overridden.render().text == body.replace("Sort.", "Sort well.").rstrip("\n")
    assert change.after == change.before.replace("Sort.", "Sort well.")


def test_images_keep_their_places_in_a_verbatim_prompt(tmp_path: Path) -> None:
    body = "# Task\nSee $shown there.\n\n\n# End\nGo."
    found = load_markdown_prompt(written(tmp_path, "verbatim: true\n", body))
    image = Image(data=b"\x89PNG\r\n\x1a\n", media_type="image/png", name="a.png")

    content = found.prompt.bind({"shown": image}).render().content

    assert [piece if isinstance(piece, str) else "image" for piece in content] == [
        "# Task\nSee ",
        "image",
        " there.\n\n\n# End\nGo.",
    ]


@pytest.mark.parametrize(
    ("body", "ways"),
    [
        ("## A\n\n$text\n\n### B\n\ny\n", ""),
        ("$text\n", ""),
        ("# A\n\n$text\n", "`# A` is sent as `## A`"),
        ("## A\n$text\n", "one empty line is sent around headings"),
        ("# A\n\n$text\n\n\n## B\n\ny", "`# A` is sent as `## A` and one empty line is sent"),
    ],
)
def test_a_check_notes_how_the_text_that_is_sent_differs_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, ways: str
) -> None:
    written(tmp_path, "output: {choices: [a, b]}\n", body)
    cases = [{"input": f"mail {number}", "expected": "a"} for number in range(30)]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    project = tmp_path / "promptgraft.yaml"
    project.write_text(
        "version: 1\nprompts: {mail: mail.md}\ndataset: cases.json\nmetrics: [exact]\n"
        "models: {task: offline}\n"
    )

    assert run(["check", "--project", str(project)]) == 0

    out = capsys.readouterr().out
    assert ("note: " in out) is bool(ways)
    assert ways in out
