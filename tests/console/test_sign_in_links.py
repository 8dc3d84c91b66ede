"""The one-time sign-in link: who may use it, how often, how long, and where it is written."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
import pytest
import pytest_asyncio

from latent_core.domain.errors import Unauthorized
from latent_gateway.auth.sign_in_codes import MAX_CODES, VALID_SECONDS, SignInCodes
from latent_gateway.console.frame.console_session import COOKIE
from tests.support.clock import FakeClock
from tests.support.harness.gateway_harness import BASE, GatewayHarness, empty

pytestmark = pytest.mark.asyncio(loop_scope="module")

LINK: Final = "/login/link"
HIDDEN_CODE: Final = re.compile(r'name="code" value="([\w-]{43})"')


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def harness(install_root: Path) -> AsyncIterator[GatewayHarness]:
    async with empty(install_root / "links") as one:
        yield one


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def codes(
    harness: GatewayHarness, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> SignInCodes:
    """Those of the gateway, by a clock of the test."""
    codes = SignInCodes(clock.clock)
    state = harness.app.state._state  # as an attribute it would be lost with the test
    monkeypatch.setitem(state, "gateway", replace(state["gateway"], sign_in_codes=codes))
    return codes


@asynccontextmanager
async def browser(
    harness: GatewayHarness, *, peer: str = "127.0.0.1", base: str = BASE
) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(harness.app, client=(peer, 40000))
    async with httpx.AsyncClient(transport=transport, base_url=base) as one:
        one.headers["Origin"] = base
        yield one


@pytest.mark.parametrize("base", [BASE, "http://localhost:7801", "http://[::1]:7801"])
async def test_the_link_shows_a_button_and_the_button_signs_in_as_the_owner(
    harness: GatewayHarness, codes: SignInCodes, base: str
) -> None:
    async with browser(harness, base=base) as one:
        shown = await one.get(LINK, params={"code": codes.issue()})
        assert (shown.status_code, COOKIE in one.cookies) == (200, False)
        found = HIDDEN_CODE.search(shown.text)
        assert found is not None
        answer = await one.post(LINK, data={"code": found[1]})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        for word in ("HttpOnly", "SameSite=strict", "Path=/"):
            assert word in answer.headers["set-cookie"]
        front = await one.get("/")
        assert front.status_code == 200
        assert ">local:you<" in front.text


async def test_the_session_has_the_rights_of_the_owners_token(
    harness: GatewayHarness, codes: SignInCodes
) -> None:
    async with browser(harness) as by_link, browser(harness) as by_token:
        await by_link.post(LINK, data={"code": codes.issue()})
        await by_token.post("/login", data={"token": harness.stack.token})
        subjects = {one.cookies[COOKIE].partition(".")[0] for one in (by_link, by_token)}
        assert len(subjects) == 1


async def test_a_link_that_is_only_looked_at_stays_unused(
    harness: GatewayHarness, codes: SignInCodes
) -> None:
    code = codes.issue()
    async with browser(harness) as fetcher:
        for _ in range(3):
            looked = await fetcher.get(LINK, params={"code": code})
            assert "set-cookie" not in looked.headers
        assert (await fetcher.head(LINK, params={"code": code})).status_code == 405
        assert (await fetcher.get("/")).headers["location"] == "/login"
        assert (await fetcher.post(LINK, data={"code": code})).status_code == 303


async def test_a_second_use_is_refused(harness: GatewayHarness, codes: SignInCodes) -> None:
    code = codes.issue()
    async with browser(harness) as first, browser(harness) as second:
        assert (await first.post(LINK, data={"code": code})).status_code == 303
        for answer in (
            await second.post(LINK, data={"code": code}),
            await second.get(LINK, params={"code": code}),
        ):
            assert answer.status_code == 401
            assert "has been used or is older than 15 minutes" in answer.text
            assert "set-cookie" not in answer.headers


async def test_after_fifteen_minutes_it_is_refused(
    harness: GatewayHarness, codes: SignInCodes, clock: FakeClock
) -> None:
    kept, late = codes.issue(), codes.issue()
    async with browser(harness) as one:
        clock.now += VALID_SECONDS - 1
        assert (await one.post(LINK, data={"code": kept})).status_code == 303
        one.cookies.clear()
        clock.now += 1
        assert (await one.get(LINK, params={"code": late})).status_code == 401
        assert (await one.post(LINK, data={"code": late})).status_code == 401
        assert COOKIE not in one.cookies


@pytest.mark.parametrize(
    ("peer", "base", "headers"),
    [
        ("192.0.2.8", BASE, {}),
        ("::ffff:192.0.2.8", BASE, {}),
        ("", BASE, {}),
        ("127.0.0.1", "http://latent.example:7801", {}),
        ("127.0.0.1", "http://127.0.0.1.example:7801", {}),
        ("127.0.0.1", "http://192.0.2.8:7801", {}),
        ("127.0.0.1", BASE, {"X-Forwarded-For": "127.0.0.1"}),
        ("127.0.0.1", BASE, {"Forwarded": "for=127.0.0.1"}),
    ],
)
async def test_only_a_browser_of_this_machine_may_use_it(
    harness: GatewayHarness, codes: SignInCodes, peer: str, base: str, headers: dict[str, str]
) -> None:
    code = codes.issue()
    async with browser(harness, peer=peer, base=base) as one:
        for answer in (
            await one.get(LINK, params={"code": code}, headers=headers),
            await one.post(LINK, data={"code": code}, headers=headers),
        ):
            assert answer.status_code == 403
            assert "works only in a browser on the machine" in answer.text
            assert code not in answer.text
            assert "set-cookie" not in answer.headers
    assert codes.is_valid(code)


@pytest.mark.parametrize("origin", ["http://127.0.0.1:9999", "http://evil.example", "null", None])
async def test_the_form_of_another_page_does_not_sign_in(
    harness: GatewayHarness, codes: SignInCodes, origin: str | None
) -> None:
    code = codes.issue()
    async with browser(harness) as one:
        del one.headers["Origin"]
        headers = {"Origin": origin} if origin else {}
        answer = await one.post(LINK, data={"code": code}, headers=headers)
        assert (answer.status_code, COOKIE in one.cookies) == (403, False)
    assert codes.is_valid(code)


async def test_the_code_is_in_no_log_and_leaves_with_no_referrer(
    harness: GatewayHarness, codes: SignInCodes, caplog: pytest.LogCaptureFixture
) -> None:
    code = codes.issue()
    caplog.set_level("DEBUG")
    async with browser(harness) as one:
        answers = [
            await one.get(LINK, params={"code": code}),
            await one.post(LINK, data={"code": code}),
            await one.post(LINK, data={"code": code}),
            await one.get(LINK, params={"code": code}),
            await one.get(LINK, params={"code": "x" * 999}),
        ]
    own = [one for one in caplog.records if not one.name.startswith("http")]  # the test's client
    assert [vars(one).get("path") for one in own if one.msg == "request"] == [LINK] * len(answers)
    assert not [one for one in own if code in str(vars(one))]
    policies = [answer.headers["referrer-policy"] for answer in answers]
    assert policies == [
        "strict-origin",
        "same-origin",
        "strict-origin",
        "strict-origin",
        "same-origin",
    ]
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


async def test_only_the_newest_codes_are_valid() -> None:
    codes = SignInCodes(FakeClock().clock)
    issued = [codes.issue() for _ in range(MAX_CODES + 1)]
    assert [codes.is_valid(code) for code in issued] == [False] + [True] * MAX_CODES
    with pytest.raises(Unauthorized):
        codes.redeem(issued[0])


async def test_the_owner_gets_a_fresh_link_from_a_running_gateway_and_no_log_has_it(
    harness: GatewayHarness, codes: SignInCodes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answer = await _requested_link(harness, harness.tokens["owner"])
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")
    made = answer.json()
    assert made["url"].startswith(f"{BASE}{LINK}?code=")
    assert made["valid_seconds"] == VALID_SECONDS
    code = made["url"].partition("code=")[2]
    own = [one for one in caplog.records if not one.name.startswith("http")]
    assert not [one for one in own if code in str(vars(one))]
    async with browser(harness) as one:
        assert (await one.get(made["url"])).status_code == 200
        assert (await one.post(LINK, data={"code": code})).status_code == 303
        assert (await one.post(LINK, data={"code": code})).status_code == 401


@pytest.mark.parametrize(
    ("peer", "base", "headers"),
    [
        ("192.168.1.5", BASE, {}),
        ("127.0.0.1", "http://rebound.example", {}),
        ("127.0.0.1", BASE, {"X-Forwarded-For": "192.168.1.5"}),
    ],
)
async def test_a_link_is_not_given_to_another_machine(
    harness: GatewayHarness, peer: str, base: str, headers: dict[str, str]
) -> None:
    token = harness.tokens["owner"]
    answer = await _requested_link(harness, token, peer=peer, base=base, headers=headers)
    assert answer.status_code == 403
    assert "loopback address" in answer.text


async def test_only_the_owners_own_token_gets_a_link(harness: GatewayHarness) -> None:
    """A link gives all rights without an end, which a token with an end or with fewer scopes has not."""
    await harness.make_token("second", "local:you", scopes=["read", "admin"])
    await harness.make_token("admin", "agent:admin", scopes=["admin"])
    for role, status, cause in (
        ("second", 403, "only the owner's own token"),
        ("admin", 403, "only the owner of this installation"),
    ):
        answer = await _requested_link(harness, harness.tokens[role])
        assert (answer.status_code, cause in answer.text) == (status, True), role
    assert (await _requested_link(harness, "unknown")).status_code == 401


async def _requested_link(
    harness: GatewayHarness,
    token: str,
    *,
    peer: str = "127.0.0.1",
    base: str = BASE,
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async with browser(harness, peer=peer, base=base) as one:
        sent = {"Authorization": f"Bearer {token}", **(headers or {})}
        del one.headers["Origin"]
        return await one.post("/v1/admin/sign-in-link", headers=sent)
