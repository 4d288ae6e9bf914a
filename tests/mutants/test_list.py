"""The list of breaks is kept with the code, and a break is told from what no test notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from mutants.__main__ import Break, breaks, faults, is_noticed, main

SOURCE = "def double(number):\n    return number * 2\n"
RIGHT = "from doubling import double\n\n\ndef test_it():\n    assert double(2) == 4\n"
BREAK = Break(
    name="it triples",
    path="src/doubling.py",
    before="number * 2",
    after="number * 3",
    tests=("test_code.py",),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "doubling.py").write_text(SOURCE)
    (tmp_path / "test_code.py").write_text(RIGHT)
    return tmp_path


def test_each_break_is_found_in_the_code_with_its_tests() -> None:
    kept = breaks()
    assert len(kept) >= 60
    assert len({one.name for one in kept}) == len(kept)
    assert all(one.before != one.after and one.tests for one in kept)
    wrong = faults(kept)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"before": "number * 4"}, "expected this once, found it 0 times: number * 4"),
        ({"before": "number"}, "found it 2 times"),
        ({"path": "src/gone.py"}, "there is no src/gone.py"),
        ({"tests": ("test_gone.py",)}, "there is no test_gone.py"),
    ],
)
def test_a_break_that_no_longer_fits_is_refused(
    root: Path, changes: dict[str, Any], said: str
) -> None:
    assert not BREAK.fault(root)
    assert said in attrs.evolve(BREAK, **changes).fault(root)


@pytest.mark.parametrize(("after", "noticed"), [("number * 3", True), ("2 * number", False)])
def test_a_break_is_noticed_if_a_test_fails(root: Path, after: str, noticed: bool) -> None:
    assert is_noticed(attrs.evolve(BREAK, after=after), root) == noticed
    assert (root / "src" / "doubling.py").read_text() == SOURCE


def test_a_break_of_another_name_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "no such break"]) == 2
    assert "no break has `no such break` in its name" in capsys.readouterr().out


def test_a_test_that_ends_like_an_interrupt_notices_the_break(root: Path) -> None:
    ending = RIGHT.replace(
        "    assert", "    if double(2) == 6:\n        raise KeyboardInterrupt\n    assert"
    )
    (root / "test_code.py").write_text(ending)
    assert is_noticed(BREAK, root)


def test_tests_that_cannot_be_collected_end_the_command(root: Path) -> None:
    (root / "test_code.py").write_text("import nothing_of_this_name\n")
    with pytest.raises(SystemExit, match="nothing_of_this_name"):
        is_noticed(BREAK, root)
