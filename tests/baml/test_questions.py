"""What a reflector is told about a BAML function, and what `render` shows of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from baml.answering import Answering
from baml.test_projects import BAML, PROJECT
from promptgraft import ScriptedAdapter
from promptgraft.project import load_project
from promptgraft.prompt import RenderedPrompt

pytest.importorskip("baml_py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with Answering(lambda _: '{"total": 3, "words": "drei"}') as server:
        monkeypatch.setenv("BAML_TEST_ADDRESS", server.address)
        monkeypatch.setenv("BAML_TEST_KEY", "sk-planted-4711-abcdef")
        (tmp_path / "baml_src").mkdir()
        # Every test has a rule that holds and one that does not.
        both = '@@assert({{ this.total == 3 }})\n  @@assert({{ this.words == "three" }})'
        source = re.sub(r"@@assert\(\{\{ this.total == [45] \}\}\)", both, BAML)
        (tmp_path / "baml_src" / "add.baml").write_text(source)
        (tmp_path / "promptgraft.yaml").write_text(f"{PROJECT}optimizer: {{rollout_budget: 12}}\n")
        yield tmp_path


def questions(folder: Path) -> list[RenderedPrompt[object]]:
    """Make a run, and return what its reflector was asked."""
    job = load_project(folder / "promptgraft.yaml").job()
    reflector = ScriptedAdapter(lambda _: "I would rather not.")
    context = attrs.evolve(job.context, reflection_adapter=reflector, overrides_store=None)
    job.within(context).run()
    asked = list(reflector.requests)
    assert asked
    return asked


def test_a_reflector_is_shown_signature_types_output_format_and_all_rules(folder: Path) -> None:
    text = questions(folder)[0].text
    assert "function Add(text: string) -> Sum" in text
    assert 'total int @description("All together")' in text
    # As BAML itself writes it.
    assert "// All together\n  total: int," in text
    assert "Expected answers" in text
    assert "Text." not in text.split("Expected answers")[1].split("Examples with feedback")[0]
    # The test with its name, its rules that fail and its rules that hold.
    assert re.search("### Example (One|Two|Three)", text)
    assert '`this.words == "three"` does not hold' in text
    assert "holds: `this.total == 3`" in text


def test_types_are_shown_as_the_candidate_describes_them(folder: Path) -> None:
    prompt = load_project(folder / "promptgraft.yaml").prompt().prompt
    texts = {section.key: section.template for section in prompt.template.sections}
    known = getattr(prompt, "answers", None)
    assert known is not None
    changed = known({**texts, "about-sum-total": "The sum, in digits"})
    assert 'total int @description("The sum, in digits")' in changed
    assert "// The sum, in digits" in changed
    # Texts that do not compile are shown as they are declared; their rollouts say what is wrong.
    broken = known({**texts, "alias-sum-total": "it", "alias-sum-words": "it"})
    assert "function Add" in broken
    assert "describes it as" not in broken
