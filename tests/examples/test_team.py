"""Two servers and three workers on one database, as the example runs them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from database.database_servers import missing, running
from programs import Programs

EXAMPLE = Path(__file__).parents[2] / "examples" / "team"


# The other one takes as long, and a longer test looks at both.
@pytest.mark.parametrize(
    "kind", ["postgresql", "mariadb"] if "PROMPTGRAFT_KILLS" in os.environ else ["postgresql"]
)
def test_a_team_shares_a_database(kind: str, tmp_path: Path, programs: Programs) -> None:
    if why_not := missing(kind):
        pytest.skip(why_not)
    with running(kind) as server:
        url = server.fresh()
        done = programs(EXAMPLE / "team.py", "--jobs", url, "--count", "2", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (EXAMPLE / "README.md").read_text("utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert done.stdout == shown.replace("4 jobs", "2 jobs").replace("4 completed", "2 completed")
    assert list(tmp_path.iterdir()) == []
