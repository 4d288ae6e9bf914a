"""Files that are not what the store wrote: refused by name, and left as they are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from promptgraft.errors import StoreError
from promptgraft.ground.serde import Json, digest
from promptgraft.overrides import LocalPromptOverridesStore, OverrideAddress
from promptgraft.overrides.codec import decode_revision
from promptgraft.testing import FakeClock
from promptgraft.testing.prompts import PROMPT, RULES, TONE, bodies

FOLDER = Path(".promptgraft/overrides/tests/stores/support")
ADDRESS = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
LATEST = OverrideAddress(PROMPT.ns, PROMPT.key, "latest")
Document = dict[str, Json]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a tag that has an archived and a present revision; to be copied."""
    root = tmp_path_factory.mktemp("written")
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    store.set_section_override(PROMPT, path=TONE, body="Be brief.")
    store.set_section_override(PROMPT, path=RULES, body="Be right.")
    return root


@pytest.fixture
def store(written: Path, tmp_path: Path) -> LocalPromptOverridesStore:
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return LocalPromptOverridesStore(tmp_path, clock=FakeClock())


@pytest.fixture
def document(store: LocalPromptOverridesStore, tmp_path: Path) -> Path:
    return tmp_path / FOLDER / "latest.json"


@pytest.fixture
def archived(store: LocalPromptOverridesStore, tmp_path: Path) -> Path:
    (path,) = (tmp_path / FOLDER / ".revisions" / "latest").iterdir()
    return path


def check_refused(store: LocalPromptOverridesStore, path: Path, message: str) -> None:
    """Check that every operation names ``path`` and the fault, and changes nothing."""
    before = path.read_bytes()
    operations: list[Callable[[], object]] = [
        lambda: store.resolve(PROMPT.descriptor),
        lambda: store.current(**ADDRESS),
        lambda: store.history(**ADDRESS),
        lambda: store.set_section_override(PROMPT, path=TONE, body="x"),
        lambda: store.remove_section_override(**ADDRESS, path=TONE),
        lambda: store.seed(PROMPT),
        lambda: store.rollback(**ADDRESS),
        lambda: store.delete(**ADDRESS, tag="latest"),
    ]
    for operation in operations:
        with pytest.raises(StoreError) as caught:
            operation()
        text = str(caught.value)
        assert text.startswith(f"override file {path}"), text
        assert message in text
        assert "restore the file from version control" in text or "promptgraft that wrote" in text
        assert "\n" not in text
    assert path.read_bytes() == before
    assert len(list((path.parent / ".revisions" / "latest").iterdir())) == 1


def rewritten(path: Path, change: Callable[[Document], object], *, signed: bool) -> None:
    """Change the document at ``path``; ``signed`` gives it the id of its new contents."""
    plain: Document = json.loads(path.read_bytes())
    change(plain)
    if signed:
        plain["id"] = digest({key: value for key, value in plain.items() if key != "id"})
    path.write_text(json.dumps(plain, indent=2), encoding="utf-8")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", ":1:1: Expecting value", id="empty"),
        pytest.param(b"null", "expected an object, found None @ $", id="null"),
        pytest.param(b"[1]", "expected an object, found [1] @ $", id="a list"),
        pytest.param(b"{}", "required key missing @ $.version", id="an empty object"),
        pytest.param(b"\x00" * 4096, ":1:1: Expecting value", id="zeros of a lost block"),
        pytest.param(b"\xff\xfe{\x00", "expected UTF-8, found byte 0xff", id="another encoding"),
        pytest.param(b'{"version": NaN}', "expected a finite number", id="NaN"),
        pytest.param(b'{"id": "a", "id": "b"}', "'id' occurs twice", id="a key twice"),
        pytest.param(b"<<<<<<< HEAD\n{", ":1:1: Expecting value", id="a merge conflict"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="nested"),
        pytest.param(b'{"version": 2, "graft": 1}', "version: expected 1, found 2", id="version 2"),
        pytest.param(
            b'{"version": "1"}', "expected an integer, found '1' @ $.version", id="version as text"
        ),
        pytest.param(
            b'{"version": true}', "expected an integer, found True @ $.version", id="version true"
        ),
    ],
)
def test_what_is_no_document_is_refused(
    data: bytes, message: str, store: LocalPromptOverridesStore, document: Path
) -> None:
    document.write_bytes(data)

    check_refused(store, document, message)


