"""Measures a language model before a container permits it: latency, streams, JSON schemas, images, PDFs, cost.

It sends its own texts and pictures only, nothing of a container.
"""

from __future__ import annotations

import asyncio
import struct
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from statistics import median
from typing import Final, TypeVar

import orjson

from latent_core.domain.errors import (
    InputRefused,
    MalformedAnswer,
    Misconfigured,
    RateLimited,
    TimedOut,
)
from latent_core.models.llm.port import (
    Answer,
    Completion,
    ImagePart,
    JsonSchema,
    ModelClient,
    Part,
    PdfPart,
    TextPart,
    Usage,
)
from latent_core.models.llm.resolve import MILLION, client_of
from latent_core.models.providers.registry import Provider, ProviderModel
from latent_core.wire.models import LanguageModelTest, SchemaSupport

SHORT_ANSWERS: Final = 3
"""One after the other, for the latency."""
MAX_TOKENS: Final = 2048
"""Of each answer: models that think need them before the first word."""
SECONDS: Final = 120.0
RETRIES: Final = 5
MAX_WAIT_SECONDS: Final = 60.0
SYSTEM: Final = "You are tested. Answer with one word or number."
COLOUR: Final = "red"
NUMBER: Final = "7431"
SCHEMA: Final = JsonSchema(
    "test",
    1,
    {
        "type": "object",
        "properties": {"harbour": {"type": "string", "enum": ["open", "closed"]}},
        "required": ["harbour"],
        "additionalProperties": False,
    },
)
LONG_WORDS: Final = 6000
"""Of a prompt whose first sentence is needed for the answer."""
PLAIN: Final = "Answer with the single word hello, and nothing else."
"""A model that keeps the schema nevertheless is made to by its server."""

T = TypeVar("T")


async def measure_language_model(name: str, found: ProviderModel) -> LanguageModelTest:
    """The first error of plain text ends the test, since nothing works then."""
    if (missing := found.provider.missing()) is not None:
        raise Misconfigured(f"the language model {name} {missing}")
    model = client_of(name, found, 1)
    try:
        return await _LanguageTest(name, found.provider, model).run()
    finally:
        await model.close()


