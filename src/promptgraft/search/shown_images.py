"""The images of cases that questions about rollouts show to a reflection model that sees."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import attrs

from promptgraft.adapters.base import ProviderAdapter, sees_images
from promptgraft.ground.content import Image, files_in, names_in
from promptgraft.prompt.template import Prompt
from promptgraft.search.settings import Data
from promptgraft.targets.types import GepaExample


@attrs.frozen
class ShownImages:
    """Puts images into questions, in place of their names; digests keep the names.

    Attributes:
        images: those that may be shown, by name.
        most: how many one question shows.
    """

    images: Mapping[str, Image] = attrs.field(repr=False)
    most: int

    @classmethod
    def of(cls, examples: Iterable[GepaExample], data: Data, model: ProviderAdapter) -> Self | None:
        """Return the images that are small enough; None without any, and for a model that is blind.

        A model counts as blind unless it is known to see.
        """
        if not sees_images(model) or not data.shown_images:
            return None
        files = files_in([example.params for example in examples])
        largest = data.shown_image_kb * 1024
        images = {
            str(file): file for file in files if isinstance(file, Image) and file.size <= largest
        }
        return cls(images, data.shown_images) if images else None

    def of_example(self, example: GepaExample) -> list[Image]:
        """Return the images of an example that a question shows."""
        named = (self.images.get(str(file)) for file in files_in(example.params))
        return [image for image in named if image is not None][: self.most]

    def in_question(self, prompt: Prompt[object]) -> Prompt[object]:
        """Return a question that shows the first images that it names."""
        named = dict.fromkeys(names_in(prompt.render().text))
        images = [self.images[name] for name in named if name in self.images]
        return attrs.evolve(prompt, files=tuple(images[: self.most])) if images else prompt
