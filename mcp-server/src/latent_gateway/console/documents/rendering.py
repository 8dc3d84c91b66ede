"""Renders text of documents in a child with a deadline. What is late, too long or fails is shown as plain text."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final, Literal

import orjson
from fastapi import Request
from markupsafe import Markup, escape

logger = logging.getLogger(__name__)

BlockKind = Literal["markdown", "table", "code"]
MODULE: Final = "latent_gateway.console.documents.rendering_child"
MAX_CHARS: Final = 20_000
"""Of a block; a chunk has some thousand."""
MAX_ANSWER: Final = 4 * 1024 * 1024
START_SECONDS: Final = 20.0
"""With the import of its libraries and the list of all lexers."""
SECONDS: Final = 2.0
"""Of a block; most take a millisecond, but the machine may be busy."""
TRIES: Final = 2
"""Of a block that is late: then it stays plain text."""
PAGE_SECONDS: Final = 4.0
"""Of all blocks of a page; the first start of the child is not counted."""
KEPT: Final = 1000
"""Rendered blocks in memory."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A text of a document."""

    kind: BlockKind
    text: str
    name: str = ""
    """Of code: the name of its file."""
    words: tuple[str, ...] = ()
    """Marked wherever they are."""

    @property
    def key(self) -> bytes:
        return hashlib.sha256(orjson.dumps(asdict(self))).digest()


class Renderer:
    """One child per gateway, begun with the first block."""

    def __init__(self, module: str = MODULE) -> None:
        self._module = module
        self._child: Process | None = None
        self._lock = asyncio.Lock()
        self._kept: OrderedDict[bytes, Markup] = OrderedDict()
        self._late: Counter[bytes] = Counter()
        self._spent = 0.0
        """Seconds of all blocks so far, without the starts of children."""

    async def html(self, blocks: Sequence[TextBlock]) -> list[Markup]:
        """The HTML of each block. It contains only elements that ``markup`` writes."""
        found, until = list[Markup](), self._spent + PAGE_SECONDS
        for block in blocks:
            key = block.key
            shown = self._kept.get(key)
            if shown is None and self._spent < until:
                shown = await self._rendered(block)
                self._keep(key, block, shown)
            found.append(plain(block.text) if shown is None else shown)
        return found

    async def close(self) -> None:
        async with self._lock:
            await self._end()

    def _keep(self, key: bytes, block: TextBlock, shown: Markup | None) -> None:
        """What was rendered; of a text that was late too often, that it is plain."""
        if shown is None:
            self._late[key] += 1
            if self._late[key] < TRIES:
                return
        self._kept[key] = plain(block.text) if shown is None else shown
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        if len(self._late) > KEPT:
            self._late.clear()

    async def _rendered(self, block: TextBlock) -> Markup | None:
        """None if the child was late or failed."""
        if len(block.text) > MAX_CHARS:
            return plain(block.text)
        loop = asyncio.get_running_loop()
        async with self._lock:
            try:
                child = await self._started()
                begun = loop.time()
                try:
                    async with asyncio.timeout(SECONDS):
                        answer = await self._answer_of(child, block)
                finally:
                    self._spent += loop.time() - begun
            except (TimeoutError, OSError, ValueError, asyncio.LimitOverrunError) as error:
                logger.warning("rendering_failed", extra={"cause": repr(error)[:200]})
                await self._end()
                return None
            except asyncio.CancelledError:
                await self._end()  # its answer would be taken for that of the next block
                raise
        return Markup(answer)

    async def _started(self) -> Process:
        """The child, once it has answered: importing its libraries takes longer than a block may."""
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", self._module),
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=MAX_ANSWER,
            )
            async with asyncio.timeout(START_SECONDS):
                await self._answer_of(self._child, TextBlock("code", "ready", "ready.py"))
        return self._child

    async def _answer_of(self, child: Process, block: TextBlock) -> str:
        if child.stdin is None or child.stdout is None:
            raise ValueError("the child has no pipes")
        child.stdin.write(orjson.dumps(asdict(block)) + b"\n")
        await child.stdin.drain()
        answer = orjson.loads(await child.stdout.readuntil(b"\n"))
        if not isinstance(answer, str):
            raise ValueError("the child gave no text")
        return answer

    async def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            with suppress(ProcessLookupError):
                child.kill()
            await child.wait()


def plain(text: str) -> Markup:
    """The text as it is, escaped."""
    return Markup('<p class="text">%s</p>') % escape(text)


def renderer_of(request: Request) -> Renderer:
    """The renderer of this gateway."""
    kept = getattr(request.app.state, "console_renderer", None)
    if not isinstance(kept, Renderer):
        kept = request.app.state.console_renderer = Renderer()
    return kept
