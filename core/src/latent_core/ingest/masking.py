"""Masks secrets in notes and conversations before they are stored (docs/adr/0028-secrets.md).

Keys and tokens of services are found by the rules of ``kingfisher_sdk``. A password has no format of its own: it is
found by the name before it, if it looks random.
"""

from __future__ import annotations

import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final

from latent_core.domain.conversation import MAX_MESSAGE_CHARS, Conversation

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

MaskedCounts = Mapping[str, int]
"""Maps each kind of secret to how many were masked."""

MIN_CHARS: Final = 8
"""Shorter texts hold nothing that looks like a secret."""
_LONG: Final = 16
_ENTROPY: Final = 3.5
"""Bits per character that a long value of few kinds of characters needs."""
_VENDOR: Final = re.compile(r"^(?:betterleaks|kingfisher|custom)\.|^veles\.secrets/")
_UNSAFE: Final = re.compile(r"[^a-z0-9.-]+")
_PLACEHOLDER: Final = re.compile(
    r"your|example|placeholder|change.?me|dummy|sample|redacted|masked|insert|xxxx|\*\*\*|\.\.\.|…|[<>{}]|[$%]\w",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(
    r"""
    (?: (?P<password>passw(?:or)?d|pwd|passphrase|passcode)
      | (?P<secret>secret|credentials?)
      | (?P<key>(?:api|access|private|secret|signing|encryption|auth)[-_ ]?key)
      | (?P<token>(?:access|refresh|auth|session|bearer|security|api)?[-_ ]?token)
    )
    (?: ["'`\])]{0,2} [ \t]{0,3} (?: := | => | ==? | : ) [ \t]{0,3} | [ ]{1,2} (?:is|was) :? [ ]{1,2} )
    (?: bearer [ ]{1,2} )? ["'`]?
    (?P<value> [^\s"'`<>{}()\[\],;]{8,512}+ ) (?! [(\[{] )
    | \b bearer [ ]{1,2} (?P<bearer> [^\s"'`<>{}()\[\],;]{16,1024}+ )
    | \b (?P<own> lct_[A-Za-z0-9]{20,} )
    """,
    re.IGNORECASE | re.VERBOSE,
)
_SIGNS: Final = ("pass", "pwd", "secret", "credential", "key", "token", "bearer", "lct_")
"""Each match of ``_NAMED`` contains one of these."""
_PART: Final = r"(?:[A-Za-z]+\d{0,4}|\d{1,4}[A-Za-z]{0,2})"
_WORDS: Final = re.compile(rf"{_PART}(?:[-_./:@]{_PART})*\Z")
"""Names, versions, paths and dates: parts that are words or short numbers."""
_JOINTS: Final = frozenset("-_./:@")


@dataclass(frozen=True, slots=True)
class _Secret:
    """``start`` to ``end`` are bytes of the text in UTF-8."""

    start: int
    end: int
    kind: str


def mask(text: str) -> tuple[str, MaskedCounts]:
    """``text`` with each secret replaced by ``[masked: KIND]``, and their counts by kind.

    Idempotent. The first call in a process takes about a second, since it loads the rules. Blocking.
    """
    if len(text) < MIN_CHARS:
        return text, {}
    data = text.encode("utf-8", "surrogatepass")
    counts: Counter[str] = Counter()
    parts: list[bytes] = []
    at = 0
    for secret in _apart(sorted(_secrets(text, data), key=lambda one: (one.start, -one.end))):
        parts += (data[at : secret.start], f"[masked: {secret.kind}]".encode())
        at = secret.end
        counts[secret.kind] += 1
    if not counts:
        return text, {}
    return b"".join([*parts, data[at:]]).decode("utf-8", "surrogatepass"), dict(counts)


def mask_conversation(conversation: Conversation) -> tuple[Conversation, MaskedCounts]:
    """A conversation with masked title and messages, and the counts of all of them."""
    counts: Counter[str] = Counter()

    def masked(text: str) -> str:
        result, found = mask(text)
        counts.update(found)
        return result

    messages = [
        message.model_copy(update={"content": masked(message.content)[:MAX_MESSAGE_CHARS]})
        for message in conversation.messages
    ]
    title = conversation.title and masked(conversation.title)
    if not counts:
        return conversation, {}
    return conversation.model_copy(update={"title": title, "messages": tuple(messages)}), dict(
        counts
    )


def _secrets(text: str, data: bytes) -> Iterator[_Secret]:
    for finding in _scanner().scan(data):
        if not _PLACEHOLDER.search(finding.secret):
            place = finding.location
            yield _Secret(place["start_offset"], place["end_offset"], _kind(finding.rule_id))
    small = text.lower()
    if any(sign in small for sign in _SIGNS):
        yield from _named(text)


def _named(text: str) -> Iterator[_Secret]:
    """Values after a secret's name, and tokens of this service."""
    for match in _NAMED.finditer(text):
        group = next(name for name in ("value", "bearer", "own") if match[name])
        value = match[group].rstrip(".,:!?")
        if group != "own" and not _is_random(value):
            continue
        named = (name for name in ("password", "secret", "key", "token") if match[name])
        start = len(text[: match.start(group)].encode("utf-8", "surrogatepass"))
        end = start + len(value.encode("utf-8", "surrogatepass"))
        yield _Secret(start, end, next(named, "token"))


def _is_random(value: str) -> bool:
    """Whether ``value`` has no other purpose: it mixes many kinds of characters, or is a long random run."""
    if len(value) < MIN_CHARS or _PLACEHOLDER.search(value) or "://" in value:
        return False
    if value[0] in "$%&*/~" or _WORDS.match(value):
        return False
    tests = (str.islower, str.isupper, str.isdigit, _is_symbol)
    kinds = [any(map(test, value)) for test in tests]
    if not (kinds[2] and (kinds[0] or kinds[1])):
        return False
    return sum(kinds) >= 3 or (len(value) >= _LONG and _entropy(value) >= _ENTROPY)


def _is_symbol(character: str) -> bool:
    return not character.isalnum() and character not in _JOINTS


def _entropy(value: str) -> float:
    shares = (count / len(value) for count in Counter(value).values())
    return -sum(share * math.log2(share) for share in shares)


def _kind(rule_id: str) -> str:
    """``github-pat`` of ``betterleaks.github-pat``."""
    return _UNSAFE.sub("-", _VENDOR.sub("", rule_id).lower()).strip("-.") or "secret"


def _apart(secrets: list[_Secret]) -> Iterator[_Secret]:
    """Secrets that overlap become one, of the first one's kind."""
    last: _Secret | None = None
    for secret in secrets:
        if last is not None and secret.start < last.end:
            last = replace(last, end=max(last.end, secret.end))
            continue
        if last is not None:
            yield last
        last = secret
    if last is not None:
        yield last


_LOADING: Final = threading.Lock()


def _scanner() -> Scanner:
    with _LOADING:  # two threads would both load the rules
        return _loaded()


@cache
def _loaded() -> Scanner:
    # Here, since only processes that store notes or conversations need its 40 MB.
    from kingfisher_sdk import Scanner

    return Scanner()
