"""A model hub over real HTTP, as the client ``huggingface_hub`` sees the original, and with its faults.

``with ModelHub() as hub: hub.publish("acme/tiny", {"config.json": b"{}"})``. Large files (LFS) are redirected to a second
server with a signed address, small ones to another path of the first, both with the headers of the original. Faults
apply to the bytes of one file. Requests are recorded.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from typing_extensions import override

LFS: Final = (".onnx", ".safetensors", ".onnx_data")
SIGNATURE: Final = "X-Amz-Signature=5ecre7"
WAIT_SECONDS: Final = 30.0


@dataclass
class Fault:
    """What the next ``times`` transfers of a file get. Bytes are counted from the start of the file."""

    stall_at: int | None = None
    """Send up to this byte, then nothing, with the connection open."""
    cut_at: int | None = None
    """Send up to this byte, then close the connection."""
    status: int | None = None
    altered: bool = False
    """Send other bytes."""
    whole: bool = False
    """Ignore the range."""
    times: int = 1


@dataclass(frozen=True, slots=True)
class HubRequest:
    method: str
    server: str
    """``hub`` or ``files``."""
    path: str
    headers: Mapping[str, str]
    """Names in small letters."""


@dataclass
class Repository:
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False


class ModelHub:
    """Both servers, with a thread per connection."""

    def __init__(self, token: str = "hf_goodtoken") -> None:
        self.token = token
        self.repositories: dict[str, Repository] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.missing_files: set[str] = set()
        """Listed, and not there."""
        self.extra_siblings: list[dict[str, Any]] = []
        """Added to each listing."""
        self.other_commit: str | None = None
        """Served with files in place of their own commit."""
        self.requests: list[HubRequest] = []
        self.hold_files_until: threading.Event | None = None
        self.on_listing: list[threading.Event] = []
        """Each listing sets the first one that is not set."""
        self._ended = threading.Event()
        self._hub = _server(self, "hub")
        self._files = _server(self, "files")
        self.url = f"http://127.0.0.1:{self._hub.server_port}"
        self.files_url = f"http://127.0.0.1:{self._files.server_port}"

    def publish(self, hub_id: str, files: Mapping[str, bytes], ref: str = "main") -> str:
        """Commit ``files`` (all of the repository) and return the commit."""
        repository = self.repositories.setdefault(hub_id, Repository())
        content = json.dumps({path: git_hash(data) for path, data in sorted(files.items())})
        commit = hashlib.sha1(f"{hub_id} {content}".encode()).hexdigest()
        repository.commits[commit] = dict(files)
        repository.refs[ref] = commit
        return commit

    def transfers(self, path: str) -> list[HubRequest]:
        """The requests for the bytes of a file."""
        return [
            one
            for one in self.requests
            if one.method == "GET"
            and not one.path.startswith("/api/models/")
            and unquote(urlsplit(one.path).path).endswith(f"/{path}")
            and ("resolve-cache" in one.path or one.server == "files")
        ]

    def __enter__(self) -> Self:
        for server in (self._hub, self._files):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self._ended.set()
        for server in (self._hub, self._files):
            server.shutdown()
            server.server_close()

    def wait(self) -> None:
        """What a stalled transfer does."""
        self._ended.wait(WAIT_SECONDS)

    def fault(self, path: str) -> Fault | None:
        for fault in self.faults.get(path, []):
            if fault.times > 0:
                fault.times -= 1
                return fault
        return None


def git_hash(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def in_lfs(path: str) -> bool:
    return path.endswith(LFS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up; that is what is tested."""


