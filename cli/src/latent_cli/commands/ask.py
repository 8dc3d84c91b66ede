"""``latent ask``"""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import Annotated

import orjson
import typer
from pydantic import ValidationError

from latent_cli.citations_output import citation_lines
from latent_cli.options import Json, command_app
from latent_cli.output import RetryNotes, can_link, emit, print_note, safe
from latent_cli.session import ask_by
from latent_cli.styled import print_lines
from latent_client.questions import QuestionClient
from latent_core.domain.errors import Invalid, Unavailable
from latent_core.settings import Settings
from latent_core.wire.ask import DEFAULT_TOP_K, AskAnswer, AskRequest

app = command_app()


@app.command()
def ask(
    question: Annotated[str, typer.Argument(help="The question; each is answered by itself.")],
    *,
    containers: Annotated[
        list[str],
        typer.Option(
            "--container",
            "-c",
            metavar="ID",
            help="Container to answer from; repeatable. Its manifest names the language model (ask.provider).",
        ),
    ],
    top_k: Annotated[
        int, typer.Option("--top-k", "-k", help="Maximum number of documents to read.")
    ] = DEFAULT_TOP_K,
    filters: Annotated[
        str | None, typer.Option("--filter", metavar="JSON", help="Filter as in docs/api.md.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Answer a question from containers, with citations that open the page.

    A language model reads what a search finds. It is not called if nothing relevant is found.
    """
    request = _request(question, containers, top_k, filters)
    answer = ask_by(_client, lambda client: _answered(client, request, shows=not as_json))
    if as_json:
        emit(answer)
        return
    print_lines(citation_lines(answer.citations, links=can_link()))
    for issue in answer.issues:
        print_note(f"{issue.code.value}: {issue.message}")


def _client(settings: Settings, token: str | None) -> QuestionClient:
    return QuestionClient(settings.gateway_url, token, on_retry=RetryNotes())


async def _answered(client: QuestionClient, request: AskRequest, *, shows: bool) -> AskAnswer:
    """The answer; ``shows`` prints its text while it is written."""
    answer: AskAnswer | None = None
    async with aclosing(client.ask_stream(request)) as stream:
        async for news in stream:
            answer = news.answer
            if shows and news.text:
                sys.stdout.write(safe(news.text, lines=True))
                sys.stdout.flush()
    if answer is None:
        raise Unavailable("the gateway sent no answer: ask again")
    if shows and answer.text:
        sys.stdout.write("\n")
    return answer


def _request(question: str, containers: list[str], top_k: int, filters: str | None) -> AskRequest:
    try:
        fields = {"question": question, "containers": containers, "top_k": top_k}
        return AskRequest.model_validate(
            fields | ({"filters": orjson.loads(filters)} if filters else {})
        )
    except orjson.JSONDecodeError as exc:
        raise Invalid(f"--filter is not valid JSON: {exc}") from exc
    except ValidationError as exc:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise Invalid(problems) from exc
