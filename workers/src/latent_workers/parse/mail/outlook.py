"""Outlook messages (.msg): the MAPI properties that say what a message is, by olefile."""

from __future__ import annotations

import io
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import olefile

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.mail.message import MAX_PARTS, Mail
from latent_workers.parse.text.decode import decode

_SUBJECT, _BODY, _HTML = "0037", "1000", "1013"
_SENDER_NAME, _SENDER_ADDRESS, _SENDER_SMTP = "0C1A", "0C1F", "5D01"
_TO, _CC, _IDENTITY = "0E04", "0E03", "1035"
_FILE_NAME, _LONG_FILE_NAME = "3704", "3707"
_SENT, _RECEIVED, _CREATED = 0x0039, 0x0E06, 0x3007
_CODE_PAGE: Final = 0x3FFD
_UNICODE, _STRING, _BINARY = "001F", "001E", "0102"
_PROPERTIES: Final = "__properties_version1.0"
_HEADER_BYTES: Final = 32
_EPOCH: Final = datetime(1601, 1, 1, tzinfo=UTC)


def read(data: bytes, name: str) -> Mail:
    try:
        with olefile.OleFileIO(io.BytesIO(data)) as ole:
            return _Message(ole).mail()
    except (OSError, ValueError, IndexError, TypeError, struct.error, OverflowError) as exc:
        raise IngestFailed(
            f"'{name}' is no Outlook message that can be read ({str(exc)[:200]}): save it as .eml",
            reason="damaged",
        ) from exc


class _Message:
    def __init__(self, ole: Any) -> None:
        self._ole = ole
        self._fixed = self._properties()
        page = self._fixed.get(_CODE_PAGE, 0) & 0xFFFFFFFF
        self._encoding = "utf-8" if page == 65001 else f"cp{page}" if page else ""

    def mail(self) -> Mail:
        sender, address = self._words(_SENDER_NAME), self._words(_SENDER_SMTP)
        address = address or self._words(_SENDER_ADDRESS)
        shown = (
            f"{sender} <{address}>" if "@" in address and address != sender else sender or address
        )
        body, html = self._words(_BODY), self._words(_HTML) or self._binary(_HTML)
        if not (body or html or self._words(_SUBJECT)):
            raise ValueError("it has no subject and no text")
        return Mail(
            subject=" ".join(self._words(_SUBJECT).split()),
            sender=" ".join(shown.split()),
            receivers=tuple(filter(None, (self._words(_TO), self._words(_CC)))),
            date=self._date(),
            plain=body,
            html=html,
            attachments=self._attachments(),
            identity=self._words(_IDENTITY).strip("<> "),
        )

    def _words(self, tag: str, folder: str = "") -> str:
        data = self._stream(f"{folder}__substg1.0_{tag}{_UNICODE}")
        if data is not None:
            return data.decode("utf-16-le", "replace").rstrip("\0")
        data = self._stream(f"{folder}__substg1.0_{tag}{_STRING}")
        return "" if data is None else self._decoded(data).rstrip("\0")

    def _binary(self, tag: str) -> str:
        data = self._stream(f"__substg1.0_{tag}{_BINARY}")
        return "" if data is None else self._decoded(data)

    def _decoded(self, data: bytes) -> str:
        try:
            return data.decode(self._encoding) if self._encoding else decode(data).text
        except (LookupError, UnicodeDecodeError):
            return decode(data).text

    def _stream(self, path: str) -> bytes | None:
        if not self._ole.exists(path):
            return None
        with self._ole.openstream(path) as stream:
            return bytes(stream.read())

    def _properties(self) -> dict[int, int]:
        """The properties of a fixed size: numbers and times."""
        data = (self._stream(_PROPERTIES) or b"")[_HEADER_BYTES:]
        rows = (data[at : at + 16] for at in range(0, len(data) - 15, 16))
        return {row[1]: row[3] for row in (struct.unpack("<HHIQ", one) for one in rows)}

    def _date(self) -> datetime | None:
        ticks = next(
            (self._fixed[tag] for tag in (_SENT, _RECEIVED, _CREATED) if self._fixed.get(tag)), 0
        )
        return _EPOCH + timedelta(microseconds=ticks // 10) if ticks else None

    def _attachments(self) -> tuple[str, ...]:
        folders = dict.fromkeys(
            path[0] for path in self._ole.listdir() if path[0].startswith("__attach_")
        )
        names = (
            self._words(_LONG_FILE_NAME, f"{folder}/") or self._words(_FILE_NAME, f"{folder}/")
            for folder in list(folders)[:MAX_PARTS]
        )
        return tuple(filter(None, names))
