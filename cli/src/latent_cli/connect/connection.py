"""The connection of one agent: its container, its token, and the files that were changed for it.

It is kept in the data directory, as the owner's token is, because `latent disconnect` and the start hook need it.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ValidationError

from latent_cli.connect import config_file
from latent_cli.connect.clients import FILES, Machine, claude_settings, start_hook
from latent_cli.connect.config_file import PRIVATE, Entry, FileChange, WrittenFile
from latent_client import AsyncClient
from latent_core.domain.agent_clients import (
    AGENT_CLIENTS,
    AGENT_SCOPES,
    ClientName,
    agent_principal,
)
from latent_core.domain.errors import Conflict, Invalid, LatentError, NotFound

MASKED: Final = "lct_********"
MAX_NODE_CHARS: Final = 60


class Connection(BaseModel):
    client: ClientName
    container: str
    url: str
    """Of the gateway."""
    token_id: int
    token: str
    files: list[WrittenFile]

    @property
    def has_hook(self) -> bool:
        return any(file.entry.command for file in self.files)


class ConnectionStore:
    """One file per client below the data directory."""

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / "connections"

    def file(self, client: ClientName) -> Path:
        return self._folder / f"{client}.json"

    def load(self, client: ClientName) -> Connection | None:
        file = self.file(client)
        content = config_file.read(file)
        if content is None:
            return None
        try:
            return Connection.model_validate_json(content)
        except ValidationError as exc:
            raise Conflict(
                f"{file} is damaged; remove it, and the entry 'latent' from the files of {client}"
            ) from exc

    def save(self, connection: Connection) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        content = connection.model_dump_json(indent=1).encode()
        config_file.write(FileChange(self.file(connection.client), None, content, PRIVATE))

    def hand_over(self, client: ClientName, folders: Sequence[Path]) -> None:
        """Folders that ``client`` made and that files of others still need: the client that is disconnected last removes them."""
        for name in ClientName if folders else ():
            other = None if name is client else self.load(name)
            if other is None:
                continue
            for file in other.files:
                around = Path(os.path.realpath(file.path)).parents
                file.folders += [
                    one for one in folders if one in around and one not in file.folders
                ]
            self.save(other)

    def delete(self, client: ClientName) -> None:
        self.file(client).unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class ConnectionRequest:
    client: ClientName
    container: str
    url: str
    hook: str | None
    """The command of the start hook."""

    def entries(self, machine: Machine, token: str) -> list[tuple[Path, Entry]]:
        agent = AGENT_CLIENTS[self.client]
        entry = Entry(agent.path, agent.entry(f"{self.url}/mcp", token))
        found = [(FILES[self.client](machine), entry)]
        if self.hook is not None:
            hook = Entry(("hooks", "SessionStart"), start_hook(self.hook), is_hook=True)
            found.append((claude_settings(machine), hook))
        return found


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    changes: list[FileChange]
    files: list[WrittenFile]


def plan(
    request: ConnectionRequest, machine: Machine, token: str, old: Connection | None
) -> ConnectionPlan:
    """What changes in which file. An older connection of the client is taken out first."""
    before = {change.path: change for change in removal(old)}
    notes = {file.path: file for file in old.files} if old is not None else {}
    changes: list[FileChange] = []
    files: list[WrittenFile] = []
    for path, entry in request.entries(machine, token):
        current = config_file.read(path)
        removed = before.pop(path, None)
        clean = current if removed is None else removed.after
        after, written = config_file.with_entry(path, clean, entry)
        mode = None if entry.is_hook else PRIVATE
        changes.append(FileChange(path, current, after, mode))
        files.append(config_file.note_of(path, clean, after, written, notes.get(path)))
    return ConnectionPlan([*before.values(), *changes], files)


def removal(connection: Connection | None) -> list[FileChange]:
    """What `latent disconnect` changes."""
    found: list[FileChange] = []
    for file in connection.files if connection is not None else ():
        current = config_file.read(file.path)
        found.append(FileChange(file.path, current, config_file.restored(file, current), file.mode))
    return found


async def chosen_container(client: AsyncClient, name: str | None) -> str:
    """The named container, or the only one."""
    known = [one.id for one in await client.containers()]
    if name is None:
        if len(known) == 1:
            return known[0]
        listed = ", ".join(known[:10])
        raise Invalid(
            f"name one container with --container: {listed}"
            if known
            else "there is no container yet: create one with `latent container create`"
        )
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else "; `latent container list` names them"
        raise NotFound(f"container '{name}' does not exist or you may not read it{hint}")
    return name


async def is_current(
    client: AsyncClient, request: ConnectionRequest, machine: Machine, old: Connection | None
) -> bool:
    """Whether the files have the entries of this request, with a token that is valid."""
    if old is None or (old.container, old.url) != (request.container, request.url):
        return False
    if old.has_hook != (request.hook is not None):
        return False
    entries = request.entries(machine, old.token)
    if not all(config_file.has_entry(path, config_file.read(path), e) for path, e in entries):
        return False
    return await _is_live(client, old)


async def _is_live(client: AsyncClient, connection: Connection) -> bool:
    """Whether the gateway knows the token. The number alone may belong to a token of another installation."""
    async for token in client.tokens(principal=agent_principal(connection.client)):
        if (token.id, token.name) == (connection.token_id, token_name()):
            return True
    return False


async def connect(
    client: AsyncClient,
    request: ConnectionRequest,
    machine: Machine,
    store: ConnectionStore,
    old: Connection | None,
) -> Connection:
    """Create the token, write the files, and revoke the token of the older connection."""
    plan(request, machine, MASKED, old)  # refuses before a token exists
    created = await client.create_token(
        agent_principal(request.client),
        name=token_name(),
        scopes=AGENT_SCOPES,
        containers=[request.container],
    )
    try:
        planned = plan(request, machine, created.secret, old)
        connection = Connection(
            client=request.client,
            container=request.container,
            url=request.url,
            token_id=created.token.id,
            token=created.secret,
            files=planned.files,
        )
        _write(planned.changes, store, connection, old)
    except (OSError, LatentError):
        await client.revoke_token(created.token.id)
        raise
    if old is not None:
        await revoke(client, old)
    return connection


def _write(
    changes: Sequence[FileChange],
    store: ConnectionStore,
    connection: Connection,
    old: Connection | None,
) -> None:
    """All files or none. The record comes first: without it, an entry could not be taken out again."""
    store.save(connection)
    undo: list[FileChange] = []
    try:
        for change in changes:
            mode = config_file.mode_of(change.path)
            config_file.write(change)
            undo.append(FileChange(change.path, change.after, change.before, mode))
    except OSError as exc:
        for change in undo:
            config_file.write(change)
        for file in connection.files:
            config_file.remove_folders(file.folders)
        if old is None:
            store.delete(connection.client)
        else:
            store.save(old)
        raise Conflict(
            f"{changes[len(undo)].path} cannot be written ({exc.strerror}); nothing was changed"
        ) from exc


async def disconnect(client: AsyncClient, store: ConnectionStore, old: Connection) -> None:
    """Restore the files, then revoke the token. Without a gateway, a second call revokes it."""
    for change in removal(old):
        if change.after != change.before:
            config_file.write(change)
    for file in old.files:
        store.hand_over(old.client, config_file.remove_folders(file.folders))
    try:
        await revoke(client, old)
    except LatentError as exc:
        files = ", ".join(str(file.path) for file in old.files)
        message = (
            f"{files}: restored, but token {old.token_id} is still valid ({exc.message}); "
            f"run `latent disconnect {old.client}` again"
        )
        raise type(exc)(message) from exc
    store.delete(old.client)


async def revoke(client: AsyncClient, connection: Connection) -> None:
    if await _is_live(client, connection):
        await client.revoke_token(connection.token_id)


def token_name() -> str:
    """Each machine has its own."""
    return f"connect {platform.node()[:MAX_NODE_CHARS]}".strip()
