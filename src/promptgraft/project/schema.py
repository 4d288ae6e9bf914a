"""The JSON Schema of the project file, for editors."""

from __future__ import annotations

import json

from promptgraft.project.format import PROJECT
from promptgraft.project.format_models import DEFINITIONS
from promptgraft.project.kinds import Schema


def project_schema() -> Schema:
    """Return the JSON Schema of ``promptgraft.yaml``, version 1; it ships as a file too."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "promptgraft.yaml",
        **PROJECT.schema,
        "$defs": DEFINITIONS,
    }


def schema_text() -> str:
    """Return what ``project.schema.json`` holds."""
    return json.dumps(project_schema(), indent=2, ensure_ascii=False) + "\n"
