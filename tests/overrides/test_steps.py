"""Writes of several tags in one step: what readers, refusals and other writers see of them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import attrs
import pytest

from killing import Killer, folder_in_memory
from programs import Programs
from promptgraft.errors import InvalidOverrideError, RevisionNotFoundError, StoreError
from promptgraft.ground.locks import locked
from promptgraft.overrides import (
    LocalPromptOverridesStore,
    OverrideAddress,
    PromptOverride,
    Revision,
)
from promptgraft.overrides.codec import decode_revision, encode_revision, make_revision
from promptgraft.testing import FakeClock, FakePrompt
from promptgraft.testing.prompts import (
    JUDGE,
    PROMPT,
    RULES,
    TASK,
    TONE,
    WRITER,
    bodies,
    entry,
    override_of,
    set_all,
)

T = TypeVar("T")
STORE = Path(".promptgraft/overrides")
INTENT = STORE / ".intent.json"
PROMPTS = (PROMPT, WRITER, JUDGE)


def store_in(root: Path) -> LocalPromptOverridesStore:
    return LocalPromptOverridesStore(root, clock=FakeClock())


def names_of(prompt: FakePrompt) -> dict[str, str]:
    return {"ns": prompt.ns, "prompt_key": prompt.key}


def current_of(store: LocalPromptOverridesStore, prompt: FakePrompt) -> Revision:
    revision = store.current(**names_of(prompt))
    assert revision is not None
    return revision


def tone_of(store: LocalPromptOverridesStore, prompt: FakePrompt) -> str | None:
    return bodies(store.resolve(prompt.descriptor)).get(TONE)


class Effects(Killer):
    """Does something before each effect on the file system, and after it; kills nobody."""

    names = (*Killer.names, "unlink", "mkdir")

    def __init__(self, before: Callable[[int], None], after: Callable[[], None]) -> None:
        super().__init__("never", 0)
        self._before = before
        self._after = after
        self.count = 0

    def effect(self, cause: Callable[[], T], part: Callable[[], object] | None = None) -> T:
        del part
        self.count += 1
        self._before(self.count)
        result = cause()
        self._after()
        return result

    def follow(self, patch: pytest.MonkeyPatch) -> None:
        for name in self.names:
            patch.setattr(os, name, getattr(self, f"_{name}"))


# What readers see


def test_a_reader_sees_every_tag_change_at_the_same_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, reader = store_in(tmp_path), store_in(tmp_path)
    set_all(store, PROMPT, WRITER, path=TONE, body="old")
    seen: list[object] = []

    def look() -> None:
        addresses = tuple(address.prompt_key for address in reader.addresses())
        lengths = tuple(len(reader.history(**names_of(prompt))) for prompt in PROMPTS)
        tones = tuple(tone_of(reader, prompt) for prompt in PROMPTS)
        found = (tones, lengths, addresses)
        if found not in seen[-1:]:
            seen.append(found)

    with monkeypatch.context() as patch:
        Effects(lambda _: look(), look).follow(patch)
        set_all(store, *PROMPTS, path=TONE, body="new")
    assert seen == [
        (("old", "old", None), (1, 1, 0), ("support", "writer")),
        (("new", "new", "new"), (2, 2, 1), ("judge", "support", "writer")),
    ]


def test_a_write_that_the_system_refuses_at_any_point_is_kept_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[tuple[str | None, ...], bool, bool]] = []
    before, fatal = tmp_path / "before", 0
    before.mkdir()
    set_all(store_in(before), PROMPT, WRITER, path=TONE, body="old")

    def refuse(count: int) -> None:
        if count == fatal:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    while len(ends) == fatal:
        fatal += 1
        root = shutil.copytree(before, tmp_path / str(fatal))
        raised = False
        with monkeypatch.context() as patch:
            effects = Effects(refuse, lambda: None)
            effects.follow(patch)
            try:
                set_all(store_in(root), *PROMPTS, path=TONE, body="new")
            except StoreError:
                raised = True
            finished = effects.count < fatal
        store = store_in(root)
        tones = tuple(tone_of(store, prompt) for prompt in PROMPTS)
        pending = (root / INTENT).exists()
        if not finished:
            ends.append((tones, raised, pending))
        store.set_section_override(JUDGE, path=RULES, body="next")
        assert tuple(tone_of(store, prompt) for prompt in PROMPTS) == tones
        assert not (root / INTENT).exists()

    old, new = ("old", "old", None), ("new", "new", "new")
    # Refused; kept, though the folder of the intent was not synced; kept and not finished;
    # kept and finished, though the removal of the intent was not synced.
    kinds = [(old, True, False), (new, True, True), (new, False, True), (new, False, False)]
    assert list(dict.fromkeys(ends)) == kinds
    assert len(ends) > 25


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalPromptOverridesStore:
    """A store with a step that is kept and of which no document was written."""
    store = store_in(tmp_path)
    set_all(store, PROMPT, WRITER, path=TONE, body="old")

    def refuse(count: int) -> None:
        if (tmp_path / INTENT).exists():
            raise OSError(errno.EIO, f"no effect after {count}")

    with monkeypatch.context() as patch:
        Effects(refuse, lambda: None).follow(patch)
        with pytest.raises(StoreError):  # the folder of the intent is not synced either
            set_all(store, *PROMPTS, path=TONE, body="new")
    return store_in(tmp_path)


def documents(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*.json")}


def test_what_a_killed_writer_left_is_read_and_nothing_is_written_by_reading(
    left: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    before = documents(tmp_path)
    assert [tone_of(left, prompt) for prompt in PROMPTS] == ["new"] * 3
    assert [len(left.history(**names_of(prompt))) for prompt in PROMPTS] == [2, 2, 1]
    assert {current_of(left, prompt).step for prompt in PROMPTS} != {None}
    assert len({current_of(left, prompt).step for prompt in PROMPTS}) == 1
    assert left.addresses() == tuple(
        sorted(OverrideAddress(prompt.ns, prompt.key, "latest") for prompt in PROMPTS)
    )
    assert left.resolve(PROMPT.descriptor, "other") is None
    assert documents(tmp_path) == before


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda store: store.seed(PROMPT), id="seed"),
        pytest.param(lambda store: store.rollback(**names_of(PROMPT)), id="rollback"),
        pytest.param(lambda store: store.delete(**names_of(JUDGE), tag="latest"), id="delete"),
        pytest.param(
            lambda store: set_all(store, PROMPT, WRITER, path=RULES, body="x"), id="several"
        ),
        pytest.param(
            lambda store: store.set_section_override(WRITER, path=TONE, body="new"), id="no change"
        ),
    ],
)
def test_the_next_writer_finishes_what_a_killed_one_left(
    act: Callable[[LocalPromptOverridesStore], object],
    left: LocalPromptOverridesStore,
    tmp_path: Path,
) -> None:
    step = {prompt: current_of(left, prompt) for prompt in PROMPTS}
    act(left)

    assert not (tmp_path / INTENT).exists()
    for prompt, revision in step.items():
        assert revision in left.history(**names_of(prompt))
    (tmp_path / STORE / ".lock").unlink()  # nothing but documents is needed any more
    assert current_of(left, WRITER).override.sections[TONE].body == "new"


def test_a_rollback_of_a_tag_whose_only_revision_was_left_leaves_it_without(
    left: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / STORE / "tests/judges")  # a power loss may take what was not synced
    assert left.rollback(**names_of(JUDGE)) is None

    assert [tone_of(left, prompt) for prompt in PROMPTS] == ["new", "new", None]
    with pytest.raises(RevisionNotFoundError):
        left.rollback(**names_of(JUDGE))


# What leaves no trace


def test_a_refused_step_leaves_no_file_and_no_folder(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    half = [
        (WRITER.descriptor, override_of(WRITER, entry(WRITER, TONE, "x"))),
        (PROMPT.descriptor, override_of(PROMPT, entry(PROMPT, TASK, "lost"))),
    ]
    with pytest.raises(InvalidOverrideError, match="lost the placeholder"):
        store.upsert_all(half)
    store.upsert_all([(prompt.descriptor, override_of(prompt)) for prompt in PROMPTS])
    store.upsert_all([])
    assert list(tmp_path.iterdir()) == []

    store.set_section_override(PROMPT, path=TONE, body="kept")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOverrideError, match="lost the placeholder"):
        store.upsert_all(half)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_step_that_changes_one_tag_needs_no_intent_and_has_no_mark(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    store.set_section_override(PROMPT, path=TONE, body="same")
    store.set_section_override(WRITER, path=TONE, body="other")
    set_all(store, PROMPT, WRITER, path=TONE, body="same")

    assert [len(store.history(**names_of(prompt))) for prompt in (PROMPT, WRITER)] == [1, 2]
    assert current_of(store, WRITER).step is None


# Other writers


def test_a_step_locks_every_prompt_that_it_writes(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path)
    set_all(store, *PROMPTS, path=TONE, body="before")
    second = LocalPromptOverridesStore(tmp_path, lock_timeout_seconds=0.02)

    def change(present: PromptOverride) -> PromptOverride:
        with ThreadPoolExecutor(1) as pool:
            for prompt in (PROMPT, WRITER):
                with pytest.raises(StoreError, match=r"is locked: waited 0.02 s"):
                    pool.submit(second.set_section_override, prompt, path=TONE, body="x").result()
            pool.submit(second.set_section_override, JUDGE, path=TONE, body="beside").result()
        return present.merged_with(present.holding([entry(PROMPT, RULES, "x")]))

    changes = {OverrideAddress(one.ns, one.key, "latest"): change for one in (WRITER, PROMPT)}
    assert list(store.mutate_all(changes)) == list(changes)
    assert tone_of(store, JUDGE) == "beside"


def test_a_step_that_waits_too_long_has_written_nothing(tmp_path: Path) -> None:
    store = LocalPromptOverridesStore(tmp_path, lock_timeout_seconds=0.02)
    set_all(store, *PROMPTS, path=TONE, body="before")
    with (
        locked(tmp_path / STORE / "tests/stores/writer/.lock"),
        ThreadPoolExecutor(1) as pool,
        pytest.raises(StoreError, match=r"writer is locked: waited"),
    ):
        pool.submit(set_all, store, *PROMPTS, path=TONE, body="after").result()

    assert [tone_of(store, prompt) for prompt in PROMPTS] == ["before"] * 3
    set_all(store, *PROMPTS, path=TONE, body="after")
    assert [tone_of(store, prompt) for prompt in PROMPTS] == ["after"] * 3


EACH = 6
STEPPER = """
import fcntl, sys
from promptgraft.overrides import LocalPromptOverridesStore
from promptgraft.testing.prompts import FakePrompt
from promptgraft.testing.prompts import set_all

