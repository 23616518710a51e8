"""Every page's address gives the same document; Dash shows in it what the address says."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class PagePaths:
    """ASGI middleware that answers /ui/runs/x as /ui/, save for Dash's own files and calls.

    Dash would answer them by a catch-all route of its own, which also takes every unknown API address.
    """

    def __init__(self, app: ASGIApp, *, prefix: str) -> None:
        self._app, self._prefix = app, prefix
        self._own = (f"{prefix}_", f"{prefix}assets/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope.get("path", "")
        if scope["type"] == "http" and path.startswith(self._prefix) and not path.startswith(self._own):
            scope = {**scope, "path": self._prefix, "raw_path": self._prefix.encode()}
        await self._app(scope, receive, send)
