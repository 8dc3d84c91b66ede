"""One page over real HTTP, from a server that does as it likes."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import os
import shutil
import socket
import ssl
import subprocess
import zlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import (
    Forbidden,
    IngestFailed,
    LatentError,
    RateLimited,
    TimedOut,
    TooLarge,
    Unavailable,
)
from latent_core.domain.web_address import WebAddress
from latent_core.ingest.accept import Validators
from latent_workers.fetch import web
from latent_workers.fetch.guard import AddressGuard
from latent_workers.fetch.responses import Inflater, named
from latent_workers.fetch.web import Download, WebFetcher
from tests.support.servers.web_site import WebSite, head

LIMIT = 100_000
HOST = "site.example"
PAGE = "<html><body><p>hello</p></body></html>"


class GatewayNames:
    """A resolver: each answer of a name in turn, the last one for ever; private where nothing is said."""

    def __init__(self, **answers: Sequence[str]) -> None:
        self.answers = {name.replace("_", "."): list(found) for name, found in answers.items()}
        self.requests: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.requests.append(host)
        found = self.answers.get(host, ["10.0.0.1"])
        return [found.pop(0)] if len(found) > 1 else found


@pytest.fixture
async def site() -> AsyncIterator[WebSite]:
    async with WebSite(host=HOST) as site:
        yield site


@pytest.fixture
def names() -> GatewayNames:
    return GatewayNames(site_example=["127.0.0.1"])


@pytest.fixture
def fetcher(site: WebSite, names: GatewayNames, tmp_path: Path) -> WebFetcher:
    return WebFetcher(AddressGuard(names, [site.origin]), tmp_path, limit=LIMIT, seconds=20)


async def get(fetcher: WebFetcher, url: str, known: Validators | None = None) -> Download:
    download = await fetcher.get(WebAddress.parse(url), known)
    assert download is not None
    return download


async def refusal(fetcher: WebFetcher, url: str, folder: Path) -> LatentError:
    """Why it is not fetched; nothing of it is left."""
    with pytest.raises(LatentError) as refused:
        await fetcher.get(WebAddress.parse(url))
    assert os.listdir(folder) == []
    return refused.value


async def test_a_page_is_requested_with_our_user_agent_and_stored_with_its_validators(
    site: WebSite, fetcher: WebFetcher
) -> None:
    modified = "Sat, 14 Nov 2026 10:00:00 GMT"
    site.page(
        "/a?b=c%20d", PAGE, headers={"ETag": '"1"', "Last-Modified": modified, "Set-Cookie": "a=b"}
    )
    got = await get(fetcher, site.url("/a?b=c d#part"))
    assert got.path.read_text() == PAGE
    assert got.sha256 == hashlib.sha256(PAGE.encode()).hexdigest()
    assert (got.bytes, got.etag, got.last_modified) == (len(PAGE), '"1"', modified)
    assert got.content_type == "text/html; charset=utf-8"
    (request,) = site.requests
    assert request.headers["host"] == site.origin
    assert "latent-containers" in request.headers["user-agent"]
    assert not {"cookie", "authorization", "referer", "if-none-match"} & set(request.headers)


async def test_a_proxy_of_the_environment_is_not_used(
    site: WebSite, fetcher: WebFetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    site.page("/", PAGE)
    assert (await get(fetcher, site.url("/"))).bytes == len(PAGE)


# --- where it leads ----------------------------------------------------------------------------


async def test_redirects_are_followed_and_the_final_url_is_reported(
    site: WebSite, fetcher: WebFetcher
) -> None:
    for number, status in enumerate((301, 307, 308)):
        site.redirect(f"/{number}", f"/{number + 1}", status=status)
    site.page("/3", PAGE, headers={"Set-Cookie": "a=b"})
    got = await get(fetcher, site.url("/0"))
    assert str(got.url) == site.url("/3")
    assert [request.path for request in site.requests] == ["/0", "/1", "/2", "/3"]


async def test_no_cookie_is_carried_to_the_next_hop(site: WebSite, fetcher: WebFetcher) -> None:
    site.page("/a", "", status=302, headers={"Location": "/b", "Set-Cookie": "a=b; Path=/"})
    site.page("/b", PAGE)
    await get(fetcher, site.url("/a"))
    assert "cookie" not in site.requests[-1].headers


async def test_a_circle_of_redirects_ends(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path
) -> None:
    site.redirect("/a", "/b")
    site.redirect("/b", "/a")
    error = await refusal(fetcher, site.url("/a"), tmp_path)
    assert isinstance(error, IngestFailed)
    assert "more than 3 redirects" in error.message
    assert len(site.requests) == 4


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1:{port}/secret",
        "//localhost:{port}/secret",
        "http://inner.example/",
        "https://inner.example:443/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]:{port}/secret",
        "http://site.example:22/",
        "http://user:pass@site.example:{port}/secret",
        "file:///etc/passwd",
        "gopher://site.example/",
        "http://[::1",
        "http://site.example:99999/",
    ],
)
async def test_a_redirect_to_where_no_page_is_fetched_is_not_followed(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path, location: str
) -> None:
    site.page("/secret", "the secret")
    site.redirect("/a", location.format(port=site.port))
    error = await refusal(fetcher, site.url("/a"), tmp_path)
    assert isinstance(error, Forbidden), error
    assert [request.path for request in site.requests] == ["/a"]


async def test_a_name_is_resolved_once_and_the_connection_goes_to_what_was_seen(
    site: WebSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []
    real = socket.getaddrinfo

    def spied(host: Any, *more: Any, **named: Any) -> Any:
        looked_up.append(host)
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", spied)
    rebinding = GatewayNames(site_example=["127.0.0.1", "10.0.0.1"])
    fetcher = WebFetcher(AddressGuard(rebinding, [site.origin]), tmp_path, limit=LIMIT, seconds=20)
    site.page("/", PAGE)
    assert (await get(fetcher, site.url("/"))).bytes == len(PAGE)
    assert rebinding.requests == [HOST]
    assert HOST not in looked_up


async def test_a_name_that_becomes_private_is_refused_at_the_next_hop(
    site: WebSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("latent_workers.fetch.guard.is_public", lambda a: a == "127.0.0.1")
    monkeypatch.setattr(
        "latent_core.domain.web_address.DEFAULT_PORTS", {"http": site.port, "https": 443}
    )
    rebinding = GatewayNames(site_example=["127.0.0.1", "10.0.0.1"])
    fetcher = WebFetcher(AddressGuard(rebinding), tmp_path, limit=LIMIT, seconds=20)
    site.redirect("/a", "/b")
    assert isinstance(await refusal(fetcher, site.url("/a"), tmp_path), Forbidden)
    assert [request.path for request in site.requests] == ["/a"]


async def test_another_address_of_a_host_is_tried_when_one_does_not_answer(
    site: WebSite, tmp_path: Path
) -> None:
    async def both(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.254", "127.0.0.1"]

    fetcher = WebFetcher(AddressGuard(both, [site.origin]), tmp_path, limit=LIMIT, seconds=20)
    site.page("/", PAGE)
    assert (await get(fetcher, site.url("/"))).bytes == len(PAGE)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of site.example, signed by itself: file and key."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl makes the certificate of this test")
    folder = tmp_path_factory.mktemp("tls")
    file, key = folder / "cert.pem", folder / "key.pem"
    subject = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"]
    command = [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run(
        [*command, "-out", file, "-keyout", key], check=True, capture_output=True, timeout=60
    )
    return file, key


async def test_over_tls_the_host_must_prove_its_name_though_its_address_is_dialled(
    certificate: tuple[Path, Path], names: GatewayNames, tmp_path: Path
) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(*certificate)
    shown: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: shown.append(name)
    names.answers["other.example"] = ["127.0.0.1"]
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    async with WebSite(host=HOST, tls=server) as site:
        site.page("/", PAGE)
        guard = AddressGuard(names, [site.origin, f"other.example:{site.port}"])
        fetcher = WebFetcher(guard, tmp_path, limit=LIMIT, seconds=20, tls=trusting)
        (await get(fetcher, site.url("/"))).path.unlink()
        assert (shown, site.requests[0].headers["host"]) == ([HOST], site.origin)
        other = f"https://other.example:{site.port}/"
        error = await refusal(fetcher, other, tmp_path)
        assert isinstance(error, IngestFailed)
        assert "no valid certificate" in error.message
        suspicious = WebFetcher(guard, tmp_path, limit=LIMIT, seconds=20)
        assert isinstance(await refusal(suspicious, site.url("/"), tmp_path), IngestFailed)


# --- what may come -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "headers", "becomes", "transient"),
    [
        (204, {}, IngestFailed, False),
        (206, {}, IngestFailed, False),
        (300, {}, IngestFailed, False),
        (302, {}, IngestFailed, False),
        (304, {}, IngestFailed, False),
        (400, {}, IngestFailed, False),
        (401, {}, IngestFailed, False),
        (403, {}, IngestFailed, False),
        (404, {}, IngestFailed, False),
        (410, {}, IngestFailed, False),
        (408, {}, Unavailable, True),
        (429, {"Retry-After": "7"}, RateLimited, True),
        (500, {}, Unavailable, True),
        (503, {"Retry-After": "7"}, Unavailable, True),
        (599, {}, Unavailable, True),
    ],
)
async def test_a_status_is_final_or_worth_another_try(
    site: WebSite,
    fetcher: WebFetcher,
    tmp_path: Path,
    status: int,
    headers: dict[str, str],
    becomes: type[LatentError],
    transient: bool,
) -> None:
    site.page("/", PAGE, status=status, headers=headers)
    error = await refusal(fetcher, site.url("/"), tmp_path)
    assert isinstance(error, becomes)
    assert error.transient is transient
    assert str(status) in error.message
    assert error.details.get("retry_after") == (7.0 if headers else None)


@pytest.mark.parametrize(
    ("retry_after", "minimum", "maximum"),
    [
        ("99999999999999", 3600, 3600),
        (timedelta(minutes=20), 600, 1200),
        (timedelta(days=-1), 0, 0),
    ],
    ids=["seconds", "a time to come", "a time gone by"],
)
async def test_how_long_a_server_asks_to_wait_is_kept_within_reason(
    site: WebSite,
    fetcher: WebFetcher,
    tmp_path: Path,
    retry_after: str | timedelta,
    minimum: float,
    maximum: float,
) -> None:
    if isinstance(retry_after, timedelta):
        retry_after = format_datetime(datetime.now(UTC) + retry_after, usegmt=True)
    site.page("/", "", status=503, headers={"Retry-After": retry_after})
    error = await refusal(fetcher, site.url("/"), tmp_path)
    assert minimum <= error.details.get("retry_after", 0) <= maximum


async def test_a_page_over_the_limit_is_refused_by_its_length_or_by_its_bytes(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path
) -> None:
    site.page("/exact", b"x" * LIMIT)
    (await get(fetcher, site.url("/exact"))).path.unlink()
    site.stuck("/said", head(200, {"Content-Length": str(LIMIT + 1)}))
    site.raw("/unsaid", head(200, {}), b"x" * (LIMIT + 1))
    for path in ("/said", "/unsaid"):
        error = await refusal(fetcher, site.url(path), tmp_path)
        assert isinstance(error, TooLarge)
        assert "LLC_MAX_UPLOAD_BYTES" in error.message


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "x-gzip", "raw deflate"])
async def test_a_compressed_page_is_kept_as_it_was_and_a_bomb_is_not_kept(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path, encoding: str
) -> None:
    def packed(data: bytes) -> bytes:
        if "gzip" in encoding:
            return gzip.compress(data)
        packer = zlib.compressobj(wbits=-15 if encoding == "raw deflate" else 15)
        return packer.compress(data) + packer.flush()

    headers = {"Content-Encoding": encoding.removeprefix("raw ")}
    site.page("/", packed(PAGE.encode()), headers=headers)
    got = await get(fetcher, site.url("/"))
    assert got.path.read_text() == PAGE
    assert site.requests[-1].headers["accept-encoding"] == "gzip, deflate"
    got.path.unlink()
    site.page("/bomb", packed(bytes(50 * 1024 * 1024)), headers=headers)
    assert isinstance(await refusal(fetcher, site.url("/bomb"), tmp_path), TooLarge)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "nonsense"])
async def test_an_unrequested_content_encoding_is_refused(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path, encoding: str
) -> None:
    site.page("/", b"\x00\x01", headers={"Content-Encoding": encoding})
    assert isinstance(await refusal(fetcher, site.url("/"), tmp_path), IngestFailed)


@given(st.lists(st.binary(max_size=200), max_size=4), st.integers(1, 50), st.binary(max_size=5))
def test_members_of_a_gzip_stream_come_whole_however_they_are_cut(
    members: list[bytes], size: int, padding: bytes
) -> None:
    behind = b"\0" + padding if members else b""
    data = io.BytesIO(b"".join(map(gzip.compress, members)) + behind)
    inflater = Inflater(31)
    got = b"".join(
        piece for part in iter(lambda: data.read(size), b"") for piece in inflater.feed(part)
    )
    inflater.finish()
    assert got == b"".join(members)


@pytest.mark.parametrize(
    "pieces",
    [
        (head(200, {"Content-Length": "100"}), b"short"),
        (head(200, {"Transfer-Encoding": "chunked"}), b"5\r\nhello\r\n"),
        (head(200, {"Content-Encoding": "gzip"}), gzip.compress(os.urandom(5000))[:2000]),
        (b"",),
        (b"SSH-2.0-OpenSSH_9.6\r\n",),
        (b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 300_000 + b"\r\n\r\n",),
    ],
)
async def test_an_answer_that_breaks_off_or_is_none_may_be_better_next_time(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path, pieces: tuple[bytes, ...]
) -> None:
    site.raw("/", *pieces)
    assert isinstance(await refusal(fetcher, site.url("/"), tmp_path), Unavailable)


async def test_bytes_that_cannot_be_decompressed_are_refused(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path
) -> None:
    site.page("/", b"not gzip at all", headers={"Content-Encoding": "gzip"})
    assert isinstance(await refusal(fetcher, site.url("/"), tmp_path), IngestFailed)


@pytest.mark.parametrize("begun", [(), (head(200, {"Content-Length": "100"}), b"x")])
async def test_a_server_that_stands_still_is_given_up_at_the_deadline(
    site: WebSite, names: GatewayNames, tmp_path: Path, begun: tuple[bytes, ...]
) -> None:
    site.stuck("/", *begun)
    fetcher = WebFetcher(AddressGuard(names, [site.origin]), tmp_path, limit=LIMIT, seconds=0.5)
    error = await refusal(fetcher, site.url("/"), tmp_path)
    assert isinstance(error, TimedOut)
    assert "LLC_FETCH_SECONDS" in error.message


async def test_nobody_at_the_door_is_worth_another_try(
    site: WebSite, names: GatewayNames, tmp_path: Path
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        origin = f"{HOST}:{closed.getsockname()[1]}"
        fetcher = WebFetcher(AddressGuard(names, [origin]), tmp_path, limit=LIMIT, seconds=20)
        error = await refusal(fetcher, f"http://{origin}/", tmp_path)
        assert isinstance(error, Unavailable)
        assert error.message == f"no connection to {origin}: it refuses connections"


async def test_a_cancelled_job_stops_in_the_middle_of_a_page(
    site: WebSite, fetcher: WebFetcher, tmp_path: Path
) -> None:
    class Stop(Exception):
        pass

    answers = iter([None, None])

    async def checkpoint() -> None:
        if next(answers, Stop) is Stop:
            raise Stop

    site.stuck("/", head(200, {}), b"x" * 50_000, b"y" * 50_000)
    with pytest.raises(Stop):
        await fetcher.get(WebAddress.parse(site.url("/")), checkpoint=checkpoint)
    assert os.listdir(tmp_path) == []


# --- asked again -------------------------------------------------------------------------------


def known(url: str, **more: str) -> Validators:
    return Validators(final_url=url, mime="text/html", filename="a.html", **more)


async def test_a_page_that_has_not_changed_is_not_sent_again(
    site: WebSite, fetcher: WebFetcher
) -> None:
    site.page("/", PAGE, headers={"ETag": '"1"'})
    address = WebAddress.parse(site.url("/"))
    retry_after = known(str(address), etag='"1"', last_modified="Sat, 14 Nov 2026 10:00:00 GMT")
    assert await fetcher.get(address, retry_after) is None
    assert site.requests[-1].headers["if-modified-since"] == retry_after.last_modified
    site.page("/", PAGE, headers={"ETag": '"2"'})
    got = await fetcher.get(address, retry_after)
    assert got is not None
    assert got.etag == '"2"'


async def test_validators_of_another_url_are_not_sent(site: WebSite, fetcher: WebFetcher) -> None:
    site.redirect("/old", "/new")
    site.page("/new", PAGE, headers={"ETag": '"1"'})
    old = WebAddress.parse(site.url("/old"))
    assert await fetcher.get(old, known(site.url("/new"), etag='"1"')) is None
    assert ["if-none-match" in request.headers for request in site.requests] == [False, True]
    assert await fetcher.get(old, known(site.url("/old"), etag='"1"')) is not None


@pytest.mark.parametrize(
    "headers", [{"ETag": "x" * 600}, {"ETag": '"\xe9"'}, {"Content-Type": "text/html" + "x" * 600}]
)
async def test_what_cannot_be_sent_back_is_not_kept(
    site: WebSite, fetcher: WebFetcher, headers: dict[str, str]
) -> None:
    site.page("/", PAGE, headers=headers)
    got = await get(fetcher, site.url("/"))
    assert got.etag is None
    assert len(got.content_type) <= web.MAX_VALIDATOR


# --- what it is called -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content_type", "start", "called"),
    [
        ("index.php", "text/html; charset=utf-8", b"", "index.php.html"),
        ("README.md", "text/html", b"", "README.md.html"),
        ("page.html", "text/html", b"", "page.html"),
        ("page.htm", "application/xhtml+xml", b"", "page.htm"),
        ("README.md", "text/plain", b"", "README.md"),
        ("main.py", "text/plain; charset=utf-8", b"<html>", "main.py"),
        ("manual", "application/pdf", b"", "manual.pdf"),
        ("manual.pdf", "application/octet-stream", b"", "manual.pdf"),
        ("1.2", "", b"\n<!DOCTYPE html><html>", "1.2.html"),
        (
            "1.2",
            "application/octet-stream",
            b"<?xml version='1.0'?>\n<!-- a -->\n<html>",
            "1.2.html",
        ),
        ("1.2", "", b"just words", "1.2"),
        ("photo", "image/png", b"", "photo"),
        ("api", "application/json", b"", "api.json"),
    ],
)
def test_a_page_is_called_after_what_the_server_says_it_is(
    name: str, content_type: str, start: bytes, called: str
) -> None:
    assert named(name, content_type, start) == called


async def test_fetches_do_not_hold_each_other_up(site: WebSite, fetcher: WebFetcher) -> None:
    site.stuck("/slow", head(200, {}), b"x")
    site.page("/", PAGE)
    slow = asyncio.create_task(fetcher.get(WebAddress.parse(site.url("/slow"))))
    assert (await get(fetcher, site.url("/"))).bytes == len(PAGE)
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
