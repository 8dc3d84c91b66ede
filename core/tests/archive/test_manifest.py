"""Manifests: defaults, errors that help, and no key that is silently ignored."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from latent_core.domain.errors import Invalid
from latent_core.domain.manifest.model import (
    OFFERED_MODES,
    Fusion,
    FusionMethod,
    Manifest,
    SearchMode,
    new_manifest,
    parse_manifest,
)

# Every key, with what changes when it changes, or the part of the plan that delivers it.
DELIVERED = {
    "id": "names the container",
    "name": "shown in listings",
    "theme": "shown by describe",
    "modalities": "with image, pages of PDFs are embedded as they look; without text, nothing but images is taken",
    "embedder": "chooses the embedder",
    "embedder_version": "must be the embedder's",
    "dims": "must be the embedder's; decides the collection's width",
    "retrieval.mode_default": "mode of a search that names none",
    "retrieval.fusion.method": "how channels are fused",
    "retrieval.fusion.k": "RRF constant",
    "retrieval.fusion.weights": "weights of channels",
    "retrieval.debug.return_diagnostics": "diagnostics without asking",
    "retrieval.mark_weak": "hits of a low relevance are marked",
    "retrieval.freshness.enabled": "a young source counts for more",
    "retrieval.freshness.decay_lambda": "how fast it ages",
    "retrieval.rerank.enabled": "the head is reranked in every mode",
    "retrieval.rerank.top_k_in": "candidates that are reranked",
    "retrieval.rerank.top_k_out": "most hits of a reranked answer",
    "retrieval.rerank.provider": "who reranks",
    "display.sort": "order of the hits of a page",
    "display.source_priority": "source types first in source_then_score",
    "chunker.mode": "one mode exists",
    "chunker.size": "token budget of a chunk",
    "chunker.overlap": "repeated part of split blocks",
    "chunker.table_rows": "rows of a table's group",
    "chunker.code_lines": "most lines of a window of code",
    "chunker.code_overlap": "lines that two windows of code share",
    "pdf.render_dpi": "resolution of page images",
    "pdf.image_format": "format of page images",
    "pdf.max_pages": "pages read, the rest said",
    "image.compress_quality": "quality of page images",
    "image.thumbnail_max_edge": "size of the page image of an image",
    "web.javascript": "pages are rendered by a browser, or refused where there is none",
    "web.sanitize_rules": "what is taken out of pages",
    "dedup.semantic_threshold": "cosine from which a chunk repeats an earlier one; a change has all judged anew",
    "display.snippet_template": "rendered_snippet",
    "display.max_snippet_chars": "length of snippets",
    "metadata.custom_schema": "fields of meta, checked when documents are added and published",
    "ingest.meta_from_path": "meta that stands in a document's path",
    "vectors.quantization": "int8 with rescoring or exact vectors, on a Qdrant server",
    "vectors.shards": "shards of its collection there",
    "vectors.replicas": "copies of each shard there",
    "vectors.own_collection": "its vectors share no collection with other containers",
    "acl.roles.owner": "who may change",
    "acl.roles.reader": "who may read",
    "acl.roles.writer": "who may read and add documents",
    "storage.blobs.bucket": "the bucket of its blobs, on an S3 server",
    "backup.cron": "when backups are made",
    "backup.keep": "how many of them stay",
    "eval.enabled": "no other space is switched to without golden queries",
    "eval.metrics": "what an evaluation compares with the last run",
    "eval.thresholds": "gates of an evaluation",
    "query_log.keep_days": "queries of searches are logged and kept so long",
    "ingest.transcripts.tools": "tool calls of transcripts are kept",
    "ingest.transcripts.reasoning": "reasoning in transcripts is kept",
    "model_budget.job_tokens": "tokens of language models in one job",
    "model_budget.tokens": "tokens of language models in all",
    "model_budget.cost": "cost of language models in all",
    "ask.enabled": "whether questions are answered from it",
    "ask.provider": "the language model that answers",
    "extraction.enabled": "pages are described by a language model",
    "extraction.provider": "which one",
    "summaries.enabled": "documents are summarised by a language model",
    "summaries.provider": "which one",
    "summaries.weight": "weight of their channel in searches",
    "captions.enabled": "pictures are described by a language model",
    "captions.provider": "which one",
    "speech.enabled": "recordings are transcribed by a language model",
    "speech.provider": "which one",
    "ingest.ttl_days": "when documents that are not fetched again are deleted",
}


def _keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    found: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found |= _keys(inner, f"{prefix}{name}.")
        else:
            found.add(prefix + name)
    return found


def test_every_key_has_a_behaviour() -> None:
    assert _keys(Manifest) == set(DELIVERED)


@pytest.mark.parametrize(
    ("embedder", "message", "meant"),
    [
        ("local", {}, ["text"]),
        ("openai/model", {}, ["text"]),
        ("nomic-embed-multimodal-7b", {}, ["text", "image"]),
        ("vllm/model", {}, ["text", "image"]),
        ("vllm/model", {"modalities": ["text"]}, ["text"]),
    ],
)
def test_what_an_embedder_reads_is_what_a_container_shows_unless_it_says_otherwise(
    embedder: str, message: dict[str, Any], meant: list[str]
) -> None:
    read = parse_manifest({"id": "a", "name": "A", "embedder": embedder, "dims": 8} | message)
    assert read.modalities == meant


def test_a_five_line_manifest_is_valid() -> None:
    manifest = parse_manifest({"id": "notes", "name": "Notes"})
    assert manifest.embedder == "local"
    assert manifest.retrieval.fusion.k == 60


def test_a_manifest_written_for_its_author_fuses_by_auto_and_a_written_one_as_it_says() -> None:
    words = {"id": "notes", "name": "Notes"}
    assert new_manifest(words).retrieval.fusion == Fusion(method=FusionMethod.AUTO)
    assert parse_manifest(words).retrieval.fusion.method is FusionMethod.RRF
    with pytest.raises(Invalid, match="here: id"):
        new_manifest({"id": "No", "name": "N"}, where="here")


def _fusion(weights: dict[str, float]) -> dict[str, Any]:
    return {"id": "notes", "name": "N", "retrieval": {"fusion": {"weights": weights}}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"id": "notes", "name": "N", "embeder": "local"}, "did you mean 'embedder'"),
        (
            {"id": "notes", "name": "N", "retrieval": {"fusion": {"methd": "rrf"}}},
            "did you mean 'method'",
        ),
        ({"id": "Not A Slug", "name": "N"}, "id: must be 1 to 63"),
        ({"id": "notes", "name": "N", "chunker": {"size": "big"}}, "chunker.size"),
        ({"id": "notes"}, "name"),
        ([], "a manifest is a mapping"),
        ({"id": "notes", "name": "N", "modalities": []}, "name at least one"),
        (
            {"id": "notes", "name": "N", "display": {"snippet_template": "{title.__class__}"}},
            "snippet_template",
        ),
        ({"id": "notes", "name": "N", "display": {"snippet_template": "{"}}, "snippet_template"),
        (_fusion({"bm52": 1.0}), "'bm52' is no channel; there are bm25, vector, exact"),
        (_fusion({"bm25": -1.0}), "retrieval.fusion.weights.bm25"),
        (_fusion({"bm25": float("nan")}), "not finite"),
        (_fusion({"bm25": float("inf")}), "not finite"),
        (_fusion({"bm25": 0.0, "vector": 0.0}), "cannot both weigh 0"),
        ({"id": "notes", "name": "N", "acl": {"roles": {"owner": []}}}, "at least one owner"),
        ({"id": "notes", "name": "N", "acl": {"roles": {"owner": [" "]}}}, "at least one owner"),
        ({"id": "notes", "name": "a\x00b"}, "name: must not contain the control character"),
        (
            {"id": "notes", "name": "N", "theme": "\ud800"},
            "theme: must not contain the lone surrogate",
        ),
        (
            {"id": "notes", "name": "N", "metadata": {"custom_schema": {"a": [2**70]}}},
            "metadata.custom_schema.a.0: must not contain an integer",
        ),
    ],
)
def test_what_is_wrong_is_named_with_a_hint(data: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message.replace("(", r"\(")):
        parse_manifest(data)


@pytest.mark.parametrize("mode", list(SearchMode))
def test_a_default_mode_that_would_refuse_every_search_is_refused(mode: SearchMode) -> None:
    data = {"id": "notes", "name": "N", "retrieval": {"mode_default": mode.value}}
    if mode in OFFERED_MODES:
        assert parse_manifest(data).retrieval.mode_default is mode
    else:
        with pytest.raises(Invalid, match="not offered yet; use one of hybrid, semantic, lexical"):
            parse_manifest(data)


def test_weights_may_leave_channels_out_and_switch_one_off() -> None:
    for weights in ({}, {"vector": 0.6}, {"bm25": 0.0}, {"bm25": 0.4, "vector": 0.6, "exact": 2}):
        assert parse_manifest(_fusion(weights)).retrieval.fusion.weights == weights


def test_lines_of_a_theme_are_kept_as_they_are() -> None:
    assert parse_manifest({"id": "n", "name": "N", "theme": "a\n\tb"}).theme == "a\n\tb"


def test_the_line_of_the_key_is_named_when_it_is_known() -> None:
    with pytest.raises(Invalid, match=r"notes\.yaml, line 3: unknown key 'retrieval\.fushion'"):
        parse_manifest(
            {"id": "notes", "name": "N", "retrieval": {"fushion": {}}},
            where="notes.yaml",
            lines={"retrieval": 2, "retrieval.fushion": 3},
        )


def test_the_token_budget_never_exceeds_the_embedders_window() -> None:
    assert parse_manifest({"id": "n", "name": "N"}).chunker.tokens(254) == 254
    assert (
        parse_manifest({"id": "n", "name": "N", "chunker": {"size": 100}}).chunker.tokens(254)
        == 100
    )
