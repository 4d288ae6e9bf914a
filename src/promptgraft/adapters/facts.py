"""Dated facts about models, from ``models.toml``: thinking, sampling, limits, and when they end."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import attrs

from promptgraft.adapters.abilities import TOKENS_OF_IMAGE, ModelEnd

Sampling = Literal["always", "never", "without_thinking"]
Vision = Literal["none", "some", "tiles", "patches", "area", "large_area"]
"""How a model reads images, which decides how many tokens one is.

``none`` if it sees none; ``some`` if only that it sees is known.
"""


@attrs.frozen(kw_only=True)
class ModelFacts:
    """What is known of the models of a family.

    Attributes:
        thinks: whether the model thinks where no effort is set; None if that is not known.
        sampling: when it takes `temperature` and `top_p`.
        structured: whether the API enforces a JSON Schema.
        largest_output: the largest limit on an answer in tokens; None if not known.
        efforts: the thinking efforts that the provider knows.
        vision: how it reads images; None if that is not known.
        image_rate: the factor of the rule for the tokens of an image.
    """

    thinks: bool | None = None
    sampling: Sampling = "always"
    structured: bool = True
    largest_output: int | None = None
    efforts: tuple[str, ...] = ()
    vision: Vision | None = None
    image_rate: float = 1.0

    @property
    def may_think(self) -> bool:
        """Whether the model thinks, or is assumed to."""
        return self.thinks is not False

    def takes_sampling(self, effort: str | None) -> bool:
        """Return whether the model takes `temperature` and `top_p` with an effort."""
        return self.sampling == "always" or (
            self.sampling == "without_thinking" and effort == "none"
        )


@attrs.frozen(kw_only=True)
class CacheFacts:
    """How a provider caches the beginnings of prompts for a model.

    Attributes:
        tokens: the shortest beginning that is cached; 0 if none is.
        breakpoints: whether only what ends at a breakpoint of a request is cached.
    """

    tokens: int = 0
    breakpoints: bool = False


def facts_of(provider: str, model: str) -> ModelFacts | None:
    """Return the facts of a model of ``openai`` or ``anthropic``; None for an unknown family."""
    table = _tables()[provider]
    for family in table["families"]:
        if re.match(family["names"], model):
            facts = {name: value for name, value in family.items() if name != "names"}
            return ModelFacts(efforts=tuple(table["efforts"]), **facts)
    return None


def end_of(provider: str, model: str) -> ModelEnd | None:
    """Return the announced end of a model of ``openai`` or ``anthropic``; None without one."""
    table = _tables()[provider]
    for end in table["ends"]:
        if model in end["names"]:
            return ModelEnd(
                model=model,
                day=end["date"],
                current=current_of(provider, model) or "",
                page=table["deprecations"],
            )
    return None


def cache_of(provider: str, model: str) -> CacheFacts:
    """Return how ``openai`` or ``anthropic`` caches beginnings of prompts for a model."""
    for family in _tables()[provider]["caches"]:
        if re.match(family["names"], model):
            facts = {name: value for name, value in family.items() if name != "names"}
            return CacheFacts(**facts)
    return CacheFacts()


def is_chat_only(model: str) -> bool:
    """Return whether OpenAI serves a model through Chat Completions but not through Responses."""
    return re.match(_tables()["openai"]["chat_only"], model) is not None


def current_of(provider: str, model: str) -> str | None:
    """Return the current model of the line of a model; None for an unknown line."""
    lines = _tables()[provider]["lines"]
    return next((line["current"] for line in lines if re.match(line["names"], model)), None)


def tokens_of_image(vision: Vision | None, rate: float, pixels: tuple[int, int] | None) -> int:
    """Return the tokens of an image by the rule of a model, as far as it is known."""
    if vision in (None, "some") or pixels is None or 0 in pixels:
        return TOKENS_OF_IMAGE
    match vision:
        case "tiles":
            # Fitted into a square of 2,048 pixels, then to a shorter side of 768.
            width, height = _fitted(_fitted(pixels, longest=2_048), shortest=768)
            tokens = 85.0 + 170 * math.ceil(width / 512) * math.ceil(height / 512)
        case "patches":
            tokens = min(1_536.0, math.ceil(pixels[0] / 32) * math.ceil(pixels[1] / 32))
        case _:
            longest, most = (1_568, 1_600) if vision == "area" else (2_576, 4_784)
            width, height = _fitted(pixels, longest=longest)
            tokens = min(float(most), width * height / 750)
    return math.ceil(rate * tokens)


def _fitted(
    pixels: tuple[float, float], *, longest: float = math.inf, shortest: float = math.inf
) -> tuple[float, float]:
    """Return width and height, made smaller where a side is longer than allowed."""
    scale = min(1.0, longest / max(pixels), shortest / min(pixels))
    return pixels[0] * scale, pixels[1] * scale


@cache
def _tables() -> Mapping[str, Any]:
    text = files("promptgraft.adapters").joinpath("models.toml").read_text("utf-8")
    return tomllib.loads(text)
