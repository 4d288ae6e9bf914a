"""The documents of revisions: what is written is what is read, byte for byte."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgraft.errors import StoreError
from promptgraft.frozenmap import FrozenMap
from promptgraft.overrides import (
    OverrideAddress,
    PromptOverride,
    Provenance,
    Revision,
    SectionOverride,
    SectionPath,
)
from promptgraft.overrides.codec import decode_revision, encode_revision, make_revision
from promptgraft.serde import HexDigest, digest_text

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

keys = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,8}", fullmatch=True)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64).map(HexDigest)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
paths = st.lists(keys, min_size=1, max_size=3).map(tuple)


@st.composite
def overrides(draw: st.DrawFn) -> PromptOverride:
    bodies = draw(st.dictionaries(paths, st.tuples(hashes, texts), max_size=4))
    return PromptOverride(
        ns="/".join(draw(st.lists(keys, min_size=1, max_size=3))),
        prompt_key=draw(keys),
        tag=draw(keys),
        sections={
            path: SectionOverride(path=path, expected_hash=expected_hash, body=body)
            for path, (expected_hash, body) in bodies.items()
        },
    )


revisions = st.builds(
    make_revision,
    number=st.integers(min_value=1, max_value=10**9),
    parent=st.none() | hashes,
    time=st.datetimes(timezones=st.just(UTC)),
    provenance=st.builds(
        Provenance,
        run_id=st.none() | texts,
        note=texts,
        scores=st.dictionaries(
            texts, st.floats(allow_nan=False, allow_infinity=False) | st.integers(-9, 9)
        ).map(FrozenMap),
    ),
    override=overrides(),
)


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


def address_of(revision: Revision) -> OverrideAddress:
    override = revision.override
    return OverrideAddress(override.ns, override.prompt_key, override.tag)


@given(revisions)
def test_what_is_written_is_what_is_read(revision: Revision) -> None:
    data = encode_revision(revision)
    read = decode_revision(data, address_of(revision), where="the file")

    assert read == revision
    assert encode_revision(read) == data


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
        override=attrs.evolve(
            revision.override, sections=dict([*revision.override.sections.items()][::-1])
        ),
    )

    assert encode_revision(turned) == encode_revision(revision)


def test_a_kept_document_of_version_1_is_still_written_and_read() -> None:
    assert encode_revision(sample()).decode() == SAMPLE
    assert decode_revision(SAMPLE.encode(), address_of(sample()), where="") == sample()


def test_the_document_on_the_page_of_the_format_is_one() -> None:
    page = (Path(__file__).parents[2] / "specs" / "overrides.md").read_text("utf-8")
    document = page.split("```json\n")[1].split("```")[0]
    address = OverrideAddress("shop/support", "triage", "latest")

    assert (
        encode_revision(decode_revision(document.encode(), address, where="")).decode() == document
    )


def test_the_id_is_the_sha_256_of_the_canonical_json_of_everything_else() -> None:
    plain = json.loads(SAMPLE)
    said = plain.pop("id")
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert hashlib.sha256(canonical.encode()).hexdigest() == said


@pytest.mark.parametrize("field", ["number", "parent", "time", "provenance", "override"])
def test_the_id_depends_on_everything_else(field: str) -> None:
    revision = sample()
    others: dict[str, object] = {
        "number": 3,
        "parent": None,
        "time": revision.time + timedelta(microseconds=1),
        "provenance": Provenance(),
        "override": revision.override.without(revision.override.sections["policies",]),
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
