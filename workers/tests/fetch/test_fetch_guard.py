"""Where a page may be fetched from: an address that is not public is never admitted, however it is written."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import given, strategies as st

from latent_core.domain.errors import Forbidden, IngestFailed, Invalid, LatentError, Unavailable
from latent_core.domain.web_address import WebAddress, parse_origin
from latent_workers.fetch.guard import AddressGuard, is_public, system_resolver

CLOSED = [
    # The table of known holes: shared address space, metadata and wire servers of the clouds, IPv4 inside IPv6.
    "100.64.0.1",
    "100.100.100.200",
    "192.0.0.192",
    "168.63.129.16",
    "64:ff9b::a9fe:a9fe",
    "2002:a9fe:a9fe::",
    "::127.0.0.1",
    "fec0::1",
    # This machine, its networks, its links.
    "0.0.0.0",
    "0.1.2.3",
    "127.0.0.1",
    "127.255.255.254",
    "::",
    "::1",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    # IPv4 in IPv6's clothes.
    "::ffff:127.0.0.1",
    "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1",
    "64:ff9b:1::1",
    "64:ff9b::8.8.8.8",
    "2002:7f00:1::",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:20::1",
    # Documentation, benchmarks, multicast, reserved, discard, the sinks of reverse lookups.
    "192.0.2.1",
    "198.51.100.1",
    "203.0.113.1",
    "2001:db8::1",
    "3fff::1",
    "198.18.0.1",
    "198.19.255.255",
    "192.88.99.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.175.48.1",
    "2620:4f:8000::1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "ff02::1",
    "100::1",
    "5f00::1",
    # No address at all.
    "",
    "localhost",
    "127.1",
    "0x7f000001",
    "2130706433",
    "010.0.0.1",
]
OPEN = [
    "8.8.8.8",
    "1.1.1.1",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.1",
    "172.15.255.255",
    "172.32.0.1",
    "168.63.129.15",
    "168.63.129.17",
    "192.0.1.1",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2a00:1450:4001::1",
    "2003::1",
]


class Answers:
    """A resolver that says what it is told, and counts how often it is asked."""

    def __init__(self, *addresses: str, trouble: Exception | None = None) -> None:
        self.addresses = addresses
        self.trouble = trouble
        self.lookups = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups += 1
        if self.trouble is not None:
            raise self.trouble
        return self.addresses


def at(url: str) -> WebAddress:
    return WebAddress.parse(url)


@pytest.mark.parametrize("address", CLOSED)
async def test_an_address_that_is_not_public_is_not_admitted(address: str) -> None:
    assert not is_public(address)
    with pytest.raises(Forbidden, match=r"LLC_FETCH_ALLOW=site\.example:443"):
        await AddressGuard(Answers(address)).admit(at("https://site.example/"))


@pytest.mark.parametrize("address", OPEN)
async def test_a_public_address_is_admitted(address: str) -> None:
    assert await AddressGuard(Answers(address)).admit(at("https://site.example/")) == [address]


@given(st.ip_addresses(v=4))
def test_what_python_calls_private_is_closed(address: IPv4Address) -> None:
    if address.is_private or address.is_multicast or address.is_reserved or not address.is_global:
        assert not is_public(str(address))


@given(st.ip_addresses(v=6))
def test_of_ipv6_only_global_unicast_is_open(address: IPv6Address) -> None:
    if address not in IPv6Network("2000::/3") or not address.is_global:
        assert not is_public(str(address))


@given(
    st.ip_addresses(v=4), st.sampled_from(["::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "::/96"])
)
def test_no_ipv4_address_passes_in_the_clothes_of_ipv6(address: IPv4Address, prefix: str) -> None:
    network = ip_network(prefix)
    shift = 80 if prefix == "2002::/16" else 0
    inside = IPv6Address(int(network.network_address) | (int(address) << shift))
    assert not is_public(str(inside))


@given(st.permutations(["8.8.8.8", "1.1.1.1", "2a00:1450:4001::1", "10.0.0.1"]))
async def test_one_bad_address_closes_a_host_whatever_the_others_are(found: list[str]) -> None:
    with pytest.raises(Forbidden):
        await AddressGuard(Answers(*found)).admit(at("http://site.example/"))


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/latest/meta-data/",
        "http://169.254.169.254/latest/meta-data/",
        "https://[fe80::1]/",
    ],
)
async def test_an_address_in_the_url_itself_is_judged_without_a_resolver(url: str) -> None:
    answers = Answers("8.8.8.8")
    with pytest.raises(Forbidden):
        await AddressGuard(answers).admit(at(url))
    assert answers.lookups == 0


@pytest.mark.parametrize(
    "host", ["127.1", "2130706433", "0x7f.1", "017700000001", "localhost", "localhost."]
)
async def test_an_odd_way_to_write_this_machine_is_seen_through(host: str) -> None:
    with pytest.raises((Forbidden, IngestFailed)):
        await AddressGuard(system_resolver).admit(at(f"http://{host}/"))


@pytest.mark.parametrize("port", [1, 22, 25, 79, 81, 442, 444, 5432, 6333, 7801, 8080, 65535])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_only_the_ports_of_the_web_are_open(scheme: str, port: int) -> None:
    answers = Answers("8.8.8.8")
    with pytest.raises(Forbidden, match=f"LLC_FETCH_ALLOW=site.example:{port}"):
        await AddressGuard(answers).admit(at(f"{scheme}://site.example:{port}/"))
    assert answers.lookups == 0


async def test_the_operator_may_vouch_for_a_place_and_for_no_other() -> None:
    guard = AddressGuard(
        Answers("10.0.0.7"), [parse_origin("Wiki.Intra.:8080"), parse_origin("[::1]:9000")]
    )
    assert await guard.admit(at("http://wiki.intra:8080/page")) == ["10.0.0.7"]
    assert await guard.admit(at("http://[0:0::1]:9000/page")) == ["::1"]
    for url in ("http://wiki.intra/", "http://wiki.intra:8081/", "http://a.wiki.intra:8080/"):
        with pytest.raises(Forbidden):
            await guard.admit(at(url))


@pytest.mark.parametrize(
    ("trouble", "becomes"),
    [
        (socket.gaierror(socket.EAI_NONAME, "unknown"), IngestFailed),
        (socket.gaierror(socket.EAI_AGAIN, "later"), Unavailable),
        (OSError("no network"), Unavailable),
    ],
)
async def test_a_name_that_is_not_resolved_has_its_reason(
    trouble: Exception, becomes: type[LatentError]
) -> None:
    with pytest.raises(becomes, match=r"site\.example"):
        await AddressGuard(Answers(trouble=trouble)).admit(at("http://site.example/"))
    with pytest.raises(IngestFailed, match="no address"):
        await AddressGuard(Answers()).admit(at("http://site.example/"))


# --- addresses as they are written -------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_url", "canonical"),
    [
        ("HTTP://Example.COM", "http://example.com/"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("https://example.com./a#part", "https://example.com/a"),
        ("https://example.com/a/./b/../c", "https://example.com/a/c"),
        ("https://example.com/../../a", "https://example.com/a"),
        ("https://example.com/a/..", "https://example.com/"),
        ("https://example.com/%7euser/%2e%2e/b", "https://example.com/b"),
        ("https://example.com/a%2fb", "https://example.com/a%2Fb"),
        ("https://example.com/100%", "https://example.com/100%25"),
        ("https://example.com/é?q=ü x", "https://example.com/%C3%A9?q=%C3%BC%20x"),
        ("https://example.com?b=2&a=1", "https://example.com/?b=2&a=1"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://①②⑦.⓪.⓪.①/", "http://127.0.0.1/"),
        ("http://127。0。0。1/", "http://127.0.0.1/"),
        ("http://[2001:DB8:0::1]:80/", "http://[2001:db8::1]/"),
    ],
)
def test_two_ways_to_write_an_address_are_one_identity(given_url: str, canonical: str) -> None:
    assert str(at(given_url)) == canonical
    assert str(at(canonical)) == canonical


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "s3://bucket/key",
        "data:text/html,hello",
        "javascript:alert(1)",
        "gopher://example.com/",
        "http://",
        "http:///path",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://example.com\\@127.0.0.1/",
        "http://exa mple.com/",
        "http://exam%70le.com/",
        "http://example.com:0/",
        "http://example.com:99999/",
        "http://example.com:http/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.a]/",
        "http://a..b/",
        "http://.example/",
        "http://" + "a" * 64 + ".example/",
        "http://" + ".".join(["a" * 60] * 5) + "/",
        "http://example.com/\n",
        "http://exa\tmple.com/",
        "http://example.com/\x00",
        "http://example.com/" + "a" * 5000,
        "http://xn--\u00ff.example/",
        "http://-\u202e.example/",
    ],
)
def test_what_is_no_address_of_a_page_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        at(url)


def test_a_password_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(Invalid) as refused:
        at("http://user:secret@example.com/")
    assert "secret" not in str(refused.value.issue())


path_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=40)


@given(path_text, path_text)
def test_the_canonical_form_of_an_address_is_its_own(path: str, query: str) -> None:
    try:
        once = at(f"http://site.example/{path}?{query}")
    except Invalid:
        return
    assert str(once).isascii()
    assert at(str(once)) == once


@given(path_text)
def test_what_a_redirect_says_leads_to_a_canonical_address_or_nowhere(location: str) -> None:
    try:
        there = at("https://site.example/a/b?c").join(location)
    except Invalid:
        return
    assert there.scheme in ("http", "https")
    assert at(str(there)) == there


@pytest.mark.parametrize(
    "origin", ["wiki.intra", "wiki.intra:", ":80", "http://wiki:80", "wiki:70000", "a b:80"]
)
def test_what_is_no_host_and_port_cannot_be_allowed(origin: str) -> None:
    with pytest.raises(Invalid):
        parse_origin(origin)
