"""Blobs as objects of an S3 bucket: ``sha256/ab/cd/<hash>``.

The client is synchronous and runs in the store's own threads, so that a slow server does not block other work.
Each blob is sent in one PUT with its MD5, from a private copy whose hash was checked: the server stores the whole
object or nothing. Bytes that are read are checked against the name. Includes the local cache of blobs.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import itertools
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.error import S3Error
from pydantic import SecretStr
from typing_extensions import override

from latent_core.blobs.port import BlobStore
from latent_core.blobs.s3_errors import mapped_errors, refused
from latent_core.domain.errors import DamagedBlob, Invalid, NotFound, Unavailable
from latent_core.domain.ids import Sha256
from latent_core.domain.installation import WRITE_CHECK_SECONDS, Installation, MarkerPolicy
from latent_core.domain.service_health import ServiceHealth

MAX_BYTES: Final = 2 * 1024**3
IN_USE_SECONDS: Final = 3600.0
"""A copy requested within this time may still be in use."""

Download = Callable[[Sha256, IO[bytes]], None]


class LocalBlobCache:
    """Files named by their hash below ``folder``; the oldest are removed when they exceed ``max_bytes``.

    Thread-safe; one process owns the folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        max_bytes: int = MAX_BYTES,
        in_use_seconds: float = IN_USE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._in_use_seconds = in_use_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._bytes: int | None = None
        """Upper bound of the cached bytes; None before the first count."""

    def of(self, sha256: Sha256, download: Download) -> Path:
        """The complete copy; ``download`` writes a missing one."""
        path = self._folder / sha256
        with self._lock:
            if path.exists():
                os.utime(path, (self._clock(), self._clock()))
                return path
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=self._folder, prefix="draft-", delete=False) as draft:
            try:
                download(sha256, draft)
                draft.flush()
                size = draft.tell()
                Path(draft.name).replace(path)
                os.utime(path, (self._clock(), self._clock()))
            finally:
                Path(draft.name).unlink(missing_ok=True)
        with self._lock:
            self._added(path, size)
        return path

    def forget(self, sha256: Sha256) -> None:
        """Remove the copy; open readers are not affected."""
        (self._folder / sha256).unlink(missing_ok=True)

    def _added(self, path: Path, size: int) -> None:
        """Thousands of small files fit, so the folder is scanned only when they may exceed the limit."""
        if self._bytes is not None:
            self._bytes += size
        if self._bytes is None or self._bytes > self._max_bytes:
            self._bytes = self._free_space(keep=path)

    def _free_space(self, keep: Path) -> int:
        """Returns the remaining bytes."""
        files = [(p.stat(), p) for p in self._folder.iterdir() if not p.name.startswith("draft-")]
        total = sum(status.st_size for status, _ in files)
        idle_since = self._clock() - self._in_use_seconds
        for status, path in sorted(files, key=lambda one: one[0].st_mtime):
            if total <= self._max_bytes or status.st_mtime > idle_since:
                break
            if path != keep:
                path.unlink(missing_ok=True)
                total -= status.st_size
        return total


PIECE: Final = 256 * 1024
KEY: Final = re.compile("sha256/[0-9a-f]{2}/[0-9a-f]{2}/([0-9a-f]{64})")
PREFIX: Final = "sha256/"
MARKER: Final = "installation.json"
MAX_MARKER_BYTES: Final = 4096
PROBE: Final = "probe/put-if-absent"
THREADS: Final = 16
CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 30.0
"""Between two parts of a response."""
PROBES: Final = 3
CONDITION_ANSWERS: Final = (409, 412, 501)
PUT_SECONDS: Final = 900
"""Validity of a signed PUT."""
NAMES_PER_LOOK: Final = 500
MAX_IN_MEMORY: Final = 8 * 1024 * 1024
BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class S3Address:
    """A bucket on a server. ``endpoint`` is ``http://host:port`` or ``https://…``; without a scheme it is http."""

    endpoint: str
    access_key: SecretStr
    secret_key: SecretStr
    bucket: str
    region: str = "us-east-1"
    """Always set, or each client would query it."""


