"""A real HTTP receiver that checks each signature the way a user's would."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes....").decode()


@dataclass
class Receiver:
    """What came in, verified; `refused` counts bodies whose signature was wrong."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    refused: int = 0
    _server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.server_address[1]}/hook"

    def start(self) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                try:
                    Webhook(SECRET).verify(body, {key.lower(): value for key, value in self.headers.items()})
                except Exception:
                    receiver.refused += 1
                    self.send_response(401)
                else:
                    receiver.messages.append({"id": self.headers["webhook-id"], **json.loads(body)})
                    self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *arguments: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()
