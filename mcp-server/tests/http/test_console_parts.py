"""Parts of the console that need no browser: marks, sessions, questions, where signing in leads."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from fastapi import Request
from hypothesis import given, strategies as st
from starlette.datastructures import QueryParams

from latent_core.domain.errors import Invalid, Unauthorized
from latent_core.wire.search import Reason
from latent_gateway.console.entry.sign_in import landing
from latent_gateway.console.frame.console_session import LASTS_SECONDS, Sessions
from latent_gateway.console.frame.live import event
from latent_gateway.console.frame.routing import ForeignOrigin, check_origin
from latent_gateway.console.frame.text_format import ago, marked, reason, size
from latent_gateway.console.frame.view import NAMES, address, asset
from latent_gateway.console.searching.form import HITS, SearchForm

RANGES = st.lists(st.tuples(st.integers(-5, 60), st.integers(-5, 60)), max_size=8)


@given(st.text(max_size=50), RANGES)
def test_marks_add_nothing_but_marks_and_let_no_markup_through(
    text: str, ranges: list[tuple[int, int]]
) -> None:
    shown = str(marked(text, ranges))
    bare = shown.replace("<mark>", "").replace("</mark>", "")
    assert "<" not in bare
    assert html.unescape(bare) == text
    assert shown.count("<mark>") == shown.count("</mark>")


def test_marks_stand_where_the_offsets_say() -> None:
    assert str(marked("a <b> lamp", [(2, 5), (6, 10)])) == (
        "a <mark>&lt;b&gt;</mark> <mark>lamp</mark>"
    )


@pytest.mark.parametrize(
    ("age", "message"),
    [
        (timedelta(seconds=-30), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(minutes=1), "1 minute ago"),
        (timedelta(hours=25), "1 day ago"),
        (timedelta(days=45), "1 month ago"),
        (timedelta(days=800), "2 years ago"),
    ],
)
def test_ages_are_shown_in_the_largest_unit(age: timedelta, message: str) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert ago(now - age, now) == message


def test_reasons_and_sizes_read_like_sentences() -> None:
    assert reason(Reason(channel="vector", rank=2, score=0.5)) == "meaning, rank 2"
    exact = Reason(channel="exact", rank=1, score=1, term="lamp", lines=[3, 4])
    assert reason(exact) == "exact text “lamp”, lines 3, 4"
    assert [size(n) for n in (0, 999, 1000, 2_500_000)] == ["0 B", "999 B", "1.0 kB", "2.5 MB"]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_whose_it_was_made_for_until_it_expires() -> None:
    clock = Clock()
    sessions = Sessions(b"k" * 32, clock=clock)
    cookie = sessions.sign("token:7")
    assert sessions.subject(cookie) == "token:7"
    clock.now += LASTS_SECONDS
    with pytest.raises(Unauthorized, match="expired"):
        sessions.subject(cookie)


@given(st.integers(0, 200), st.characters(codec="ascii"))
def test_a_session_that_was_tampered_with_is_nobodys(at: int, character: str) -> None:
    sessions = Sessions(b"k" * 32, clock=Clock())
    cookie = sessions.sign("token:7")
    at %= len(cookie)
    other = cookie[:at] + character + cookie[at + 1 :]
    if other != cookie:
        with pytest.raises(Unauthorized):
            sessions.subject(other)


def test_a_session_signed_with_another_key_is_nobodys() -> None:
    cookie = Sessions(b"a" * 32).sign("owner:x")
    for none in (cookie, None, "", "owner:x", "a.b.c"):
        with pytest.raises(Unauthorized):
            Sessions(b"b" * 32).subject(none)


@pytest.mark.parametrize("path", ["/", "/console/search?q=a%20b", "/console/jobs/3"])
def test_signing_in_leads_back_to_a_page_of_the_console(path: str) -> None:
    assert landing(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/console/\\..\\evil",
        "/v1/tokens",
        "/console/a\nb",
        "javascript:alert(1)",
        "",
    ],
)
def test_signing_in_leads_nowhere_else(path: str) -> None:
    assert landing(path) == "/"


def asking(method: str, **headers: str) -> Request:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": method, "headers": raw, "path": "/logout"})


def test_only_a_page_of_the_same_host_and_port_may_ask_for_a_change() -> None:
    check_origin(asking("GET", host="a:1", origin="https://evil.example"))
    check_origin(asking("POST", host="a:1", origin="http://a:1"))
    check_origin(asking("POST", host="A.example", origin="https://a.example"))
    for headers in (
        {"host": "a:1"},
        {"host": "a:1", "origin": "null"},
        {"host": "a:1", "origin": "http://a:2"},
        {"host": "a:1", "origin": "http://a:1.evil.example"},
        {"origin": "http://a:1"},
        {"host": "a:1", "origin": "http://["},
    ):
        with pytest.raises(ForeignOrigin):
            check_origin(asking("POST", **headers))


def test_a_question_is_read_from_an_address_and_written_back() -> None:
    address = "q=fog+horn&c=light&c=attic&type=pdf&must=bell&since=2024-01-01&mode=lexical&path="
    form = SearchForm.of(QueryParams(address))
    body = form.request()
    assert (body.containers, body.must_terms, body.top_k) == (["light", "attic"], ["bell"], HITS)
    assert body.filters == {"source_type": ["pdf"], "modified": {"gte": "2024-01-01"}}
    assert body.path_like is None
    again = SearchForm.of(QueryParams(form.parameters(cursor="next")))
    assert (again.query, again.cursor, again.types) == ("fog horn", "next", ("pdf",))


def test_without_a_container_all_readable_ones_are_searched() -> None:
    assert SearchForm.of(QueryParams("q=a")).request().containers is None


@pytest.mark.parametrize(
    "address",
    ["mode=magic&q=a", f"q={'x' * 9000}", "q=a&" + "&".join(f"c=x{n}" for n in range(1001))],
    ids=["mode", "query", "containers"],
)
def test_an_invalid_form_field_is_refused_by_name(address: str) -> None:
    with pytest.raises(Invalid):
        SearchForm.of(QueryParams(address)).request()


def test_an_event_keeps_the_lines_of_its_text() -> None:
    assert event("part", "<p>\na</p>") == b"event: part\ndata: <p>\ndata: a</p>\n\n"
    assert event("end", "") == b"event: end\ndata: \n\n"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_asset_is_in_an_installed_package(name: str) -> None:
    assert len(asset(name).content) > 100


def test_all_scripts_together_have_less_than_60_kilobytes() -> None:
    assert sum(len(asset(name).content) for name in NAMES if name.endswith(".js")) < 60_000


def test_a_script_imports_another_by_the_address_that_pages_use() -> None:
    """Under two addresses it would run twice."""
    assert f'from "{address("frame.js")}"' in asset("adding.js").content.decode()
    for name in NAMES:
        assert not re.search(r'from "\./', asset(name).content.decode()), name
