"""Functions that only raise ``NotImplementedError`` are named by `check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from promptgraft.errors import ConfigError
from promptgraft.project.python_source import FUNCTION, PythonSource

CODE = '''\
def empty(case, answer):
    """Say what a good answer is."""
    raise NotImplementedError("write it")

def bare():
    raise NotImplementedError

def partly(case):
    if not case:
        raise NotImplementedError("no case")
    return 1.0

def other(case):
    raise ValueError("no")
'''


@pytest.fixture
def source(tmp_path: Path) -> PythonSource:
    (tmp_path / "m.py").write_text(CODE)
    return PythonSource(tmp_path)


@pytest.mark.parametrize(("name", "line"), [("empty", 1), ("bare", 5)])
def test_an_unwritten_function_is_named_with_its_line(
    source: PythonSource, name: str, line: int
) -> None:
    with pytest.raises(ConfigError) as caught:
        source.load(f"m.py:{name}", FUNCTION, "metric")
    assert str(caught.value) == (
        f"metric: `m.py:{name}` is not written yet: m.py:{line} only raises NotImplementedError; "
        "write it there"
    )


@pytest.mark.parametrize("name", ["partly", "other"])
def test_a_function_that_refuses_something_is_written(source: PythonSource, name: str) -> None:
    assert callable(source.load(f"m.py:{name}", FUNCTION, "metric"))
