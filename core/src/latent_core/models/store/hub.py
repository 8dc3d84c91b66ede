"""A model hub by the library ``huggingface_hub``: what a repository has at one commit, and one file of it.

The library gives the listing, the metadata of files, the session (proxies and offline mode of the environment) and
the errors. Bytes are read here, since the library drops what arrived when a transfer fails (ADR 0046). Messages hold
no address of a download and no token: addresses are signed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import SecretStr

from latent_core import __version__
from latent_core.domain.errors import (
    Forbidden,
    Invalid,
    LatentError,
    NotFound,
    RateLimited,
    ServiceUnreachable,
    TimedOut,
    Unavailable,
    UpstreamError,
)
from latent_core.models.store.layout import disk_errors
from latent_core.models.store.record import REVISION, HubFile, checked_path

if TYPE_CHECKING:
    import httpx2

SHORT_REVISION: Final = re.compile(r"[0-9a-f]{7,39}")
MAX_LISTED: Final = 20_000
"""Files of a repository."""
ATTEMPTS: Final = 5
"""Connections in a row that bring no byte, before a transfer is given up."""
MIN_BYTES_PER_SECOND: Final = 1024
PAUSE_SECONDS: Final = 1.0
METADATA_SECONDS: Final = 30.0
PART: Final = ".part"
_AGENT: Final = f"latent-containers/{__version__}"
_TOKEN: Final = "LLC_HUB_TOKEN_FILE"

OnBytes = Callable[[int], None]
"""Called with the number of bytes of the file that have arrived."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A hub and how to speak to it."""

    url: str
    token: SecretStr | None = None
    offline: bool = False
    stall_seconds: float = 30.0
    pause_seconds: float = PAUSE_SECONDS

    @property
    def host(self) -> str:
        return self.url.partition("://")[2] or self.url


@dataclass(frozen=True, slots=True)
class RepositoryListing:
    """The files of a repository at one commit."""

    hub_id: str
    revision: str
    files: tuple[HubFile, ...]


