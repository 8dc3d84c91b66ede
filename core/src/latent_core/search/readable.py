"""Proof of the right to read a container; searches accept only this type."""

from __future__ import annotations

from typing import NewType

from latent_core.db.containers import Container

Readable = NewType("Readable", Container)
"""Only the gateway's access check (``auth/access.py``) constructs it, for the principal of a request. A worker's job
also constructs it, for the container that its principal was allowed to evaluate or refresh."""
