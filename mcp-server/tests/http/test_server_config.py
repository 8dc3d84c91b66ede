"""What the server believes of where a request comes from."""

from __future__ import annotations

import re

import pytest
from starlette.types import Receive, Scope, Send

from latent_core.domain.errors import Invalid
from latent_core.settings import load_settings
from latent_gateway.app import server_config

PROXY, READER = "10.1.2.3", "192.0.2.7"


async def client_address_seen(client: str, *proxies: str) -> str:
    """Whom the application is told of when ``client`` says that it asks for the reader."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen.append(scope["client"][0])

    config = server_config(load_settings(trusted_proxies=proxies), app)
    config.load()
    headers = [(b"x-forwarded-for", READER.encode())]
    scope = {"type": "http", "scheme": "http", "client": (client, 1), "headers": headers}
    await config.loaded_app(scope, None, None)
    return seen[0]


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", PROXY])
async def test_nobody_is_believed_whom_no_setting_names(
    client: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    assert await client_address_seen(client) == client


@pytest.mark.parametrize("proxies", [(PROXY,), ("172.16.0.0/12", "10.1.0.0/16")])
async def test_a_proxy_that_is_named_is_believed_and_others_are_not(
    proxies: tuple[str, ...],
) -> None:
    assert await client_address_seen(PROXY, *proxies) == READER
    assert await client_address_seen("127.0.0.1", *proxies) == "127.0.0.1"


@pytest.mark.parametrize("wrong", ["proxy", "*", "10.0.0.1/8"])
def test_what_is_no_address_is_no_proxy(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLC_TRUSTED_PROXIES", f"10.0.0.5, {wrong}")
    with pytest.raises(Invalid, match=re.escape(f"'{wrong}' is not an address")):
        load_settings()
