"""The published schema of the files that the local store writes."""

from __future__ import annotations

from importlib import resources

from promptgraft.serde import Json, parse_json

_NAME = "revision.schema.json"


def file_schema() -> dict[str, Json]:
    """Return the JSON Schema (draft 2020-12) of override files, format version 1.

    It describes the document of a tag and those of its archive, which have one form. What a
    schema cannot say stands in ``specs/overrides.md``. Each call returns a copy of its own.
    """
    text = resources.files("promptgraft.overrides").joinpath(_NAME).read_bytes()
    schema = parse_json(text, where=_NAME)
    assert isinstance(schema, dict)  # noqa: S101 - it is shipped with this module
    return schema
