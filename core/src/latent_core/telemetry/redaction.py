"""Removes secrets from log lines and from texts of external servers before users see them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from pydantic import SecretStr

from latent_core.domain.errors import Invalid

HIDDEN: Final = "********"
BEARER: Final = "Authorization"
RUN: Final = 8
"""A part of our own key with this length is hidden, even when the rest was escaped, masked or cut off."""
REMEMBERED_FIELDS: Final = 256
"""Cached field names; log lines have few different ones."""
_MAX_READ: Final = 4096
_MAX_MESSAGE_CHARS: Final = 200

_NAME: Final = (
    r"(?:passw(?:or)?d|pwd|passphrase|secret|(?:api|access|private|signing|secret)[-_ ]?key(?:[-_]?id)?"
    r"|(?:access|refresh|auth|id|session|bearer|security)[-_ ]?token|credentials?"
    r"|x-amz-signature|\bsig|(?:proxy-)?authorization)"
)
_OF_PROVIDERS: Final = (
    r"\blct_[A-Za-z0-9]+|\bsk-[\w-]{16,}|\bhf_\w{20,}|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}"
    r"|\bglpat-[\w-]{16,}|\bjina_\w{20,}|\bxox[abprs]-[\w-]{10,}|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}"
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # once per run: "eyJ-eyJ-…" would be rescanned at each
)
# Secrets in a message or traceback: the value after a secret's name (in a query, a header, a settings line, JSON, JSON
# in JSON), a bearer token, the password in an address, and tokens with a known format.
_SECRETS: Final = re.compile(
    rf"""
    (?P<named>{_NAME}(?:\ (?:provided|given|used))?["'\\]*[ \t]*[:=][ \t]*
        (?:(?:bearer|basic|digest|token)[ ]+)?)
    (?:(?P<quote>\\*["']).*?(?:(?<!\\)(?P=quote)|$) | \\*["']?[^\s"'\\&]+)
    | (?P<bearer>\bbearer[ \t]+)[^\s"'\\&]+
    | (?P<user>://[^\s:/@"']*:)[^\s/"']*(?=@)
    | {_OF_PROVIDERS}
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SIGNS: Final = (
    *("pass", "pwd", "secret", "key", "token", "credential", "sig", "auth", "bearer", "://"),
    *("lct_", "sk-", "hf_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("jina_", "xox", "akia", "aiza", "eyj"),
)
"""Each match contains one of these. Most lines contain none, and this check is a thousand times faster."""
_FIELD: Final = re.compile(f"{_NAME}$", re.IGNORECASE)


def redacted(text: str) -> str:
    """``text`` without anything that looks like a secret."""
    small = text.lower()
    return _SECRETS.sub(_hidden, text) if any(sign in small for sign in _SIGNS) else text


@lru_cache(maxsize=REMEMBERED_FIELDS)
def names_a_secret(field: str) -> bool:
    """Whether the value of a field with this name is always hidden."""
    return _FIELD.search(field) is not None


def _hidden(found: re.Match[str]) -> str:
    before = found["named"] or found["bearer"] or found["user"] or ""
    quote = found["quote"] or ""
    return f"{before}{quote}{HIDDEN}{quote}"


class OwnKey:
    """The key of an external server: sent with each request, and removed from every text of that server."""

    def __init__(self, key: SecretStr | None, setting: str, header: str = BEARER) -> None:
        """``Invalid`` when a header cannot hold it: the HTTP client's own error would show the key. ``header``: the one
        that the server reads it from."""
        secret = key.get_secret_value().strip() if key is not None else ""
        if not (secret.isascii() and secret.isprintable()):
            raise Invalid(f"{setting} holds characters that cannot be sent: copy the key again")
        self._key = secret
        self._header = header
        self._runs = {secret[at : at + RUN] for at in range(len(secret) - RUN + 1)}

    @property
    def header(self) -> dict[str, str]:
        if not self._key:
            return {}
        return {self._header: f"Bearer {self._key}" if self._header == BEARER else self._key}

    def redacted_text(self, content: bytes) -> str:
        """The beginning of the server's text, in one line and without secrets."""
        return self.hidden_in(" ".join(content.decode("utf-8", "replace").split()))[
            :_MAX_MESSAGE_CHARS
        ]

    def hidden_in(self, text: str) -> str:
        """``text``, shortened if long, without this key and anything else that looks like a secret."""
        if self._key:
            text = text.replace(self._key, HIDDEN)
        return redacted(self._without_runs(text[:_MAX_READ]))

    def _without_runs(self, text: str) -> str:
        kept: list[str] = []
        at = 0
        while at < len(text):
            end = at
            while text[end : end + RUN] in self._runs:
                end += 1
            if end > at:
                kept.append(HIDDEN)
                at = end + RUN - 1
            else:
                kept.append(text[at])
                at += 1
        return "".join(kept)
