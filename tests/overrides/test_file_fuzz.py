"""Files, whole and damaged: read as they are, or refused in one line.

``PROMPTGRAFT_FILES`` says how many.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import attrs
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from override_files import (
    LISTS,
    WAYS,
    Generated,
    address_of,
    generated_file,
    generated_revision,
)
from promptgraft.errors import DataFormatError, StoreError
from promptgraft.ground.serde import canonical_json
from promptgraft.overrides import LocalPromptOverridesStore, OverrideAddress, file_schema
from promptgraft.overrides.codec import decode_revision, encode_revision
from promptgraft.overrides.types import read_entries
from promptgraft.prompt import MarkdownSection, PromptTemplate

FILES, BATCH = int(os.environ.get("PROMPTGRAFT_FILES", "2000")), 100
MENDS = ("restore the file from version control", "read it with the promptgraft that wrote it")
SCHEMA = Draft202012Validator(file_schema())


def check_refusal(error: Exception, found: Generated, start: str) -> None:
    message = str(error)
    assert type(error) is StoreError, found
    assert message.startswith(start), found
    assert message.isprintable(), found
    assert any(mend in message for mend in MENDS), found
    assert found.names in message or "edited by hand" in message, (message, found)
    assert not found.whole, (message, found)


def check_read(found: Generated, address: OverrideAddress) -> bool:
    """Hold what every file must lead to: exactly what it says, or one line about its fault."""
    try:
        revision = decode_revision(found.data, address, where="the file")
    except StoreError as error:
        check_refusal(error, found, "the file")
        return False
    except BaseException as error:
        raise AssertionError(found) from error
    assert found.whole is not False, found
    written = encode_revision(revision)
    if written != found.data:
        # One file means one revision: what is written is the same JSON, so it reads the same.
        assert canonical_json(json.loads(written)) == canonical_json(json.loads(found.data)), found
    return True


def check_schema(found: Generated, *, accepted: bool) -> None:
    """Hold that what is read has the published form."""
    if accepted:
        faults = [fault.message for fault in SCHEMA.iter_errors(json.loads(found.data))]
        assert faults == [], found


def check_entries(found: Generated, address: OverrideAddress) -> None:
    """Read the entries alone, as journals do."""
    try:
        plain = json.loads(found.data)
    except (ValueError, RecursionError):
        return
    lists = {name: plain[name] for name in LISTS if name in plain} if type(plain) is dict else plain
    try:
        read_entries(lists, address.empty(), where="base")
    except DataFormatError as error:
        check_entries_refusal(str(error), found)
    except BaseException as error:
        raise AssertionError(found) from error


def check_entries_refusal(message: str, found: Generated) -> None:
    assert message.startswith("base: "), found
    assert not found.whole, found


def check_store(found: Generated, address: OverrideAddress, root: Path, *, accepted: bool) -> None:
    """Give the file to a store, as the document of its tag."""
    path = root / ".promptgraft/overrides" / address.ns / address.prompt_key / f"{address.tag}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(found.data)
    template: PromptTemplate[None] = PromptTemplate(
        ns=address.ns, key=address.prompt_key, sections=(MarkdownSection(title="T", key="t"),)
    )
    store = LocalPromptOverridesStore(root)
    try:
        override = store.resolve(template.descriptor, address.tag)
        revision = store.current(**attrs.asdict(address))
    except StoreError as error:
        check_refusal(error, found, f"override file {path}")
        assert not accepted, found
    else:
        assert accepted, found
        assert revision == decode_revision(found.data, address, where="")
        assert override == revision.override


def check_batch(seed: int, share: float, root: Path, tried: Counter[str]) -> None:
    rng = random.Random(seed)
    for index in range(BATCH):
        if index % 20 == 0:
            revision = generated_revision(rng, share)
            data, address = encode_revision(revision), address_of(revision)
        found = generated_file(rng, data)
        accepted = check_read(found, address)
        tried[f"{found.how}, {'read' if accepted else 'refused'}"] += 1
        if index % 10 == 0:
            check_entries(found, address)
            check_schema(found, accepted=accepted)
        if index % 50 == 0:
            check_store(found, address, root, accepted=accepted)


def test_files_are_read_as_they_are_or_refused_in_one_line(tmp_path: Path) -> None:
    tried: Counter[str] = Counter()

    # Without shrinking: a smaller seed is not a smaller file, and the message has the file.
    @settings(max_examples=FILES // BATCH, phases=[Phase.generate])
    @given(st.integers(0, 2**64), st.sampled_from([0.05, 0.1, 0.2]))
    def try_a_batch(seed: int, share: float) -> None:
        check_batch(seed, share, tmp_path, tried)

    try_a_batch()

    assert tried.total() >= FILES
    assert tried["whole, read"] > FILES // 100
    assert {name.partition(",")[0] for name in tried} == WAYS
