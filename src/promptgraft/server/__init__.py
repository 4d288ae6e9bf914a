"""Jobs over HTTP: an API, a dashboard, and who may use them.

Needs ``pip install "promptgraft[server]"``.
"""

from promptgraft.server.access import Access, Scope, TokenStore
from promptgraft.server.app import make_app

__all__ = ["Access", "Scope", "TokenStore", "make_app"]
