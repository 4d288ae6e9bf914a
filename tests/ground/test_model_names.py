"""How identities of models are shown."""

import pytest

from promptgraft.ground.text import model_in_words


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        ("openai/1 small host=127.0.0.1:8000 effort='low'", "small at 127.0.0.1:8000"),
        ("anthropic/1 claude max_tokens=5", "claude"),
        ("offline/5", "offline"),
        ("offline/5 seed=2", "offline"),
        ("graph shop/flow 126f87dc64b9 on offline/5", "offline"),
        ("own.module:Model", "own.module:Model"),
        ("Fernhill's model 3/4", "Fernhill's model 3/4"),
    ],
)
def test_an_identity_is_shown_as_the_model_and_its_address(identity: str, words: str) -> None:
    assert model_in_words(identity) == words
