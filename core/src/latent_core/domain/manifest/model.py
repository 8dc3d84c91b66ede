"""The manifest: the settings of a container (DESIGN §5). By the defaults, five lines are enough."""

from __future__ import annotations

import difflib
import re
import string
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from cronsim import CronSim, CronSimError
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from latent_core.domain.chunk import Modality
from latent_core.domain.errors import Invalid, Issue, IssueCode
from latent_core.domain.ids import CONTAINER_SLUG
from latent_core.domain.manifest.custom_schema import MAX_FIELDS, check_name, check_rule
from latent_core.domain.manifest.language_models import (
    MODEL_BLOCKS,
    ModelBlock,
    ModelBudget,
    Summaries,
)
from latent_core.domain.manifest.path_meta import check_pattern
from latent_core.domain.retrieval import (
    CHANNELS as CHANNELS,
    OFFERED_MODES as OFFERED_MODES,
    RERANKERS as RERANKERS,
    Fusion as Fusion,
    FusionMethod as FusionMethod,
    SearchMode as SearchMode,
    check_reranker as check_reranker,
)
from latent_core.domain.text import unsound


def check_cron(expression: str) -> str:
    """Return the expression if it is valid and occurs at all; ``ValueError`` says what is wrong."""
    if len(expression.split()) != 5:
        raise ValueError(
            f"'{expression}' must have five fields: minute hour day month weekday, in UTC"
        )
    try:
        next(CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC)))
    except (CronSimError, StopIteration) as exc:
        raise ValueError(
            f"'{expression}' never occurs or is not a cron expression ({exc}); '0 3 * * *' means daily at 3:00 UTC"
        ) from exc
    return expression


def first_due(expression: str, last: datetime) -> datetime | None:
    """The first due time after ``last``; None for an expression that is never due."""
    return next(CronSim(expression, last.astimezone(UTC)), None)


def due_since(expression: str, last: datetime, now: datetime) -> datetime | None:
    """The latest due time after ``last`` and up to ``now``; None when there is none.

    Searches backwards from now, so a thousand missed times cost no more than one.
    """
    latest = next(CronSim(expression, now.astimezone(UTC), reverse=True), None)
    exact = first_due(expression, last)
    if latest is None or exact is None or exact > now:
        return None
    return max(latest, exact)


LOCAL: Final = frozenset({"local", "local-int8"})
"""Languages of the built-in model, all-MiniLM-L6-v2: English, and code with English names."""
LOCAL_MULTILINGUAL: Final = "local-multilingual"
LOCAL_FOLDER: Final = "local:"
READ_BY_LOCAL: Final = frozenset({"english", "code"})
OPENAI: Final = "openai/"
NOMIC: Final = "nomic/"
VLLM: Final = "vllm/"
JINA: Final = "jina/"
VLLM_WITHOUT_PREFIX: Final = frozenset({"nomic-embed-multimodal-7b"})
MODEL_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,95}")
"""Of an installed model."""
OWN_NAMES: Final = re.compile(r"local(?:-.*)?")
"""Of embedders that come with this program."""
VISION: Final = "-vision-"
"""Part of the names of Nomic's models that read images."""


def reads_language(name: str, language: str) -> bool:
    """Whether the embedder ``name`` was trained on texts in ``language``, as ``detect_language`` names it. Assumed for
    all but the built-in ones, since a person chose them for these texts."""
    return name not in LOCAL or language in READ_BY_LOCAL


def is_local(name: str) -> bool:
    """Whether it runs in the process: then its files define the version and dimensions."""
    built_in = name in LOCAL or name == LOCAL_MULTILINGUAL
    return built_in or name.startswith(LOCAL_FOLDER) or is_installable(name)


def is_installable(name: str) -> bool:
    """Whether ``embedder: <name>`` means a model of ``latent models add``."""
    ours = OWN_NAMES.fullmatch(name) is not None or name in VLLM_WITHOUT_PREFIX
    return MODEL_NAME.fullmatch(name) is not None and not ours


WITH_IMAGES: Final = "+images"
"""End of the version of a local model that reads images, which its name does not tell."""
_OF_IMAGES: Final = re.compile(r".*\+images(?:\.[0-9a-f]{12})?", re.DOTALL)
"""Such versions; those of pairs of two repositories name the revision of the second."""


def is_of_images(version: str) -> bool:
    """Whether the version of a local model says that it reads images."""
    return _OF_IMAGES.fullmatch(version) is not None


