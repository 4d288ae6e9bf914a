"""Cases in strict YAML (``promptgraft.yaml_text``)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from promptgraft.evals.faults import Faults
from promptgraft.evals.reading import Row, is_cases
from promptgraft.evals.rows_json import eval_set_rows
from promptgraft.serde import Json
from promptgraft.strict.nodes import read_text
from promptgraft.yaml_text import YamlDocument, YamlPath, read_yaml


def yaml_rows(path: Path, faults: Faults) -> Iterator[Row]:
    """Yield the cases of a YAML file: a list, an EvalSet, or one case of an EvalSet.

    Raises:
        OSError: the system refuses.
    """
    text = read_text(path, faults.add)
    document = None if text is None else read_yaml(text, faults.add)
    if document is not None:
        yield from _rows(document, faults)


def _rows(document: YamlDocument, faults: Faults) -> Iterator[Row]:
    value = document.value
    if isinstance(value, list):
        yield from _items(value, document, (), in_eval_set=False)
    elif isinstance(value, dict):
        for key, member in value.items():
            if is_cases(key) and isinstance(member, list):
                yield from _items(member, document, (key,), in_eval_set=True)
        yield from eval_set_rows(value, document.lines[()], faults)
    elif value is not None:
        faults.add(document.lines[()], "expected a list of cases or an EvalSet")


def _items(
    cases: list[Json], document: YamlDocument, path: YamlPath, *, in_eval_set: bool
) -> Iterator[Row]:
    for index, case in enumerate(cases):
        yield Row(document.lines[*path, index], case, in_eval_set=in_eval_set)
