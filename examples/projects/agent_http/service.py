"""The agent: a service on loopback; ``python3 service.py`` runs it until Ctrl+C."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from triage import team_for

PORT = 8765


class Desk(BaseHTTPRequestHandler):
    """Answers a report with the texts that come with it."""

    def do_POST(self) -> None:
        """Name the team that has to act."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps({"final_text": team_for(asked["report"], asked["teams"])}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", PORT), Desk).serve_forever()
