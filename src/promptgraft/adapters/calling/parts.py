"""Texts, images and files in the forms in which requests to providers hold them."""

from __future__ import annotations

import re
from collections.abc import Callable

from promptgraft.adapters.abilities import TOKENS_OF_IMAGE
from promptgraft.errors import ConfigError
from promptgraft.ground.content import Content, File, Image
from promptgraft.ground.serde import Json
from promptgraft.prompt.schema import JsonObject

_PDF = "application/pdf"
# Much longer than a word, and without a space: the bytes of a file.
_ENCODED = re.compile(r'"(?:data:[^,"]{0,100},)?[A-Za-z0-9+/=]{2000,}"')
_STAND_IN = '"' + "x" * (TOKENS_OF_IMAGE * 4) + '"'


def chat_content(content: Content) -> Json:
    """Return content as a message of OpenAI's Chat Completions has it; a text alone stays one.

    Raises:
        ConfigError: a file is neither an image, a PDF nor a text.
    """
    return _whole(content, lambda text: {"type": "text", "text": text}, _chat_file)


def responses_content(content: Content) -> Json:
    """Return content as an input of OpenAI's Responses has it; raises as :func:`chat_content`."""
    return _whole(content, lambda text: {"type": "input_text", "text": text}, _responses_file)


def messages_content(content: Content) -> Json:
    """Return content as a message of Anthropic has it; raises as :func:`chat_content`."""
    return _whole(content, lambda text: {"type": "text", "text": text}, _messages_file)


def check_seen(content: Content, *, sees: bool | None, model: str) -> None:
    """Refuse images that are meant for a model that is known not to see them.

    Raises:
        ConfigError: there is one.
    """
    image = next((piece for piece in content if isinstance(piece, Image)), None)
    if sees is False and image is not None:
        raise ConfigError(
            f"`{model}` cannot see images such as {image.name}; take a model that can, or set "
            "its option `vision` if it does"
        )


def read_text(request: str) -> str:
    """Return the JSON of a request with a text as long as a model reads an image for its bytes."""
    # Most requests hold no bytes, and need not be searched.
    return _ENCODED.sub(_STAND_IN, request) if "base64" in request else request


def _whole(
    content: Content,
    text_part: Callable[[str], JsonObject],
    file_part: Callable[[File], JsonObject],
) -> Json:
    if not any(isinstance(piece, File) for piece in content):
        return "".join(map(str, content))
    parts: list[JsonObject] = []
    for piece in content:
        if isinstance(piece, File):
            text = piece.text
            parts.append(
                file_part(piece) if text is None else text_part(f"{piece.name}:\n\n{text}")
            )
        elif piece.strip():  # Anthropic refuses an empty text
            parts.append(text_part(piece))
    return [*parts]


def _chat_file(file: File) -> JsonObject:
    if isinstance(file, Image):
        return {"type": "image_url", "image_url": {"url": file.url or file.data_url}}
    if file.url is not None:
        raise ConfigError(
            f"{file.url}: Chat Completions takes no address of a file; give its bytes or its path"
        )
    _check_pdf(file)
    return {"type": "file", "file": {"filename": file.name, "file_data": file.data_url}}


def _responses_file(file: File) -> JsonObject:
    if isinstance(file, Image):
        address = file.url or file.data_url
        return {"type": "input_image", "image_url": address, "detail": "auto"}
    if file.url is not None:
        return {"type": "input_file", "file_url": file.url}
    _check_pdf(file)
    return {"type": "input_file", "filename": file.name, "file_data": file.data_url}


def _messages_file(file: File) -> JsonObject:
    kind = "image" if isinstance(file, Image) else "document"
    if file.url is not None:
        return {"type": kind, "source": {"type": "url", "url": file.url}}
    if kind == "document":
        _check_pdf(file)
    source: JsonObject = {"type": "base64", "media_type": file.media_type, "data": file.base64}
    return {"type": kind, "source": source}


def _check_pdf(file: File) -> None:
    if file.media_type != _PDF:
        raise ConfigError(
            f"{file.name}: expected an image, a PDF or a text in UTF-8, found {file.media_type}; "
            "convert it"
        )
