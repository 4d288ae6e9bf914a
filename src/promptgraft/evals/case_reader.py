"""Cases from rows: which form each has, the files that they name, its id, and what repeats."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.evals.plain import PlainReader
from promptgraft.evals.row_paths import listed_keys
from promptgraft.evals.rows import CaseFaults, Row, advice_for
from promptgraft.evals.types import Case
from promptgraft.ground.content import File, Image, from_base64, from_data_url
from promptgraft.ground.serde import HexDigest, Json, did_you_mean, digest, shown, unstructure
from promptgraft.ground.strict.checks import INTEGER
from promptgraft.ground.strict.nodes import Node, Source
from promptgraft.ground.yaml_text import YamlPath

# The expected answer is data, whatever it looks like.
_DATA = frozenset(
    {
        "expected",
        "tools",
        "state",
        "recorded",
        "fields",
        "hints",
        "intermediate_data",
        "intermediateData",
        "session_input",
        "sessionInput",
    }
)
_TEXT_PARTS = ("text", "input_text")


@attrs.frozen(kw_only=True)
class CaseFiles:
    """Makes images and files of what stands for them in rows.

    Attributes:
        folder: the folder that relative paths begin at; None if rows may name no paths.
        root: a folder around it, in which paths may lie too.
        images: columns with the path or address of an image.
        files: columns with the path or address of a file.
        data: columns that are left alone.
    """

    folder: Path | None = None
    root: Path | None = None
    images: Collection[str] = ()
    files: Collection[str] = ()
    data: Collection[str] = _DATA

    def in_row(self, row: Mapping[str, Json], source: Source) -> dict[str, Json]:
        """Return a row with its images and files, or note faults.

        The values are declared as plain data: those who read them tell files from it.
        """
        return {key: self._in_column(key, value, source) for key, value in row.items()}

    def plain(self, row: object) -> Json:
        """Return a row that is no text as plain data, with files of the bytes in their columns.

        Raises:
            DataFormatError: a value has no plain form.
        """
        if not isinstance(row, Mapping):
            return plain_row(row)
        return plain_row({key: self._of_bytes(key, value) for key, value in row.items()})

    def _of_bytes(self, key: object, value: object) -> object:
        if key not in self.images and key not in self.files:
            return value
        kind = Image if key in self.images else File
        match value:
            case bytes():
                return kind(data=value)
            # The form of images in tables of Hugging Face.
            case {"bytes": bytes(data), **more}:
                return kind(data=data, name=_word(more, "path"))
        return value

    def _in_column(self, key: str, value: Json, source: Source) -> Json:
        if key in self.images or key in self.files:
            return self._named(value, Image if key in self.images else File, (key,), source)
        return value if key in self.data else self._within(value, (key,), source)

    def _named(self, value: Json, kind: type[File], path: YamlPath, source: Source) -> Json:
        if isinstance(value, list):
            items = enumerate(value)
            return [self._named(item, kind, (*path, at), source) for at, item in items]
        if isinstance(value, str) and value.strip():
            return self._noted(lambda: self._at(value.strip(), kind), path, source)
        return self._within(value, path, source)

    def _within(self, value: Json, path: YamlPath, source: Source) -> Json:
        if isinstance(value, dict):
            if (part := file_part(value)) is not None:
                return self._noted(lambda: self._of_part(part), path, source)
            return {
                key: item if key in _DATA else self._within(item, (*path, key), source)
                for key, item in value.items()
            }
        if isinstance(value, list):
            items = [self._within(item, (*path, at), source) for at, item in enumerate(value)]
            has_files = any(isinstance(item, File) for item in items)
            return [_text_in(item) for item in items] if has_files else items
        return value

    def _noted(self, make: Callable[[], File], path: YamlPath, source: Source) -> Json:
        """Return a file as a value of a row, or note why there is none."""
        try:
            return cast("Json", make())
        except (ConfigError, DataFormatError) as error:
            source.settle(path, str(error))
            return None

    def _of_part(self, part: FilePart) -> File:
        kind = Image if part.is_image else File
        if part.path:
            return self._on_disk(part.path, kind, part.name)
        if part.text is not None:
            return File(data=part.text.encode(), name=part.name, media_type="text/plain")
        if part.data:
            data = from_base64(part.data)
            return kind(data=data, name=part.name, media_type=part.media_type)
        return self._at(part.address, kind, part.name, part.media_type)

    def _at(self, place: str, kind: type[File], name: str = "", media_type: str = "") -> File:
        """Return the file at a path, a ``data:`` address or another address."""
        if (from_url := from_data_url(place)) is not None:
            return kind(data=from_url[0], name=name, media_type=media_type or from_url[1])
        if "://" in place:
            return kind(url=place, name=name, media_type=media_type)
        return self._on_disk(place, kind, name)

    def _on_disk(self, place: str, kind: type[File], name: str) -> File:
        if self.folder is None:
            raise DataFormatError(
                "a path stands only in a file of cases; give an Image or a File instead"
            )
        folders = [folder.resolve() for folder in (self.folder, self.root) if folder is not None]
        try:
            # Resolved, so that neither `..` nor a link leads out of the folder.
            path = (folders[0] / place).resolve()
        except (OSError, ValueError) as error:
            raise DataFormatError(f"expected a path, found {place!r}: {error}") from None
        if not any(path.is_relative_to(folder) for folder in folders):
            raise DataFormatError(
                f"expected a path inside of {folders[-1]}, found {place!r}; copy the file there"
            )
        return kind(path, name=name)


@attrs.frozen(kw_only=True)
class FilePart:
    """A part of a message that is a file, whoever's shape it has."""

    is_image: bool
    address: str = ""
    data: str = ""
    text: str | None = None
    path: str = ""
    name: str = ""
    media_type: str = ""


