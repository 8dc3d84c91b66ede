"""Blobs as objects of an S3 bucket: ``sha256/ab/cd/<hash>``.

The client is synchronous and runs in the store's own threads, so that a slow server does not block other work.
Each blob is sent in one PUT with its MD5, from a private copy whose hash was checked: the server stores the whole
object or nothing. Bytes that are read are checked against the name.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import itertools
import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import IO, Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import urllib3
from minio import Minio
from minio.datatypes import Object
from minio.error import S3Error
from pydantic import SecretStr
from typing_extensions import override

from latent_core.blobs.local_cache import LocalBlobCache
from latent_core.blobs.port import BlobStore
from latent_core.blobs.s3_errors import (
    BucketFull,
    BucketRefused,
    NotConnected,
    mapped_errors,
    refused,
)
from latent_core.domain.errors import (
    DamagedBlob,
    Invalid,
    Misconfigured,
    NotFound,
    StoreFull,
    TimedOut,
    Unavailable,
    UpstreamError,
    UpstreamOverload,
)
from latent_core.domain.ids import Sha256
from latent_core.domain.installation import (
    WRITE_CHECK_SECONDS,
    Installation,
    MarkerPolicy,
    holder_of,
)
from latent_core.domain.service_health import ServiceHealth

logger = logging.getLogger(__name__)

PIECE: Final = 256 * 1024
KEY: Final = re.compile("sha256/[0-9a-f]{2}/[0-9a-f]{2}/([0-9a-f]{64})")
PREFIX: Final = "sha256/"
MARKER: Final = "installation.json"
MAX_MARKER_BYTES: Final = 4096
PROBE: Final = "probe/put-if-absent"
THREADS: Final = 16
CONNECT_SECONDS: Final = 3.0
READ_SECONDS: Final = 8.0
"""Between two parts of a response."""
CALL_SECONDS: Final = 10.0
"""The longest time that a server that does not answer can hold a call."""
MIN_BYTES_PER_SECOND: Final = 1024 * 1024
"""A call that sends a large object may take longer, at this rate."""
PROBES: Final = 3
PROBE_PAUSE_SECONDS: Final = 5.0
CONDITION_ANSWERS: Final = (409, 412, 501)
PUT_SECONDS: Final = 900
"""Validity of a signed PUT."""
NAMES_PER_LOOK: Final = 500
BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
MAX_IN_MEMORY: Final = 8 * 1024 * 1024

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


@dataclass(frozen=True, slots=True)
class WriteCheck:
    """The result of the last small write, and its time."""

    at: float
    accepted: bool


class S3Server:
    """The connections, threads and local copies that the buckets of a server share."""

    def __init__(self, address: S3Address, tmp: Path) -> None:
        """``tmp`` is this process's folder for temporary files. Sends nothing yet."""
        self.client, self.http = connect(address)
        self.tmp = tmp
        self.copies = LocalBlobCache(tmp / "blobs")
        self.health = ServiceHealth("minio")
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="s3")

    def close(self) -> None:
        self.threads.shutdown(wait=False, cancel_futures=True)
        self.http.clear()


