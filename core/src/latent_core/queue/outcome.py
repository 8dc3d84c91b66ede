"""How an attempt at a job may end, as the log, the metrics and the alerts name it."""

from __future__ import annotations

from typing import Literal

Outcome = Literal["done", "failed", "retried", "paused", "cancelled", "lost"]
"""``failed`` is for good; ``retried`` comes again and has spent an attempt; ``paused`` has spent none, since the job
is not to blame; ``cancelled`` is also what a newer job does instead; ``lost`` is somebody else's now."""
