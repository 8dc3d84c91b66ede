"""``documents_delete``."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from latent_gateway.api.documents import delete_document
from latent_gateway.api.pages import readable_document
from latent_gateway.mcp.calls import Scope, ToolCall
from latent_gateway.mcp.results import ToolResult
from latent_gateway.mcp.tools.port import Arguments, DocId, Tool


class DeleteArguments(Arguments):
    doc_id: DocId


class ToolDeletion(ToolResult):
    doc_id: str
    job_id: str
    restorable_until: str | None = None
    advice: str


async def delete(call: ToolCall, arguments: DeleteArguments) -> ToolDeletion:
    doc_id = UUID(arguments.doc_id)
    async with call.shared.stack.db.reading() as conn:
        view = await readable_document(conn, call.caller, doc_id)
    deleted = await delete_document(
        call.shared, call.caller, view.container_id, doc_id, call.request_id, now=False
    )
    until = deleted.restorable_until
    return ToolDeletion(
        doc_id=str(doc_id),
        job_id=str(deleted.job_id),
        restorable_until=until.isoformat(timespec="seconds") if until else None,
        advice="A person can restore it: `latent documents restore`."
        if until
        else "The deletion is final.",
    )


DELETE: Final = Tool(
    name="documents.delete",
    title="Delete a document",
    description="Delete a document or note. Nothing finds it any more; it can be restored for 30 days.",
    scope=Scope.WRITE,
    also=Scope.DELETE,
    arguments=DeleteArguments,
    answer=ToolDeletion,
    run=delete,
    destructive=True,
)
