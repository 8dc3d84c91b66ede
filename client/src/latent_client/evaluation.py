"""Calls for the quality of a container: golden queries, evaluations, and the log of queries."""

from __future__ import annotations

from typing import Any, Final

from latent_client.transport import ClientCalls, part
from latent_core.domain.errors import Conflict
from latent_core.domain.golden import GoldenQuery, GoldenSet
from latent_core.wire.evaluation import (
    EvalHistory,
    EvalRequest,
    EvalRun,
    EvalRunAnswer,
    EvalRuns,
    KeptRun,
    RunDifference,
)
from latent_core.wire.golden import GoldenList, GoldenQueryAnswer, GoldenSetAnswer
from latent_core.wire.jobs import JobAccepted
from latent_core.wire.queries import QueryKind, QueryLogAnswer, QueryLogCleared

MAX_READS: Final = 3
"""Reads of a set that changes between its pages."""


class EvaluationCalls(ClientCalls):
    """Calls of ``AsyncClient`` for quality."""

    async def evaluate(self, container_id: str, request: EvalRequest) -> JobAccepted:
        """Start an evaluation, by default with the container's golden queries. The job's ``result`` is an
        ``EvalReport``."""
        body = request.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        path = f"/v1/containers/{part(container_id)}/eval"
        return await self._transport.ask(JobAccepted, "POST", path, json=body)

    async def eval_runs(self, container_id: str) -> list[KeptRun]:
        """The last baseline of each set of queries and setup."""
        path = f"/v1/containers/{part(container_id)}/eval"
        return [run async for page in self._pages(EvalRuns, path) for run in page.runs]

    async def eval_history(self, container_id: str, *, setup: str | None = None) -> list[EvalRun]:
        """All stored runs, newest first."""
        path = f"/v1/containers/{part(container_id)}/eval/runs"
        pages = self._pages(EvalHistory, path, setup=setup)
        return [run async for page in pages for run in page.runs]

    async def eval_run(self, container_id: str, run_id: int) -> EvalRunAnswer:
        """One run with the verdict of every query."""
        path = f"/v1/containers/{part(container_id)}/eval/runs/{run_id}"
        return await self._transport.ask(EvalRunAnswer, "GET", path)

    async def eval_difference(self, container_id: str, run_id: int, *, since: int) -> RunDifference:
        """A run compared with an earlier one, query by query."""
        path = f"/v1/containers/{part(container_id)}/eval/runs/{run_id}/difference"
        return await self._transport.ask(RunDifference, "GET", path, query={"since": since})

    async def golden_list(self, container_id: str) -> GoldenList:
        """All golden queries of a container, with their etags. ``Conflict`` if they change all the time."""
        for _ in range(MAX_READS):
            pages = [page async for page in self._pages(GoldenList, _golden(container_id))]
            if len({page.etag for page in pages}) == 1:
                queries = [query for page in pages for query in page.queries]
                return pages[0].model_copy(update={"queries": queries, "next_cursor": None})
        raise Conflict(
            f"the golden queries of '{container_id}' changed while they were read: retry"
        )

    async def replace_golden(
        self, container_id: str, golden: GoldenSet, *, if_match: str
    ) -> GoldenSetAnswer:
        """Replace all golden queries. Raises ``PreconditionFailed`` if the etag of the set differs from ``if_match``."""
        return await self._transport.ask(
            GoldenSetAnswer,
            "PUT",
            _golden(container_id),
            json=golden.written(),
            headers={"If-Match": f'"{if_match}"'},
        )

    async def clear_golden(self, container_id: str, *, if_match: str) -> GoldenSetAnswer:
        """Remove all golden queries and thresholds."""
        headers = {"If-Match": f'"{if_match}"'}
        return await self._transport.ask(
            GoldenSetAnswer, "DELETE", _golden(container_id), headers=headers
        )

    async def add_golden(
        self, container_id: str, query: GoldenQuery, *, merge: bool = False
    ) -> GoldenQueryAnswer:
        """Add a golden query. With ``merge``, a query with the same text gets what this one expects."""
        body = _query_body(query) | ({"merge": True} if merge else {})
        return await self._transport.ask(
            GoldenQueryAnswer, "POST", _golden(container_id), json=body
        )

    async def change_golden(
        self, container_id: str, query: GoldenQuery, *, if_match: str
    ) -> GoldenQueryAnswer:
        """Replace the query with the same id. Raises ``PreconditionFailed`` if its etag differs from ``if_match``."""
        return await self._transport.ask(
            GoldenQueryAnswer,
            "PUT",
            f"{_golden(container_id)}/{part(query.id)}",
            json=_query_body(query),
            headers={"If-Match": f'"{if_match}"'},
        )

    async def remove_golden(self, container_id: str, query_id: str) -> GoldenSetAnswer:
        path = f"{_golden(container_id)}/{part(query_id)}"
        return await self._transport.ask(GoldenSetAnswer, "DELETE", path)

    async def logged_queries(
        self,
        container_id: str,
        kind: QueryKind = QueryKind.FREQUENT,
        *,
        days: int = 30,
        limit: int = 50,
    ) -> QueryLogAnswer:
        """The log of queries; needs the right to administer the container."""
        query = {"kind": kind.value, "days": days, "limit": limit}
        path = f"/v1/containers/{part(container_id)}/queries"
        return await self._transport.ask(QueryLogAnswer, "GET", path, query=query)

    async def clear_logged_queries(self, container_id: str) -> int:
        """Delete the log of a container; returns the number of entries."""
        path = f"/v1/containers/{part(container_id)}/queries"
        return (await self._transport.ask(QueryLogCleared, "DELETE", path)).deleted


def _golden(container_id: str) -> str:
    return f"/v1/containers/{part(container_id)}/golden"


def _query_body(query: GoldenQuery) -> dict[str, Any]:
    return query.model_dump(mode="json", exclude_defaults=True)