def reads_images(name: str, version: str = "") -> bool:
    """Whether the embedder ``name`` also reads images. ``version``: of its vectors, if they exist."""
    if is_local(name) or "/" not in name:
        return is_of_images(version) or name in VLLM_WITHOUT_PREFIX
    if name.startswith(NOMIC):
        return VISION in name
    return name in VLLM_WITHOUT_PREFIX or name.startswith((VLLM, JINA))


DEFAULT_CHUNK_TOKENS = 600
SANITIZE_RULES: Final = (
    "strip_nav",
    "strip_ads",
    "strip_header",
    "strip_footer",
    "strip_aside",
    "strip_forms",
    "strip_comments",
    "strip_cookies",
    "strip_related",
)
"""What ``web.sanitize_rules`` may name; each is one entry in ``latent_workers.parse.web.sanitize``."""


class _ManifestModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Freshness(_ManifestModel):
    enabled: bool = False
    decay_lambda: float = Field(default=0.02, ge=0.0)


class Rerank(_ManifestModel):
    enabled: bool = False
    top_k_in: int = Field(default=50, ge=1, le=1000)
    top_k_out: int = Field(default=10, ge=1, le=100)
    provider: Annotated[str, AfterValidator(check_reranker)] = "none"
    """``none`` (as LLC_RERANK_PROVIDER says), ``api``, ``local`` or ``<provider>/<model>``."""


class Debug(_ManifestModel):
    return_diagnostics: bool = False


class Retrieval(_ManifestModel):
    mode_default: SearchMode = SearchMode.HYBRID
    fusion: Fusion = Fusion()
    freshness: Freshness = Freshness()
    rerank: Rerank = Rerank()
    debug: Debug = Debug()
    mark_weak: bool = False
    """Hits whose relevance is below 0.5 are marked as weak (ADR 0033 says how far that can be trusted)."""

    @field_validator("mode_default")
    @classmethod
    def _offered(cls, value: SearchMode) -> SearchMode:
        if value not in OFFERED_MODES:
            raise ValueError(
                f"'{value.value}' is not offered yet; use one of {', '.join(OFFERED_MODES)}"
            )
        return value


class Chunker(_ManifestModel):
    mode: Literal["semantic_then_fallback"] = "semantic_then_fallback"
    size: int | None = Field(default=None, ge=16, le=8192)
    """Tokens of the embedder; default min(600, its window)."""
    overlap: float = Field(default=0.12, ge=0.0, le=0.5)
    table_rows: int = Field(default=25, ge=1)
    code_lines: int = Field(default=180, ge=10)
    code_overlap: int = Field(default=30, ge=0)

    def tokens(self, window: int) -> int:
        """The token budget of a chunk for an embedder that reads ``window`` tokens."""
        return min(self.size or DEFAULT_CHUNK_TOKENS, window)


class Pdf(_ManifestModel):
    render_dpi: int = Field(default=150, ge=36, le=600)
    image_format: Literal["webp", "png"] = "webp"
    max_pages: int = Field(default=1000, ge=1)


class Image(_ManifestModel):
    thumbnail_max_edge: int = Field(default=2048, ge=64, le=16384)
    compress_quality: int = Field(default=90, ge=1, le=100)


class Web(_ManifestModel):
    javascript: bool = False
    sanitize_rules: list[str] = ["strip_nav", "strip_ads"]
    """Elements removed from a page before its text is extracted."""

    @field_validator("sanitize_rules")
    @classmethod
    def _known_rules(cls, value: list[str]) -> list[str]:
        for rule in value:
            if rule not in SANITIZE_RULES:
                raise ValueError(f"'{rule}' is no rule; there are {', '.join(SANITIZE_RULES)}")
        return value


class Dedup(_ManifestModel):
    semantic_threshold: float = Field(default=0.92, ge=0.0, le=1.0)


FieldName = Annotated[str, AfterValidator(check_name)]
WrittenRule = Annotated[Any, AfterValidator(check_rule)]


class Metadata(_ManifestModel):
    custom_schema: dict[FieldName, WrittenRule] = Field(default_factory=dict, max_length=MAX_FIELDS)
    """Maps fields to their rules, as ``latent_core.domain.manifest.custom_schema`` parses them."""


class BlobStorage(_ManifestModel):
    bucket: str | None = None
    """A bucket of the S3 server for the container's blobs; default LLC_S3_BUCKET. Created with the container."""


class Storage(_ManifestModel):
    blobs: BlobStorage = BlobStorage()


