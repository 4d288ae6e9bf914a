"""Server for jobs: an HTTP API, a dashboard, and access control.

Needs ``pip install "promptgraft[server]"``.
"""

from promptgraft.service.server.access import Access, Proxy
from promptgraft.service.server.app import make_app
from promptgraft.service.server.limits import Limits
from promptgraft.service.server.tokens import Scope, TokenStore

__all__ = ["Access", "Limits", "Proxy", "Scope", "TokenStore", "make_app"]
