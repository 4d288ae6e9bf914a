"""Files, places and caches of the local store."""

from __future__ import annotations

import itertools
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import pytest

from promptgraft.errors import (
    ConfigError,
    HashMismatchError,
    InvalidIdentifierError,
    InvalidOverrideError,
    RevisionNotFoundError,
    StoreError,
    UnknownPartError,
)
from promptgraft.ground.locks import locked
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PromptOverride,
    RevisionedStore,
)
from promptgraft.prompt import MarkdownSection, Prompt, PromptTemplate
from promptgraft.testing import FakeClock
from promptgraft.testing.prompts import PROMPT, RULES, TASK, TONE, bodies, entry, override_of

FOLDER = Path(".promptgraft/overrides/tests/stores/support")


@pytest.fixture
def store(tmp_path: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(tmp_path, clock=FakeClock())


def tree(root: Path) -> dict[str, bytes | None]:
    """Return every path below ``root`` with its bytes; None for folders."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def at(monkeypatch: pytest.MonkeyPatch, document: Path, *, age_seconds: float) -> None:
    """Let the clock say that ``document`` was changed so long ago."""
    now = document.stat().st_ctime_ns + int(age_seconds * 1e9)
    monkeypatch.setattr(time, "time_ns", lambda: now)


def remembers(store: LocalPromptOverridesStore) -> bool:
    """Tell whether two calls return one object, parsed once."""
    return store.resolve(PROMPT.descriptor) is store.resolve(PROMPT.descriptor)


# Where the files are


def test_the_document_of_a_tag_stands_under_namespace_key_and_tag(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    store.set_section_override(PROMPT, tag="v1.2", path=TONE, body="x")

    assert (tmp_path / FOLDER / "v1.2.json").is_file()
    assert store.root_path == tmp_path.resolve()


def test_the_archive_holds_every_earlier_document_byte_by_byte(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    documents = []
    for body in ("one", "two", "three"):
        store.set_section_override(PROMPT, path=TONE, body=body)
        documents.append((tmp_path / FOLDER / "latest.json").read_bytes())

    history = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key)
    archive = tree(tmp_path / FOLDER / ".revisions" / "latest")
    assert archive == {
        f"{revision.number:06d}-{revision.id[:12]}.json": document
        for revision, document in zip(history[:2], documents[:2], strict=True)
    }
    store.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert (tmp_path / FOLDER / "latest.json").read_bytes() == documents[1]


def test_the_time_of_a_revision_is_that_of_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    store = LocalPromptOverridesStore(tmp_path, clock=clock)
    clock.advance(90)
    store.set_section_override(PROMPT, path=TONE, body="x")

    (revision,) = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert revision.time == clock.now()


def test_another_store_on_the_same_root_sees_every_write(tmp_path: Path) -> None:
    first, second = LocalPromptOverridesStore(tmp_path), LocalPromptOverridesStore(tmp_path)
    for count, store in enumerate(itertools.islice(itertools.cycle((first, second)), 10)):
        written = store.set_section_override(PROMPT, path=TONE, body=str(count))
        assert first.resolve(PROMPT.descriptor) == second.resolve(PROMPT.descriptor) == written


def test_it_is_a_store_with_a_history(store: LocalPromptOverridesStore) -> None:
    revisioned: RevisionedStore = store
    assert revisioned.history(ns=PROMPT.ns, prompt_key=PROMPT.key) == ()


def test_what_the_store_holds_is_what_the_model_sees(store: LocalPromptOverridesStore) -> None:
    section = MarkdownSection(title="Task", key="task", template="Answer $question for $$5.")
    template: PromptTemplate[str] = PromptTemplate(ns="a/b", key="c", sections=(section,))
    prompt = Prompt(template, overrides_store=store, overrides_tag="tried").bind({"question": "Q?"})
    source = prompt.render().text

    store.seed(prompt, tag="tried")
    assert prompt.render().text == source == "## Task\n\nAnswer Q? for $5."
    body = "$question costs $5 {{ question }}"
    store.set_section_override(prompt, tag="tried", path=("task",), body=body)
    assert prompt.render().text == "## Task\n\nQ? costs $5 {{ question }}"
    store.rollback(ns="a/b", prompt_key="c", tag="tried")
    assert prompt.render().text == source
    assert [applied.part for applied in prompt.render().applied] == ["section task"]


# The root


@pytest.mark.parametrize(
    ("folders", "start", "root"),
    [
        pytest.param([".promptgraft", "a/b"], "a/b", ".", id="an ancestor with overrides"),
        pytest.param([".promptgraft", "a/.promptgraft", "a/b"], "a/b", "a", id="the nearest"),
        pytest.param(["a/.promptgraft", "a"], "a", "a", id="the folder itself"),
        pytest.param([".promptgraft", "r/.git", "r/a"], "r/a", "r", id="not above a repository"),
        pytest.param(["r/.git", "r/.promptgraft", "r/a"], "r/a", "r", id="the repository's own"),
        pytest.param(["r/.git", "r/a/.promptgraft", "r/a/b"], "r/a/b", "r/a", id="inside one"),
    ],
)
def test_the_root_is_found_from_the_current_folder(
    folders: list[str],
    start: str,
    root: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path / start)
    store = LocalPromptOverridesStore()
    monkeypatch.chdir("/")

    assert store.root_path == (tmp_path / root).resolve()


def test_the_git_file_of_a_worktree_marks_a_repository_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".promptgraft").mkdir()
    (tmp_path / "tree" / "a").mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n")
    monkeypatch.chdir(tmp_path / "tree" / "a")

    assert LocalPromptOverridesStore().root_path == (tmp_path / "tree").resolve()


def test_a_root_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "missing", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="root_path: expected a folder"):
            LocalPromptOverridesStore(root)


def test_a_current_folder_that_is_gone_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigError, match="root_path: cannot read the folder of the project"):
        LocalPromptOverridesStore()
    monkeypatch.chdir(tmp_path)


# What leaves no trace


def test_reading_refusing_and_deleting_nothing_leave_no_trace(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    address = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
    assert store.resolve(PROMPT.descriptor) is None
    assert store.current(**address) is None
    assert store.history(**address) == ()
    assert store.addresses() == ()
    store.delete(**address, tag="latest")
    store.upsert(PROMPT.descriptor, override_of(PROMPT))
    with pytest.raises(UnknownPartError):
        store.remove_section_override(**address, path=TONE)
    with pytest.raises(InvalidOverrideError):
        store.set_section_override(PROMPT, path=TASK, body="lost")
    with pytest.raises(RevisionNotFoundError):
        store.rollback(**address)

    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "bad", ["..", "/etc", "a\0b", "../../x", "Latest", "a" * 65, "", "a/", "é"]
)
def test_bad_identifiers_touch_no_file(bad: str, tmp_path: Path) -> None:
    root = tmp_path / "above" / "root"
    root.mkdir(parents=True)
    store = LocalPromptOverridesStore(root, clock=FakeClock())
    store.set_section_override(PROMPT, path=TONE, body="x")
    before = tree(tmp_path)
    good = {"ns": "tests/stores", "prompt_key": "support", "tag": "latest"}
    for field in good:
        names = {**good, field: bad}
        prompt = attrs.evolve(PROMPT, ns=names["ns"], key=names["prompt_key"])
        tag = names["tag"]
        override = override_of(prompt, entry(prompt, TONE, "y"), tag=tag)
        with pytest.raises(InvalidIdentifierError):
            store.upsert(prompt.descriptor, override)
        with pytest.raises(InvalidIdentifierError):
            store.seed(prompt, tag=tag)
        with pytest.raises(InvalidIdentifierError):
            store.resolve(prompt.descriptor, tag)
        for method in (store.delete, store.rollback, store.history, store.current):
            with pytest.raises(InvalidIdentifierError):
                method(**names)
    with pytest.raises(InvalidIdentifierError):
        store.rollback(**good, revision=bad or "/")
    assert tree(tmp_path) == before


def test_a_refused_write_changes_no_file(store: LocalPromptOverridesStore, tmp_path: Path) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")
    store.set_section_override(PROMPT, path=TONE, body="two")
    before = tree(tmp_path)
    with pytest.raises(InvalidOverrideError):
        store.set_section_override(PROMPT, path=TASK, body="lost")
    with pytest.raises(HashMismatchError):
        store.upsert(
            PROMPT.edited(TONE, "new").descriptor, override_of(PROMPT, entry(PROMPT, TONE, "x"))
        )
    store.set_section_override(PROMPT, path=TONE, body="two")
    store.upsert(PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TONE, "two")))

    assert tree(tmp_path) == before


def test_what_killed_writers_left_is_swept_by_the_next_write_and_nothing_else(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")
    store.set_section_override(PROMPT, path=TONE, body="two")
    archive = tmp_path / FOLDER / ".revisions" / "latest"
    left = [tmp_path / FOLDER / ".latest.json.abc_12.tmp", archive / ".000001-ab.json.x.tmp"]
    foreign = [tmp_path / FOLDER / "notes.md", tmp_path / FOLDER / ".x.tmp", archive / "readme"]
    for path in (*left, *foreign):
        path.write_text("{")
    store.set_section_override(PROMPT, path=TONE, body="three")

    assert not any(path.exists() for path in left)
    assert all(path.exists() for path in foreign)
    history = store.history(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert [revision.number for revision in history] == [1, 2, 3]


# What it remembers


def test_a_document_is_parsed_once_until_it_changes(
    store: LocalPromptOverridesStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = LocalPromptOverridesStore(tmp_path)
    for body in ("one", "two"):
        other.set_section_override(PROMPT, path=TONE, body=body)
        at(monkeypatch, tmp_path / FOLDER / "latest.json", age_seconds=1)
        assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: body}
        assert remembers(store)
    other.rollback(ns=PROMPT.ns, prompt_key=PROMPT.key)
    assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "one"}
    other.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")
    assert store.resolve(PROMPT.descriptor) is None
    other.set_section_override(PROMPT, path=TONE, body="two")
    assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "two"}


@pytest.mark.parametrize("age_seconds", [-3600, 0, 0.01])
def test_a_document_that_could_change_without_a_trace_is_not_remembered(
    age_seconds: float,
    store: LocalPromptOverridesStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")
    at(monkeypatch, tmp_path / FOLDER / "latest.json", age_seconds=age_seconds)

    assert not remembers(store)


def test_an_edit_that_keeps_size_and_modification_time_is_noticed(
    store: LocalPromptOverridesStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.set_section_override(PROMPT, path=TONE, body="one")
    document = tmp_path / FOLDER / "latest.json"
    at(monkeypatch, document, age_seconds=1)
    assert remembers(store)
    status = document.stat()
    with document.open("r+b") as file:
        file.write(document.read_bytes().replace(b"one", b"two"))
    os.utime(document, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(StoreError, match="edited by hand or damaged"):
        store.resolve(PROMPT.descriptor)


# Addresses


def test_the_addresses_of_all_documents_are_listed_and_foreign_files_are_not(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    names = [("b", "c", "v1.0"), ("a/b", "c", "latest"), ("a", "b", "latest"), ("a", "b", "best")]
    for ns, key, tag in names:
        prompt = attrs.evolve(PROMPT, ns=ns, key=key)
        for body in ("one", "two"):
            store.set_section_override(prompt, tag=tag, path=TONE, body=body)
    overrides = tmp_path / ".promptgraft" / "overrides"
    (overrides / "a" / "b" / "Notes.json").touch()
    (overrides / "a" / "b" / "readme.md").touch()
    (overrides / "a" / "top.json").touch()
    (overrides / "top.json").touch()
    (overrides / "A" / "b").mkdir(parents=True)
    (overrides / "A" / "b" / "latest.json").touch()

    assert store.addresses() == tuple(OverrideAddress(*name) for name in sorted(names))
    store.delete(ns="b", prompt_key="c", tag="v1.0")
    assert len(store.addresses()) == 3


# Links


def outside_link(tmp_path: Path, kind: str) -> tuple[LocalPromptOverridesStore, Path]:
    """Return a store with a link of some kind that leads to a folder outside of its root."""
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    store = LocalPromptOverridesStore(root)
    links = {
        "store": root / ".promptgraft",
        "overrides": root / ".promptgraft" / "overrides",
        "namespace": root / FOLDER.parent,
        "prompt": root / FOLDER,
        "archive": root / FOLDER / ".revisions",
        "archive of the tag": root / FOLDER / ".revisions" / "latest",
        "lock": root / FOLDER / ".lock",
        "document": root / FOLDER / "latest.json",
    }
    link = links[kind]
    link.parent.mkdir(parents=True, exist_ok=True)
    if kind == "document":
        other = LocalPromptOverridesStore(outside)
        other.set_section_override(PROMPT, path=TONE, body="outside")
        link.symlink_to(outside / FOLDER / "latest.json")
    elif kind == "lock":
        (outside / "file").write_text("precious")
        link.symlink_to(outside / "file")
    else:
        link.symlink_to(outside)
    return store, outside


@pytest.mark.parametrize(
    "kind",
    [
        "store",
        "overrides",
        "namespace",
        "prompt",
        "archive",
        "archive of the tag",
        "lock",
        "document",
    ],
)
def test_links_that_lead_out_of_the_root_are_not_written_through(kind: str, tmp_path: Path) -> None:
    store, outside = outside_link(tmp_path, kind)
    before = tree(outside)
    with pytest.raises(StoreError, match=r"leads out of the store's root .*; replace the symbolic"):
        store.set_section_override(PROMPT, path=TONE, body="x")
    if kind == "document":
        with pytest.raises(StoreError, match="leads out of the store's root"):
            store.delete(ns=PROMPT.ns, prompt_key=PROMPT.key, tag="latest")

    assert tree(outside) == before


def test_a_root_that_is_a_link_is_the_folder_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalPromptOverridesStore(tmp_path / "link")
    store.set_section_override(PROMPT, path=TONE, body="x")

    assert (tmp_path / "real" / FOLDER / "latest.json").is_file()
    assert store.root_path == (tmp_path / "real").resolve()


# Waiting


def test_a_writer_that_waits_too_long_says_for_what(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path, lock_timeout_seconds=0.05)
    before = store.set_section_override(PROMPT, path=TONE, body="x")
    lock = tmp_path / FOLDER / ".lock"
    address = {"ns": PROMPT.ns, "prompt_key": PROMPT.key}
    with locked(lock), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.set_section_override, PROMPT, path=TONE, body="y")
        with pytest.raises(StoreError, match=rf"is locked: waited 0.05 s for {lock}; find out"):
            waiting.result()
        with pytest.raises(StoreError, match="is locked"):
            pool.submit(store.rollback, **address).result()
        with pytest.raises(StoreError, match="is locked"):
            pool.submit(store.delete, **address, tag="latest").result()
        assert store.resolve(PROMPT.descriptor) == before
        assert len(store.history(**address)) == 1


def test_a_prompt_is_not_locked_by_the_writer_of_another(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path, lock_timeout_seconds=0.05)
    store.set_section_override(PROMPT, path=TONE, body="x")
    other = attrs.evolve(PROMPT, key="other")
    with locked(tmp_path / FOLDER / ".lock"):
        store.set_section_override(other, path=TONE, body="x")

    assert bodies(store.resolve(other.descriptor)) == {TONE: "x"}


def test_a_change_sees_what_the_tag_holds_while_nobody_else_can_write(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    store.set_section_override(PROMPT, path=TONE, body="before")
    second = LocalPromptOverridesStore(tmp_path, lock_timeout_seconds=0.05)
    seen = []

    def change(present: PromptOverride) -> PromptOverride:
        seen.append(bodies(present))
        with ThreadPoolExecutor(1) as pool, pytest.raises(StoreError, match="is locked"):
            pool.submit(second.set_section_override, PROMPT, path=RULES, body="lost?").result()
        return present.merged_with(override_of(PROMPT, entry(PROMPT, TONE, "after")))

    store.mutate(OverrideAddress(PROMPT.ns, PROMPT.key, "latest"), change)
    assert seen == [{TONE: "before"}]
    assert bodies(store.resolve(PROMPT.descriptor)) == {TONE: "after"}


def test_a_change_that_raises_its_own_error_is_not_taken_for_a_fault_of_the_store(
    store: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    def change(present: PromptOverride) -> PromptOverride:
        raise FileNotFoundError("the source of the prompt")

    store.set_section_override(PROMPT, path=TONE, body="x")
    before = tree(tmp_path)
    with pytest.raises(FileNotFoundError, match="the source of the prompt"):
        store.mutate(OverrideAddress(PROMPT.ns, PROMPT.key, "latest"), change)
    assert tree(tmp_path) == before