class S3BlobStore(BlobStore):
    """``BlobStore`` on an S3 server. ``tmp`` is this process's folder for temporary files."""

    def __init__(
        self,
        client: Minio,
        http: urllib3.PoolManager,
        bucket: str,
        tmp: Path,
        installation: Installation,
        *,
        if_absent: bool,
    ) -> None:
        self._client = client
        self._http = http
        self._bucket = bucket
        self._installation = installation
        self._verified_at = float("-inf")
        self._tmp = tmp
        self._copies = LocalBlobCache(tmp / "blobs")
        self._if_absent = if_absent
        self._health = ServiceHealth()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    @classmethod
    async def open(
        cls,
        address: S3Address,
        tmp: Path,
        installation: Installation,
        policy: MarkerPolicy = MarkerPolicy.REQUIRE,
    ) -> Self:
        """``Unavailable`` when the server is unreachable or refuses, ``Misconfigured`` when the bucket lacks the
        installation's marker or it names another holder. ``policy`` says whether to create bucket and marker."""
        client, http = connect(address)
        store = cls(client, http, address.bucket, tmp, installation, if_absent=False)
        try:
            await store._run(lambda: store._prepare(policy))
        except BaseException:
            await store.close()
            raise
        return store

    @property
    def puts_if_absent(self) -> bool:
        """Whether the server honours ``If-None-Match: *``, tested at start-up."""
        return self._if_absent

    @override
    async def put(self, data: bytes) -> Sha256:
        sha256 = Sha256(await self._run(lambda: hashlib.sha256(data).hexdigest()))
        await self._run(lambda: self._put(sha256, io.BytesIO(data), len(data)))
        return sha256

    @override
    async def put_file(self, path: Path, sha256: Sha256) -> None:
        await self._run(lambda: self._put_file(path, sha256))

    @override
    async def get(self, sha256: Sha256) -> bytes:
        data = b"".join([piece async for piece in self.stream(sha256)])
        if await self._run(lambda: hashlib.sha256(data).hexdigest()) != sha256:
            raise _damaged(sha256)
        return data

    @override
    async def stream(
        self, sha256: Sha256, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        size = await self.size(sha256)
        if size is None:
            raise _absent(sha256)
        length = min(size, size if end is None else end) - start
        if length <= 0:
            return
        answer = await self._run(lambda: self._opened(sha256, start, length))
        try:
            while piece := await self._run(lambda: answer.read(PIECE)):
                length -= len(piece)
                yield piece
        finally:
            # The next user of the connection would read the rest of this response.
            await self._run(answer.release_conn if length == 0 else answer.close)

    @override
    async def size(self, sha256: Sha256) -> int | None:
        return await self._run(lambda: self._size(sha256))

    @override
    async def local_copy(self, sha256: Sha256) -> Path:
        return await self._run(lambda: self._copies.of(sha256, self._download))

    @override
    async def delete(self, sha256: Sha256) -> None:
        await self._run(lambda: self._remove(sha256))
        await self._run(lambda: self._copies.forget(sha256))

    @override
    async def hashes(self) -> AsyncIterator[Sha256]:
        objects = await self._run(
            lambda: iter(
                self._client.list_objects(self._bucket, prefix=self._key(PREFIX), recursive=True)
            )
        )
        while names := await self._run(
            lambda: [one.object_name or "" for one in itertools.islice(objects, NAMES_PER_LOOK)]
        ):
            for name in names:
                if found := KEY.fullmatch(name.removeprefix(self._key(""))):
                    yield Sha256(found[1])

    @override
    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.clear()

    async def _run(self, work: Callable[[], T]) -> T:
        """Run in a thread and map the server's errors. Socket timeouts limit the call."""

        def mapped() -> T:
            with mapped_errors(self._health):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, mapped)

    def _prepare(self, policy: MarkerPolicy) -> None:
        if not self._client.bucket_exists(self._bucket):
            if policy is MarkerPolicy.REQUIRE:
                self._installation.check(None, self._place)
            self._make_bucket()
        found = self._marker()
        if policy is MarkerPolicy.TAKE_OVER or (found is None and policy is MarkerPolicy.CREATE):
            # Not overwritten at a start: another process of this installation may be first.
            self._write_marker(if_absent=policy is MarkerPolicy.CREATE)
        self._verify()
        self._if_absent = self._probe()

    def _make_bucket(self) -> None:
        try:
            self._client.make_bucket(self._bucket)
        except S3Error as exc:
            if exc.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    @property
    def _place(self) -> str:
        return f"the bucket '{self._bucket}' (LLC_S3_BUCKET)"

    def _key(self, name: str) -> str:
        return f"{self._installation.id}/{name}"

    def _write_marker(self, *, if_absent: bool) -> None:
        marker = self._installation.marker()
        key, size = self._key(MARKER), len(marker)
        status = self._send(key, io.BytesIO(marker), size, if_absent=if_absent)
        if status in (409, 501) and self._marker() is None:
            self._send(key, io.BytesIO(marker), size, if_absent=False)

    def _marker(self) -> bytes | None:
        try:
            answer = self._client.get_object(self._bucket, self._key(MARKER))
        except S3Error as exc:
            if exc.code in ("NoSuchKey", "NoSuchObject"):
                return None
            raise
        try:
            return answer.read(MAX_MARKER_BYTES)
        finally:
            answer.close()
            answer.release_conn()

    def _verify(self, max_age_seconds: float = 0.0) -> None:
        """``Misconfigured`` unless the marker names this holder, read at most ``max_age_seconds`` ago."""
        if time.monotonic() - self._verified_at < max_age_seconds:
            return
        self._installation.check(self._marker(), self._place)
        self._verified_at = time.monotonic()

    def _probe(self) -> bool:
        """Whether the second of two conditional writes is refused. Some servers reject conditions, others ignore them."""
        probe = self._key(PROBE)
        self._send(probe, io.BytesIO(b"probe"), 5, if_absent=False)
        for _ in range(PROBES):
            status = self._send(probe, io.BytesIO(b"probe"), 5, if_absent=True)
            if status != 409:  # another process probes at the same time
                return status == 412
        return False

    def _remove(self, sha256: Sha256) -> None:
        self._verify()
        self._client.remove_object(self._bucket, self._blob_key(sha256))

    def _blob_key(self, sha256: Sha256) -> str:
        return key_of(self._installation.id, sha256)

    def _size(self, sha256: Sha256) -> int | None:
        try:
            return self._client.stat_object(self._bucket, self._blob_key(sha256)).size
        except S3Error as exc:
            if exc.code in ("NoSuchKey", "NoSuchObject"):
                return None
            raise

    def _opened(self, sha256: Sha256, start: int, length: int) -> Any:
        try:
            return self._client.get_object(self._bucket, self._blob_key(sha256), start, length)
        except S3Error as exc:
            if exc.code in ("NoSuchKey", "NoSuchObject"):
                raise _absent(sha256) from exc
            raise

    def _put(self, sha256: Sha256, data: IO[bytes], size: int) -> None:
        self._verify(WRITE_CHECK_SECONDS)
        stored = self._size(sha256)
        if stored == size:
            return
        # An object of another size is damaged, so it is replaced.
        if_absent = stored is None and self._if_absent
        status = self._send(self._blob_key(sha256), data, size, if_absent=if_absent)
        if status in (409, 501):
            # One of two concurrent writes of the same bytes may fail: retry it without the condition.
            self._send(self._blob_key(sha256), data, size, if_absent=False)

    def _put_file(self, path: Path, sha256: Sha256) -> None:
        with path.open("rb") as source, self._private_copy() as copy:
            digest = hashlib.sha256()
            while piece := source.read(PIECE):
                digest.update(piece)
                copy.write(piece)
            if digest.hexdigest() != sha256:
                raise Unavailable(f"'{path.name}' changed while it was stored; try again")
            size = copy.tell()
            self._put(sha256, copy, size)

    def _private_copy(self) -> IO[bytes]:
        self._tmp.mkdir(0o700, parents=True, exist_ok=True)
        return NamedTemporaryFile(dir=self._tmp, prefix="blob-")

    def _send(self, key: str, data: IO[bytes], size: int, *, if_absent: bool) -> int:
        """Send one PUT of all ``data``; returns the status. For a conditional PUT, 412 means that the object exists,
        409 that another client is writing it, 501 that the server does not support conditions."""
        data.seek(0)
        digest = hashlib.md5(usedforsecurity=False)
        while piece := data.read(PIECE):
            digest.update(piece)
        data.seek(0)
        url = self._client.get_presigned_url(
            "PUT", self._bucket, key, expires=timedelta(seconds=PUT_SECONDS)
        )
        headers = {
            "Content-Type": "application/octet-stream",
            "Content-Length": str(size),
            "Content-MD5": base64.b64encode(digest.digest()).decode(),
        }
        if if_absent:
            headers["If-None-Match"] = "*"
        body: Any = data.read() if size <= MAX_IN_MEMORY else data
        answer = self._http.request("PUT", url, body=body, headers=headers)
        if answer.status not in (200, 201, 204, *(CONDITION_ANSWERS if if_absent else ())):
            raise refused(answer.status, answer.data)
        return answer.status

    def _download(self, sha256: Sha256, file: IO[bytes]) -> None:
        answer = self._opened(sha256, 0, 0)
        digest = hashlib.sha256()
        try:
            while piece := answer.read(PIECE):
                digest.update(piece)
                file.write(piece)
        finally:
            answer.close()
        if digest.hexdigest() != sha256:
            raise _damaged(sha256)


