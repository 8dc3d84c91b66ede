"""Compare the stores, and repair differences after a confirmation; the report of the last run."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Form, Request, Response

from latent_core.domain.findings import DoctorReport, Remedy
from latent_core.domain.token import Scope
from latent_core.wire.doctor import DoctorAnswer, DoctorBody
from latent_gateway.api import admin as api
from latent_gateway.auth import access
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done
from latent_gateway.console.operations.runs import RunKind, last_run, live_run, start_run
from latent_gateway.console.operations.sections import operations_page
from latent_gateway.context import Gateway, Shared

router = pages()

DOCTOR: Final = RunKind("doctor", api.LONGEST_SECONDS + 60)
SHOWN: Final = 50
"""Differences of a container; the API has all."""
PAGE: Final = "/console/operations/doctor"


@router.get(PAGE)
async def doctor_page(shared: Shared, session: SignedIn) -> Response:
    shown = await _last(shared, session)
    async with shared.stack.db.reading() as conn:
        owned = [one.id for one in await access.all_owned(conn, session.principal)]
    return operations_page("doctor.html", session, "doctor", **shown, containers=owned)


@router.get(f"{PAGE}/live")
async def doctor_live(request: Request, shared: Shared, session: SignedIn) -> Response:
    """The run until its end."""
    return await live_run(request, shared, session, "doctorreport.html", partial(_last, shared))


@router.post(PAGE)
async def run(
    shared: Shared,
    session: SignedIn,
    container: Annotated[str, Form(max_length=64)] = "",
    deep: Annotated[bool, Form()] = False,
    repair: Annotated[bool, Form()] = False,
) -> Response:
    """Begin in the background, with the limits of the API."""
    body = DoctorBody(container_id=container or None, deep=deep, repair=repair)
    access.require(session.principal, Scope.ADMIN)
    if body.container_id is not None:
        async with shared.stack.db.reading() as conn:
            await access.owned(conn, session.principal, body.container_id)

    async def work() -> dict[str, Any]:
        answer = await api.doctor(body, shared, session.principal, session.request_id)
        return DoctorAnswer.model_validate_json(bytes(answer.body)).report

    await start_run(shared, session.principal.name, DOCTOR, body.model_dump(mode="json"), work)
    verb = "repaired" if repair else "compared"
    return done(PAGE, f"The stores are being {verb}; this page shows the end.")


async def _last(shared: Gateway, session: ConsoleSession) -> dict[str, Any]:
    access.require(session.principal, Scope.ADMIN)
    run = await last_run(shared, session.principal.name, DOCTOR)
    report = None
    if run is not None and run.result is not None:
        report = DoctorReport.model_validate(run.result)
    remedies: Counter[str] = Counter()
    if report is not None:
        differences = [*report.stores]
        for found in report.containers.values():
            differences += found.differences
        remedies.update(one.repair.value for one in differences)
    return {
        "run": run,
        "report": report,
        "repairable": sum(count for name, count in remedies.items() if name != Remedy.NONE),
        "differences": remedies.total(),
        "open": run is not None and run.is_open,
        "max_shown": SHOWN,
    }
