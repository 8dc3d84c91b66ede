"""A manifest as a form: the keys that people change, what the form shows of them, and how its fields are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import (
    OFFERED_MODES,
    SANITIZE_RULES,
    FusionMethod,
    Manifest,
    parse_manifest,
)

WHERE: Final = "manifest"


class FieldKind(StrEnum):
    """How a value is entered."""

    TEXT = "text"
    WHOLE = "whole"
    DECIMAL = "decimal"
    SWITCH = "switch"
    CHOICE = "choice"
    NAMES = "names"
    """A list, separated by commas."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One key of a manifest."""

    key: str
    label: str
    kind: FieldKind = FieldKind.TEXT
    hint: str = ""
    choices: tuple[str, ...] = ()
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    title: str
    fields: tuple[FormField, ...]
    is_open: bool = False


T, W, D, S, C, N = FieldKind
GROUPS: Final = (
    FieldGroup(
        "Name and people",
        (
            FormField("name", "Name"),
            FormField("theme", "Theme", hint="What it holds, for people and agents."),
            FormField(
                "acl.roles.owner",
                "Owners",
                N,
                "Principals, separated by commas; * means everybody with a token.",
            ),
            FormField("acl.roles.writer", "Writers", N, "May read, and add documents."),
            FormField("acl.roles.reader", "Readers", N),
        ),
        is_open=True,
    ),
    FieldGroup(
        "Search",
        (
            FormField(
                "retrieval.mode_default",
                "Default mode",
                C,
                "Of searches that name none.",
                tuple(OFFERED_MODES),
            ),
            FormField(
                "retrieval.fusion.method",
                "Fusion",
                C,
                "How keywords and meaning are joined.",
                tuple(FusionMethod),
            ),
            FormField(
                "retrieval.mark_weak", "Mark weak hits", S, "Hits with a relevance below 0.5."
            ),
            FormField(
                "retrieval.freshness.enabled",
                "Newer hits first",
                S,
                "Of hits that are equally good.",
            ),
            FormField(
                "retrieval.freshness.decay_lambda",
                "Freshness decay per day",
                D,
                "0.02 halves the bonus in 35 days.",
            ),
            FormField(
                "retrieval.rerank.enabled",
                "Rerank hits",
                S,
                "By the configured reranker, in every mode.",
            ),
            FormField(
                "retrieval.rerank.provider", "Reranker", T, "none, api, local or provider/model."
            ),
            FormField(
                "display.sort",
                "Order of hits",
                C,
                "",
                ("score_then_freshness", "freshness_then_score", "source_then_score"),
            ),
            FormField("display.max_snippet_chars", "Length of snippets", W, "In characters."),
        ),
    ),
    FieldGroup(
        "Documents and chunks",
        (
            FormField(
                "chunker.size",
                "Chunk size",
                W,
                "In tokens. Empty: 600, or the embedder's window.",
                placeholder="600",
            ),
            FormField(
                "chunker.overlap", "Overlap", D, "Share that neighbouring chunks have in common."
            ),
            FormField("chunker.table_rows", "Table rows per chunk", W),
            FormField("chunker.code_lines", "Lines of code per chunk", W, "At most."),
            FormField("chunker.code_overlap", "Shared lines of code", W),
            FormField(
                "dedup.semantic_threshold",
                "Near-duplicates from",
                D,
                "Cosine from which a chunk repeats another; 1 is never.",
            ),
            FormField(
                "pdf.max_pages", "Pages per PDF", W, "Further pages are skipped, with a warning."
            ),
            FormField(
                "ingest.meta_from_path",
                "Meta from path",
                T,
                "A pattern such as {year}/{quarter}/*.pdf.",
            ),
            FormField(
                "ingest.ttl_days",
                "Delete after days",
                W,
                "Documents that were not fetched again. Empty: never.",
                placeholder="never",
            ),
        ),
    ),
    FieldGroup(
        "Web pages",
        (
            FormField("web.javascript", "Render in a browser", S, "Needs LLC_BROWSER_PATH."),
            FormField("web.sanitize_rules", "Remove", N, f"Of {', '.join(SANITIZE_RULES)}."),
        ),
    ),
    FieldGroup(
        "Embedder",
        (
            FormField("embedder", "Embedder", T, "A change makes all vectors again, by a refresh."),
            FormField("dims", "Dimensions", W, "Empty: those of the embedder."),
            FormField(
                "modalities",
                "Modalities",
                N,
                "text, image: with image, pages are found by their looks.",
            ),
        ),
    ),
    FieldGroup(
        "Language models",
        tuple(
            part
            for key, label in (
                ("summaries", "Summaries of documents"),
                ("extraction", "Descriptions of pages"),
                ("captions", "Captions of pictures"),
                ("speech", "Transcripts of recordings"),
                ("ask", "Answers to questions"),
            )
            for part in (
                FormField(f"{key}.enabled", label, S),
                FormField(
                    f"{key}.provider",
                    f"Model: {label[:1].lower()}{label[1:]}",
                    T,
                    placeholder="provider/model",
                ),
            )
        ),
    ),
    FieldGroup(
        "Backups and quality",
        (
            FormField(
                "backup.cron",
                "Backup schedule",
                T,
                "Five fields in UTC: 0 3 * * * is daily at 3:00.",
                placeholder="none",
            ),
            FormField("backup.keep", "Backups to keep", W),
            FormField(
                "eval.enabled", "Require golden queries", S, "A refresh switches only if they pass."
            ),
        ),
    ),
)
FIELDS: Final = {field.key: field for group in GROUPS for field in group.fields}
EMBEDDER: Final = "embedder"
_PROBLEM: Final = re.compile(r"manifest(?:, line (?P<line>\d+))?: (?P<rest>.*)", re.DOTALL)
_KEY: Final = re.compile(r"(?:unknown key ')?(?P<key>[a-z_]+(?:\.[A-Za-z0-9_@]+)*)[:']")


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """What is wrong with a manifest, where, and what to do."""

    message: str
    key: str = ""
    """Dotted; empty if it concerns the whole manifest."""
    line: int | None = None
    """In the YAML, from 1."""

    @property
    def field(self) -> str:
        """The field of the form that shows it, or none."""
        key = self.key
        while key and key not in FIELDS:
            key = key.rpartition(".")[0]
        return key


