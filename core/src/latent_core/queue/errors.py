"""Errors that stop a handler because its job is no longer its own.

Not ``LatentError``: there is no fault to report to a user, and a handler that collects the errors
of single items must not collect these.
"""

from __future__ import annotations


class ClaimEnded(Exception):
    """The handler must stop now: the database rejects its writes about the job."""


class LeaseLost(ClaimEnded):
    """The claim is no longer valid; another worker may hold the job."""


class JobCancelled(ClaimEnded):
    """A user or another job requested the end of this job."""