def test_a_truncated_document_is_refused_wherever_it_ends(document: Path) -> None:
    whole = document.read_bytes()
    for length in range(len(whole) - 1):
        with pytest.raises(StoreError, match="the file"):
            decode_revision(whole[:length], LATEST, where="the file")

    assert decode_revision(whole[:-1], LATEST, where="").id  # only without the newline at its end


def test_a_document_with_a_flipped_bit_is_refused_wherever_it_is(document: Path) -> None:
    whole = document.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        with pytest.raises(StoreError, match="the file"):
            decode_revision(bytes(damaged), LATEST, where="the file")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda plain: plain.update(number=9), "id: ", id="a number"),
        pytest.param(
            lambda plain: plain["sections"][0].update(body="By hand."),
            "edited by hand or damaged",
            id="a body",
        ),
        pytest.param(lambda plain: plain["sections"].pop(), "edited by hand", id="a lost entry"),
        pytest.param(lambda plain: plain.update(id="0" * 64), "edited by hand", id="the id"),
    ],
)
def test_an_edit_by_hand_is_refused(
    change: Callable[[Document], object],
    message: str,
    store: LocalPromptOverridesStore,
    document: Path,
) -> None:
    rewritten(document, change, signed=False)

    check_refused(store, document, message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda plain: plain.update(nmber=1), "unknown key `nmber` (did you mean `number`?)"
        ),
        pytest.param(lambda plain: plain.pop("parent"), "required key missing @ $.parent"),
        pytest.param(
            lambda plain: plain.update(number="2"), "expected an integer, found '2' @ $.number"
        ),
        pytest.param(lambda plain: plain.update(number=0), "number: expected at least 1, found 0"),
        pytest.param(lambda plain: plain.update(time="now"), "found 'now' @ $.time"),
        pytest.param(
            lambda plain: plain.update(time="2026-01-01T00:00:00"),
            "found '2026-01-01T00:00:00' @ $.time",
        ),
        pytest.param(
            lambda plain: plain.update(sections={}), "expected a list, found {} @ $.sections"
        ),
        pytest.param(
            lambda plain: plain["sections"][1].update(body=5),
            "expected a string, found 5 @ $.sections[1].body",
        ),
        pytest.param(
            lambda plain: plain["sections"][1].update(path="tone"),
            "expected a list, found 'tone' @ $.sections[1].path",
        ),
        pytest.param(
            lambda plain: plain["sections"][1].update(path=[]),
            "path: expected ",
        ),
        pytest.param(
            lambda plain: plain["sections"][1].update(body="\ud800"),
            "section tone: expected Unicode text, found a lone surrogate",
        ),
        pytest.param(
            lambda plain: plain["sections"].append(plain["sections"][0]), "one part occurs twice"
        ),
        pytest.param(
            lambda plain: plain["provenance"].update(scores={"best": "high"}),
            "expected a number, found 'high'",
        ),
        pytest.param(
            lambda plain: plain.update(tag="other"),
            "expected the overrides of `tests/stores/support/latest`, "
            "found `tests/stores/support/other`",
        ),
        pytest.param(lambda plain: plain.update(ns="tests"), "found `tests/support/latest`"),
        pytest.param(lambda plain: plain.update(prompt_key="x"), "found `tests/stores/x/latest`"),
    ],
)
def test_a_document_of_the_wrong_shape_is_refused_even_if_its_id_fits(
    change: Callable[[Document], object],
    message: str,
    store: LocalPromptOverridesStore,
    document: Path,
) -> None:
    rewritten(document, change, signed=True)

    check_refused(store, document, message)


def test_a_document_under_the_name_of_another_tag_is_refused(
    store: LocalPromptOverridesStore, document: Path
) -> None:
    document.with_name("prod.json").write_bytes(document.read_bytes())

    with pytest.raises(StoreError, match=r"prod.json: expected the overrides of `.*support/prod`"):
        store.resolve(PROMPT.descriptor, "prod")
    with pytest.raises(StoreError, match=r"prod.json: expected the overrides of `.*support/prod`"):
        store.set_section_override(PROMPT, tag="prod", path=TONE, body="x")


def test_a_damaged_document_is_mended_by_removing_it_and_rolling_back(
    store: LocalPromptOverridesStore, document: Path
) -> None:
    document.write_bytes(b"")
    document.unlink()
    (first,) = store.history(**ADDRESS)

    assert store.rollback(**ADDRESS, revision=first.id) == first
    assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "Be brief."}


