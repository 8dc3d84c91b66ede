"""``latent open``"""

from __future__ import annotations

import mimetypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from uuid import UUID

import typer

from latent_cli.options import Json, command_app
from latent_cli.output import answers, emit, safe
from latent_cli.session import ask
from latent_client import AsyncClient
from latent_client.transport import Blob
from latent_core.domain.errors import Invalid, NotFound, Unavailable

app = command_app()

HIT: Final = re.compile(r"(?:page://)?(?P<doc>[0-9a-fA-F-]{32,36})(?:/(?P<page>[0-9]{1,9}))?")
SCREENS: Final = ("DISPLAY", "WAYLAND_DISPLAY")
OPEN_SECONDS: Final = 10.0
"""Time limit for the program that starts the viewer."""


@dataclass(frozen=True, slots=True)
class OpenedPage:
    """A saved page image."""

    path: Path
    uri: str
    opened: bool


@app.command("open")
def open_(
    hit: Annotated[str, typer.Argument(help="DOCUMENT/PAGE from a search, or the link of a page.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Save the image to this file and do not open it.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Open the page image of a hit in the default viewer.

    Without a desktop it prints the path of the image and its link.
    """
    uri, blob = ask(lambda client: _image(client, hit))
    path = _save(blob, out)
    shown = OpenedPage(path, uri, opened=out is None and not as_json and _view(path))
    if as_json:
        emit({"path": str(shown.path), "uri": shown.uri, "mime": blob.mime})
    elif not shown.opened:
        answers().print(safe(str(shown.path)), soft_wrap=True)
        answers().print(safe(shown.uri), soft_wrap=True)


async def _image(client: AsyncClient, hit: str) -> tuple[str, Blob]:
    uri = hit if hit.startswith(("http://", "https://")) else await _link(client, hit)
    return uri, await client.fetch(uri)


async def _link(client: AsyncClient, hit: str) -> str:
    """The link of a hit's page image. Raises ``NotFound`` or ``Unavailable`` with the reason if there is none."""
    doc_id, number = _named(hit)
    page = await client.page(doc_id, number)
    if page.page_uri is not None:
        return page.page_uri
    if page.page_image == "pending":
        raise Unavailable(
            f"the image of page {number} is still being rendered; try again in a moment"
        )
    cause = f": {page.page_image_cause}" if page.page_image_cause else ""
    raise NotFound(f"page {number} has no image{cause}")


def _named(hit: str) -> tuple[UUID, int]:
    parts = HIT.fullmatch(hit.strip())
    try:
        if parts is None:
            raise ValueError("not a document id")
        return UUID(parts["doc"]), int(parts["page"] or 1)
    except ValueError as exc:
        raise Invalid(
            f"'{hit[:100]}' is not a page; use DOCUMENT/PAGE from `latent search`"
        ) from exc


def _save(blob: Blob, out: Path | None) -> Path:
    """Save to ``out``, else to a temporary file that stays for the viewer."""
    try:
        if out is not None:
            out.write_bytes(blob.content)
            return out.absolute()
        ending = mimetypes.guess_extension(blob.mime.partition(";")[0]) or ".webp"
        with tempfile.NamedTemporaryFile(prefix="latent-", suffix=ending, delete=False) as file:
            file.write(blob.content)
            return Path(file.name)
    except OSError as exc:
        raise Invalid(
            f"the image cannot be written to {out or tempfile.gettempdir()}: {exc.strerror}"
        ) from exc


def _view(path: Path) -> bool:
    """Whether a viewer was started."""
    program = _opener()
    if program is None:
        return False
    try:
        done = subprocess.run(
            [program, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=OPEN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:  # some openers run as long as their viewer
        return True
    except OSError:
        return False
    return done.returncode == 0


def _opener() -> str | None:
    """The program that opens files on this desktop; None without a desktop."""
    if sys.platform == "darwin":
        return shutil.which("open")
    on_screen = any(os.environ.get(name) for name in SCREENS)  # noqa: TID251 - the desktop's, no setting
    return shutil.which("xdg-open") if on_screen else None