def values_of(manifest: Manifest) -> dict[str, Any]:
    """The value of each field as the form shows it: text, or a truth value."""
    data = manifest.model_dump(mode="json")
    return {key: _shown(field, _value(data, key)) for key, field in FIELDS.items()}


def read_values(form: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a sent form. A switch that is off is not in it."""
    return {
        key: key in form if field.kind is S else str(form.get(key, "")).strip()
        for key, field in FIELDS.items()
    }


def manifest_from(base: Manifest, values: Mapping[str, Any]) -> Manifest:
    """``base`` with the values of the form; ``Invalid`` names the keys that are wrong."""
    data = base.model_dump(mode="json")
    wrong = []
    for key, field in FIELDS.items():
        if values[key] == _shown(field, _value(data, key)):
            continue
        try:
            _set(data, key, _parsed(field, values[key]))
        except ValueError as error:
            wrong.append(f"{WHERE}: {key}: {error}")
    if wrong:
        raise Invalid("; ".join(wrong), problems=wrong)
    if (
        data[EMBEDDER] != base.embedder
    ):  # another embedder has its own version, and dimensions unless given
        data["embedder_version"] = None
        if data["dims"] == base.dims:
            data["dims"] = None
    return parse_manifest(data, where=WHERE)


def problems_of(error: Invalid) -> list[ManifestProblem]:
    """The parts of an error of a manifest, each with its line and key."""
    return [_problem(text) for text in error.details.get("problems", [error.message])]


def _problem(text: str) -> ManifestProblem:
    found = _PROBLEM.fullmatch(text)
    if found is None:
        return ManifestProblem(text)
    line = int(found["line"]) if found["line"] else None
    key = _KEY.match(found["rest"])
    return ManifestProblem(found["rest"], key["key"] if key else "", line)


def _value(data: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        data = data[part]
    return data


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    *above, last = key.split(".")
    for part in above:
        data = data[part]
    data[last] = value


def _shown(field: FormField, value: Any) -> Any:
    if field.kind is S:
        return bool(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)


def _parsed(field: FormField, text: Any) -> Any:
    match field.kind:
        case FieldKind.SWITCH:
            return bool(text)
        case FieldKind.NAMES:
            return [one.strip() for one in str(text).split(",") if one.strip()]
        case FieldKind.WHOLE:
            return _number(text, int, "a whole number") if text else None
        case FieldKind.DECIMAL:
            return _number(text, float, "a number such as 0.5")
        case FieldKind.CHOICE:
            return text
        case FieldKind.TEXT:
            return text if text or field.key in ("name", "theme", EMBEDDER) else None


def _number(text: str, kind: type[int] | type[float], expected: str) -> float:
    try:
        return kind(text)
    except ValueError as exc:
        raise ValueError(f"'{text[:40]}' is not {expected}") from exc