@dataclass(slots=True)
class _LanguageTest:
    name: str
    provider: Provider
    model: ModelClient
    used: list[Usage] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    async def run(self) -> LanguageModelTest:
        spent = []
        for _ in range(SHORT_ANSWERS):
            began = time.perf_counter()
            await self._answer([TextPart(PLAIN)])
            spent.append(time.perf_counter() - began)
        first = await self._first_part()
        support = await self._schema()
        images = await self._reads(
            "Which colour is this picture?", ImagePart(red(), "image/png"), COLOUR
        )
        pdf = await self._reads("Which number is on this page?", PdfPart(page_with(NUMBER)), NUMBER)
        whole = await self._reads_long()
        self._compare(images=images, pdf=pdf)
        read = sum(usage.input_tokens for usage in self.used)
        written = sum(usage.output_tokens for usage in self.used)
        prices = self.provider.input_price, self.provider.output_price
        return LanguageModelTest(
            model=self.name,
            kind=self.provider.kind.value,
            latency_p50_ms=round(median(spent) * 1000, 1),
            first_part_ms=first,
            json_schema=support,
            reads_images=images,
            reads_pdf=pdf,
            reads_long=whole,
            input_price=prices[0] or None,
            output_price=prices[1] or None,
            tokens_read=read,
            tokens_written=written,
            cost=round((read * prices[0] + written * prices[1]) / MILLION, 6)
            if any(prices)
            else None,
            warnings=self.warnings,
        )

    async def _first_part(self) -> float | None:
        """Milliseconds until a streamed answer begins; None if the server does not stream."""
        request = self._request([TextPart(PLAIN)])
        began = time.perf_counter()

        async def streamed() -> float | None:
            first = None
            async with aclosing(self.model.stream(request)) as parts:
                async for part in parts:
                    if first is None and part.text:
                        first = time.perf_counter() - began
                    if part.usage is not None:
                        self.used.append(part.usage)
            return first

        try:
            seconds = await _patiently(streamed)
        except (InputRefused, MalformedAnswer) as exc:
            self.warnings.append(
                f"It does not stream, which answers to questions need: {exc.message}"
            )
            return None
        return None if seconds is None else round(seconds * 1000, 1)

    async def _schema(self) -> SchemaSupport:
        try:
            answer = await self._answer([TextPart(PLAIN)], SCHEMA)
        except InputRefused as exc:
            self.warnings.append(
                f"The server refuses JSON schemas, which summaries and extraction need: {exc.message}"
            )
            return SchemaSupport.REFUSED
        if _keeps_schema(answer.text):
            return SchemaSupport.ENFORCED
        self.warnings.append(
            "The server does not enforce JSON schemas: answers in another form will be named failures."
        )
        return SchemaSupport.IGNORED

    async def _reads(self, question: str, picture: Part, expected: str) -> bool:
        """Whether the answer is right: some servers accept pictures and ignore them."""
        try:
            answer = await self._answer([picture, TextPart(question)])
        except InputRefused:
            return False
        return expected in answer.text.lower()

    async def _reads_long(self) -> bool:
        """Whether a long prompt is read whole: some servers cut its beginning without an error."""
        filler = "The boats went out at dawn and came back at noon. " * (LONG_WORDS // 11)
        text = f"The number is {NUMBER}. {filler}Which number was in the first sentence?"
        try:
            answer = await self._answer([TextPart(text)])
        except InputRefused as exc:
            why = exc.message
        except TimedOut:
            why = f"no answer within {SECONDS:g} s"
        else:
            if NUMBER in answer.text:
                return True
            why = "the answer does not know its beginning"
        self.warnings.append(
            f"A prompt of {LONG_WORDS} words is not read whole ({why}): give the server a longer context. Ollama cuts prompts"
            " unless OLLAMA_CONTEXT_LENGTH is set."
        )
        return False

    def _compare(self, *, images: bool, pdf: bool) -> None:
        measured = frozenset(name for name, reads in (("images", images), ("pdf", pdf)) if reads)
        if measured == self.provider.reads:
            return
        declared = ", ".join(sorted(self.provider.reads)) or "nothing"
        self.warnings.append(
            f"The provider '{self.provider.name}' declares that its models read {declared} in addition to text, but this one reads"
            f" {', '.join(sorted(measured)) or 'nothing'}: set reads: [{', '.join(sorted(measured))}] in its entry, or give"
            " the model an entry of its own."
        )

    async def _answer(self, parts: Sequence[Part], schema: JsonSchema | None = None) -> Answer:
        request = self._request(parts, schema)
        answer = await _patiently(lambda: self.model.complete(request))
        self.used.append(answer.usage)
        return answer

    @staticmethod
    def _request(parts: Sequence[Part], schema: JsonSchema | None = None) -> Completion:
        return Completion(SYSTEM, parts, schema, MAX_TOKENS, SECONDS)


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    """If the server limits requests, it is repeated when the server says."""
    for _ in range(RETRIES):
        try:
            return await call()
        except RateLimited as exc:
            seconds = exc.details.get("retry_after", 1.0)
            if seconds > MAX_WAIT_SECONDS:
                raise
            await asyncio.sleep(seconds)
    return await call()


def _keeps_schema(text: str) -> bool:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(found, dict) and found.get("harbour") in ("open", "closed")


def red(edge: int = 64) -> bytes:
    """A red square as PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        sum_ = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", sum_)

    header = struct.pack(">IIBBBBB", edge, edge, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xd0\x10\x10" * edge) * edge
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def page_with(text: str) -> bytes:
    """A PDF with one page that shows ``text``."""
    content = f"BT /F1 48 Tf 72 700 Td ({text}) Tj ET".encode()
    objects = (
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    )
    written, places = bytearray(b"%PDF-1.4\n"), []
    for number, one in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj\n%s\nendobj\n" % (number, one)
    start = len(written)
    written += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for place in places:
        written += b"%010d 00000 n \n" % place
    written += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    return bytes(written) + b"startxref\n%d\n%%%%EOF\n" % start