class S3BlobStore(BlobStore):
    """``BlobStore`` in a bucket of an S3 server."""

    def __init__(
        self,
        server: S3Server,
        bucket: str,
        installation: Installation,
        policy: MarkerPolicy,
        *,
        named: bool = False,
    ) -> None:
        """``named``: by a manifest, not by LLC_S3_BUCKET."""
        self.server = server
        self._client = server.client
        self._http = server.http
        self._tmp = server.tmp
        self._copies = server.copies
        self._health = server.health
        self._threads = server.threads
        self._bucket = bucket
        self._named = named
        self._installation = installation
        self._policy = policy
        self._settled = False
        self._verified_at = float("-inf")
        self._writes_checked = WriteCheck(float("-inf"), accepted=True)
        self._if_absent: bool | None = None
        self._former: str | None = None
        self._refusal = ""

    @classmethod
    async def open(
        cls,
        address: S3Address,
        tmp: Path,
        installation: Installation,
        policy: MarkerPolicy = MarkerPolicy.REQUIRE,
    ) -> Self:
        """``Unavailable`` when the server refuses the key, ``MarkerMismatch`` when the bucket lacks the installation's
        marker or it names another holder. ``policy`` says whether to create bucket and marker. A server that is down or
        full is checked before the first call that it answers instead, except by ``latent adopt``, which needs it now."""
        store = cls(S3Server(address, tmp), address.bucket, installation, policy)
        try:
            await store.settle()
        except (NotConnected, TimedOut, UpstreamError, UpstreamOverload, StoreFull) as exc:
            if policy is MarkerPolicy.TAKE_OVER:
                await store.close()
                raise
            logger.warning("s3_not_checked", extra={"cause": exc.message})
        except BaseException:
            await store.close()
            raise
        return store

    async def settle(self) -> None:
        """Check the bucket and its marker now, and create them if the policy says so. Raises the cause in full."""
        await self._call(lambda: None)

    @override
    async def verify(self) -> None:
        await self._call(self._verify)

    async def holder(self) -> str | None:
        """The database that the marker names; None without a bucket or marker."""
        return await self._call(self._holder, settled=True)

    @property
    def former_holder(self) -> str | None:
        """The database that the marker named before this store was settled."""
        return self._former

    @property
    @override
    def bucket(self) -> str:
        return self._bucket if self._named else ""

    @property
    def puts_if_absent(self) -> bool:
        """Whether the server honours ``If-None-Match: *``, tested before the first write."""
        return bool(self._if_absent)

    @override
    async def put(self, data: bytes) -> Sha256:
        sha256 = Sha256(await self._run(lambda: hashlib.sha256(data).hexdigest()))
        await self._run(lambda: self._put(sha256, io.BytesIO(data), len(data)), len(data))
        return sha256

    @override
    async def put_file(self, path: Path, sha256: Sha256) -> None:
        size = (await asyncio.to_thread(path.stat)).st_size
        await self._run(lambda: self._put_file(path, sha256), size)

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
    async def stored_at(self, sha256: Sha256) -> datetime | None:
        found = await self._run(lambda: self._stat(sha256))
        return None if found is None else found.last_modified

    @override
    async def local_copy(self, sha256: Sha256) -> Path:
        size = await self.size(sha256) or 0
        return await self._run(
            lambda: self._copies.of(self.bucket, sha256, lambda file: self._download(sha256, file)),
            size,
        )

    @override
    async def delete(self, sha256: Sha256) -> None:
        await self._run(lambda: self._remove(sha256))
        await self._run(lambda: self._copies.forget(self.bucket, sha256))

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
        self.server.close()

    async def _run(self, work: Callable[[], T], size: int = 0) -> T:
        """As ``_call``. A bucket that a manifest names costs only its containers: its refusals are no settings of the
        installation, and readers of links must not see who holds it."""
        try:
            return await self._call(work, size)
        except Misconfigured as error:
            if not self._named:
                raise
            if error.message != self._refusal:
                self._refusal = error.message
                logger.warning(
                    "bucket_refused", extra={"bucket": self._bucket, "cause": error.message}
                )
            raise BucketRefused(
                f"the bucket '{self._bucket}' of this container cannot be used: `latent doctor` says why"
            ) from error
        except StoreFull as error:
            if not self._named:
                raise
            raise BucketFull(
                f"the bucket '{self._bucket}' of this container: {error.message}"
            ) from error

    async def _call(self, work: Callable[[], T], size: int = 0, *, settled: bool = False) -> T:
        """Run in a thread and map the server's errors; ``size`` bytes are transferred. The first call that the server
        answers settles whose bucket it is. After the deadline the thread ends by the timeouts of its socket."""

        def mapped() -> T:
            with mapped_errors(self._health):
                if not (self._settled or settled):
                    self._prepare(self._policy)
                return work()

        seconds = CALL_SECONDS + size / MIN_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.get_running_loop().run_in_executor(self._threads, mapped)
        except TimeoutError as exc:
            raise self._health.timeout(
                f"the S3 server did not answer within {seconds:g} s"
            ) from exc

    def _prepare(self, policy: MarkerPolicy) -> None:
        """Check the bucket and its marker, and create them if ``policy`` says so. Repeating it is harmless."""
        if not self._client.bucket_exists(self._bucket):
            if policy is MarkerPolicy.REQUIRE:
                self._installation.check(None, self._place)
            self._make_bucket()
        found = self._marker()
        self._former = None if found is None else holder_of(found)
        if policy is MarkerPolicy.TAKE_OVER or (found is None and policy is MarkerPolicy.CREATE):
            # Not overwritten at a start: another process of this installation may be first.
            self._write_marker(if_absent=policy is MarkerPolicy.CREATE)
        self._verify()
        self._settled = True

    def _holder(self) -> str | None:
        if not self._client.bucket_exists(self._bucket):
            return None
        found = self._marker()
        return None if found is None else holder_of(found)

    def _make_bucket(self) -> None:
        try:
            self._client.make_bucket(self._bucket)
        except S3Error as exc:
            if exc.code not in ("BucketAlreadyOwnedByYou", "BucketAlreadyExists"):
                raise

    @property
    def _place(self) -> str:
        origin = "storage.blobs.bucket of a manifest" if self._named else "LLC_S3_BUCKET"
        return f"the bucket '{self._bucket}' ({origin})"

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
        """``MarkerMismatch`` unless the marker names this holder, read at most ``max_age_seconds`` ago."""
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
        found = self._stat(sha256)
        return None if found is None else found.size

    def _stat(self, sha256: Sha256) -> Object | None:
        try:
            return self._client.stat_object(self._bucket, self._blob_key(sha256))
        except S3Error as exc:
            if exc.code in ("NoSuchKey", "NoSuchObject"):
                self._verify(
                    WRITE_CHECK_SECONDS
                )  # the answer to a HEAD does not name a lost bucket
                return None
            raise

    def _opened(self, sha256: Sha256, start: int, length: int) -> Any:
        try:
            return self._client.get_object(self._bucket, self._blob_key(sha256), start, length)
        except S3Error as exc:
            if exc.code in ("NoSuchKey", "NoSuchObject"):
                self._verify(WRITE_CHECK_SECONDS)
                raise _absent(sha256) from exc
            raise

    def _put(self, sha256: Sha256, data: IO[bytes], size: int) -> None:
        self._verify(WRITE_CHECK_SECONDS)
        stored = self._size(sha256)
        if stored == size:
            return
        try:
            if self._if_absent is None:
                self._if_absent = self._probe()
            # An object of another size is damaged, so it is replaced.
            if_absent = stored is None and self._if_absent
            status = self._send(self._blob_key(sha256), data, size, if_absent=if_absent)
            if status in (409, 501):
                # One of two concurrent writes of the same bytes may fail: retry it without the condition.
                self._send(self._blob_key(sha256), data, size, if_absent=False)
        except UpstreamError as exc:
            if self._accepts_writes():
                raise
            raise StoreFull(
                "the S3 server answers reads and fails at every write: it is full, or its volumes are read-only. Free "
                "space there and try again",
                service="minio",
            ) from exc

    def _accepts_writes(self) -> bool:
        """After a failed write: whether a small one succeeds. SeaweedFS answers 500 to every write when it is full.

        An error of the reading that follows a failed probe is raised: then the server fails as a whole.
        """
        checked = self._writes_checked
        if time.monotonic() - checked.at < PROBE_PAUSE_SECONDS:
            return checked.accepted
        try:
            self._send(self._key(PROBE), io.BytesIO(b"probe"), 5, if_absent=False)
            accepted = True
        except UpstreamError:
            self._verify()
            accepted = False
        self._writes_checked = WriteCheck(time.monotonic(), accepted)
        return accepted

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


class _NoRetryAfterTimeout(urllib3.Retry):
    """Repeats a request after a broken connection, never after a timeout: the time of the call is spent."""

    @override
    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: urllib3.BaseHTTPResponse | None = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: TracebackType | None = None,
    ) -> Self:
        if isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError):
            raise error
        return super().increment(method, url, response, error, _pool, _stacktrace)


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
        retries=_NoRetryAfterTimeout(
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
