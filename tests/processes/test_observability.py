"""Seen from outside: what dashboards and alerts ask for is told, and one id leads through the logs of all it caused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any, get_args

import httpx
import pytest
import typer

from latent_cli.main import app
from latent_client import AsyncClient
from latent_core.domain.job import JobKind, Outcome
from latent_core.wire.search import SearchRequest
from tests.http.test_http_surface import HANDBOOK, ingest, manifest, settled
from tests.processes.test_alerts import RUNBOOK, expressions
from tests.support.harness.installation import Installation, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

METRIC = re.compile(r"\b((?:latent|process)_[a-z_]+)(\{[^}]*\})?")
INCREASE = re.compile(r"(?:rate|increase)\((\w+)(?:\{([^}]*)\})?\[")
LABEL = re.compile(r"(?:by|without) \(([^)]*)\)|([a-z_]+)(?:=~|!~|!=|=)\"")
OF_PROMETHEUS = {"job", "instance", "le"}
AT_WORK = {
    "latent_search_seconds_count",
    "latent_queue_jobs",
    "latent_queue_oldest_seconds",
    "latent_oldest_transaction_seconds",
    "latent_candidates_total",
    "latent_stale_candidates_total",
    "latent_embedded_texts_total",
    "latent_embedded_tokens_total",
    "latent_errors_total",
    "latent_jobs_total",
    "latent_job_seconds_count",
    "latent_published_documents_total",
    "latent_service_up",
    "latent_service_full",
    "latent_service_read_only",
    "latent_backup_schedules",
    "latent_backups_failed",
    "latent_backup_overdue_seconds",
    "latent_backup_last_success_timestamp_seconds",
    "latent_disk_free_bytes",
    "latent_disk_size_bytes",
    "latent_database_pool_connections",
    "latent_database_pool_max_connections",
    "latent_database_pool_waiting",
    "latent_database_pool_wait_seconds_total",
    "latent_database_pool_timeouts_total",
    "latent_worker_seen_timestamp_seconds",
    "latent_http_request_seconds_count",
}
"""What a process that ingested, searched and erred must tell with a value."""


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Filled by the first test: each sample's name with its labels."""
    return {}


async def test_a_fresh_process_has_every_series_whose_increase_is_queried(
    installation: Installation, client: AsyncClient, http: httpx.AsyncClient
) -> None:
    """The first value of a series is no increase: ten failures of ten began their series with 10, and no alert fired."""

    async def series() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        texts = [await client.metrics()]
        texts += [(await http.get(url)).text for url in installation.metrics_urls]
        found = re.findall(r"^(\w+)(?:\{(.*)\})? ", "\n".join(texts), re.MULTILINE)
        return {(name, frozenset(re.findall(r'(\w+)="([^"]*)"', text))) for name, text in found}

    async def workers_answer() -> bool:
        with suppress(httpx.TransportError):
            return all([(await http.get(url)).is_success for url in installation.metrics_urls])
        return False

    await eventually(workers_answer, what="the metrics of every worker")
    exported = await series()
    needed = list(increases())
    assert len(needed) > 30
    for place, name, labels in needed:
        found = [own for metric, own in exported if metric == name]
        assert any(labels <= own for own in found), f"{place} needs {name} {dict(labels)}"
    for kind in JobKind:
        for outcome in get_args(Outcome):
            labels = frozenset({("kind", kind.value), ("outcome", outcome)})
            assert ("latent_jobs_total", labels) in exported


def increases() -> Iterator[tuple[str, str, frozenset[tuple[str, str]]]]:
    """Where a rate or an increase is queried, of which metric, and with which values of labels."""
    for place, expression in expressions():
        for name, matchers in INCREASE.findall(expression):
            values = [
                [(label, value) for value in pattern.split("|")]
                for label, pattern in re.findall(r'(\w+)=~?"([^"]*)"', matchers)
            ]
            for labels in product(*values):
                yield place, name, frozenset(labels)


async def test_a_process_at_work_tells_what_it_does(
    installation: Installation,
    client: AsyncClient,
    http: httpx.AsyncClient,
    exposed: dict[str, set[str]],
) -> None:
    await client.create(manifest("watched"))
    await ingest(client, "watched", "handbook.md", HANDBOOK.encode())
    await settled(client, "watched")
    await client.search(SearchRequest(containers=["watched"], query="lamp", top_k=3))
    assert (await http.get("/v1/containers/describe?container_id=absent")).status_code == 404

    async def text_of_all() -> str:
        """Workers on servers tell theirs themselves."""
        of_workers = [(await http.get(url)).text for url in installation.metrics_urls]
        return "\n".join([await client.metrics(), *of_workers])

    async def documented_names() -> bool:
        exposed.update(samples(await text_of_all()))
        return set(exposed) >= AT_WORK

    await eventually(documented_names, what=f"a value of {AT_WORK}")
    text = await text_of_all()
    assert re.search(r'latent_errors_total\{code="NOT_FOUND",surface="http"\} [1-9]', text)
    assert re.search(r'latent_jobs_total\{kind="ingest",outcome="done"\} [1-9]', text)
    assert re.search(r'latent_search_seconds_count\{stage="total"\} [1-9]', text)
    assert 'latent_service_up{service="postgres"} 1.0' in text


