"""Shared collections: many small containers in one collection of the server, told apart by payload fields.

``s_<hash>/c_<container>_<modality>_<space>`` is the collection of one space in the shared collection ``s_<hash>``. To
all other modules it is a collection like any other.
"""

from __future__ import annotations

from typing import Any, Final

from qdrant_client import models

from latent_core.domain.ids import WITHIN, container_of_collection

CONTAINER_FIELD: Final = "container_id"
COLLECTION_FIELD: Final = "collection"
"""A container may have a retired space in the same shared collection as its live one had."""
MAX_TENANTS: Final = 1_000_000
TENANT_FIELDS: Final[dict[str, models.PayloadFieldSchema]] = {
    CONTAINER_FIELD: models.KeywordIndexParams(
        type=models.KeywordIndexType.KEYWORD, is_tenant=True
    ),
    COLLECTION_FIELD: models.PayloadSchemaType.KEYWORD,
}


def server_collection(name: str) -> str:
    """The collection on the server that holds ``name``."""
    return name.partition(WITHIN)[0]


def tenant_of(name: str) -> str | None:
    """The part of a shared collection; None for a collection of its own."""
    return name.partition(WITHIN)[2] or None


def tenant_payload(name: str) -> dict[str, Any]:
    """The payload fields that mark a point of ``name``."""
    tenant = tenant_of(name)
    if tenant is None:
        return {}
    return {CONTAINER_FIELD: container_of_collection(tenant), COLLECTION_FIELD: tenant}


def tenant_conditions(name: str) -> list[models.FieldCondition]:
    """Conditions that only points of ``name`` meet."""
    return [
        models.FieldCondition(key=key, match=models.MatchValue(value=value))
        for key, value in tenant_payload(name).items()
    ]