def _server(hub: ModelHub, name: str) -> _Server:
    class Handler(_Handler):
        pass

    Handler.hub, Handler.name = hub, name
    return _Server(("127.0.0.1", 0), Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: ModelHub
    name: str

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    @override
    def log_message(self, *args: object) -> None:
        """Silent."""

    def _answer(self) -> None:
        headers = {key.lower(): value for key, value in self.headers.items()}
        self.hub.requests.append(HubRequest(self.command, self.name, self.path, headers))
        split = urlsplit(self.path)
        parts = [unquote(part) for part in split.path.strip("/").split("/")]
        if self.name == "files":
            self._blob(parts[0], "/".join(parts[1:]))
        elif parts[:2] == ["api", "models"] and parts[4:5] in (["refs"], ["commits"]):
            self._history("/".join(parts[2:4]), parts[4])
        elif parts[:2] == ["api", "models"]:
            self._info(parts[2:], parse_qs(split.query))
        elif parts[:3] == ["api", "resolve-cache", "models"]:
            self._cached("/".join(parts[3:5]), parts[5], "/".join(parts[6:]))
        elif len(parts) > 4 and parts[2] == "resolve":
            self._resolve("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
        else:
            self._error(404, "NotFound", "Not found")

    def _info(self, parts: list[str], query: Mapping[str, list[str]]) -> None:
        for event in self.hub.on_listing:
            if not event.is_set():
                event.set()
                break
        hub_id = "/".join(parts[:2])
        repository = self._repository(hub_id)
        if repository is None:
            return
        revision = parts[3] if len(parts) > 3 else "main"
        commit = self._commit(repository, hub_id, revision)
        if commit is None:
            return
        siblings: list[dict[str, Any]] = []
        for path, content in repository.commits[commit].items():
            sibling: dict[str, Any] = {"rfilename": path}
            if "blobs" in query:
                sibling |= {"size": len(content), "blobId": git_hash(content)}
                if in_lfs(path):
                    lfs = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
                    sibling["lfs"] = lfs
            siblings.append(sibling)
        body = {
            "_id": "65f",
            "id": hub_id,
            "modelId": hub_id,
            "sha": commit,
            "private": repository.private,
            "gated": "manual" if repository.gated else False,
            "tags": [],
            "siblings": [*siblings, *self.hub.extra_siblings],
        }
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _history(self, hub_id: str, part: str) -> None:
        repository = self._repository(hub_id)
        if repository is None:
            return
        body: Any
        if part == "refs":
            names = repository.refs.items()
            branches = [
                {"name": name, "ref": f"refs/heads/{name}", "targetCommit": commit}
                for name, commit in names
            ]
            body = {"branches": branches, "tags": [], "converts": []}
        else:
            body = [
                {
                    "id": commit,
                    "title": "",
                    "message": "",
                    "date": "2026-01-01T00:00:00.000Z",
                    "authors": [],
                }
                for commit in repository.commits
            ]
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _resolve(self, hub_id: str, revision: str, path: str) -> None:
        """Where the bytes are, with what is known of them; an address that holds for an hour."""
        repository = self._repository(hub_id)
        if repository is None:
            return
        if repository.gated and not self._allowed():
            status = 403 if "authorization" in self.headers else 401
            self._error(
                status,
                "GatedRepo",
                f"Access to model {hub_id} is restricted and you are not in the list",
            )
            return
        commit = self._commit(repository, hub_id, revision)
        if commit is None:
            return
        content = repository.commits[commit].get(path)
        if content is None or path in self.hub.missing_files:
            self._error(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
            return
        shown = self.hub.other_commit or commit
        if in_lfs(path):
            place = f"{self.hub.files_url}/{sha256(content)}/{quote(path)}?{SIGNATURE}"
            etag, status = sha256(content), 302
        else:
            place = f"/api/resolve-cache/models/{hub_id}/{commit}/{quote(path)}"
            etag, status = git_hash(content), 307
        self._send(
            status,
            b"redirecting",
            {
                "Location": place,
                "X-Repo-Commit": shown,
                "X-Linked-Size": str(len(content)),
                "X-Linked-Etag": f'"{etag}"',
                "Accept-Ranges": "bytes",
            },
        )

    def _cached(self, hub_id: str, commit: str, path: str) -> None:
        content = self.hub.repositories[hub_id].commits[commit][path]
        headers = {
            "ETag": f'"{git_hash(content)}"',
            "X-Repo-Commit": self.hub.other_commit or commit,
            "Content-Type": "text/plain",
        }
        self._bytes(path, content, headers)

    def _blob(self, sha: str, path: str) -> None:
        for repository in self.hub.repositories.values():
            for files in repository.commits.values():
                content = files.get(path)
                if content is not None and sha256(content) == sha:
                    self._bytes(path, content, {"ETag": '"s3-etag"'})
                    return
        self._send(404, b"no such key", {})

    def _bytes(self, path: str, content: bytes, headers: dict[str, str]) -> None:
        fault = self.hub.fault(path) if self.command == "GET" else None
        if self.command == "GET" and self.hub.hold_files_until is not None:
            self.hub.hold_files_until.wait(WAIT_SECONDS)
        if fault is not None and fault.status is not None:
            self._send(fault.status, b"fault", {})
            return
        if fault is not None and fault.altered:
            content = bytes(len(content))
        start, status = 0, 200
        requested = self.headers.get("range")
        if requested is not None and not (fault and fault.whole):
            start = int(requested.removeprefix("bytes=").partition("-")[0])
            if start >= len(content):
                self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
                return
            status = 206
            headers |= {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        if self.command == "HEAD":
            return
        limit = len(content)
        if fault is not None:
            limit = min(x for x in (fault.stall_at, fault.cut_at, limit) if x is not None)
        with suppress(OSError):
            self.wfile.write(content[start:limit])
            self.wfile.flush()
        if limit < len(content):
            if fault is not None and fault.stall_at is not None:
                self.hub.wait()
            self.close_connection = True

    def _repository(self, hub_id: str) -> Repository | None:
        repository = self.hub.repositories.get(hub_id)
        if repository is None or (repository.private and not self._allowed()):
            status = 404 if self._allowed() else 401
            self._error(status, "RepoNotFound", "Repository not found")
            return None
        return repository

    def _commit(self, repository: Repository, hub_id: str, revision: str) -> str | None:
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return None
        return commit

    def _allowed(self) -> bool:
        return self.headers.get("authorization") == f"Bearer {self.hub.token}"

    def _error(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        own = {"X-Error-Code": code, "X-Error-Message": message, **(headers or {})}
        self._send(status, json.dumps({"error": message}).encode(), own)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
