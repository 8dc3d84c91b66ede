"""Settings: environment (``LLC_*``) or ``.env``, read once in a composition root and passed on.

Names of the original contract are read as aliases (DESIGN §11). Addresses that are not given mean
the embedded service (DESIGN §2).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from latent_core.domain.errors import Invalid

MEGABYTE = 1024 * 1024


def _named(name: str, *aliases: str, default: Any = None) -> Any:
    return Field(default=default, validation_alias=AliasChoices(name, *aliases))


class Settings(BaseSettings):
    """Everything a process is told from outside. Durations in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(
        env_file=".env", env_file_encoding="utf-8", extra="ignore", populate_by_name=True
    )

    data_dir: Path = _named("LLC_DATA_DIR", default=Path("~/.latent"))
    bind: str = _named("LLC_BIND", "MCP_BIND", default="127.0.0.1")
    port: int = _named("LLC_PORT", "MCP_PORT", default=7801)
    url: str | None = _named("LLC_URL")
    """Where the CLI finds the gateway; default http://<bind>:<port>."""
    public_url: str | None = _named("LLC_PUBLIC_URL")
    """What links in answers start with; default the address of the request."""
    mcp_token: SecretStr | None = _named("LLC_MCP_TOKEN", "MCP_TOKEN")
    signing_key: SecretStr | None = _named("LLC_SIGNING_KEY")
    manifest_dir: Path | None = _named("LLC_MANIFEST_DIR")
    """Default <data_dir>/manifests."""
    ingest_roots: Annotated[tuple[Path, ...], NoDecode] = _named("LLC_INGEST_ROOTS", default=())
    """Folders of the server that file_ref may name, separated by colons; none by default."""
    log_format: Literal["auto", "json", "text"] = _named("LLC_LOG_FORMAT", default="auto")

    postgres_dsn: SecretStr | None = _named("LLC_POSTGRES_DSN", "REG_DB_DSN")
    qdrant_url: str | None = _named("LLC_QDRANT_URL", "QDRANT_URL")
    s3_endpoint: str | None = _named("LLC_S3_ENDPOINT", "LLC_MINIO_ENDPOINT", "MINIO_ENDPOINT")

    embed_base_url: str | None = _named("LLC_EMBED_BASE_URL")
    embed_api_key: SecretStr | None = _named("LLC_EMBED_API_KEY")
    embed_rate_limit_per_min: int | None = _named(
        "LLC_EMBED_RATE_LIMIT_PER_MIN", "EMBED_RATE_LIMIT_PER_MIN"
    )
    """Texts a minute sent to a remote embedder; the local one is not limited. Default 120."""
    embed_window: int = _named("LLC_EMBED_WINDOW", default=512)
    """Tokens a remote embedder reads of one text, when nothing else tells."""

    worker_concurrency: int = _named("LLC_WORKER_CONCURRENCY", default=4)
    lease_seconds: float = _named("LLC_LEASE_SECONDS", default=60.0)
    poll_seconds: float = _named("LLC_POLL_SECONDS", default=1.0)
    search_timeout_ms: int = _named("LLC_SEARCH_TIMEOUT_MS", default=1200)
    max_upload_bytes: int = _named("LLC_MAX_UPLOAD_BYTES", default=512 * MEGABYTE)
    max_chunks_per_document: int = _named("LLC_MAX_CHUNKS_PER_DOCUMENT", default=50_000)
    parse_seconds: float = _named("LLC_PARSE_SECONDS", default=120.0)
    """CPU seconds one document may cost its parser; wall time is twice that."""
    parse_memory_bytes: int = _named("LLC_PARSE_MEMORY_BYTES", default=2048 * MEGABYTE)

    @field_validator("data_dir", "manifest_dir", mode="after")
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @field_validator("ingest_roots", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(Path(part).expanduser().resolve() for part in value.split(":") if part)
        return value

    @property
    def manifests(self) -> Path:
        return self.manifest_dir or self.data_dir / "manifests"

    @property
    def gateway_url(self) -> str:
        return (self.url or f"http://{self.bind}:{self.port}").rstrip("/")

    @property
    def addresses_missing(self) -> list[str]:
        """Names of the backing services' addresses that are not given: those services are embedded."""
        given = {
            "LLC_POSTGRES_DSN": self.postgres_dsn,
            "LLC_QDRANT_URL": self.qdrant_url,
            "LLC_S3_ENDPOINT": self.s3_endpoint,
        }
        return [name for name, value in given.items() if value is None]


def load_settings(**overrides: Any) -> Settings:
    """Settings of this process; ``Invalid`` names the variable that cannot be read."""
    try:
        return Settings(**overrides)
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in exc.errors()
        )
        raise Invalid(f"settings cannot be read: {problems}; see .env.example") from exc
