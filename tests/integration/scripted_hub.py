"""A small imitation of the Hugging Face hub over HTTP: one repository, which may come to a halt in any file."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

COMMIT = "a" * 40
REPO = "some/model"


class Hub(ThreadingHTTPServer):
    """``halt``: a file that comes to a halt in its middle (then ``halfway`` is set) until ``go_on``."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = dict(files)
        self.gets: Counter[str] = Counter()
        self.halfway, self.go_on = threading.Event(), threading.Event()
        self.halt = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def scripted_hub(files: Mapping[str, bytes]) -> Iterator[Hub]:
    server = Hub(files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.go_on.set()
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._head()

    def do_GET(self) -> None:
        if self.path.startswith(f"/api/models/{REPO}/tree/main"):
            self._list()
            return
        name, start = self._head()
        if name is None:
            return
        self.server.gets[name] += 1
        body = self.server.files[name][start:]
        if name == self.server.halt:
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.server.halfway.set()
            self.server.go_on.wait(60)
            body = body[len(body) // 2 :]
        try:
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # the client was killed

    def _list(self) -> None:
        listed = self.server.files.items()
        files = [{"type": "file", "path": path, "size": len(body), "oid": "0"} for path, body in listed]
        body = json.dumps(files).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _head(self) -> tuple[str | None, int]:
        name = unquote(self.path.split("/", 5)[-1])
        if not self.path.startswith(f"/{REPO}/resolve/") or name not in self.server.files:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return None, 0
        asked, size = self.headers.get("Range", ""), len(self.server.files[name])
        start = int(asked.removeprefix("bytes=").split("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{name}-etag"')
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
        self.send_header("Content-Length", str(size - start))
        self.end_headers()
        return name, start

    def log_message(self, format: str, *args: object) -> None: ...
