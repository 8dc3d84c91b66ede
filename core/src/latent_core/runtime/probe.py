"""Health check for container platforms, for images without curl. Prints the answer; exit status 0 or 1.

python -m latent_core.runtime.probe http://127.0.0.1:7801/healthz
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

SECONDS: Final = 4.0
MAX_BYTES: Final = 4096


def main(arguments: Sequence[str]) -> int:
    healthy, text = fetched(arguments[0]) if len(arguments) == 1 else (False, "give one URL")
    print(text)  # noqa: T201 - the platform shows it
    return 0 if healthy else 1


def fetched(url: str) -> tuple[bool, str]:
    """Whether ``url`` answers 200, and the answer or the reason. Without a proxy."""
    try:
        with build_opener(ProxyHandler({})).open(url, timeout=SECONDS) as answer:
            return True, answer.read(MAX_BYTES).decode("utf-8", "replace")
    except HTTPError as exc:  # the body says why
        return False, f"{exc}: {exc.read(MAX_BYTES).decode('utf-8', 'replace')}"
    except (OSError, URLError, ValueError) as exc:
        return False, str(exc)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
