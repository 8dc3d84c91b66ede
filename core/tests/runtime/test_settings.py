"""Settings: every one changes something, is documented, has a range, and a slip of the pen is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from latent_core.domain.errors import Invalid
from latent_core.settings import (
    Settings,
    load_settings,
    setting_names,
    unknown_variables,
    warn_of_unknown_variables,
)
from tests.support import REPOSITORY

# Every setting, with what changes when it changes, or the part of the plan that delivers it.
DELIVERED = {
    "data_dir": "where everything is kept",
    "bind": "address the gateway listens on",
    "port": "port the gateway listens on",
    "gateway_processes": "how many processes answer requests",
    "url": "where the CLI finds the gateway",
    "public_url": "what links in answers start with",
    "trusted_proxies": "whose word is taken for where a request comes from",
    "mcp_token": "the owner's token",
    "mcp_allowed_hosts": "further names that /mcp answers to",
    "mcp_allowed_origins": "web pages that may call /mcp",
    "mcp_ask": "whether /mcp offers containers_ask",
    "ask_seconds": "deadline of an answer to a question",
    "mcp_search_fetch": "whether /mcp offers search and fetch",
    "signing_key": "signs links; another one ends those that are out",
    "manifest_dir": "folder that is read at start and written by create",
    "ingest_roots": "folders that file_ref may name",
    "fetch_allow": "places off the public internet that pages may come from",
    "fetch_seconds": "how long one page may take",
    "browser_path": "renders pages of containers with web.javascript",
    "log_format": "text or JSON lines",
    "metrics_port": "serves metrics without a token",
    "otel_endpoint": "where traces go",
    "otel_traces_endpoint": "the same, with its path",
    "otel_headers": "what the collector wants to be told",
    "embed_base_url": "server of the remote embedders",
    "embed_api_key": "its bearer key",
    "embed_rate_limit_per_min": "texts a minute that it is sent",
    "failpoint_name": "named point at which the process ends itself, in tests",
    "embed_price_per_million": "cost that jobs and containers tell",
    "nomic_base_url": "where Nomic's own API is",
    "postgres_dsn": "that server instead of the embedded one",
    "qdrant_url": "that server instead of the embedded engine",
    "qdrant_api_key": "its key",
    "qdrant_prefix": "names of its collections",
    "qdrant_collections": "beyond this number small containers share them",
    "s3_endpoint": "that server instead of files",
    "s3_access_key": "its key",
    "s3_secret_key": "its other key",
    "s3_bucket": "the bucket blobs are in",
    "s3_region": "part of its signatures",
    "s3_public_endpoint": "links lead to it, not through the gateway",
    "embed_window": "tokens of one text for it, so the size of chunks",
    "providers": "file with further servers of models",
    "rerank_provider": "what reranks where a manifest names none; none turns it off",
    "rerank_api_url": "server that reranks",
    "rerank_api_key": "its bearer key",
    "rerank_dialect": "shape of its requests",
    "rerank_model": "model it is asked for",
    "rerank_folder": "cross-encoder of this process",
    "hub_url": "hub or mirror that models are installed from",
    "hub_token": "opens private and gated models",
    "hub_offline": "no hub is contacted",
    "hub_stall_seconds": "when a slow transfer continues on another connection",
    "max_model_bytes": "models over it are not installed",
    "model_wait_seconds": "how long another process may install the same model",
    "worker_concurrency": "jobs at a time",
    "lease_seconds": "when a silent worker loses its job; when purges are repeated",
    "poll_seconds": "how soon a job is seen without a wake-up",
    "search_timeout_ms": "when a container's answer is not waited for any more",
    "search_wait_seconds": "how long a search waits for its slot",
    "search_max_containers": "how many containers one search covers",
    "max_upload_bytes": "uploads and files over it are refused",
    "max_import_bytes": "archives over it are refused",
    "min_free_bytes": "room that stays free on the disk of what is embedded",
    "max_queued_jobs": "how many jobs may wait before nothing more is taken",
    "quota_requests_per_min": "requests a minute of one token",
    "quota_upload_bytes_per_day": "bytes a day that one token may upload",
    "quota_queued_jobs": "jobs of one principal that may wait",
    "quota_notes_per_day": "notes that a token adds on one day",
    "max_chunks_per_document": "documents over it are refused",
    "refresh_keep_days": "how long the space before a switch is kept",
    "drift_min_recall": "what a drift adapter must reach to be taken",
    "parse_seconds": "CPU seconds of a parser",
    "parse_memory_bytes": "memory of a parser",
    "ocr": "what reads scanned pages and images",
    "ocr_languages": "languages Tesseract expects",
}
LATER: dict[str, str] = {}
OTHER_NAMES = {
    "MCP_BIND": "bind",
    "MCP_PORT": "port",
    "MCP_TOKEN": "mcp_token",
    "REG_DB_DSN": "postgres_dsn",
    "QDRANT_URL": "qdrant_url",
    "MINIO_ENDPOINT": "s3_endpoint",
    "LLC_MINIO_ENDPOINT": "s3_endpoint",
    "QDRANT_API_KEY": "qdrant_api_key",
    "LLC_MINIO_ACCESS_KEY": "s3_access_key",
    "MINIO_ACCESS_KEY": "s3_access_key",
    "LLC_MINIO_SECRET_KEY": "s3_secret_key",
    "MINIO_SECRET_KEY": "s3_secret_key",
    "LLC_MINIO_BUCKET": "s3_bucket",
    "LLC_NOMIC_API_KEY": "embed_api_key",
    "NOMIC_API_KEY": "embed_api_key",
    "EMBED_RATE_LIMIT_PER_MIN": "embed_rate_limit_per_min",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "otel_endpoint",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "otel_traces_endpoint",
    "OTEL_EXPORTER_OTLP_HEADERS": "otel_headers",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "otel_headers",
    "RERANK_API_URL": "rerank_api_url",
    "RERANK_API_KEY": "rerank_api_key",
    "HF_ENDPOINT": "hub_url",
    "HF_TOKEN": "hub_token",
}
EXAMPLE = REPOSITORY / ".env.example"


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No `.env` here, and none of the tester's own variables."""
    monkeypatch.chdir(tmp_path)
    for names in setting_names().values():
        for name in names:
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("value", "offline"), [("1", True), ("Yes", True), ("0", False), ("7", False)]
)
def test_offline_mode_is_read_as_the_client_of_hubs_reads_it(
    value: str, offline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    assert load_settings().hub_offline is offline


def test_every_setting_has_a_behaviour_or_the_part_that_delivers_it() -> None:
    assert set(Settings.model_fields) == set(DELIVERED) | set(LATER)
    assert not set(DELIVERED) & set(LATER)
    assert set(setting_names()) == set(Settings.model_fields)


def test_the_example_file_names_every_setting_and_nothing_else() -> None:
    shown = re.findall(r"^#?(LLC_[A-Z0-9_]+)=", EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE)
    by_file = {f"{name}_FILE" for name in shown}
    assert sorted(set(shown) - by_file) == sorted(names[0] for names in setting_names().values())
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize(("name", "key"), OTHER_NAMES.items())
def test_names_of_the_contract_are_read_too(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "7")
    value = getattr(load_settings(), key)
    assert str(getattr(value, "get_secret_value", lambda: value)()) == "7"


def test_an_empty_value_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for names in setting_names().values():
        monkeypatch.setenv(names[0], "")
    (tmp_path / ".env").write_text("LLC_MCP_TOKEN=\nLLC_PORT=\n", encoding="utf-8")
    assert load_settings() == Settings.model_construct(
        data_dir=Path("~/.latent").expanduser().absolute()
    )


def test_an_empty_name_does_not_hide_an_alias(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLC_PORT", "")
    monkeypatch.setenv("MCP_PORT", "7900")
    assert load_settings().port == 7900


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LLC_PORT", "99999"),
        ("LLC_PORT", "-1"),
        ("LLC_PORT", "http"),
        ("LLC_WORKER_CONCURRENCY", "0"),
        ("LLC_WORKER_CONCURRENCY", "1000"),
        ("LLC_LEASE_SECONDS", "0"),
        ("LLC_LEASE_SECONDS", "nan"),
        ("LLC_LEASE_SECONDS", "inf"),
        ("LLC_POLL_SECONDS", "0"),
        ("LLC_POLL_SECONDS", "-1"),
        ("LLC_SEARCH_TIMEOUT_MS", "0"),
        ("LLC_EMBED_WINDOW", "0"),
        ("LLC_EMBED_RATE_LIMIT_PER_MIN", "0"),
        ("LLC_MAX_UPLOAD_BYTES", "0"),
        ("LLC_MAX_CHUNKS_PER_DOCUMENT", "-5"),
        ("LLC_MIN_FREE_BYTES", "-1"),
        ("LLC_MAX_QUEUED_JOBS", "-1"),
        ("LLC_QUOTA_REQUESTS_PER_MIN", "-1"),
        ("LLC_PARSE_SECONDS", "0"),
        ("LLC_PARSE_MEMORY_BYTES", "1000"),
        ("LLC_LOG_FORMAT", "xml"),
        ("LLC_RERANK_PROVIDER", "cohere"),
        ("LLC_RERANK_DIALECT", "openai"),
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Invalid, match=name):
        load_settings()


def test_every_number_has_a_range() -> None:
    for key, field in Settings.model_fields.items():
        if field.annotation in (int, float, int | None, float | None):
            bounds: dict[str, Any] = {}
            for mark in field.metadata:
                bounds |= {k: getattr(mark, k) for k in ("ge", "le") if hasattr(mark, k)}
            assert set(bounds) == {"ge", "le"}, key


def test_a_variable_that_nobody_reads_is_named_with_the_nearest_that_is() -> None:
    given = ["LLC_PROT", "LLC_DATADIR", "LLC_FROBNICATE", "LLC_PORT", "PATH", "LLC_TEST_X"]
    assert unknown_variables(given) == [
        "LLC_DATADIR (did you mean LLC_DATA_DIR?)",
        "LLC_FROBNICATE",
        "LLC_PROT (did you mean LLC_PORT?)",
    ]


def test_a_slip_in_the_environment_or_the_file_is_logged_at_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LLC_LEASE_SECOND", "5")
    (tmp_path / ".env").write_text("LLC_WORKER_CONCURENCY=2\n", encoding="utf-8")
    warn_of_unknown_variables()
    variables = " ".join(str(vars(record)["variable"]) for record in caplog.records)
    assert "LLC_LEASE_SECOND (did you mean LLC_LEASE_SECONDS?)" in variables
    assert "LLC_WORKER_CONCURENCY (did you mean LLC_WORKER_CONCURRENCY?)" in variables


def test_a_worker_runs_more_jobs_at_a_time_when_they_wait_for_a_remote_embedder() -> None:
    assert load_settings().jobs_at_a_time == 4
    assert load_settings(embed_base_url="http://127.0.0.1:1/v1").jobs_at_a_time == 24
    few = load_settings(embed_base_url="http://127.0.0.1:1/v1", worker_concurrency=2)
    assert few.jobs_at_a_time == 2


@pytest.mark.parametrize("prefix", ["a/b", "ä", "with space", "x" * 51])
def test_a_prefix_that_cannot_be_part_of_a_collection_name_is_refused(prefix: str) -> None:
    with pytest.raises(Invalid, match="qdrant_prefix"):
        load_settings(qdrant_prefix=prefix)


def test_each_setting_says_where_it_comes_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    key = tmp_path / "key"
    key.write_text("secret\n")
    (tmp_path / ".env").write_text("LLC_POLL_SECONDS=2\nLLC_BIND=127.0.0.2\n")
    monkeypatch.setenv("MCP_BIND", "127.0.0.3")
    monkeypatch.setenv("LLC_EMBED_API_KEY_FILE", str(key))
    settings = load_settings(port=0)
    origins = {
        name: tuple(settings.origin_of(name))
        for name in ("bind", "poll_seconds", "embed_api_key", "port", "url")
    }
    assert settings.bind == "127.0.0.3"
    assert origins == {
        "bind": ("environment", "MCP_BIND"),
        "poll_seconds": ("env_file", "LLC_POLL_SECONDS"),
        "embed_api_key": ("secret_file", "LLC_EMBED_API_KEY_FILE"),
        "port": ("argument", None),
        "url": ("default", None),
    }
