"""Which hosts and origins may speak to /mcp, whatever headers a request carries."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import Forbidden, Invalid
from latent_core.settings import Settings, load_settings
from latent_gateway.mcp.guard import GatewayNames, UnknownHost, guarded

KNOWN = GatewayNames(
    frozenset({"localhost", "[::1]", "gw.example.com:8443"}), frozenset({"https://app.example.com"})
)
HOSTS = st.text(string.ascii_letters + string.digits + ".:-_[]@/*%\\ \t\x00é", max_size=40)


def admitted(hosts: list[str], origins: list[str]) -> bool:
    try:
        KNOWN.check(hosts, origins)
    except Forbidden:
        return False
    return True


@given(HOSTS)
def test_only_a_known_name_with_a_port_of_digits_is_admitted(host: str) -> None:
    name, colon, port = host.lower().rpartition(":")
    ported = bool(colon) and port.isascii() and port.isdecimal() and 1 <= len(port) <= 5
    known = host.lower() in {"localhost", "[::1]", "gw.example.com:8443"}
    assert admitted([host], []) is (known or (ported and name in {"localhost", "[::1]"}))


@given(st.sampled_from(["localhost", "[::1]", "gw.example.com"]), HOSTS)
def test_nothing_may_stand_before_or_after_a_known_name(name: str, more: str) -> None:
    for host in (more + name, name + more):
        if admitted([host], []):
            assert host.lower().startswith(name)
            rest = host[len(name) :]
            assert rest == "" or (rest[0] == ":" and rest[1:].isdecimal())


@pytest.mark.parametrize(
    "hosts", [[], ["localhost", "localhost"], [""], ["localhost:"], ["localhost."]]
)
def test_a_request_names_one_host(hosts: list[str]) -> None:
    with pytest.raises(UnknownHost, match="LLC_MCP_ALLOWED_HOSTS"):
        KNOWN.check(hosts, [])


@pytest.mark.parametrize(
    ("origin", "fine"),
    [
        ("http://localhost:7801", True),
        ("https://LOCALHOST:7801", True),
        ("https://app.example.com", True),
        ("https://app.example.com:444", False),
        ("http://app.example.com", False),
        ("http://localhost:7802", False),
        ("http://localhost", False),
        ("http://localhost:7801/", False),
        ("http://localhost:7801@evil.example.com", False),
        ("null", False),
        ("", False),
        ("file://", False),
    ],
)
def test_a_web_page_is_admitted_from_the_same_host_or_by_name(origin: str, fine: bool) -> None:
    assert admitted(["localhost:7801"], [origin]) is fine
    assert not admitted(["localhost:7801"], [origin, origin])


def test_the_names_come_from_the_settings() -> None:
    settings = Settings(
        _env_file=None,
        bind="::",
        public_url="https://Docs.example.com/latent",
        mcp_allowed_hosts="a.example.com, [fe80::1]:7801",
    )
    names = GatewayNames.of(settings)
    for host in ("docs.example.com", "a.example.com:1", "[fe80::1]:7801", "127.0.0.1:7801"):
        names.check([host], [])
    for host in ("[::]:7801", "[fe80::1]", "0.0.0.0", "b.example.com"):
        with pytest.raises(UnknownHost):
            names.check([host], [])
    near = GatewayNames.of(Settings(_env_file=None, bind="192.168.1.5"))
    near.check(["192.168.1.5:7801"], ["http://192.168.1.5:7801"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"mcp_allowed_hosts": "*"},
        {"mcp_allowed_hosts": "https://a.example.com"},
        {"mcp_allowed_hosts": "a.example.com:*"},
        {"mcp_allowed_origins": "app.example.com"},
        {"mcp_allowed_origins": "https://app.example.com/path"},
    ],
)
def test_a_setting_that_could_never_match_is_refused_at_the_start(wrong: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=r"example\.com"):
        load_settings(**wrong)


def test_only_what_is_at_or_below_mcp_is_guarded() -> None:
    assert [guarded(p) for p in ("/mcp", "/mcp/", "/mcp/tools", "/mcpx", "/v1/mcp", "/")] == [
        True,
        True,
        True,
        False,
        False,
        False,
    ]
