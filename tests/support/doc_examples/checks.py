"""All problems of a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import latent_client
from latent_client import AsyncClient
from tests.support.doc_examples.commands import shell_problems
from tests.support.doc_examples.data import (
    env_problems,
    json_problems,
    variable_problems,
    yaml_problems,
)
from tests.support.doc_examples.extras import extra_problems
from tests.support.doc_examples.pages import Example, Page, read_page
from tests.support.doc_examples.python_code import Names, python_problems
from tests.support.doc_examples.routes import span_problem

READ: Final = {
    "sh": shell_problems,
    "env": env_problems,
    "yaml": yaml_problems,
    "json": json_problems,
}
NOT_READ: Final = frozenset({"text", "sql"})
IN_COROUTINE: Final = {"docs/client.md": ("url", "token")}
"""Pages whose blocks run in one coroutine (a test runs them), and the names that it is given."""


def page_problems(page: Page) -> list[str]:
    return [
        *_block_problems(page),
        *_span_problems(page),
        *_link_problems(page),
        *(f"{page.name}: {problem}" for problem in variable_problems(page.text)),
        *(f"{page.name}: {problem}" for problem in extra_problems(page.text)),
    ]


def _block_problems(page: Page) -> Iterator[str]:
    names = Names()
    given = IN_COROUTINE.get(page.name)
    names.bound |= set(given or ())
    for block in page.blocks():
        if block.language == "python":
            found = python_problems(block.text, names, in_coroutine=given is not None)
        elif block.language in READ:
            found = READ[block.language](block.text)
        elif block.language not in NOT_READ:
            found = [f"blocks of the language '{block.language}' are not checked"]
        else:
            found = []
        yield from (block.problem(problem) for problem in found)


def _span_problems(page: Page) -> Iterator[str]:
    """Commands, routes and methods of the client that prose names."""
    for span in page.spans():
        if span.text.startswith(("latent ", "make ", "uvx ")):
            for problem in shell_problems(span.text, whole=False):
                yield span.problem(problem)
        wrong = span_problem(span.text) or _client_problem(span)
        if wrong:
            yield span.problem(wrong)


def _client_problem(span: Example) -> str | None:
    """``client.method(…)`` is a method, and ``function(client, …)`` a function of the package."""
    called, is_call, rest = span.text.partition("(")
    owner, _, method = called.removeprefix("await ").rpartition(".")
    if not is_call or not method.isidentifier():
        return None
    if owner == "client" and not hasattr(AsyncClient, method):
        return f"the client has no method {method}"
    if (
        owner == ""
        and rest.startswith("client")
        and not callable(getattr(latent_client, method, None))
    ):
        return f"latent_client has no function {method}"
    return None


def _link_problems(page: Page) -> Iterator[str]:
    """Links to files of the repository and to their headings."""
    for link in page.links():
        if ":" in link.text:
            continue
        path, _, anchor = link.text.partition("#")
        file = page.path.parent / path if path else page.path
        if not file.exists():
            yield link.problem(f"there is no {link.text}")
        elif anchor and anchor not in read_page(file).anchors():
            yield link.problem(f"there is no heading {link.text}")
