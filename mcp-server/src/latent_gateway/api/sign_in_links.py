"""``POST /v1/admin/sign-in-link``: a new one-time link to the console of this gateway (ADR 0039)."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from latent_core.wire.access import SignInLink
from latent_gateway.auth import access
from latent_gateway.auth.sign_in_codes import VALID_SECONDS, check_local
from latent_gateway.context import Caller, RequestId, Shared
from latent_gateway.envelope import json_answer

router = APIRouter(tags=["admin"])


@router.post("/v1/admin/sign-in-link", response_model=SignInLink)
async def create(
    request: Request, shared: Shared, caller: Caller, request_id: RequestId
) -> Response:
    """A new link that signs a browser on this machine in as the owner, once and within 15 minutes.

    Only the owner's own token may request it, from the machine that runs the gateway: the session has all rights.
    """
    access.require_own_token(caller)
    check_local(request)
    url = shared.sign_in_codes.link(str(request.base_url))
    answer = SignInLink(url=url, valid_seconds=VALID_SECONDS)
    return json_answer(answer, request_id, headers={"Cache-Control": "no-store"})