class Backup(_ManifestModel):
    cron: Annotated[str, AfterValidator(check_cron)] | None = None
    """Five fields, in UTC."""
    keep: int = Field(default=7, ge=1)
    """Number of backups to keep; older ones are deleted."""


class Eval(_ManifestModel):
    enabled: bool = False
    metrics: list[Literal["ndcg@10", "recall@20", "latency"]] = ["ndcg@10", "recall@20", "latency"]
    """Metrics that must not become worse than in the last run."""
    thresholds: dict[Literal["ndcg@10", "recall@20", "p95_latency_ms"], float] = Field(
        default_factory=dict
    )
    """Minimum means of the golden queries, and the maximum p95; thresholds in a golden set take priority."""


MAX_LOG_DAYS: Final = 365


class QueryLog(_ManifestModel):
    keep_days: int | None = Field(default=None, ge=1, le=MAX_LOG_DAYS)
    """Log the queries of searches, without who sent them, and keep them so long. None: they are not logged."""


class Display(_ManifestModel):
    sort: Literal["score_then_freshness", "freshness_then_score", "source_then_score"] = (
        "score_then_freshness"
    )
    snippet_template: str = "{snippet}"
    max_snippet_chars: int = Field(default=320, ge=20, le=10_000)
    source_priority: list[str] = []

    @field_validator("snippet_template")
    @classmethod
    def _plain_variables(cls, value: str) -> str:
        for _, name, form, conversion in string.Formatter().parse(value):
            if name is not None and (not name.isidentifier() or form or conversion):
                raise ValueError(f"variables are plain names such as {{title}}, not {{{name}}}")
        return value


class Roles(_ManifestModel):
    owner: list[str] = ["local:you"]
    writer: list[str] = []
    """May read, and add documents."""
    reader: list[str] = []

    @field_validator("owner")
    @classmethod
    def _somebody(cls, value: list[str]) -> list[str]:
        if not any(name.strip() for name in value):
            raise ValueError(
                "name at least one owner, such as local:you: only owners may change the container"
            )
        return value


class Acl(_ManifestModel):
    roles: Roles = Roles()


class Transcripts(_ManifestModel):
    """What is kept of transcripts and exports of assistants besides the messages of people and models."""

    tools: bool = False
    """Calls of tools and their output."""
    reasoning: bool = False
    """What a model thought before it answered."""


class Ingest(_ManifestModel):
    meta_from_path: Annotated[str, AfterValidator(check_pattern)] | None = None
    """A pattern such as ``{year}/{quarter}/*.pdf`` (``latent_core.domain.manifest.path_meta``)."""
    ttl_days: int | None = Field(default=None, ge=1)
    """Documents that were not fetched or confirmed unchanged for this time are deleted."""
    transcripts: Transcripts = Transcripts()


class Vectors(_ManifestModel):
    quantization: Literal["none", "int8"] | None = None
    shards: int = Field(default=1, ge=1)
    replicas: int = Field(default=1, ge=1)
    own_collection: bool = False
    """Never share a collection with other small containers (``LLC_QDRANT_COLLECTIONS``)."""


