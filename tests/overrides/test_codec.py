"""The documents of revisions: what is written is what is read, byte for byte."""

from __future__ import annotations

import hashlib
import json
import random
from datetime import datetime, timedelta, timezone

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from override_files import address_of, generated_revision
from promptgraft.errors import DataFormatError, StoreError
from promptgraft.ground.frozenmap import FrozenMap
from promptgraft.ground.serde import digest_text
from promptgraft.overrides import (
    PromptOverride,
    Provenance,
    Revision,
    SectionOverride,
    SectionPath,
)
from promptgraft.overrides.codec import (
    decode_revision,
    encode_revision,
    make_revision,
)
from promptgraft.overrides.parts import plain_lists
from promptgraft.overrides.types import read_entries

SAMPLE = """\
{
  "version": 1,
  "id": "5902e21518ad34fdb42eb9dec787f4fd361fc344b5d75f825c3109c37793a7ca",
  "number": 2,
  "parent": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
  "time": "2026-01-02T03:04:05.000600+00:00",
  "ns": "shop/support",
  "prompt_key": "triage",
  "tag": "latest",
  "provenance": {
    "run_id": "2026-01-02-a1",
    "note": "läuft",
    "scores": {
      "baseline": 0.5,
      "best": 1.0
    }
  },
  "sections": [
    {
      "path": [
        "policies"
      ],
      "expected_hash": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
      "body": "Ask $customer first.\\n\\"Now\\" costs $5."
    },
    {
      "path": [
        "policies",
        "refunds"
      ],
      "expected_hash": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
      "body": ""
    }
  ]
}
"""

# Of all kinds; drawing every text by itself would cost fifty times as much.
revisions = st.integers(0, 2**64).map(lambda seed: generated_revision(random.Random(seed), 0.5))


def sample() -> Revision:
    bodies: dict[SectionPath, str] = {
        ("policies", "refunds"): "",
        ("policies",): 'Ask $customer first.\n"Now" costs $5.',
    }
    override = PromptOverride(
        ns="shop/support",
        prompt_key="triage",
        tag="latest",
        sections={
            path: SectionOverride(path=path, expected_hash=digest_text("foo"), body=body)
            for path, body in bodies.items()
        },
    )
    return make_revision(
        number=2,
        parent=digest_text("foo"),
        time=datetime(2026, 1, 2, 4, 4, 5, 600, tzinfo=timezone(timedelta(hours=1))),
        provenance=Provenance(
            run_id="2026-01-02-a1",
            note="läuft",
            scores=FrozenMap({"best": 1.0, "baseline": 0.5}),
        ),
        override=override,
    )


@given(revisions)
def test_what_is_written_is_what_is_read(revision: Revision) -> None:
    data = encode_revision(revision)
    read = decode_revision(data, address_of(revision), where="the file")

    assert read == revision
    assert encode_revision(read) == data


@given(revisions)
def test_entries_alone_are_read_as_they_were_written(revision: Revision) -> None:
    address = address_of(revision).empty()
    plain = json.loads(json.dumps(plain_lists(revision.override.entries())))

    assert read_entries(plain, address, where="base") == revision.override


@given(revisions)
def test_the_order_in_which_entries_and_scores_were_made_leaves_no_trace(
    revision: Revision,
) -> None:
    turned = make_revision(
        number=revision.number,
        parent=revision.parent,
        time=revision.time,
        provenance=attrs.evolve(
            revision.provenance, scores=FrozenMap([*revision.provenance.scores.items()][::-1])
        ),
        override=revision.override.holding(reversed(revision.override.entries())),
        step=revision.step,
    )

    assert encode_revision(turned) == encode_revision(revision)


def test_a_kept_document_of_version_1_is_still_written_and_read() -> None:
    assert encode_revision(sample()).decode() == SAMPLE
    assert decode_revision(SAMPLE.encode(), address_of(sample()), where="") == sample()


def test_the_id_is_the_sha_256_of_the_canonical_json_of_everything_else() -> None:
    plain = json.loads(SAMPLE)
    said = plain.pop("id")
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert hashlib.sha256(canonical.encode()).hexdigest() == said


@pytest.mark.parametrize("field", ["number", "parent", "time", "provenance", "override", "step"])
def test_the_id_depends_on_everything_else(field: str) -> None:
    revision = sample()
    others: dict[str, object] = {
        "number": 3,
        "parent": None,
        "time": revision.time + timedelta(microseconds=1),
        "provenance": Provenance(),
        "override": revision.override.without(revision.override.sections["policies",]),
        "step": digest_text("foo"),
    }
    changed = {name: getattr(revision, name) for name in others} | {field: others[field]}
    plain = json.loads(encode_revision(make_revision(**changed)))

    assert plain["id"] != revision.id


def test_a_newer_version_is_refused_by_name() -> None:
    data = SAMPLE.replace('"version": 1', '"version": 7').encode()
    with pytest.raises(
        StoreError, match=r"the file: version: expected 1, found 7; read it with the promptgraft"
    ):
        decode_revision(data, address_of(sample()), where="the file")


@pytest.mark.parametrize("number", ["9" * 5000, "1e999", "1" + "0" * 400])
def test_absurd_numbers_are_refused(number: str) -> None:
    for old in ('"number": 2', '"best": 1.0'):
        data = SAMPLE.replace(old, f"{old.partition(':')[0]}: {number}").encode()
        with pytest.raises(StoreError, match="the file"):
            decode_revision(data, address_of(sample()), where="the file")


@given(st.integers(min_value=0))
def test_an_override_is_read_back_from_its_document(seed: int) -> None:
    override = generated_revision(random.Random(seed)).override
    assert PromptOverride.from_json(override.to_json()) == override
    assert PromptOverride.from_json(override.to_json().encode()) == override


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ns": "../a"}, "winner: "),
        ({"sections": [{"path": ["a"]}]}, r"winner: .*sections\[0\]"),
        ({"colour": "red"}, "winner: .*colour"),
        ({"version": 2}, "winner: version: expected 1, found 2"),
    ],
)
def test_a_damaged_document_of_an_override_names_the_place(
    changes: dict[str, object], message: str
) -> None:
    plain = {**json.loads(PromptOverride(ns="a", prompt_key="b", tag="c").to_json()), **changes}
    with pytest.raises((DataFormatError, StoreError), match=message):
        PromptOverride.from_json(json.dumps(plain), where="winner")
