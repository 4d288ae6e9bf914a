"""Server for jobs: an HTTP API, a dashboard, and access control.

Needs ``pip install "promptgraft[server]"``.
"""

from promptgraft.service.server.access import Access, Scope, TokenStore
from promptgraft.service.server.app import make_app

__all__ = ["Access", "Scope", "TokenStore", "make_app"]
