"""Settings from the environment (``LLC_*``) or ``.env``, read once in a composition root and passed on.

Names of the original contract are aliases. A service without an address is embedded.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    AliasChoices,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from typing_extensions import override

from latent_core.domain.errors import Invalid
from latent_core.domain.retrieval import check_reranker
from latent_core.domain.web_address import parse_origin
from latent_core.runtime.secret_files import SecretFiles, file_variables
from latent_core.runtime.setting_sources import SettingOrigin, SettingOrigins

logger = logging.getLogger(__name__)

MEGABYTE = 1024 * 1024
GIGABYTE = 1024 * MEGABYTE
DAY_SECONDS = 86_400.0
JOBS_THAT_WORK: Final = 4
JOBS_THAT_WAIT: Final = 24
ENV_FILE: Final = ".env"
OURS: Final = "LLC_"
OF_TESTS: Final = "LLC_TEST_"
HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
QDRANT_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{0,50}")
OCR_LANGUAGES: Final = re.compile(r"[A-Za-z][\w/-]*(?:\+[A-Za-z][\w/-]*){0,15}")


def _named(
    name: str,
    *aliases: str,
    default: Any = None,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A setting with its variable, aliases and inclusive range."""
    return Field(
        default=default, validation_alias=AliasChoices(name, *aliases), ge=minimum, le=maximum
    )