def samples(text: str) -> dict[str, set[str]]:
    """Names of samples in Prometheus' text, with the labels each carries."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels = re.match(r"([a-zA-Z_:]+)(\{.*\})?", line).groups()  # type: ignore[union-attr]  # every line has a name
            found.setdefault(name, set()).update(re.findall(r"([a-z_]+)=\"", labels or ""))
    return found


async def test_dashboard_and_alerts_use_only_exported_metrics(exposed: dict[str, set[str]]) -> None:
    assert exposed, "the test before this one fills it"
    expressions_used = list(expressions())
    assert len(expressions_used) > 20
    for place, expression in expressions_used:
        names = [name for name, _ in METRIC.findall(expression)]
        assert names or "up{" in expression, place
        labels = {label for name in names for label in exposed.get(name, ())} | OF_PROMETHEUS
        for name in names:
            assert name in exposed, f"{place} asks for {name}, which nobody tells"
        for group, matched in LABEL.findall(expression):
            for label in [matched] if matched else group.split(", "):
                assert label in labels, f"{place} asks for the label {label}"


async def test_commands_of_the_runbook_exist() -> None:
    documented_names = set(
        re.findall(r"`latent ([a-z]+)(?: ([a-z]+))?", RUNBOOK.read_text("utf-8"))
    )
    assert documented_names
    group = typer.main.get_command(app)
    for name, further in sorted(documented_names):
        command = group.get_command(None, name)  # type: ignore[attr-defined]  # it is a group
        assert command is not None, f"latent {name}"
        if further and hasattr(command, "commands"):
            assert further in command.commands, f"latent {name} {further}"


async def test_the_id_of_a_request_leads_to_its_jobs_and_their_lines(
    installation: Installation, client: AsyncClient, http: httpx.AsyncClient
) -> None:
    await client.create(manifest("followed"))
    name = "followed-through-the-logs"
    (installation.folder / "a.md").write_text("# Lamps\n\nWicks are trimmed.", "utf-8")
    uploaded = await client.upload("followed", installation.folder / "a.md")
    answer = await http.post(
        "/v1/containers/add",
        json={"container_id": "followed", "file_ref": uploaded.file_ref},
        headers={"X-Request-ID": name},
    )
    assert answer.headers["x-request-id"] == name
    job_id = int(answer.json()["job_id"])
    await settled(client, "followed")

    def lines(**fields: Any) -> list[dict[str, Any]]:
        return [line for line in installation.logged() if fields.items() <= line.items()]

    (enqueued,) = lines(msg="jobs_enqueued", request_id=name)
    assert enqueued["job_ids"] == [job_id]
    (request,) = lines(msg="request", request_id=name)
    assert request["status"] == 202

    async def ended() -> bool:
        return bool(lines(msg="job_ended", job_id=job_id))

    await eventually(ended, what="the line of the job's end")
    (end,) = lines(msg="job_ended", job_id=job_id)
    assert (end["outcome"], end["job_kind"], end["container_id"]) == ("done", "ingest", "followed")
    follow_ups = lines(msg="jobs_enqueued", job_id=job_id)
    assert follow_ups, "what the job itself enqueues carries its id"


async def test_every_line_has_the_fields_of_the_contract(installation: Installation) -> None:
    lines = installation.logged()
    assert all({"timestamp", "logger", "level", "msg"} <= set(line) for line in lines)
    assert any(line["msg"] == "worker_heartbeat" for line in lines)
    search = next(line for line in lines if line["msg"] == "search_completed")
    assert {"containers", "hits", "latency_ms", "partial", "request_id"} <= set(search)


async def test_no_token_and_no_signature_gets_into_the_logs(
    installation: Installation, client: AsyncClient, http: httpx.AsyncClient
) -> None:
    answer = await client.search(SearchRequest(containers=["watched"], query="lamp", top_k=1))
    link = answer.hits[0].page_uri
    assert link is not None
    await client.fetch(link)
    await http.get(
        "/v1/containers/list", headers={"Authorization": "Bearer lct_mistyped0123456789"}
    )
    log = installation.log.read_text("utf-8")
    (signature,) = re.findall(r"sig=([0-9a-f]+)", link)
    for secret in (installation.token, signature, "lct_mistyped0123456789"):
        assert secret not in log
