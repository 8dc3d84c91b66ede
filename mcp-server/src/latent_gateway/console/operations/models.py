"""Installed models, what containers lack, providers, and a test of any model."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import Form, Request, Response

from latent_core.wire.models import ModelList
from latent_core.wire.operations import ModelTestAnswer, ModelTestBody
from latent_gateway.api import models as models_api, operations as api
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done
from latent_gateway.console.operations.runs import RunKind, last_run, live_run, start_run
from latent_gateway.console.operations.sections import operations_page
from latent_gateway.context import Gateway, Shared

router = pages()

MODEL_TEST: Final = RunKind("model_test", api.MODEL_TEST_SECONDS + 60)
PAGE: Final = "/console/operations/models"


@router.get(PAGE)
async def models_page(shared: Shared, session: SignedIn) -> Response:
    """The list of installed models is the owner's, as in the API."""
    access.require_operator(session.principal)
    found = ModelList(models=[], missing=[])
    if session.principal.is_owner:
        answer = await models_api.list_models(shared, session.principal, session.request_id)
        found = ModelList.model_validate_json(bytes(answer.body))
    return operations_page(
        "models.html",
        session,
        "models",
        found=found,
        providers=await api.provider_views(shared),
        **await _last(shared, session),
    )


@router.get(f"{PAGE}/live")
async def models_live(request: Request, shared: Shared, session: SignedIn) -> Response:
    """The test until its end."""
    return await live_run(request, shared, session, "modeltest.html", partial(_last, shared))


@router.post(PAGE)
async def begin_test(
    shared: Shared,
    session: SignedIn,
    model: Annotated[str, Form(min_length=1, max_length=512)],
    language_model: Annotated[bool, Form()] = False,
) -> Response:
    """Begin in the background, as ``POST /v1/admin/model-test``."""
    access.require_operator(session.principal)
    body = ModelTestBody(model=model.strip(), language_model=language_model)

    async def work() -> dict[str, Any]:
        answer = await api.tested(shared, session.principal, body, session.request_id)
        return answer.model_dump(mode="json")

    await start_run(shared, session.principal.name, MODEL_TEST, body.model_dump(mode="json"), work)
    return done(f"{PAGE}#test", f"{body.model[:80]} is being measured; this page shows the end.")


async def _last(shared: Gateway, session: ConsoleSession) -> dict[str, Any]:
    access.require_operator(session.principal)
    run = await last_run(shared, session.principal.name, MODEL_TEST)
    measured = None
    if run is not None and run.result is not None:
        measured = ModelTestAnswer.model_validate(run.result)
    return {"run": run, "measured": measured, "open": run is not None and run.is_open}