def connect(address: S3Address) -> tuple[Minio, urllib3.PoolManager]:
    """A client and its connection pool; sends nothing yet."""
    host, secure = _host(address.endpoint)
    if not BUCKET.fullmatch(address.bucket):
        raise Invalid(
            f"LLC_S3_BUCKET '{address.bucket}' is not a valid bucket name: 3 to 63 of a-z, 0-9, '-' and '.'"
        )
    http = urllib3.PoolManager(
        num_pools=4,
        maxsize=THREADS,
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        retries=urllib3.Retry(
            total=3, redirect=False, backoff_factor=0.2, status_forcelist=(502, 504)
        ),
    )
    try:
        client = Minio(
            host,
            access_key=address.access_key.get_secret_value(),
            secret_key=address.secret_key.get_secret_value(),
            secure=secure,
            region=address.region,
            http_client=http,
        )
    except ValueError as exc:
        raise Invalid(f"LLC_S3_ENDPOINT cannot be read: {exc}") from exc
    return client, http


def key_of(installation_id: str, sha256: Sha256) -> str:
    """The object's name."""
    return f"{installation_id}/{PREFIX}{sha256[:2]}/{sha256[2:4]}/{sha256}"


def _host(endpoint: str) -> tuple[str, bool]:
    """``host:port``, and whether to use TLS."""
    url = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/"):
        raise Invalid("an S3 endpoint is http://host:port or https://host, without a path")
    return url.netloc, url.scheme == "https"


def _absent(sha256: Sha256) -> NotFound:
    return NotFound(f"blob {sha256} is not stored", sha256=sha256)


def _damaged(sha256: Sha256) -> DamagedBlob:
    return DamagedBlob(
        f"blob {sha256} does not hold the bytes of its name: restore it from a backup, or ingest its source again",
        sha256=sha256,
    )
