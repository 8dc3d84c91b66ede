"""Proof of the right to read a container: a search takes nothing else."""

from __future__ import annotations

from typing import NewType

from latent_core.db.containers import Container

Readable = NewType("Readable", Container)
"""Only an access check constructs it: the gateway's ``auth/access.py``, for the principal of a request. A job of a
worker constructs it for its own container, which the access check let its principal evaluate or refresh."""