def test_line_ends_that_version_control_has_changed_are_no_damage(
    store: LocalPromptOverridesStore, document: Path, archived: Path
) -> None:
    expected = store.resolve(PROMPT.descriptor)
    for path in (document, archived):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))

    assert store.resolve(PROMPT.descriptor) == expected
    store.set_section_override(PROMPT, path=TONE, body="x")
    assert [revision.number for revision in store.history(**ADDRESS)] == [1, 2, 3]


# The archive


def test_damage_in_the_archive_is_named_and_does_not_stop_work(
    store: LocalPromptOverridesStore, archived: Path
) -> None:
    archived.write_bytes(archived.read_bytes()[:100])
    for operation in (store.history, store.rollback):
        with pytest.raises(StoreError, match=f"archived override file {archived}:"):
            operation(**ADDRESS)

    assert set(bodies(store.resolve(PROMPT.descriptor))) == {TONE, RULES}
    store.set_section_override(PROMPT, path=TONE, body="x")
    present = store.current(**ADDRESS)
    assert present is not None
    assert present.number == 3


def test_an_archived_revision_that_is_gone_is_named(
    store: LocalPromptOverridesStore, archived: Path
) -> None:
    archived.unlink()
    with pytest.raises(StoreError, match=f"has no revision {archived.stem.partition('-')[2]}"):
        store.rollback(**ADDRESS)

    assert [revision.number for revision in store.history(**ADDRESS)] == [2]


@pytest.mark.parametrize("name", ["000007-{id}.json", "000001-0123456789ab.json"])
def test_an_archived_revision_under_a_wrong_name_is_refused(
    name: str, store: LocalPromptOverridesStore, archived: Path
) -> None:
    wrong = archived.with_name(name.format(id=archived.stem.partition("-")[2]))
    archived.rename(wrong)
    with pytest.raises(StoreError, match=rf"{wrong} holds revision 1 .*; rename it to 000001-"):
        store.history(**ADDRESS)


def test_a_damaged_copy_of_the_present_document_in_the_archive_is_replaced(
    store: LocalPromptOverridesStore, document: Path
) -> None:
    whole = document.read_bytes()
    store.rollback(**ADDRESS)
    (kept,) = (document.parent / ".revisions" / "latest").glob("000002-*")
    assert kept.read_bytes() == whole
    document.write_bytes(whole)
    kept.write_bytes(b"")
    store.set_section_override(PROMPT, path=TONE, body="x")

    assert kept.read_bytes() == whole
    assert [revision.number for revision in store.history(**ADDRESS)] == [1, 2, 3]


# Things that are no files


def make_folder(path: Path) -> None:
    path.mkdir()


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_loop(path: Path) -> None:
    path.symlink_to(path)


@pytest.mark.parametrize(
    ("make", "fault"),
    [
        (make_folder, r"latest\.json is not a regular file; remove it"),
        (make_pipe, r"latest\.json is not a regular file; remove it"),
        (make_loop, r"latest\.json: Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_is_refused_without_waiting_for_it(
    make: Callable[[Path], None], fault: str, store: LocalPromptOverridesStore, document: Path
) -> None:
    document.unlink()
    make(document)
    operations: list[Callable[[], object]] = [
        lambda: store.resolve(PROMPT.descriptor),
        lambda: store.set_section_override(PROMPT, path=TONE, body="x"),
        lambda: store.delete(**ADDRESS, tag="latest"),
    ]
    for operation in operations:
        with pytest.raises(StoreError, match=fault):
            operation()


@pytest.mark.parametrize("where", [".promptgraft", ".promptgraft/overrides/tests", str(FOLDER)])
def test_a_file_where_a_folder_should_be_is_refused(where: str, tmp_path: Path) -> None:
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).write_text("foreign")
    store = LocalPromptOverridesStore(tmp_path)
    operations: list[Callable[[], object]] = [
        lambda: store.resolve(PROMPT.descriptor),
        lambda: store.set_section_override(PROMPT, path=TONE, body="x"),
        lambda: store.delete(**ADDRESS, tag="latest"),
        lambda: store.history(**ADDRESS),
    ]
    for operation in operations:
        with pytest.raises(StoreError, match=r"Not a directory|File exists"):
            operation()
    assert (tmp_path / where).read_text() == "foreign"