class Manifest(_ManifestModel):
    """One container's manifest. Immutable: a change is a new manifest."""

    id: str
    name: str
    theme: str = ""
    modalities: list[Modality] = [Modality.TEXT]
    """With ``image``, pages of PDFs get image vectors; the default if the embedder reads images."""
    embedder: str = "local"
    embedder_version: str | None = None
    """Default: the installed embedder's version."""
    dims: int | None = Field(default=None, ge=1, le=65_536)
    """Default: the embedder's; a given value is checked against the embedder's first answer."""
    retrieval: Retrieval = Retrieval()
    chunker: Chunker = Chunker()
    pdf: Pdf = Pdf()
    image: Image = Image()
    web: Web = Web()
    dedup: Dedup = Dedup()
    metadata: Metadata = Metadata()
    storage: Storage = Storage()
    backup: Backup = Backup()
    eval: Eval = Eval()
    query_log: QueryLog = QueryLog()
    display: Display = Display()
    acl: Acl = Acl()
    summaries: Summaries = Summaries()
    extraction: ModelBlock = ModelBlock()
    captions: ModelBlock = ModelBlock()
    speech: ModelBlock = ModelBlock()
    ask: ModelBlock = ModelBlock()
    model_budget: ModelBudget = ModelBudget()
    ingest: Ingest = Ingest()
    vectors: Vectors = Vectors()

    @field_validator("id")
    @classmethod
    def _slug(cls, value: str) -> str:
        if not CONTAINER_SLUG.fullmatch(value):
            raise ValueError(
                "must be 1 to 63 of a-z, 0-9 and '-', not beginning or ending with '-'"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _all_that_the_embedder_reads(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "modalities" in data:
            return data
        seeing = isinstance(data.get("embedder"), str) and reads_images(data["embedder"])
        return {**data, "modalities": [Modality.TEXT, Modality.IMAGE]} if seeing else data

    @model_validator(mode="after")
    def _require_a_modality(self) -> Self:
        if not self.modalities:
            raise ValueError("modalities: name at least one of text, image")
        return self


def parse_manifest(
    data: Any, *, where: str = "manifest", lines: dict[str, int] | None = None
) -> Manifest:
    """Validate ``data``; ``Invalid`` names where, the line when ``lines`` knows it, the key and the nearest known key."""
    if not isinstance(data, dict):
        raise Invalid(f"{where}: a manifest is a mapping of keys, not {type(data).__name__}")
    wrong = unsound(data)
    if wrong is not None:
        path, why = wrong
        raise Invalid(f"{_at(path, where, lines or {})}: {path or 'manifest'}: {why}")
    try:
        return Manifest.model_validate(data)
    except ValidationError as exc:
        problems = [_problem(error, where, lines or {}) for error in exc.errors()]
        raise Invalid("; ".join(problems), problems=problems) from exc


def new_manifest(words: Mapping[str, Any], *, where: str = "manifest") -> Manifest:
    """A manifest of which its author gave only ``words``: for the rest it has what is best now, while a manifest that
    somebody wrote keeps the defaults that it was written with."""
    return parse_manifest({"retrieval": {"fusion": {"method": "auto"}}, **words}, where=where)


def _problem(error: Any, where: str, lines: dict[str, int]) -> str:
    path = [str(part) for part in error["loc"]]
    key = ".".join(path)
    at = _at(key, where, lines)
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], known_keys(path[:-1]), n=1, cutoff=0.5)
        hint = (
            f"; did you mean '{near[0]}'?"
            if near
            else f"; known here: {', '.join(known_keys(path[:-1]))}"
        )
        return f"{at}: unknown key '{key}'{hint}"
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{at}: {key or 'manifest'}: {message}"


def _at(key: str, where: str, lines: dict[str, int]) -> str:
    """``where``, with the line of the key or of its nearest known parent."""
    while key and key not in lines:
        key = key.rpartition(".")[0]
    return f"{where}, line {lines[key]}" if key else where


def known_keys(path: list[str]) -> list[str]:
    """Keys a manifest may hold below ``path``."""
    model: type[BaseModel] = Manifest
    for part in path:
        field = model.model_fields.get(part)
        inner = field.annotation if field else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return []
        model = inner
    return sorted(model.model_fields)


def model_block(manifest: Manifest, key: str) -> ModelBlock:
    block = getattr(manifest, key) if key in MODEL_BLOCKS else None
    if not isinstance(block, ModelBlock):
        raise ValueError(f"{key} permits no language model")
    return block


def check_offered(manifest: Manifest, bucket: str | None) -> list[Issue]:
    """Raise ``Invalid`` for a key that would have no effect; returns issues for the sender.

    ``bucket`` is the installation's own; None if blobs are files.
    """
    if refused := lacking(manifest):
        raise Invalid("; ".join(refused.values()), keys=list(refused))
    named = manifest.storage.blobs.bucket
    if named is None or bucket is not None:
        return []
    message = "storage.blobs.bucket has no effect: this installation stores blobs as files, because LLC_S3_ENDPOINT is not set"
    return [Issue(code=IssueCode.POLICY, message=message)]


def lacking(manifest: Manifest) -> dict[str, str]:
    """Keys of blocks that are enabled without a provider, each with its error message."""
    return {
        f"{key}.enabled": (
            f"{key}.enabled is true, but {key}.provider names no language model. Set it to <provider>/<model>, with a"
            " provider of the file LLC_PROVIDERS"
        )
        for key in MODEL_BLOCKS
        if (block := model_block(manifest, key)).enabled and block.provider is None
    }


def settled(manifest: Manifest) -> tuple[Manifest, list[str]]:
    """The manifest without the blocks that ``lacking`` names, and their keys."""
    refused = lacking(manifest)
    keys = [key.removesuffix(".enabled") for key in refused]
    off = {key: type(model_block(manifest, key))() for key in keys}
    return manifest.model_copy(update=off), list(refused)