go, writer, *keys = sys.argv[2:]
store = LocalPromptOverridesStore(sys.argv[1])
paths = [(f"w{writer}-{index}",) for index in range(6)]
prompts = [FakePrompt(key=key, bodies=dict.fromkeys(paths, "source")) for key in keys]
print("ready", flush=True)
fcntl.flock(open(go), fcntl.LOCK_SH)
for path in paths:
    set_all(store, *prompts, path=path, body=f"by {writer}")
"""


@pytest.mark.thorough
def test_processes_that_write_overlapping_sets_wait_for_each_other_and_lose_nothing(
    tmp_path: Path, programs: Programs
) -> None:
    sets = [("a", "b", "c"), ("c", "b", "a"), ("b",), ("d", "a")]
    with folder_in_memory() as root:
        store = LocalPromptOverridesStore(root)

        def history(key: str) -> tuple[Revision, ...]:
            return store.history(ns="tests/stores", prompt_key=key)

        with (tmp_path / "go").open("w") as go, contextlib.ExitStack() as begun:
            fcntl.flock(go, fcntl.LOCK_EX)
            writers = [
                begun.enter_context(
                    programs.started("-c", STEPPER, root, go.name, str(number), *keys)
                )
                for number, keys in enumerate(sets)
            ]
            assert [writer.stdout.readline() for writer in writers] == ["ready\n"] * len(sets)
            fcntl.flock(go, fcntl.LOCK_UN)
            while any(writer.poll() is None for writer in writers):
                # What was seen of one prompt is there of the other ones of the step.
                seen = {one.step for one in history("a")} & {one.step for one in history("c")}
                assert seen <= {one.step for one in history("b")} | {None}
            assert [writer.wait() for writer in writers] == [0] * len(sets)

        for key in "abcd":
            revisions = history(key)
            numbers = [number for number, keys in enumerate(sets) if key in keys]
            assert [one.number for one in revisions] == list(range(1, len(numbers) * EACH + 1))
            wanted = {
                (f"w{number}-{index}",): f"by {number}"
                for number in numbers
                for index in range(EACH)
            }
            assert bodies(revisions[-1].override) == wanted
        shared = {one.step for one in history("a")} & {one.step for one in history("c")}
        assert len(shared) == 2 * EACH
        assert list(root.rglob(".intent.json")) == []


# Damage


def check_refused(store: LocalPromptOverridesStore, root: Path, message: str) -> None:
    """Check that whatever is done names the intent and the fault, and changes nothing."""
    before = documents(root)
    operations: list[Callable[[], object]] = [
        lambda: store.set_section_override(PROMPT, path=TONE, body="x"),
        lambda: store.seed(attrs.evolve(PROMPT, key="new")),
        lambda: set_all(store, *PROMPTS, path=TONE, body="x"),
        lambda: store.rollback(**names_of(PROMPT)),
        lambda: store.delete(**names_of(PROMPT), tag="latest"),
    ]
    for operation in operations:
        with pytest.raises(StoreError) as caught:
            operation()
        text = str(caught.value)
        assert text.startswith(f"override intent {root / INTENT}"), text
        assert message in text
        assert text.endswith("compare the tags it names with their history, then delete the file")
        assert "\n" not in text
    assert documents(root) == before


def spoiled(root: Path, change: Callable[[dict[str, list[str]]], object]) -> None:
    plain = json.loads((root / INTENT).read_bytes())
    change(plain)
    (root / INTENT).write_text(json.dumps(plain))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(lambda plain: plain.clear(), "required key missing @ $.version", id="empty"),
        pytest.param(lambda plain: plain.update(version=2), "expected 1, found 2", id="version"),
        pytest.param(lambda plain: plain.update(more=1), "more", id="another key"),
        pytest.param(
            lambda plain: plain["documents"].pop(),
            "expected every revision of one write",
            id="one lost",
        ),
        pytest.param(
            lambda plain: plain["documents"].append(plain["documents"][0]),
            "expected every revision of one write",
            id="one twice",
        ),
        pytest.param(
            lambda plain: plain["documents"].clear(),
            "expected every revision of one write",
            id="none",
        ),
        pytest.param(
            lambda plain: plain["documents"].__setitem__(0, "\ud800"), "surrogate", id="surrogate"
        ),
        pytest.param(
            lambda plain: plain["documents"].__setitem__(0, "{\n"), "Expecting", id="half"
        ),
        pytest.param(
            lambda plain: plain["documents"].__setitem__(
                0, plain["documents"][0].replace('"new"', '"edited"')
            ),
            "edited by hand or damaged",
            id="edited",
        ),
    ],
)
def test_a_damaged_intent_is_refused_by_name_and_stays(
    change: Callable[[dict[str, list[str]]], object],
    message: str,
    left: LocalPromptOverridesStore,
    tmp_path: Path,
) -> None:
    spoiled(tmp_path, change)

    check_refused(left, tmp_path, message)
    for read in (
        lambda: left.resolve(PROMPT.descriptor),
        lambda: left.current(**names_of(JUDGE)),
        lambda: left.history(**names_of(WRITER)),
        left.addresses,
    ):
        with pytest.raises(StoreError, match="override intent"):
            read()


@pytest.mark.parametrize("data", [b"", b"\x00" * 100, b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_intent_is_refused(
    data: bytes, left: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    (tmp_path / INTENT).write_bytes(data)

    check_refused(left, tmp_path, "")


def test_an_intent_for_another_history_is_not_written_and_not_read(
    left: LocalPromptOverridesStore, tmp_path: Path
) -> None:
    document = tmp_path / STORE / "tests/stores/support/latest.json"
    address = OverrideAddress(PROMPT.ns, PROMPT.key, "latest")
    old = decode_revision(document.read_bytes(), address, where="the file")
    other = make_revision(
        number=2, parent=old.id, time=old.time, provenance=old.provenance, override=old.override
    )
    document.write_bytes(encode_revision(other))

    check_refused(left, tmp_path, f"was not made for what override file {document} holds")
    assert left.current(**names_of(PROMPT)) == other
    (tmp_path / INTENT).unlink()
    assert [tone_of(left, prompt) for prompt in PROMPTS] == ["old", "old", None]
    left.set_section_override(PROMPT, path=TONE, body="mended")


def test_an_intent_is_not_written_through_a_link_out_of_the_root(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    for path in (INTENT, STORE / ".lock"):
        root = tmp_path / path.name
        root.mkdir()
        store = store_in(root)
        set_all(store, *PROMPTS, path=TONE, body="before")
        (root / path).unlink(missing_ok=True)
        (root / path).symlink_to(outside if path.name == ".lock" else tmp_path / "missing")
        with pytest.raises(StoreError, match="leads out of the store's root"):
            set_all(store, *PROMPTS, path=TONE, body="after")
        assert [tone_of(store, prompt) for prompt in PROMPTS] == ["before"] * 3
    assert outside.read_text() == "precious"


def test_a_rollback_of_several_tags_of_which_one_is_refused_moves_none(tmp_path: Path) -> None:
    store = store_in(tmp_path)
    set_all(store, PROMPT, path=RULES, body="first")
    set_all(store, PROMPT, WRITER, path=RULES, body="second")
    before = {prompt: current_of(store, prompt) for prompt in (PROMPT, WRITER)}
    addresses = [OverrideAddress(prompt.ns, prompt.key, "latest") for prompt in PROMPTS]
    with pytest.raises(RevisionNotFoundError, match="there is nothing to roll back"):
        store.rollback_all(dict.fromkeys(addresses))
    with pytest.raises(RevisionNotFoundError, match="no revision 0000"):
        store.rollback_all({addresses[0]: None, addresses[1]: "00000000"})
    assert {prompt: current_of(store, prompt) for prompt in before} == before
    moved = store.rollback_all(dict.fromkeys(addresses[:2]))
    assert [revision and revision.id for revision in moved.values()] == [
        before[PROMPT].parent,
        None,
    ]
