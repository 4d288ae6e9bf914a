"""Images in prompts: placeholders, text and content, and values that have no text."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import attrs
import pytest

from image_files import picture
from promptgraft import Image, MarkdownSection, Prompt, PromptOverride, PromptTemplate
from promptgraft.errors import BindingError, PromptRenderError
from promptgraft.ground.content import Content
from promptgraft.overrides import InMemoryPromptOverridesStore, SectionOverride

PHOTO, OTHER = picture("photo.png"), picture("other.png", red=1)


def prompt(template: str, syntax: Literal["dollar", "jinja"] = "dollar") -> Prompt[object]:
    sections = [
        MarkdownSection(title="Task", key="task", template="Say what it is."),
        MarkdownSection(title="Photo", key="photo", template=template, syntax=syntax),
        MarkdownSection(title="End", key="end", template="Be brief."),
    ]
    return Prompt(PromptTemplate(ns="tests", key="look", sections=sections))


def content(
    template: str, syntax: Literal["dollar", "jinja"] = "dollar", **values: object
) -> Content:
    rendered = prompt(template, syntax).bind(values).render()
    assert "".join(map(str, rendered.content)) == rendered.text
    return rendered.content


BEFORE, AFTER = "## Task\n\nSay what it is.\n\n## Photo\n\n", "\n\n## End\n\nBe brief."


def test_an_image_stands_where_its_placeholder_does() -> None:
    assert content("Look:\n$photo\nThanks.", photo=PHOTO) == (
        f"{BEFORE}Look:\n",
        PHOTO,
        f"\nThanks.{AFTER}",
    )
    assert content("\n\n$photo\n\n", photo=PHOTO) == (BEFORE, PHOTO, AFTER)


def test_a_text_alone_is_one_text() -> None:
    assert content("$photo", photo="a cat") == (f"{BEFORE}a cat{AFTER}",)


def test_a_list_of_texts_and_images_is_shown_in_order() -> None:
    shown = content("$photo", photo=["Left:", PHOTO, "Right:", OTHER])
    assert shown == (f"{BEFORE}Left:\n", PHOTO, "\nRight:\n", OTHER, AFTER)


def test_a_text_that_spells_the_name_of_an_image_is_never_taken_for_it() -> None:
    shown = content("$said $photo", said=str(PHOTO), photo=PHOTO)
    assert shown == (f"{BEFORE}{PHOTO} ", PHOTO, AFTER)
    assert content("$said", said=str(PHOTO)) == (f"{BEFORE}{PHOTO}{AFTER}",)


def test_jinja_shows_images_in_variables_and_in_loops() -> None:
    loop = "{{ title }}{% for photo in photos %}\n- {{ photo }}{% endfor %}"
    shown = content(loop, "jinja", title="All:", photos=[PHOTO, OTHER])
    assert shown == (f"{BEFORE}All:\n- ", PHOTO, "\n- ", OTHER, AFTER)
    assert content("{{ photo }}", "jinja", photo=PHOTO) == (BEFORE, PHOTO, AFTER)


def test_an_override_moves_the_image() -> None:
    source = prompt("Look: $photo")
    section = source.descriptor.sections[1]
    override = PromptOverride(
        ns="tests",
        prompt_key="look",
        tag="latest",
        sections={
            section.path: SectionOverride(
                path=section.path, expected_hash=section.content_hash, body="$photo - what is it?"
            )
        },
    )
    moved = attrs.evolve(source, overrides_store=InMemoryPromptOverridesStore([override]))
    rendered = moved.bind({"photo": PHOTO}).render()
    assert rendered.content == (BEFORE, PHOTO, f" - what is it?{AFTER}")


def test_equal_images_in_two_places_are_two_parts() -> None:
    assert content("$photo $photo", photo=PHOTO) == (BEFORE, PHOTO, " ", PHOTO, AFTER)


UNSHOWABLE: Sequence[tuple[object, str]] = [
    (b"\x89PNG", "found 4 bytes; bind an Image or a File"),
    (bytearray(2), "found 2 bytes"),
    ([b"x"], "found 1 bytes"),
    ({"photo": {"inner": b"x"}}, "found 1 bytes"),
    ({"photo": PHOTO}, "a dict with a file among other values"),
    ([PHOTO, 3], "a list with a file among other values"),
    (object(), "found a object, which has no text"),
    (print, "which has no text"),
    (lambda: 1, "found a function, which has no text"),
    (threading.Lock(), "which has no text"),
    (iter([]), "found a list_iterator, which has no text"),
]


@pytest.mark.parametrize(("value", "message"), UNSHOWABLE)
def test_a_value_without_a_text_is_refused_where_it_is_bound(value: object, message: str) -> None:
    with pytest.raises(BindingError, match=f"bind: photo: expected a text.*{message}"):
        prompt("$photo").bind({"photo": value})


def test_an_open_file_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("w") as file, pytest.raises(BindingError, match="has no text"):
        prompt("$photo").bind({"photo": file})


@pytest.mark.parametrize("value", [None, 3, 2.5, True, "<a at 0x1f>"])
def test_values_with_a_text_are_shown_as_ever(value: object) -> None:
    assert content("$photo", photo=value) == (f"{BEFORE}{value}{AFTER}",)


def test_a_value_that_no_placeholder_shows_may_be_anything() -> None:
    user = SimpleNamespace(name="Ann", photo=b"x")
    bound = prompt("{% if user.name %}shown{% endif %}", "jinja").bind({"user": user, "more": b"x"})
    assert "shown" in bound.render().text


def test_bytes_inside_of_a_jinja_block_are_refused() -> None:
    with pytest.raises(PromptRenderError, match="it shows 1 bytes; use an Image or a File"):
        content("{% for photo in photos %}{{ photo }}{% endfor %}", "jinja", photos=[b"x"])


def test_an_image_needs_a_name_to_be_bound_to() -> None:
    with pytest.raises(BindingError, match="expected values by name, found"):
        prompt("$photo").bind(Image(data=PHOTO.read()))