class Hub:
    """Blocking calls to one hub, from one thread."""

    def __init__(self, address: HubAddress) -> None:
        import huggingface_hub
        from huggingface_hub import constants

        # Else it fetches a list of agents, sends which one starts us, and writes to the home directory.
        constants.HF_HUB_DISABLE_TELEMETRY = True
        if not address.url.startswith(("http://", "https://")) or "@" in address.url:
            raise Invalid(
                "LLC_HUB_URL: write the address of a hub without credentials: https://hub.example.com"
            )
        self._library = huggingface_hub
        self._address = address
        self._token: str | bool = address.token.get_secret_value() if address.token else False
        """False, not None: the library would look for a token of its own."""

    def listing(self, hub_id: str, revision: str | None) -> RepositoryListing:
        """Resolve ``revision`` (default: the main branch) to a commit and list its files."""
        api = self._library.HfApi(
            self._address.url,
            token=self._token,
            library_name="latent-containers",
            library_version=__version__,
        )
        with self._errors(hub_id, revision):
            if revision is not None and SHORT_REVISION.fullmatch(revision):
                revision = self._full_revision(api, hub_id, revision)
            info = api.model_info(
                hub_id, revision=revision, files_metadata=True, timeout=METADATA_SECONDS
            )
        commit = info.sha or ""
        if not REVISION.fullmatch(commit):
            raise Unavailable(
                f"{self._address.host} names no commit of {hub_id}: it is no hub, or a broken mirror"
            )
        siblings = info.siblings or []
        if len(siblings) > MAX_LISTED:
            raise Invalid(
                f"{hub_id} has {len(siblings)} files, more than the {MAX_LISTED} that are read"
            )
        return RepositoryListing(
            hub_id, commit, tuple(self._listed(hub_id, one) for one in siblings)
        )

    def _full_revision(self, api: Any, hub_id: str, short: str) -> str:
        """The commit that begins with ``short``, as versions of vectors name it. Hubs take complete ones only."""
        refs = {
            ref.name
            for kind in ("branches", "tags")
            for ref in getattr(api.list_repo_refs(hub_id), kind)
        }
        if short in refs:
            return short
        commits = (one.commit_id for one in api.list_repo_commits(hub_id))
        matching = [commit for commit in commits if commit.startswith(short)]
        return matching[0] if len(matching) == 1 else short

    def fetch(
        self, listing: RepositoryListing, file: HubFile, target: Path, on_bytes: OnBytes
    ) -> None:
        """Write the file to ``target``, continuing what an earlier call left in ``target.part``."""
        part = target.with_name(target.name + PART)
        with disk_errors(target.parent):
            target.parent.mkdir(parents=True, exist_ok=True)
            if part.is_symlink() or (part.exists() and part.stat().st_size > file.size):
                part.unlink()
            part.touch()
        self._check_commit(listing, file)
        failures = 0
        while (reached := part.stat().st_size) < file.size:
            try:
                self._continue(listing, file, part, reached, on_bytes)
            except _Stalled as exc:
                # The next connection is a new one: the pooled one may be dead.
                self._library.close_session()
                failures = 0 if part.stat().st_size > reached else failures + 1
                if failures >= ATTEMPTS:
                    raise self._gave_up(listing, file, part, exc) from exc
                time.sleep(self._address.pause_seconds)
        with disk_errors(target.parent):
            part.replace(target)
        on_bytes(file.size)

    def _listed(self, hub_id: str, sibling: Any) -> HubFile:
        try:
            path = checked_path(str(sibling.rfilename))
        except ValueError as exc:
            raise Invalid(
                f"{hub_id} cannot be installed, since its listing is unsafe: {exc}"
            ) from exc
        if sibling.lfs is not None:
            return HubFile(path, int(sibling.lfs.size), sibling.lfs.sha256, None)
        return HubFile(
            path, -1 if sibling.size is None else int(sibling.size), None, sibling.blob_id
        )

    def _check_commit(self, listing: RepositoryListing, file: HubFile) -> None:
        """A mirror must serve this file at this commit, with the hash of the listing."""
        with self._errors(listing.hub_id, listing.revision, file.path):
            known = self._library.get_hf_file_metadata(
                self._url(listing, file),
                token=self._token,
                timeout=METADATA_SECONDS,
                endpoint=self._address.url,
                library_name="latent-containers",
                library_version=__version__,
                retry_on_errors=True,
            )
        expected = file.sha256 or file.git_hash
        if known.commit_hash != listing.revision or (
            expected and known.etag and len(known.etag) == len(expected) and known.etag != expected
        ):
            raise Unavailable(
                f"{self._address.host} serves {file.path} of {listing.hub_id} from another commit than it lists:"
                " try again; if it repeats, its cache or mirror is broken"
            )

    def _continue(
        self,
        listing: RepositoryListing,
        file: HubFile,
        part: Path,
        reached: int,
        on_bytes: OnBytes,
    ) -> None:
        """Append what one connection brings. ``_Stalled`` if it ends or slows down before the end of the file."""
        import httpx2

        headers = {"user-agent": _AGENT, "accept-encoding": "identity"}
        if self._token:
            headers["authorization"] = (
                f"Bearer {self._token}"  # the session drops it for other hosts
            )
        if reached:
            headers["range"] = f"bytes={reached}-"
        session = self._library.get_session()
        stall = self._address.stall_seconds
        with self._errors(listing.hub_id, listing.revision, file.path):
            try:
                with session.stream(
                    "GET", self._url(listing, file), headers=headers, timeout=stall
                ) as response:
                    self._accept(response, reached)
                    if response.status_code != httpx2.codes.PARTIAL_CONTENT:
                        reached = 0  # it sends the whole file
                    _append(response, part, reached, file.size, stall, on_bytes)
            except httpx2.ProxyError:
                raise
            except httpx2.TransportError as exc:
                raise _Stalled(type(exc).__name__) from exc
        if part.stat().st_size < file.size:
            raise _Stalled("the connection ended early")

    def _accept(self, response: httpx2.Response, reached: int) -> None:
        import httpx2
        from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

        if response.status_code == httpx2.codes.RANGE_NOT_SATISFIABLE:
            raise _Stalled("the hub knows no such range")
        if response.status_code in (408, 429) or response.status_code >= 500:
            raise _Stalled(f"the hub answered with {response.status_code}")
        if not response.is_success:
            response.read()
        hf_raise_for_status(response)
        given = response.headers.get("content-range", "")
        if response.status_code == httpx2.codes.PARTIAL_CONTENT and not given.startswith(
            f"bytes {reached}-"
        ):
            raise _Stalled("the hub sent another range")

    def _url(self, listing: RepositoryListing, file: HubFile) -> str:
        url: str = self._library.hf_hub_url(
            listing.hub_id, file.path, revision=listing.revision, endpoint=self._address.url
        )
        return url

    def _gave_up(
        self, listing: RepositoryListing, file: HubFile, part: Path, exc: _Stalled
    ) -> TimedOut:
        arrived = part.stat().st_size
        return TimedOut(
            f"{file.path} of {listing.hub_id} stalled at {arrived} of {file.size} bytes"
            f" ({exc}, {ATTEMPTS} connections in a row): run the command again, it continues there"
        )

    @contextmanager
    def _errors(self, hub_id: str, revision: str | None, path: str | None = None) -> Iterator[None]:
        import httpx2
        from huggingface_hub import errors

        try:
            yield
        except (LatentError, _Stalled):
            raise
        except errors.OfflineModeIsEnabled as exc:
            raise offline(hub_id) from exc
        except errors.RevisionNotFoundError as exc:
            raise NotFound(
                f"{hub_id} has no revision '{revision}': write a branch, tag or commit"
                f" of {self._address.url}/{hub_id}/commits/main"
            ) from exc
        except errors.EntryNotFoundError as exc:
            raise NotFound(
                f"{hub_id} lists {path}, but {self._address.host} does not have it: try again later or with another"
                " @<revision>"
            ) from exc
        except errors.HfHubHTTPError as exc:
            raise self._refusal(exc, hub_id) from exc
        except errors.HFValidationError as exc:
            raise Invalid(f"'{hub_id}' is not a model of a hub: {exc}") from exc
        except httpx2.HTTPError as exc:
            raise ServiceUnreachable(
                f"{self._address.host} cannot be reached ({type(exc).__name__}): check the network, HTTPS_PROXY and"
                " HF_ENDPOINT, or copy the model from another machine with latent models export and import"
            ) from exc
        except (KeyError, TypeError, ValueError) as exc:
            raise Unavailable(
                f"{self._address.host} answers unlike a hub ({type(exc).__name__}): check HF_ENDPOINT"
            ) from exc

    def _refusal(self, error: Any, hub_id: str) -> LatentError:
        from huggingface_hub import errors

        status = error.response.status_code
        page = f"{self._address.url}/{hub_id}"
        if isinstance(error, errors.GatedRepoError) or status == 403:
            return Forbidden(
                f"{hub_id} is gated: accept its terms at {page}, create a token that may read it at"
                f" {self._address.url}/settings/tokens, and set {_TOKEN} to a file with the token"
            )
        if status in (401, 404) and not self._token:
            return NotFound(
                f"{self._address.host} has no public model {hub_id}: check the name; for a private one set {_TOKEN} to"
                " a file with a token that may read it"
            )
        if status == 401:
            return Forbidden(
                f"{self._address.host} refuses the token of {_TOKEN}: create another at"
                f" {self._address.url}/settings/tokens"
            )
        if status == 404:
            return NotFound(
                f"{self._address.host} has no model {hub_id} that the token may read: check the name"
            )
        if status == 429:
            return RateLimited(
                f"{self._address.host} limits requests: try again later, or set {_TOKEN}"
            )
        if status >= 500:
            return UpstreamError(f"{self._address.host} answered with {status}: try again later")
        return Unavailable(
            f"{self._address.host} answered with {status} for {hub_id}: check HF_ENDPOINT"
        )


