"""Saved searches of the signed-in person, on the search page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Form, Path, Response
from pydantic import ValidationError
from starlette.datastructures import QueryParams

from latent_core.domain.errors import Invalid
from latent_core.wire.saved_searches import MAX_NAME_CHARS, SavedSearch, SaveSearchBody
from latent_gateway.api.saved_searches import LAST, forget, keep, saved_of
from latent_gateway.console.frame.console_session import ConsoleSession, SignedIn
from latent_gateway.console.frame.routing import pages
from latent_gateway.console.frame.view import done
from latent_gateway.console.searching.form import PATH, SearchForm
from latent_gateway.context import Gateway, Shared

router = pages()

MAX_SEARCH_CHARS: Final = 32_768


@dataclass(frozen=True, slots=True)
class SavedLink:
    id: int
    name: str
    address: str | None
    """None if the form cannot show the request."""


async def saved_links(shared: Gateway, session: ConsoleSession) -> Sequence[SavedLink]:
    return [_link(one) for one in await saved_of(shared, session.principal)]


def _link(saved: SavedSearch) -> SavedLink:
    form = SearchForm.of_request(saved.request)
    address = f"{PATH}?{urlencode(form.parameters())}" if form is not None else None
    return SavedLink(saved.id, saved.name, address)


@router.post(f"{PATH}/saved")
async def save(
    shared: Shared,
    session: SignedIn,
    name: Annotated[str, Form(max_length=4 * MAX_NAME_CHARS)] = "",
    search: Annotated[str, Form(max_length=MAX_SEARCH_CHARS)] = "",
) -> Response:
    """``search``: the query of the page's address."""
    form = SearchForm.of(QueryParams(search))
    if form.nothing:
        raise Invalid("there is no search to save: search first")
    body = {"name": name.strip(), "request": form.kept()}
    try:
        saved = await keep(shared, session.principal, SaveSearchBody.model_validate(body))
    except ValidationError as exc:
        raise Invalid(f"name: give the search a name of 1 to {MAX_NAME_CHARS} characters") from exc
    return done(f"{PATH}?{urlencode(form.parameters())}", f"The search is saved as “{saved.name}”.")


@router.post(f"{PATH}/saved/{{saved_id}}/delete")
async def delete(
    saved_id: Annotated[int, Path(ge=1, le=LAST)], shared: Shared, session: SignedIn
) -> Response:
    await forget(shared, session.principal, saved_id)
    return done(PATH, "The saved search was deleted.")
