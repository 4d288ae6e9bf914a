"""Headings of any script make keys, and a winner is written back under them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgraft.errors import DataFormatError, InvalidIdentifierError
from promptgraft.overrides import InMemoryPromptOverridesStore
from promptgraft.overrides.parts.validation import check_section_key
from promptgraft.project.markdown import load_markdown_prompt
from promptgraft.project.markdown.outline import slug_of


@pytest.mark.parametrize(
    ("title", "key"),
    [
        ("Édit rules!", "edit-rules"),
        ("Größe", "groe"),
        ("Задача", "задача"),
        ("Задача № 2: Правила", "задача-no-2-правила"),
        ("任务", "任务"),
        ("任务 A", "任务-a"),
        ("कार्य", "कार्य"),
        ("مهمة", "مهمة"),
        ("ΔΟΚΙΜΉ", "δοκιμή"),
        ("🚀", ""),
        ("---", ""),
    ],
)
def test_a_title_makes_a_key(title: str, key: str) -> None:
    assert slug_of(title) == key


@given(st.text(min_size=1, max_size=80))
@example("\u00af\u00aa")
def test_what_a_title_makes_is_a_key_or_nothing(title: str) -> None:
    key = slug_of(title)
    assert key == "" or check_section_key(key) == key


@pytest.mark.parametrize("key", ["", "A", "Задача", "-a", "a b", "a/b", "x" * 65, "e\u0301"])
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidIdentifierError, match="section key: expected 1 to 64"):
        check_section_key(key)


def test_a_prompt_in_russian_and_chinese_is_read_and_written_back(tmp_path: Path) -> None:
    path = tmp_path / "задача.md"
    text = "# Задача\n\nНазови полку.\n\n# 任務\n\n$note\n\n# 🚀\n\nВперёд.\n"
    path.write_text(text, "utf-8")
    found = load_markdown_prompt(str(path))
    sections = found.prompt.template.sections
    assert [section.key for section in sections] == ["задача", "任務", "section-3"]
    assert found.prompt.descriptor.key.startswith("prompt-")
    assert found.prompt.bind({"note": "карты"}).render().text == text.replace(
        "$note", "карты"
    ).replace("\n# ", "\n## ").replace("# З", "## З", 1).rstrip("\n")

    store = InMemoryPromptOverridesStore()
    store.set_section_override(found.prompt, path=("задача",), body="Назови одну полку.")
    override = store.resolve(found.prompt.descriptor, "latest")
    assert override is not None
    (change,) = found.source.rewritten(override)
    assert change.after == text.replace("Назови полку.", "Назови одну полку.")


def test_headings_of_one_key_are_still_a_fault(tmp_path: Path) -> None:
    path = tmp_path / "p.md"
    path.write_text("# Задача\n\na\n\n# задача\n\nb\n", "utf-8")
    with pytest.raises(DataFormatError, match="the key `задача` is that of line 1"):
        load_markdown_prompt(path)