class _Stalled(Exception):
    """A connection ended or slowed down; the transfer continues on another."""


def offline(what: str) -> Unavailable:
    return Unavailable(
        f"{what} is not fetched, since HF_HUB_OFFLINE is set: unset it, or import the model from a file of"
        " latent models export"
    )


def _append(
    response: httpx2.Response,
    part: Path,
    reached: int,
    size: int,
    stall_seconds: float,
    on_bytes: OnBytes,
) -> None:
    """Write the body behind the first ``reached`` bytes, and no byte beyond ``size``."""
    watch = _RateWatch(stall_seconds)
    with part.open("r+b", buffering=0) as file:
        file.truncate(reached)
        file.seek(reached)
        for block in response.iter_raw():
            with disk_errors(part.parent):
                _write(file, block[: size - reached])
            reached = min(size, reached + len(block))
            on_bytes(reached)
            watch.check(len(block))
            if reached == size:
                return


def _write(file: FileIO, block: bytes) -> None:
    """All of it: a disk that is nearly full takes a part."""
    view = memoryview(block)
    while view:
        view = view[file.write(view) :]


class _RateWatch:
    """Ends a transfer that sends a few bytes now and then."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._since, self._arrived = clock(), 0

    def check(self, count: int) -> None:
        self._arrived += count
        passed = self._clock() - self._since
        if passed < self._seconds:
            return
        if self._arrived < MIN_BYTES_PER_SECOND * passed:
            raise _Stalled(f"less than {MIN_BYTES_PER_SECOND} bytes a second")
        self._since, self._arrived = self._clock(), 0
