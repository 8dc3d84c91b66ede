"""Addresses of an API below a configured base address, which may end with the API's version or not."""

from __future__ import annotations

import re
from typing import Final

import httpx

from latent_core.domain.errors import Invalid

_VERSION: Final = re.compile(r"/v\d+(?:alpha|beta)?\d*$")
_ROOT: Final = re.compile(r"(?:/v\d+(?:alpha|beta)?\d*|/api)$")
"""A version, or Ollama's ``/api``."""


def parsed_address(address: str, setting: str) -> httpx.URL:
    """``Invalid`` names the setting of an address that cannot be used."""
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as exc:
        raise Invalid(f"{setting} cannot be read: {exc}") from exc
    if url.scheme not in ("http", "https") or not url.host:
        raise Invalid(f"{setting} must be an http:// or https:// address")
    return url


def below_root(base: httpx.URL, path: str) -> httpx.URL:
    """``path`` with its own version, in place of the base's version. A query string is kept."""
    return base.copy_with(path=_ROOT.sub("", base.path.rstrip("/")) + path)


def in_version_1(base: httpx.URL, path: str) -> list[httpx.URL]:
    """Where ``path`` may be in an API in the style of OpenAI, the likeliest place first: such APIs have it below ``/v1``,
    another version, or none, and addresses are written with and without it."""
    given = base.path.rstrip("/")
    if _VERSION.search(given):
        return [base.copy_with(path=given + path)]
    places = [f"{given}/v1{path}", f"{given}{path}"]
    return [base.copy_with(path=place) for place in (reversed(places) if given else places)]
