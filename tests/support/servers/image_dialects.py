"""How requests bring pictures to the stand-in, in each dialect; ``ValueError`` for one that does not hold to it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from email import message_from_bytes
from typing import Any, Final

See = Callable[[bytes], str]
"""What a picture shows, in words, whose vector is its own."""
_DATA_URL: Final = ("data:image/", ";base64,")


def blind(image: bytes) -> str:
    """Of a server that reads texts only."""
    raise ValueError(f"{len(image)} bytes of a picture: this model reads texts")


def read_json(payload: Mapping[str, Any], see: See) -> tuple[list[str], int]:
    """Texts, and what is seen in pictures in their place; and how many are pictures."""
    if "messages" in payload:
        return [_of_chat(payload, see)], 1
    given = payload.get("input")
    items = [given] if isinstance(given, str) else given
    if not isinstance(items, list) or not items or "model" not in payload:
        raise ValueError("'model' and a list 'input' are required")
    read = [_of_item(item, see) for item in items]
    return [text for text, _ in read], sum(seen for _, seen in read)


def read_form(content_type: str, body: bytes, see: See) -> tuple[list[str], int]:
    """What is seen in the pictures of a form."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    fields: dict[str, list[bytes]] = {}
    for part in message_from_bytes(head + body).walk():
        data: Any = part.get_payload(decode=True)  # None of the whole
        if data is not None:
            name = str(part.get_param("name", header="content-disposition"))
            fields.setdefault(name, []).append(data)
    if "model" not in fields or not fields.get("images"):
        raise ValueError("'model' and 'images' are required")
    seen = [see(image) for image in fields["images"]]
    return seen, len(seen)


def _of_chat(payload: Mapping[str, Any], see: See) -> str:
    (message,) = payload["messages"]
    picture, text = message["content"]
    if (
        message["role"] != "user"
        or payload.get("encoding_format") != "float"
        or "model" not in payload
    ):
        raise ValueError("one message of a user, 'model' and 'encoding_format' are required")
    if (picture["type"], text["type"]) != ("image_url", "text") or not isinstance(
        text["text"], str
    ):
        raise ValueError("a picture and a text are required")
    return see(_decoded(picture["image_url"]["url"]))


def _of_item(item: Any, see: See) -> tuple[str, bool]:
    if isinstance(item, dict) and len(item) == 1 and "image" in item:
        return see(_decoded(item["image"])), True
    text = item.get("text") if isinstance(item, dict) and len(item) == 1 else item
    if not isinstance(text, str):
        raise ValueError("an input is a text or an image")
    return text, False


def _decoded(url: str) -> bytes:
    start, middle = _DATA_URL
    kind, found, data = url.partition(middle)
    if not kind.startswith(start) or not found:
        raise ValueError("a picture is a data URL")
    return b64decode(data, validate=True)
