"""What is asked of a page before its job is accepted; the worker's guard looks at where it really leads."""

from __future__ import annotations

from urllib.parse import unquote

from latent_core.domain.errors import Forbidden, Invalid
from latent_core.domain.manifest.model import Manifest
from latent_core.domain.web_address import WebAddress, check_port
from latent_core.settings import Settings
from latent_gateway.api.uploads import safe_filename


def check_fetchable(address: WebAddress, manifest: Manifest, settings: Settings) -> None:
    """``Forbidden`` says which setting stands in the way."""
    check_port(address, settings.fetch_allow)
    if manifest.web.javascript and settings.browser_path is None:
        raise Forbidden(
            f"container '{manifest.id}' wants its pages rendered by a browser (web.javascript), and none is configured: "
            "set LLC_BROWSER_PATH to a Chromium, or web.javascript to false",
            uri=str(address),
        )


def page_name(address: WebAddress) -> str:
    """What the page is called where it does not name itself: the end of its path, else its host."""
    try:
        return safe_filename(unquote(address.last_segment))
    except Invalid:
        return f"{address.host}.html"
