"""Cases from rows: which form each has, its id, and what repeats."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from promptgraft.evals.case_files import CaseFiles
from promptgraft.evals.faults import CaseFaults
from promptgraft.evals.plain import PlainReader, listed_keys
from promptgraft.evals.rows import Row
from promptgraft.evals.types import Case
from promptgraft.ground.serde import HexDigest, Json, did_you_mean, digest, shown
from promptgraft.ground.strict.checks import INTEGER
from promptgraft.ground.strict.nodes import Node, Source

# Hexadecimal digits: 48 bits tell the cases of any data set apart, and an id stays readable.
_SHORT_DIGEST = 12


class CaseReader:
    """Reads cases from rows and collects their faults.

    With ``finds_eval_cases``, rows that look like cases of an EvalSet are read as such; ``plain``
    reads all others, and ``files`` makes images and files. Messages name ``source``. All rows of a
    table have the columns of the first. With ``drops_duplicates``, rows that repeat another one are
    counted in ``dropped`` and left out.
    """

    def __init__(
        self,
        plain: PlainReader,
        *,
        finds_eval_cases: bool,
        source: str,
        is_table: bool = False,
        drops_duplicates: bool = False,
        files: CaseFiles = CaseFiles(),  # noqa: B008 - a value without state
    ) -> None:
        self._plain = plain
        self._files = files
        # The columns of images and files that no row has had so far.
        self._absent = {*files.images, *files.files}
        self._keys: dict[str, None] = {}
        self._is_table = is_table
        self._drops = drops_duplicates
        self.dropped = 0
        self._rows: set[HexDigest] = set()
        self._finds = finds_eval_cases
        self._source = source
        self._lines: dict[str, int] = {}
        self._noted = Source("")  # shared by all cases until one has a fault
        self.faults = CaseFaults(source)

    def read_all(self, rows: Iterable[Row]) -> tuple[Case, ...]:
        """Return all cases, or raise all faults at once."""
        read = map(self._read, self._settled(rows))
        cases = tuple(case for case in read if case is not None)
        for line, fault, case_id in self._plain.mixed():
            self.faults.add(line, fault, case_id)
        # The columns of a table are checked with its first row.
        for name in () if self._is_table or not cases else sorted(self._absent):
            near = did_you_mean(name, list(self._keys))
            columns = f"; columns: {listed_keys(self._keys)}"
            mend = 'an image within `input` is `{"type": "image", "path": ...}`'
            self.faults.add(1, f"no case has the column {shown(name)}{near}{columns}; {mend}", "")
        self.faults.raise_all()
        return cases

    def _settled(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows once it is clear which columns are fields and which are parameters."""
        row_iterator, later_rows = iter(rows), list[Row]()
        first = next((row for row in row_iterator if _is_object(row, later_rows)), None)
        yield from later_rows
        if first is None or not isinstance(first.value, dict):
            return
        if self._is_table:
            node = Node(first.value, (), self._noted)
            self._plain.check_columns(first.value, node)
            self._note_faults(first.line, "")
        self._plain.settle_input(first.value)
        chained = itertools.chain([first], row_iterator)
        unsettled: list[Row] = []
        settled = set[str]()
        while names := [
            column for column in self._plain.unclear(first.value) if column not in settled
        ]:
            # Only the rows of these files are held in memory.
            unsettled = unsettled or list(chained)
            for name in names:
                values = (row.value.get(name) for row in unsettled if isinstance(row.value, dict))
                self._plain.settle(name, values)
            settled.update(names)
        yield from unsettled or chained

    def _note_faults(self, line: int, case_id: str) -> None:
        for fault in self._noted.faults:
            self.faults.add(line, fault, case_id)
        if self._noted.faults:
            self._noted = Source("")

    def _is_dropped(self, value: dict[str, Json]) -> bool:
        """Return whether a row repeats another one and is left out."""
        row = digest(value)
        is_known = row in self._rows
        self._rows.add(row)
        self.dropped += is_known
        return is_known

    def _read(self, row: Row) -> Case | None:
        line, value, in_eval_set = row
        if not isinstance(value, dict):
            self.faults.add(line, f"expected an object, found {shown(value)}")
            return None
        if self._absent:
            self._absent -= value.keys()
            self._keys |= dict.fromkeys(value)
        value = self._files.in_row(value, self._noted)
        if self._drops and self._is_dropped(value):
            return None
        node = Node(value, (), self._noted)
        origin = f"{self._source}:{line}"
        if in_eval_set or (self._finds and is_eval_case(value)):
            # Most files hold no EvalSet.
            from promptgraft.evals.evalset import read_eval_case

            case_id = self._id(eval_case_id(value), node, line)
            case = read_eval_case(node, case_id=case_id, origin=origin)
        else:
            case_id = self._id(self._plain.id_of(value), node, line)
            case = self._plain.read(node, case_id=case_id, origin=origin, line=line)
        self._note_faults(line, case_id)
        return case

    def _id(self, given: Json, node: Node, line: int) -> str:
        if given is None:
            case_id, what = str(digest(node.value))[:_SHORT_DIGEST], "the same case without an id"
        elif (isinstance(given, str) and given.strip()) or INTEGER.fits(given) is not None:
            case_id, what = str(given), "the same id"
        else:
            node.fault(f"id: expected a text or an integer, found {shown(given)}")
            return ""
        first = self._lines.setdefault(case_id, line)
        if first != line:
            mend = "; take it out, or set `duplicates: drop`"
            if given is not None:
                mend = "; give one of both another id"
            node.fault(f"{what} as in line {first}{mend}")
        return case_id


def _is_object(row: Row, others: list[Row]) -> bool:
    """Return whether a row is an object; add it to ``others`` if not."""
    if not isinstance(row.value, dict):
        others.append(row)
    return isinstance(row.value, dict)


def is_eval_case(value: Json) -> bool:
    """Return whether plain data looks like a case of an EvalSet."""
    if not isinstance(value, dict):
        return False
    return "evalId" in value or "eval_id" in value or isinstance(value.get("conversation"), list)


def eval_case_id(value: Mapping[str, Json]) -> Json:
    """Return the id of a case, if it has one."""
    return value.get("evalId", value.get("eval_id"))
