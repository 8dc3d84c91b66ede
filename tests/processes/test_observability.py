"""Seen from outside: what dashboards and alerts ask for is told, and one id leads through the logs of all it caused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import httpx
import pytest
import typer
import yaml

from latent_cli.main import app
from latent_client import AsyncClient
from latent_core.domain.job import Outcome
from latent_core.wire.search import SearchRequest
from tests.http.test_http_surface import HANDBOOK, ingest, manifest, settled
from tests.support import REPOSITORY
from tests.support.harness.installation import Installation, eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

DASHBOARD = REPOSITORY / "docker" / "grafana" / "dashboards" / "latent.json"
ALERTS = REPOSITORY / "docker" / "alerts.yml"
RUNBOOK = REPOSITORY / "docs" / "runbook.md"
METRIC = re.compile(r"\b((?:latent|process)_[a-z_]+)(\{[^}]*\})?")
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
    "latent_worker_seen_timestamp_seconds",
    "latent_http_request_seconds_count",
}
"""What a process that ingested, searched and erred must tell with a value."""


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and what is asked of Prometheus."""
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        for target in panel["targets"]:
            yield f"panel '{panel['title']}'", target["expr"]
    for rule in alerts():
        yield f"alert {rule['alert']}", rule["expr"]


def alerts() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """Filled by the first test: each sample's name with its labels."""
    return {}


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


async def test_every_alert_has_its_entry_in_the_runbook_and_every_entry_of_an_alert_is_one() -> (
    None
):
    headings = re.findall(r"^## (.+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    for rule in alerts():
        assert rule["alert"] in headings
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"]
    named = {rule["alert"] for rule in alerts()}
    camel = {heading for heading in headings if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", heading)}
    assert camel == named


async def test_alerts_and_runbook_know_how_attempts_end_by_the_names_that_are_counted() -> None:
    outcomes = set(get_args(Outcome))
    expressions_used = [
        name
        for _, expression in expressions()
        for names in re.findall(r'outcome=~?"([^"]*)"', expression)
        for name in names.split("|")
    ]
    assert {"done", "failed", "lost"} <= set(expressions_used) <= outcomes
    documented_names = RUNBOOK.read_text("utf-8")
    assert not [name for name in outcomes if f"`{name}`" not in documented_names]


async def test_an_alert_on_absence_treats_a_missing_series_as_zero() -> None:
    """A counter has no series before its first event, and what compares nothing with anything is no alert."""
    for rule in alerts():
        if "== 0" in rule["expr"] and "rate(" in rule["expr"]:
            assert "or vector(0)) == 0" in rule["expr"], rule["alert"]


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
    job_id = answer.json()["job_id"]
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
