"""The BAML runtime in memory: compiles sources and parses answers of models."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from promptgraft.errors import ConfigError, DataFormatError
from promptgraft.ground.serde import Json
from promptgraft.ground.text import clip_line
from promptgraft.prompt.schema import JsonObject

if TYPE_CHECKING:
    from baml_py import BamlRuntime, ClientRegistry
    from baml_py.baml_py import FunctionResult, RuntimeContextManager

    Told = tuple[str, dict[str, object], RuntimeContextManager, Any, ClientRegistry | None]
    """The arguments of a call: function, arguments, context, types of the test, clients."""

_LONGEST = 400
_PLACE = re.compile(r"^ *--> +(.+):(\d+)$", re.MULTILINE)
_BLOCK = re.compile(r"^error: (.*?)(?=^error: |\Z)", re.MULTILINE | re.DOTALL)
_REASON = re.compile(r'reason: "((?:\\.|[^"\\])*)"')


class UnreadableAnswerError(Exception):
    """BAML cannot parse an answer as the output type; the message is one line."""


@attrs.frozen
class CompiledProject:
    """Sources that BAML has accepted."""

    runtime: BamlRuntime = attrs.field(repr=False)

    @classmethod
    def of(cls, sources: Mapping[str, str], *, folder: Path) -> CompiledProject:
        """Compile sources, given by path below ``folder``; no file is read.

        Raises:
            DataFormatError: a line for each fault: file, line and BAML's message.
        """
        # By default, log no prompts and make no stack traces, which cost 200 ms each. Both
        # variables affect the whole process.
        os.environ.setdefault("RUST_LIB_BACKTRACE", "0")
        os.environ.setdefault("BAML_LOG", "off")
        from baml_py import BamlRuntime
        from baml_py.errors import BamlError

        try:
            return cls(BamlRuntime.from_files(str(folder), dict(sources), {}))
        except BamlError as error:
            raise DataFormatError.of(_faults(str(error), folder)) from None

    def parsed(self, function: str, answer: str, types_in_test: str = "") -> Json:
        """Parse an answer as the output of a function, and return plain data.

        A value with checks is an object with ``value`` and ``checks``, as rules of tests see it.

        Raises:
            UnreadableAnswerError: BAML cannot parse it.
        """
        from baml_py.errors import BamlError

        context, types = self.runtime.create_context_manager(), self.type_builder(types_in_test)
        try:
            value = self.runtime.parse_llm_response(
                function, answer, *_AS_DATA, context, types, None, {}
            )
        except BamlError as error:
            raise UnreadableAnswerError(reasons_of(str(error))) from None
        return _plain(value)

    def output(self, result: FunctionResult) -> Json:
        """Return the output of a successful call in the form of :meth:`parsed`."""
        return _plain(result.cast_to(*_AS_DATA, self.runtime))

    def request(self, call: Told) -> JsonObject:
        """Return the body that a call would send; raises ``ConfigError`` if BAML refuses it."""
        from baml_py.errors import BamlError

        try:
            body: JsonObject = self.runtime.build_request_sync(*call, {}, False).body.json()
        except BamlError as error:
            raise ConfigError(error_text(error)) from None
        return body

    def type_builder(self, types_in_test: str) -> Any:
        """Return a builder with the types of a test; None if it has none.

        Raises:
            ConfigError: BAML refuses them.
        """
        if not types_in_test.strip():
            return None
        from baml_py.errors import BamlError
        from baml_py.type_builder import TypeBuilder

        builder = TypeBuilder(set(), set(), self.runtime)._tb  # noqa: SLF001 - what calls take
        try:
            builder.add_baml(types_in_test, self.runtime)
        except BamlError as error:
            raise ConfigError(f"type_builder: {error_text(error)}") from None
        return builder


def error_text(error: BaseException) -> str:
    """Return the message of a BAML error, shortened and without its stack trace."""
    return _clipped(_traceless(str(error)))


def _traceless(text: str) -> str:
    return text.partition("\n\nStack backtrace")[0]


def _clipped(text: str) -> str:
    return clip_line(text, _LONGEST)


def _faults(text: str, folder: Path) -> list[str]:
    faults = []
    for block in _BLOCK.findall(_traceless(text)):
        place = _PLACE.search(block)
        head = block[: place.start()] if place else block
        where = f"{folder / place[1]}:{place[2]}" if place else str(folder)
        faults.append(f"{where}: {_clipped(head.removeprefix('Error validating: '))}")
    return list(dict.fromkeys(faults)) or [f"{folder}: {_clipped(text)}"]


def reasons_of(text: str) -> str:
    """Return why BAML cannot parse an answer, from the text of its error, in one line."""
    reasons = [reason.replace('\\"', '"') for reason in _REASON.findall(text)]
    # The first reason is that of the whole answer, which the others explain.
    return _clipped("; ".join(dict.fromkeys(reasons[1:] or reasons or [_traceless(text)])))


class _AnyClass(dict[str, object]):
    """Stands in for all BAML classes, plain or generic; its instances are mappings."""

    def __class_getitem__(cls, _: object) -> type[_AnyClass]:  # type: ignore[override]
        return cls

    @classmethod
    def model_validate(cls, fields: Mapping[str, object]) -> _AnyClass:
        return cls(fields)


# No enum is found in its module, so that values of enums stay strings.
_ENUMS, _CLASSES = ModuleType("promptgraft_enums"), ModuleType("promptgraft_classes")
_CLASSES.__dict__["__getattr__"] = lambda _: _AnyClass
_AS_DATA = (_ENUMS, _CLASSES, _CLASSES, False)


def _plain(value: object) -> Json:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    return str(value)
