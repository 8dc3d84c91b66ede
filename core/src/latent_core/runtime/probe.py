"""Health check for container platforms, for images without curl. Prints a reason; exit status 0 or 1.

    python -m latent_core.runtime.probe http://127.0.0.1:7801/healthz
    python -m latent_core.runtime.probe http://127.0.0.1:9464/metrics latent_worker_seen_timestamp_seconds 90

The second form checks a gauge that holds a time, and its maximum age in seconds.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from typing import Final
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

SECONDS: Final = 4.0
MAX_BYTES: Final = 4 * 1024 * 1024


def main(arguments: Sequence[str]) -> int:
    try:
        url, *gauge = arguments
        trouble = stale(fetched(url), *gauge) if gauge else (fetched(url) and None)
    except (OSError, URLError, ValueError, TypeError) as exc:
        trouble = str(exc)
    print(trouble or "healthy")  # noqa: T201 - the platform shows it
    return 1 if trouble else 0


def fetched(url: str) -> str:
    """The body of a 200 response, fetched without a proxy."""
    with build_opener(ProxyHandler({})).open(url, timeout=SECONDS) as answer:
        return str(answer.read(MAX_BYTES).decode("utf-8", "replace"))


def stale(metrics: str, name: str, seconds: str) -> str | None:
    """Why the time in the gauge is too old; None when it is not."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", metrics, re.MULTILINE)
    if found is None:
        return f"{name} is missing"
    age = time.time() - float(found[1])
    return f"{name} is {age:.0f} s ago" if age > float(seconds) else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
