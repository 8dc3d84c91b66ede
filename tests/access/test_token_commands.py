"""Tokens, states and the trail as a person handles them: by `latent`, against a running installation."""

from __future__ import annotations

import re

import orjson
import pytest

from latent_client import AsyncClient
from latent_core.domain.errors import Conflict, Forbidden, NotFound, Unauthorized
from latent_core.domain.token import Scope, TokenState, well_formed
from latent_core.wire.containers import ContainerState
from tests.http.test_http_surface import add, ingest, manifest, search
from tests.support.harness.installation import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")
SHARED_STACK = True


async def latent(installation: Installation, *arguments: str) -> str:
    """What a command prints that must succeed."""
    code, out, err = await installation.cli(*arguments)
    assert code == 0, (arguments, out, err)
    return out


async def test_a_token_is_made_shown_once_used_listed_and_revoked(
    installation: Installation, client: AsyncClient
) -> None:
    acl = {"roles": {"owner": ["local:you"], "reader": ["agent:claude"]}}
    await client.create(manifest("shared", acl=acl))
    await ingest(client, "shared", "a.md", b"The lamp is trimmed at dusk.")
    command = (
        "token",
        "create",
        "agent:claude",
        "--name",
        "laptop",
        "--expires",
        "30d",
        "-c",
        "shared",
    )
    code, out, err = await installation.cli(*command)
    assert code == 0
    secret = out.strip()
    assert well_formed(secret)
    (number,) = re.findall(r"token (\d+) of agent:claude \('laptop'\): read; shared; until", err)

    async with installation.client(secret) as claude:
        assert [c.id for c in await claude.containers()] == ["shared"]
        assert (await search(claude, "shared", "lamp")).hits
        with pytest.raises(Forbidden, match="lacks the scope 'write'"):
            await add(claude, "shared", "b.md", b"more")
        with pytest.raises(Forbidden, match="'admin'"):
            await claude.create_token("agent:more")

        listing = orjson.loads(await latent(installation, "token", "list", "--json"))
        (listed,) = [t for t in listing["tokens"] if t["id"] == int(number)]
        assert (listed["state"], listed["scopes"], listed["containers"]) == (
            "live",
            ["read"],
            ["shared"],
        )
        assert listed["last_used_at"] is not None
        assert secret not in orjson.dumps(listing).decode()
        assert "agent:claude" in await latent(installation, "token", "list")

        assert "is revoked" in await latent(installation, "token", "revoke", number)
        with pytest.raises(Unauthorized, match="revoked"):
            await claude.containers()
    assert f" {number} " not in await latent(installation, "token", "list")
    everything = [t async for t in client.tokens(principal="agent:claude", all=True)]
    assert [t.state for t in everything] == [TokenState.REVOKED]


async def test_a_third_token_of_a_name_is_refused_until_one_is_revoked(
    installation: Installation, client: AsyncClient
) -> None:
    first = await client.create_token("agent:rotating", scopes=[Scope.READ, Scope.WRITE])
    second = await client.create_token("agent:rotating")
    code, _, err = await installation.cli("token", "create", "agent:rotating")
    assert code == 1
    assert "two" not in err
    assert "revoke the older one first" in err
    await client.revoke_token(first.token.id)
    third = await client.create_token("agent:rotating")
    for secret, works in ((first.secret, False), (second.secret, True), (third.secret, True)):
        async with installation.client(secret) as one:
            if works:
                assert await one.containers() == []
            else:
                with pytest.raises(Unauthorized):
                    await one.containers()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claude"], "agent:claude"),
        (["agent:x", "--expires", "soon"], "12h, 30d, 6w or 1y"),
        (["agent:x", "--scope", "all"], "'all' is not one of"),
        (["agent:x", "-c", "Not An Id"], "is not a valid container id"),
    ],
)
async def test_what_cannot_be_a_token_is_refused_with_what_could(
    installation: Installation, arguments: list[str], message: str
) -> None:
    code, out, err = await installation.cli("token", "create", *arguments)
    assert code != 0
    assert out == ""
    assert message in err


async def test_a_container_is_made_readonly_archived_and_active_again(
    installation: Installation, client: AsyncClient
) -> None:
    await client.create(manifest("state"))
    await ingest(client, "state", "a.md", b"The lamp is trimmed at dusk.")
    assert "'state' is readonly" in await latent(
        installation, "container", "state", "state", "readonly"
    )
    assert (await search(client, "state", "lamp")).hits
    with pytest.raises(Conflict, match="latent container state state active"):
        await add(client, "state", "b.md", b"more")
    await latent(installation, "container", "state", "state", "archived")
    with pytest.raises(Conflict, match="archived"):
        await search(client, "state", "lamp")
    answer = await client.set_state("state", ContainerState.ACTIVE)
    assert answer.changed
    assert not (await client.set_state("state", ContainerState.ACTIVE)).changed
    assert (await search(client, "state", "lamp")).hits
    with pytest.raises(NotFound):
        await client.set_state("never-was", ContainerState.ACTIVE)


async def test_the_trail_tells_who_did_what(
    installation: Installation, client: AsyncClient
) -> None:
    await client.create(manifest("told"))
    await add(client, "told", "a.md", b"text")
    out = orjson.loads(await latent(installation, "audit", "-c", "told", "--json"))
    assert [(line["action"], line["principal"]) for line in out["audit"]] == [
        ("document.add", "local:you"),
        ("upload.add", "local:you"),
        ("container.create", "local:you"),
    ]
    assert out["audit"][0]["object"] == "file:///a.md"
    assert all(line["request_id"] for line in out["audit"])
    shown = await latent(
        installation, "audit", "-c", "told", "--action", "document.", "--limit", "1"
    )
    assert "document.add" in shown
    assert "container.create" not in shown
