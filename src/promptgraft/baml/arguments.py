"""The arguments of a test as BAML takes them: images and sounds are values of its own."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping

from promptgraft.baml.functions import BamlFunction
from promptgraft.baml.scanner import Declaration, words_of
from promptgraft.baml.tests import BamlTest
from promptgraft.errors import ConfigError
from promptgraft.serde import Json

_MEDIA = {
    "image": ("Image", "image/png"),
    "audio": ("Audio", "audio/mpeg"),
    "pdf": ("Pdf", "application/pdf"),
    "video": ("Video", "video/mp4"),
}
_WAYS = ("file", "url", "base64")


def arguments_of(function: BamlFunction, test: BamlTest) -> dict[str, object]:
    """Return the arguments of a call; files are read now.

    Raises:
        ConfigError: a file cannot be read, or is outside of the project's folder.
    """
    types, given = function.block.inputs, _Arguments(function, test)
    return {name: given.value(value, types.get(name, "")) for name, value in test.args.items()}


class _Arguments:
    def __init__(self, function: BamlFunction, test: BamlTest) -> None:
        self._function, self._test = function, test

    def value(self, value: Json, kind: str) -> object:
        """Return a value as one of a type, which is known by the words in it."""
        if isinstance(value, list):
            return [self.value(one, kind) for one in value]
        if not isinstance(value, dict):
            return value
        words = self._words(kind)
        media = next((one for one in _MEDIA if one in words), "")
        if media and len([way for way in _WAYS if way in value]) == 1:
            return self._media(value, media)
        fields = self._fields(words)
        return {name: self.value(one, fields.get(name, kind)) for name, one in value.items()}

    def _words(self, kind: str) -> frozenset[str]:
        """Return the words in a type, with those of what it is another name of."""
        words = words_of(kind)
        return words.union(*(one.words for one in self._named(words) if one.kind == "type"))

    def _fields(self, words: frozenset[str]) -> Mapping[str, str]:
        classes = (one for one in self._named(words) if one.kind == "class")
        return {one.name: one.type for block in classes for one in block.members}

    def _named(self, words: frozenset[str]) -> list[Declaration]:
        return [one for name, one in self._function.types.items() if name in words]

    def _media(self, value: Mapping[str, Json], kind: str) -> object:
        import baml_py

        name_of_class, usual = _MEDIA[kind]
        make = getattr(baml_py, name_of_class)
        given = value.get("media_type")
        if isinstance(url := value.get("url"), str):
            return make.from_url(url)
        if isinstance(name := value.get("file"), str):
            content, named = self._content(name), mimetypes.guess_type(name)[0]
        else:
            content, named = str(value.get("base64")), None
        media_type = given if isinstance(given, str) else named or usual
        return make.from_base64(content) if kind == "pdf" else make.from_base64(media_type, content)

    def _content(self, name: str) -> str:
        path = (self._test.file.parent / name).resolve()
        if not path.is_relative_to(self._function.folder.resolve().parent):
            raise ConfigError(
                f"{self._test.origin}: {name} is outside of the folder around "
                f"{self._function.folder}; copy it there"
            )
        try:
            return base64.b64encode(path.read_bytes()).decode("ascii")
        except OSError as error:
            raise ConfigError(
                f"{self._test.origin}: {name} cannot be read: {error.strerror}"
            ) from error