class Settings(BaseSettings):
    """All configuration of a process. Durations are in seconds, sizes in bytes."""

    model_config = SettingsConfigDict(
        env_file=ENV_FILE,
        env_file_encoding="utf-8",
        env_ignore_empty=True,  # `LLC_URL=` in a file means unset
        extra="ignore",
        populate_by_name=True,
    )

    _origins: SettingOrigins = PrivateAttr(default_factory=SettingOrigins)

    data_dir: Path = _named("LLC_DATA_DIR", default=Path("~/.latent"))
    bind: str = _named("LLC_BIND", "MCP_BIND", default="127.0.0.1")
    port: int = _named("LLC_PORT", "MCP_PORT", default=7801, minimum=0, maximum=65_535)
    """0: any free port."""
    gateway_processes: int = _named("LLC_GATEWAY_PROCESSES", default=1, minimum=1, maximum=16)
    """Processes that answer requests at the one port."""
    url: str | None = _named("LLC_URL")
    """The gateway's address for the CLI; default http://<bind>:<port>."""
    public_url: str | None = _named("LLC_PUBLIC_URL")
    """Start of links in responses; default the address of the request."""
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = _named(
        "LLC_TRUSTED_PROXIES", default=()
    )
    """Addresses or networks of proxies whose X-Forwarded-For and -Proto are trusted; none by default."""
    mcp_token: SecretStr | None = _named("LLC_MCP_TOKEN", "MCP_TOKEN")
    mcp_allowed_hosts: Annotated[tuple[str, ...], NoDecode] = _named(
        "LLC_MCP_ALLOWED_HOSTS", default=()
    )
    """Host names, with or without port, that /mcp accepts in addition to those of this machine."""
    mcp_allowed_origins: Annotated[tuple[str, ...], NoDecode] = _named(
        "LLC_MCP_ALLOWED_ORIGINS", default=()
    )
    """Origins of web pages that may call /mcp, in addition to the gateway's own."""
    mcp_search_fetch: bool = _named("LLC_MCP_SEARCH_FETCH", default=False)
    """Whether /mcp offers the tools ``search`` and ``fetch``, too; /mcp/connector always does."""
    mcp_ask: bool = _named("LLC_MCP_ASK", default=False)
    """Whether /mcp offers the tool ``containers_ask``: agents answer questions themselves."""
    signing_key: SecretStr | None = _named("LLC_SIGNING_KEY")
    manifest_dir: Path | None = _named("LLC_MANIFEST_DIR")
    """Default <data_dir>/manifests."""
    ingest_roots: Annotated[tuple[Path, ...], NoDecode] = _named("LLC_INGEST_ROOTS", default=())
    """Folders of the server that file_ref may use, separated by colons; none by default."""
    fetch_allow: Annotated[tuple[str, ...], NoDecode] = _named("LLC_FETCH_ALLOW", default=())
    """Non-public host:port pairs that pages may be fetched from, separated by commas."""
    fetch_seconds: float = _named(
        "LLC_FETCH_SECONDS", default=120.0, minimum=1, maximum=DAY_SECONDS
    )
    """Deadline for fetching a page, redirects included."""
    browser_path: Path | None = _named("LLC_BROWSER_PATH")
    """Chromium, for containers with web.javascript."""
    log_format: Literal["auto", "json", "text"] = _named("LLC_LOG_FORMAT", default="auto")
    metrics_port: int | None = _named("LLC_METRICS_PORT", minimum=1, maximum=65_535)
    """Serves metrics without a token on ``bind``: for a network that only Prometheus can reach."""
    otel_endpoint: str | None = _named("LLC_OTEL_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    """Receiver of traces, OTLP over HTTP, without the path. The SDK reads the other OTEL_… variables itself."""
    otel_traces_endpoint: str | None = _named(
        "LLC_OTEL_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
    )
    """The receiver of traces with its path; overrides ``otel_endpoint``."""
    otel_headers: SecretStr | None = _named(
        "LLC_OTEL_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"
    )
    """Headers for the collector, such as a key: name=value, separated by commas."""
    failpoint_name: str | None = _named("LLC_FAILPOINT")
    """The failpoint where the process ends, for tests."""

    postgres_dsn: SecretStr | None = _named("LLC_POSTGRES_DSN", "REG_DB_DSN")
    qdrant_url: str | None = _named("LLC_QDRANT_URL", "QDRANT_URL")
    qdrant_api_key: SecretStr | None = _named("LLC_QDRANT_API_KEY", "QDRANT_API_KEY")
    qdrant_prefix: str = _named("LLC_QDRANT_PREFIX", default="")
    """Prefix of our collections' names, for a server that also holds others."""
    qdrant_collections: int = _named(
        "LLC_QDRANT_COLLECTIONS", default=200, minimum=0, maximum=100_000
    )
    """Beyond this number new containers below 20,000 points share collections. 0: all small ones do."""
    s3_endpoint: str | None = _named("LLC_S3_ENDPOINT", "LLC_MINIO_ENDPOINT", "MINIO_ENDPOINT")
    s3_access_key: SecretStr | None = _named(
        "LLC_S3_ACCESS_KEY", "LLC_MINIO_ACCESS_KEY", "MINIO_ACCESS_KEY"
    )
    s3_secret_key: SecretStr | None = _named(
        "LLC_S3_SECRET_KEY", "LLC_MINIO_SECRET_KEY", "MINIO_SECRET_KEY"
    )
    s3_bucket: str = _named("LLC_S3_BUCKET", "LLC_MINIO_BUCKET", default="latent")
    s3_region: str = _named("LLC_S3_REGION", default="us-east-1")
    s3_public_endpoint: str | None = _named("LLC_S3_PUBLIC_ENDPOINT")
    """The S3 server's address for users: links lead there instead of through the gateway."""

    embed_base_url: str | None = _named("LLC_EMBED_BASE_URL")
    embed_api_key: SecretStr | None = _named(
        "LLC_EMBED_API_KEY", "LLC_NOMIC_API_KEY", "NOMIC_API_KEY"
    )
    embed_rate_limit_per_min: int | None = _named(
        "LLC_EMBED_RATE_LIMIT_PER_MIN", "EMBED_RATE_LIMIT_PER_MIN", minimum=1, maximum=10**9
    )
    """Texts per minute for LLC_EMBED_BASE_URL and Nomic's API. Default 120 for nomic-embed-multimodal-7b; other models are
    limited by their servers' answers."""
    embed_price_per_million: float = _named(
        "LLC_EMBED_PRICE_PER_MILLION", default=0.0, minimum=0, maximum=1_000_000
    )
    """Price of a million tokens at the remote embedder, in any currency: jobs and dry runs report their cost."""
    nomic_base_url: str = _named("LLC_NOMIC_BASE_URL", default="https://api-atlas.nomic.ai")
    """Of Nomic's own API, for ``embedder: nomic/<model>``."""
    embed_window: int = _named("LLC_EMBED_WINDOW", default=512, minimum=16, maximum=131_072)
    """Tokens that a remote embedder reads per text."""

    providers: Path | None = _named("LLC_PROVIDERS")
    """A YAML file with further servers of models; the settings above and below are providers of fixed names."""

    rerank_provider: Annotated[str, AfterValidator(check_reranker)] | None = _named(
        "LLC_RERANK_PROVIDER", "RERANK_PROVIDER"
    )
    """For manifests without a provider: ``api``, ``local`` or ``<provider>/<model>``; default what is configured, the
    server first. ``none`` turns reranking off."""
    rerank_api_url: str | None = _named("LLC_RERANK_API_URL", "RERANK_API_URL")
    rerank_api_key: SecretStr | None = _named("LLC_RERANK_API_KEY", "RERANK_API_KEY")
    rerank_dialect: Literal["auto", "contract", "cohere", "jina", "voyage", "vllm", "tei"] = _named(
        "LLC_RERANK_DIALECT", "RERANK_DIALECT", default="auto"
    )
    """auto: the known dialect of the host, else the contract's."""
    rerank_model: str | None = _named("LLC_RERANK_MODEL", "RERANK_MODEL")
    rerank_folder: Path | None = _named("LLC_RERANK_FOLDER", "RERANK_FOLDER")
    """A cross-encoder: ``model.onnx`` and ``tokenizer.json``."""

    hub_url: str = _named("LLC_HUB_URL", "HF_ENDPOINT", default="https://huggingface.co")
    """The hub that ``latent models add`` fetches from, or a mirror."""
    hub_token: SecretStr | None = _named("LLC_HUB_TOKEN", "HF_TOKEN")
    """For models that are private or whose terms must be accepted."""
    hub_offline: bool = _named("LLC_HUB_OFFLINE", "HF_HUB_OFFLINE", default=False)
    """Whether no hub may be contacted."""
    hub_stall_seconds: float = _named(
        "LLC_HUB_STALL_SECONDS", default=30.0, minimum=0.1, maximum=3600
    )
    """A transfer that brings less than 1 KB/s for so long is continued on another connection."""
    max_model_bytes: int = _named(
        "LLC_MAX_MODEL_BYTES", default=4 * GIGABYTE, minimum=1, maximum=1024 * GIGABYTE
    )
    """Size of one installed model."""
    model_wait_seconds: float = _named(
        "LLC_MODEL_WAIT_SECONDS", default=3600.0, minimum=0, maximum=DAY_SECONDS
    )
    """How long ``latent models add`` waits for another process that installs the same model."""

    worker_concurrency: int | None = _named("LLC_WORKER_CONCURRENCY", minimum=1, maximum=64)
    """Concurrent jobs; default 4, or 24 with a remote embedder, where jobs mostly wait."""
    lease_seconds: float = _named("LLC_LEASE_SECONDS", default=60.0, minimum=1, maximum=DAY_SECONDS)
    poll_seconds: float = _named("LLC_POLL_SECONDS", default=1.0, minimum=0.05, maximum=3600)
    search_timeout_ms: int = _named(
        "LLC_SEARCH_TIMEOUT_MS", default=1200, minimum=1, maximum=600_000
    )
    """The deadline of a search, from its slot on."""
    search_wait_seconds: float = _named(
        "LLC_SEARCH_WAIT_SECONDS", default=10.0, minimum=0, maximum=600
    )
    """How long a search waits for a slot before it is refused."""
    search_max_containers: int = _named(
        "LLC_SEARCH_MAX_CONTAINERS", default=50, minimum=1, maximum=1000
    )
    """Containers that one search covers; it says so when there are more."""
    ask_seconds: float = _named("LLC_ASK_SECONDS", default=180.0, minimum=1, maximum=3600)
    """The deadline of an answer of ``latent ask``, search and language model together."""
    max_upload_bytes: int = _named(
        "LLC_MAX_UPLOAD_BYTES", default=512 * MEGABYTE, minimum=1, maximum=1024 * GIGABYTE
    )
    min_free_bytes: int = _named(
        "LLC_MIN_FREE_BYTES", default=256 * MEGABYTE, minimum=0, maximum=1024 * GIGABYTE
    )
    """Free space to keep on the disk of the data directory; 0: no limit."""
    max_queued_jobs: int = _named("LLC_MAX_QUEUED_JOBS", default=500_000, minimum=0, maximum=10**9)
    """Queued jobs before new ones are refused; 0: no limit."""
    quota_requests_per_min: int = _named(
        "LLC_QUOTA_REQUESTS_PER_MIN", default=6000, minimum=0, maximum=10**9
    )
    """Per token and gateway. 0: no limit. Quotas do not apply to the owner."""
    quota_upload_bytes_per_day: int = _named(
        "LLC_QUOTA_UPLOAD_BYTES_PER_DAY", default=50 * GIGABYTE, minimum=0, maximum=2**60
    )
    """Per token, from midnight to midnight UTC."""
    quota_notes_per_day: int = _named(
        "LLC_QUOTA_NOTES_PER_DAY", default=5000, minimum=0, maximum=10**9
    )
    """Notes that a token adds, from midnight to midnight UTC. 0: no limit."""
    quota_queued_jobs: int = _named(
        "LLC_QUOTA_QUEUED_JOBS", default=50_000, minimum=0, maximum=10**9
    )
    """Queued jobs per principal."""
    max_import_bytes: int = _named(
        "LLC_MAX_IMPORT_BYTES", default=64 * GIGABYTE, minimum=1, maximum=1024 * GIGABYTE
    )
    """Size of an imported archive."""
    max_chunks_per_document: int = _named(
        "LLC_MAX_CHUNKS_PER_DOCUMENT", default=50_000, minimum=1, maximum=1_000_000
    )
    refresh_keep_days: float = _named("LLC_REFRESH_KEEP_DAYS", default=7.0, minimum=0, maximum=3650)
    """How long the previous embedding space is kept up to date after a switch, so that it can be restored."""
    drift_min_recall: float = _named("LLC_DRIFT_MIN_RECALL", default=0.95, minimum=0, maximum=1)
    """Minimum recall of a drift adapter, as a share of a full re-embed's recall."""
    parse_seconds: float = _named(
        "LLC_PARSE_SECONDS", default=120.0, minimum=1, maximum=DAY_SECONDS
    )
    """CPU seconds for parsing one document; the wall time limit is twice that."""
    parse_memory_bytes: int = _named(
        "LLC_PARSE_MEMORY_BYTES",
        default=2048 * MEGABYTE,
        minimum=256 * MEGABYTE,
        maximum=1024 * GIGABYTE,
    )
    ocr: Literal["auto", "tesseract", "rapidocr", "off"] = _named("LLC_OCR", default="auto")
    """OCR engine for scanned pages and images; auto: Tesseract if installed, else rapidocr."""
    ocr_languages: str | None = _named("LLC_OCR_LANGUAGES")
    """For Tesseract: ``eng+deu``; default the installed ones, up to four."""

    @classmethod
    @override
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, dotenv_settings, SecretFiles(settings_cls)

    @field_validator(
        "data_dir", "manifest_dir", "browser_path", "rerank_folder", "providers", mode="after"
    )
    @classmethod
    def _expand(cls, value: Path | None) -> Path | None:
        return value.expanduser().absolute() if value is not None else None

    @field_validator("qdrant_prefix", mode="after")
    @classmethod
    def _name_part(cls, value: str) -> str:
        if not QDRANT_PREFIX.fullmatch(value):
            raise ValueError("use at most 50 of the characters a-z, A-Z, 0-9, '_' and '-'")
        return value

    @field_validator("hub_offline", mode="before")
    @classmethod
    def _switch(cls, value: Any) -> Any:
        """As the hub's own client reads its variable: a value that it does not know is no error of ours."""
        return (
            value.strip().upper() in ("1", "ON", "YES", "TRUE") if isinstance(value, str) else value
        )

    @field_validator("ocr_languages", mode="after")
    @classmethod
    def _joined_by_plus(cls, value: str | None) -> str | None:
        if value is not None and not OCR_LANGUAGES.fullmatch(value):
            raise ValueError("write languages as Tesseract names them, joined by +: eng+deu")
        return value

    @field_validator("ingest_roots", mode="before")
    @classmethod
    def _split(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(Path(part).expanduser().resolve() for part in value.split(":") if part)
        return value

    @field_validator("mcp_allowed_hosts", "mcp_allowed_origins", "trusted_proxies", mode="before")
    @classmethod
    def _by_commas(cls, value: Any) -> Any:
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        return value

    @field_validator("trusted_proxies", mode="after")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for one in value:
            try:
                ip_network(one)
            except ValueError as exc:
                raise ValueError(
                    f"'{one}' is not an address; write 10.0.0.5 or a network such as 10.0.0.0/24"
                ) from exc
        return value

    @field_validator("mcp_allowed_hosts", mode="after")
    @classmethod
    def _hosts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for host in value:
            if not HOST.fullmatch(host):
                raise ValueError(f"'{host}' is not a host; write gateway.example.com or [::1]:7801")
        return value

    @field_validator("mcp_allowed_origins", mode="after")
    @classmethod
    def _web_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            scheme, _, host = origin.partition("://")
            if scheme.lower() not in ("http", "https") or not HOST.fullmatch(host):
                raise ValueError(f"'{origin}' is not an origin; write https://app.example.com")
        return value

    @field_validator("fetch_allow", mode="before")
    @classmethod
    def _fetch_origins(cls, value: Any) -> Any:
        given = value.split(",") if isinstance(value, str) else value
        try:
            return tuple(parse_origin(part) for part in given if part.strip())
        except Invalid as exc:
            raise ValueError(exc.message) from exc

    @override
    def model_post_init(self, context: Any, /) -> None:
        self._origins = SettingOrigins(type(self), self.model_fields_set)

    def origin_of(self, key: str) -> SettingOrigin:
        """Where the value of the field ``key`` comes from."""
        return self._origins.of(key)

    def note_arguments(self, keys: Iterable[str]) -> None:
        """Arguments override the environment."""
        self._origins.note_arguments(keys)

    @property
    def manifests(self) -> Path:
        return self.manifest_dir or self.data_dir / "manifests"

    @property
    def jobs_at_a_time(self) -> int:
        """Concurrent jobs of one worker."""
        if self.worker_concurrency is not None:
            return self.worker_concurrency
        remote = any((self.embed_base_url, self.embed_api_key, self.providers))
        return JOBS_THAT_WAIT if remote else JOBS_THAT_WORK

    @property
    def search_seconds(self) -> float:
        """The deadline of a search."""
        return self.search_timeout_ms / 1000

    @property
    def gateway_url(self) -> str:
        return (self.url or f"http://{self.bind}:{self.port}").rstrip("/")

    @property
    def addresses_missing(self) -> list[str]:
        """Settings of backing services without an address: those services are embedded."""
        given = {
            "LLC_POSTGRES_DSN": self.postgres_dsn,
            "LLC_QDRANT_URL": self.qdrant_url,
            "LLC_S3_ENDPOINT": self.s3_endpoint,
        }
        return [name for name, value in given.items() if value is None]

    @property
    def blob_bucket(self) -> str | None:
        """The bucket of all blobs; None if blobs are files."""
        return self.s3_bucket if self.s3_endpoint is not None else None


def load_settings(**overrides: Any) -> Settings:
    """Settings of this process; ``Invalid`` names an invalid variable."""
    try:
        settings = Settings(**overrides)
        settings.note_arguments(overrides)
        return settings
    except ValidationError as exc:
        problems = "; ".join(
            f"{'.'.join(str(p) for p in e['loc'])}: {e['msg']}" for e in exc.errors()
        )
        raise Invalid(f"settings cannot be read: {problems}; see .env.example") from exc


def setting_names() -> dict[str, tuple[str, ...]]:
    """Every setting with its variables, the main name first."""
    names: dict[str, tuple[str, ...]] = {}
    for key, field in Settings.model_fields.items():
        choices = field.validation_alias
        if isinstance(choices, AliasChoices):
            names[key] = tuple(str(choice) for choice in choices.choices)
    return names


def unknown_variables(environ: Iterable[str]) -> list[str]:
    """Unknown variables that look like ours, each with the most similar known name."""
    known = {name for names in setting_names().values() for name in names}
    known |= file_variables(Settings)
    strange = sorted(
        name
        for name in environ
        if name.startswith(OURS) and not name.startswith(OF_TESTS) and name not in known
    )
    return [_hinted(name, known) for name in strange]


def _hinted(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    return f"{name} (did you mean {near[0]}?)" if near else name


def given_variables() -> set[str]:
    """Names of all variables of the environment and of ``.env``."""
    given = {*EnvSettingsSource(Settings).env_vars, *DotEnvSettingsSource(Settings).env_vars}
    return {name.upper() for name in given}


def warn_of_unknown_variables() -> None:
    """Log unknown variables in the environment or ``.env``. Call it after logging is set up."""
    for name in unknown_variables(given_variables()):
        logger.warning(
            "unknown_setting",
            extra={"variable": name, "remedy": "see .env.example for the known variables"},
        )
