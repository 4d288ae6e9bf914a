"""Equal data sets in several formats are read as equal cases."""

from __future__ import annotations

import re
from pathlib import Path

from promptgraft import Case, Dataset
from promptgraft.evals.types import ToolUse

PAGE = Path(__file__).with_name("formats.md")


def examples(info: str) -> list[str]:
    return re.findall(rf"^```{info}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_the_four_plain_formats_say_the_same(tmp_path: Path) -> None:
    for info in ("jsonl", "json", "csv", "yaml"):
        (example,) = examples(info)
        path = tmp_path / f"cases.{info}"
        path.write_text(example, "utf-8")
        assert Dataset.load(path).cases == (
            Case(id="a", input="Where is my parcel?", expected="delivery", critical=True),
            Case(id="b", input='The shoe is torn, and it "smells".', expected="no"),
        )


def test_the_two_dialects_of_eval_sets_say_the_same(tmp_path: Path) -> None:
    first, second = examples("evalset")
    path = tmp_path / "parcels.evalset.json"
    for example in (first, second):
        path.write_text(example, "utf-8")
        (case,) = Dataset.load(path)
        track = ToolUse(name="track", arguments={"parcelId": 42}, result={"city": "Oslo"})
        assert (case.input, case.expected, case.tools) == ("Where is 42?", "In Oslo.", (track,))
        assert case.state == {"language": "en"}
