"""Operations: the state of the installation, its settings, its providers, and tests of models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from latent_core.domain.errors import IssueCode
from latent_core.domain.job import JobCounts
from latent_core.domain.text import Text
from latent_core.wire.base import Envelope, RequestBody
from latent_core.wire.doctor import ServiceState
from latent_core.wire.models import LanguageModelTest, ModelTest


class WaitingCause(BaseModel):
    """Why queued jobs wait: the error that ended their last attempt."""

    code: IssueCode | None
    message: str
    jobs: int
    outage: bool
    """The attempts are not counted, since a service is the cause."""
    since: datetime | None
    """The begin of the first wait for the service."""
    next_at: datetime
    """When the first of them is tried again."""


class QueueState(BaseModel):
    """The jobs of all containers."""

    jobs: JobCounts
    oldest_queued_seconds: float
    """How long the oldest job that could run has waited."""
    in_line: int
    for_time: int
    """Queued jobs that wait for a time, such as that of their next attempt."""
    for_key: int
    """Queued jobs that wait for a running job on the same document."""
    causes: list[WaitingCause]
    """The most frequent ones of up to 10,000 waiting jobs."""


class WorkerView(BaseModel):
    """A worker that holds jobs now."""

    worker: str
    running: int
    lease_expires: datetime
    """The first of its leases that ends unless it is renewed."""


class DiskView(BaseModel):
    """The disk of the gateway's data directory."""

    total_bytes: int
    free_bytes: int
    min_free_bytes: int
    """Below it, writes are refused (LLC_MIN_FREE_BYTES)."""


class BackupState(BaseModel):
    """The scheduled backups of all containers."""

    scheduled: int
    failed: int
    overdue_seconds: float


class GatewayProcesses(BaseModel):
    """Of the gateway that answers."""

    configured: int
    """LLC_GATEWAY_PROCESSES."""
    serving: int
    """Less while one starts."""


class StatusAnswer(Envelope):
    services: dict[str, ServiceState]
    queue: QueueState | None
    """None while Postgres does not answer."""
    workers: list[WorkerView]
    """Workers that hold jobs."""
    connected_workers: int
    """Also those without a job."""
    gateway_processes: GatewayProcesses
    disk: DiskView
    backups: BackupState | None


class SettingView(BaseModel):
    """One setting as it is in force."""

    name: str
    """Its environment variable."""
    value: str | int | float | bool | None
    """Secrets are masked."""
    secret: bool
    source: str
    """``default``, ``environment``, ``env_file``, ``secret_file`` or ``argument``."""
    variable: str | None
    """The variable that was read, which may be an older name of the setting."""


class SettingList(Envelope):
    settings: list[SettingView]
    """Of the gateway that answers."""
    unknown: list[str]
    """Variables that look like settings and are none."""


class ProviderView(BaseModel):
    """A server of models."""

    name: str
    kind: str
    address: str | None
    from_file: bool
    """An entry of LLC_PROVIDERS; else the settings name it."""
    embeds: bool
    writes: bool
    """Whether it may have language models."""
    reads: list[str]
    """What its language models read in addition to text."""
    rate_per_minute: int | None
    window: int
    price_per_million: float | None
    input_price: float | None
    output_price: float | None
    state: str | None
    """Why it cannot be used; None if it can, as far as no key is sent."""


class ProviderList(Envelope):
    providers: list[ProviderView]


class ModelTestBody(RequestBody):
    model: Annotated[Text, Field(min_length=1, max_length=512)]
    """As in a manifest: ``local``, ``<provider>/<model>`` or an installed model."""
    language_model: bool = False
    """It writes: a model for summaries, extraction or questions."""


class ModelTestAnswer(Envelope):
    embedder: ModelTest | None = None
    language_model: LanguageModelTest | None = None