def file_part(value: Mapping[str, Json]) -> FilePart | None:
    """Return the file in a part as APIs, EvalSets or we write it; None for others."""
    match value:
        case {"type": "image_url", "image_url": {"url": str(address)} | str(address)}:
            return FilePart(is_image=True, address=address)
        case {"type": "input_image", "image_url": str(address)}:
            return FilePart(is_image=True, address=address)
        case {"type": "image", "image": str(address)}:  # inspect_ai, and the AI SDK
            return FilePart(is_image=True, address=address)
        case {"type": "file", "file": {"file_data": str(address), **more}}:
            return FilePart(is_image=False, address=address, name=_word(more, "filename"))
        case {"type": "input_file", "file_data": str(address), **more}:
            return FilePart(is_image=False, address=address, name=_word(more, "filename"))
        case {"type": "input_file", "file_url": str(address)}:
            return FilePart(is_image=False, address=address)
        case {"type": "image" | "file" as kind, "path": str(path), **more}:
            return FilePart(is_image=kind == "image", path=path, name=_word(more, "name"))
        case {"type": "image" | "document" as kind, "source": {"type": str(), **source}}:
            return _of_anthropic(source, is_image=kind == "image", name=_word(value, "title"))
        case {"inline_data": {"data": str(data), **more}} | {
            "inlineData": {"data": str(data), **more}
        }:
            media_type = _word(more, "mime_type") or _word(more, "mimeType")
            return FilePart(
                is_image=media_type.startswith("image/"),
                # In addresses `-` and `_` stand for `+` and `/`, and so they do in some EvalSets.
                data=data.replace("-", "+").replace("_", "/"),
                media_type=media_type,
                name=_word(more, "display_name") or _word(more, "displayName"),
            )
        case {"file_data": {"file_uri": str(address), **more}} | {
            "fileData": {"fileUri": str(address), **more}
        }:
            media_type = _word(more, "mime_type") or _word(more, "mimeType")
            is_image = media_type.startswith("image/")
            return FilePart(is_image=is_image, address=address, media_type=media_type)
    return None


def _of_anthropic(source: Mapping[Any, object], *, is_image: bool, name: str) -> FilePart | None:
    match source:
        case {"data": str(text), "media_type": "text/plain"}:
            return FilePart(is_image=False, text=text, name=name or "document.txt")
        case {"data": str(data), "media_type": str(media_type)}:
            return FilePart(is_image=is_image, data=data, media_type=media_type, name=name)
        case {"url": str(address)}:
            return FilePart(is_image=is_image, address=address, name=name)
    return None


def _word(value: Mapping[Any, object], key: str) -> str:
    word_value = value.get(key)
    return word_value if isinstance(word_value, str) else ""


def _text_in(value: Json) -> Json:
    """Return the text of a part that is one; any other value as it is."""
    if isinstance(value, dict) and value.get("type") in _TEXT_PARTS:
        return value.get("text")
    return value


def plain_row(value: object, *, path: str = "$") -> Json:
    """Return a mapping as plain data in which images and files stay; raises as `unstructure`."""
    if isinstance(value, File):
        return cast("Json", value)
    if isinstance(value, Mapping):
        unstructure(dict.fromkeys(value), path=path)  # refuses keys that are no texts
        return {key: plain_row(item, path=f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_row(item, path=f"{path}[{at}]") for at, item in enumerate(value)]
    return unstructure(value, path=path)


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
        files: CaseFiles = CaseFiles(),
    ) -> None:
        self._plain = plain
        self._files = files
        # The columns of images and files that no row has had so far.
        self._absent = {*files.images, *files.files}
        self._keys: dict[str, None] = {}
        self._is_table = is_table
        self._drops = drops_duplicates
        self.dropped: int = 0
        self._rows: set[HexDigest] = set()
        self._finds = finds_eval_cases
        self._source = source
        self._lines: dict[str, int] = {}
        self._noted = Source("")  # shared by all cases until one has a fault
        self.faults: CaseFaults = CaseFaults(source)

    def read_all(self, rows: Iterable[Row]) -> tuple[Case, ...]:
        """Return all cases, or raise all faults at once."""
        read = map(self._read, self._settled(rows))
        cases = tuple(case for case in read if case is not None)
        for line, fault, case_id in self._plain.faults_of_all():
            self.faults.add(line, fault, case_id)
        for fault in self._plain.absent_paths():
            self.faults.add(1, fault)
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
        row_iterator = iter(rows)
        for first in row_iterator:
            if isinstance(first.value, dict):
                break
            yield first
        else:
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
        looks_like_one = {"evalId", "eval_id"} & value.keys() or isinstance(
            value.get("conversation"), list
        )
        if in_eval_set or (self._finds and looks_like_one):
            # Most files hold no EvalSet.
            from promptgraft.evals.evalset import read_eval_case

            case_id = self._id(value.get("evalId", value.get("eval_id")), node, line)
            case = read_eval_case(node, case_id=case_id, origin=origin)
        else:
            row_value = self._plain.flattened(value)
            # A case without an id is told by all of its row, not by what is read of it.
            case_id = self._id(self._plain.id_of(row_value), node, line)
            row_read = attrs.evolve(node, value=row_value)
            case = self._plain.read(row_read, case_id=case_id, origin=origin, line=line)
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
        if case_id in self._lines:
            mend = "give one of both another id"
            if given is None:
                mend = advice_for(self._plain.advised).once()
            node.fault(f"{what} as in line {self._lines[case_id]}; {mend}")
        self._lines.setdefault(case_id, line)
        return case_id
