"""Text without secrets: what is logged, and what a server outside said before a reader is told."""

from __future__ import annotations

import re
from typing import Final

from pydantic import SecretStr

from latent_core.domain.errors import Invalid

HIDDEN: Final = "********"
RUN: Final = 8
"""So many characters in a row of our own key are hidden, even when the rest of it was escaped, masked or cut off."""
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
    r"|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"  # once a run: "eyJ-eyJ-…" would be read again from each
)
# What may have slipped into a message or a traceback: what stands after the name of a secret (in a query, a header, a
# line of settings, JSON, JSON in JSON), a bearer token, the password of an address, and what shows itself by its form.
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
"""Each match has one of these: most lines have none, and the expression costs a thousand times more than a look."""
_FIELD: Final = re.compile(f"{_NAME}$", re.IGNORECASE)


def redacted(text: str) -> str:
    """``text`` without what looks like a secret."""
    small = text.lower()
    return _SECRETS.sub(_hidden, text) if any(sign in small for sign in _SIGNS) else text


def names_a_secret(field: str) -> bool:
    """Whether what a field of this name holds is to be hidden, whatever it looks like."""
    return _FIELD.search(field) is not None


def _hidden(found: re.Match[str]) -> str:
    before = found["named"] or found["bearer"] or found["user"] or ""
    quote = found["quote"] or ""
    return f"{before}{quote}{HIDDEN}{quote}"


class OwnKey:
    """The bearer key for a server outside: sent with each request, and shown to nobody, whatever the server says."""

    def __init__(self, key: SecretStr | None, setting: str) -> None:
        """``Invalid`` when no header can hold it: the error of who tries would show it."""
        secret = key.get_secret_value().strip() if key is not None else ""
        if not (secret.isascii() and secret.isprintable()):
            raise Invalid(f"{setting} holds characters that cannot be sent: copy the key again")
        self._key = secret
        self._runs = {secret[at : at + RUN] for at in range(len(secret) - RUN + 1)}

    @property
    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def redacted_text(self, content: bytes) -> str:
        """The beginning of what the server says, in one line and without secrets."""
        return self.hidden_in(" ".join(content.decode("utf-8", "replace").split()))[
            :_MAX_MESSAGE_CHARS
        ]

    def hidden_in(self, text: str) -> str:
        """``text``, or the beginning of a long one, without this key and what else looks like a secret."""
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
