"""A message as Markdown: its subject as heading, who wrote to whom and when, its text, and the names of attachments."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import Message
from email.utils import parsedate_to_datetime
from typing import Any, Final

from latent_core.domain.errors import IngestFailed
from latent_workers.parse.office.writing import OfficeText
from latent_workers.parse.text.compose import MarkdownText
from latent_workers.parse.text.decode import decode

MAX_PARTS: Final = 1_000
MAX_DEPTH: Final = 20
"""Of messages in messages and parts in parts."""


@dataclass(frozen=True, slots=True)
class Mail:
    """What is read of a message, of whatever format."""

    subject: str
    sender: str
    receivers: tuple[str, ...]
    date: datetime | None
    plain: str
    html: str
    """Used if there is no plain text."""
    attachments: tuple[str, ...] = ()
    identity: str = ""
    enclosed: tuple[Mail, ...] = ()
    """Forwarded messages."""


def written(mail: Mail, name: str) -> OfficeText:
    text = MarkdownText(name)
    _write(text, mail, 1, name)
    meta: dict[str, Any] = {}
    if mail.sender:
        meta["author"] = mail.sender
    if mail.receivers:
        meta["to"] = list(mail.receivers)
    if mail.date is not None:
        meta["date"] = mail.date.isoformat()
    return OfficeText(text.text(), title=mail.subject or name, meta=meta)


def _write(text: MarkdownText, mail: Mail, level: int, name: str) -> None:
    text.heading(level, mail.subject or "(no subject)")
    date = f"{mail.date:%Y-%m-%d %H:%M}" if mail.date is not None else ""
    about = (("From", mail.sender), ("To", ", ".join(mail.receivers)), ("Date", date))
    text.paragraph("\n".join(f"{label}: {words}" for label, words in about if words))
    if mail.plain.strip():
        for paragraph in _paragraphs(mail.plain):
            text.paragraph(paragraph)
    elif mail.html.strip():
        text.markdown(_of_html(mail.html, name))
    if mail.attachments:
        text.paragraph(f"Attachments: {', '.join(mail.attachments)}")
    for one in mail.enclosed:
        _write(text, one, level + 1, name)


def _paragraphs(plain: str) -> list[str]:
    lines = (line.rstrip() for line in plain.replace("\r\n", "\n").split("\n"))
    return "\n".join(lines).split("\n\n")


def _of_html(html: str, name: str) -> str:
    # The readers of web pages are slow to load: here, only for a message without plain text.
    from latent_workers.parse.web.markdown import markdown_of
    from latent_workers.parse.web.parser import parse_page

    try:
        body = parse_page(html, name).tree.find("body")
    except IngestFailed:
        return ""
    return "" if body is None else markdown_of(body)


def read_eml(data: bytes, name: str) -> Mail:
    """``IngestFailed`` if its parts are nested too deep or it has no header of a message."""
    try:
        message = message_from_bytes(data, policy=policy.default)
        found = _mail(message, 0, name)
    except RecursionError as exc:
        raise too_deep(name) from exc
    if not (found.subject or found.sender or found.date):
        raise IngestFailed(f"'{name}' is no mail message: it has no subject, sender or date")
    return found


def too_deep(name: str) -> IngestFailed:
    return IngestFailed(
        f"'{name}' has messages within messages more than {MAX_DEPTH} deep, or more than {MAX_PARTS:,} parts: save "
        "the inner ones as files of their own",
        reason="size",
    )


def _mail(message: Message[Any, Any], depth: int, name: str) -> Mail:
    plain: list[str] = []
    html: list[str] = []
    attachments: list[str] = []
    enclosed: list[Mail] = []
    todo: list[tuple[Message[Any, Any], int]] = [(message, depth)]
    for _ in range(MAX_PARTS):
        if not todo:
            break
        part, deep = todo.pop(0)
        if deep > MAX_DEPTH:
            raise too_deep(name)
        payload = part.get_payload()
        kind = part.get_content_type()
        if kind == "message/rfc822" and isinstance(payload, list):
            enclosed += [_mail(one, deep + 1, name) for one in payload if isinstance(one, Message)]
        elif isinstance(payload, list):
            todo[:0] = [(one, deep + 1) for one in payload if isinstance(one, Message)]
        elif part.get_content_disposition() == "attachment" or part.get_filename():
            attachments.append(_header(part.get_filename()) or kind)
        elif kind in ("text/plain", "text/html"):
            (plain if kind == "text/plain" else html).append(_text(part))
    else:
        raise too_deep(name)
    return Mail(
        subject=_value(message, "Subject"),
        sender=_value(message, "From"),
        receivers=tuple(filter(None, (_value(message, key) for key in ("To", "Cc")))),
        date=moment(_value(message, "Date")),
        plain="\n\n".join(plain),
        html="\n".join(html),
        attachments=tuple(attachments),
        identity=_value(message, "Message-ID").strip("<> "),
        enclosed=tuple(enclosed),
    )


def _value(message: Message[Any, Any], key: str) -> str:
    # A malformed header raises whatever its parser happens to meet.
    try:
        return _header(message.get(key))
    except Exception:  # noqa: BLE001 - the headers of real mail break email's parsers in many ways
        return next((_header(v) for k, v in message.raw_items() if k.lower() == key.lower()), "")


def _header(value: object) -> str:
    return " ".join(str(value).split()) if value is not None else ""


def _text(part: Message[Any, Any]) -> str:
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    charset = part.get_content_charset()
    if charset is None or charset == "us-ascii":
        return decode(data).text
    try:
        return data.decode(charset, "replace")
    except LookupError:
        return decode(data).text


def moment(date: str) -> datetime | None:
    """A date of a header in UTC."""
    try:
        found = parsedate_to_datetime(date)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    try:
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
