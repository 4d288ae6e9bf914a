"""The fixtures of the pytest plugin, and suites and fakes for authors of stores; requires pytest.

.. code-block:: python

    from promptgraft.testing import PromptOverridesStoreContract


    class TestMyStore(PromptOverridesStoreContract):
        def make_store(self) -> MyStore:
            return MyStore()
"""

import pytest

# Before the imports below: pytest rewrites the asserts of a module when it is first imported.
pytest.register_assert_rewrite(
    "promptgraft.testing.store_contract",
    "promptgraft.testing.revision_contract",
)

from promptgraft.bridges.pytest_plugin_reports import CaseVerdict, ReportOfTests  # noqa: E402
from promptgraft.testing.clock import FakeClock  # noqa: E402
from promptgraft.testing.prompts import FakePrompt  # noqa: E402
from promptgraft.testing.revision_contract import RevisionedStoreContract  # noqa: E402
from promptgraft.testing.store_contract import PromptOverridesStoreContract  # noqa: E402

__all__ = [
    "CaseVerdict",
    "FakeClock",
    "FakePrompt",
    "PromptOverridesStoreContract",
    "ReportOfTests",
    "RevisionedStoreContract",
]
