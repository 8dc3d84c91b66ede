"""Commands of an example: `latent` by its own parser, `make` by the Makefile, `curl` by the served routes."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import orjson
import typer
import yaml
from typer import TyperException

from latent_cli.main import app
from tests.support import REPOSITORY
from tests.support.doc_examples.extras import DISTRIBUTION
from tests.support.doc_examples.routes import filter_problem, request_problem
from tests.support.doc_examples.shell import PLACEHOLDER, Command, commands_in

EXITS: Final = frozenset({"--help", "--version", "--install-completion", "--show-completion"})
"""Options that act while the command line is parsed."""
OTHERS: Final = frozenset(
    [
        "alias",
        "cat",
        "cd",
        "claude",
        "codex",
        "cp",
        "docker-compose",
        "echo",
        "export",
        "gh",
        "git",
        "grep",
        "loginctl",
        "mkdir",
        "node",
        "npm",
        "openssl",
        "pip",
        "pipx",
        "promtool",
        "rm",
        "sh",
        "sudo",
        "systemctl",
        "uv",
        "wait",
    ]
)
"""Programs of others that examples call and no test checks."""
MAKEFILE: Final = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
TARGETS: Final = frozenset(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
VARIABLES: Final = frozenset(re.findall(r"\$\(?\(?(?:or \$\()?([A-Z_]+)\)", MAKEFILE))
OF_COMPOSE: Final = frozenset({"LLC_PORT", "LATENT_VERSION"})
GUESSED: Final = re.compile(rf"[A-Z][A-Z_]*|.*({PLACEHOLDER}|…).*", re.DOTALL)
"""A value that the reader replaces: ID, FILE, <name>."""
READER_VALUES: Final = ("", "1", "00000000-0000-0000-0000-000000000001")
"""As written, and what a reader may write: a number, the id of a document."""


def shell_problems(text: str, *, whole: bool = True) -> list[str]:
    """What is wrong with the commands of a block; with ``whole`` unset, arguments may be missing."""
    problems = []
    try:
        commands = list(commands_in(text))
    except ValueError as error:
        return [f"not shell: {error}"]
    for command in commands:
        problems += [f"{' '.join(command.words)}: {why}" for why in _problems(command, whole)]
    return problems


def _problems(command: Command, whole: bool) -> Iterator[str]:
    program, *arguments = command.words
    match program.rpartition("/")[2]:
        case "latent":
            yield from latent_problems(arguments, whole=whole)
            yield from _filter_problems(arguments)
        case "make":
            yield from make_problems(arguments)
        case "uvx":
            yield from _uvx_problems(arguments)
        case "python" | "python3":
            yield from _python_problems(arguments)
        case "curl":
            yield from _curl_problems(arguments)
        case "docker":
            yield from _docker_problems(arguments, whole)
        case other if other not in OTHERS:
            yield "the program is not known to this check"
        case _:
            pass


def latent_problems(arguments: Sequence[str], *, whole: bool = True) -> list[str]:
    """What the command line's own parser refuses. The command is not run."""
    given = [one for one in arguments if one not in EXITS]
    if given in ([], ["…"]):
        return []
    problem = None
    for value in READER_VALUES:
        replaced = [value if value and GUESSED.fullmatch(one) else one for one in given]
        found = _refusal(replaced, whole)
        if found is None:
            return []
        problem = problem or found
    return [problem or ""]


def _refusal(arguments: list[str], whole: bool) -> str | None:
    command: Any = typer.main.get_command(app)
    rest, name, context = arguments, "latent", None
    try:
        while True:
            context = command.make_context(name, list(rest), parent=context)
            # The parser's own way to sub-commands.
            rest = [*context._protected_args, *context.args]
            if not rest or not hasattr(command, "resolve_command"):
                return None
            name, command, rest = command.resolve_command(context, rest)
    except typer.Exit:
        return None  # a group without a command prints its help
    except TyperException as error:
        message = error.format_message()
        is_short = not message.strip() or message.startswith("Missing ")
        return None if is_short and not whole else message or "the command is not complete"


def _filter_problems(arguments: list[str]) -> Iterator[str]:
    for option, value in pairwise(arguments):
        if option != "--filter":
            continue
        try:
            problem = filter_problem(orjson.loads(value))
        except ValueError as error:
            problem = f"the filter is not JSON: {error}"
        if problem:
            yield problem


def make_problems(arguments: Sequence[str]) -> list[str]:
    problems = []
    for argument in arguments:
        variable, is_set, _ = argument.partition("=")
        if is_set and variable not in VARIABLES | OF_COMPOSE:
            problems.append(f"the Makefile has no variable {variable}")
        if not is_set and argument not in TARGETS:
            problems.append(f"the Makefile has no target {argument}")
    return problems


def _uvx_problems(arguments: list[str]) -> list[str]:
    while arguments and arguments[0].startswith("-"):
        del arguments[: 1 if "=" in arguments[0] else 2]
    if not arguments:
        return ["names no command"]
    program, *rest = arguments
    if program.partition("@")[0] == DISTRIBUTION:
        return [f"{DISTRIBUTION} is no command: uvx --from {DISTRIBUTION} latent"]
    return latent_problems(rest) if program == "latent" else []


def _python_problems(arguments: list[str]) -> list[str]:
    """The module exists, and its source names every option."""
    if arguments[:1] == ["-m"]:
        module, *options = arguments[1:]
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if found is None or found.origin is None:
            return [f"there is no module {module}"]
        file = Path(found.origin)
    elif arguments and arguments[0].endswith(".py"):
        name, *options = arguments
        file = REPOSITORY / name
    else:
        return []
    source = file.read_text(encoding="utf-8")
    before = options[: options.index("--")] if "--" in options else options
    names = [option.partition("=")[0] for option in before if option.startswith("--")]
    return [f"there is no option {name}" for name in names if f'"{name}"' not in source]


def _curl_problems(arguments: list[str]) -> list[str]:
    method, url, body = "GET", "", None
    values = iter(arguments)
    for value in values:
        match value:
            case "-X" | "--request":
                method = next(values, "")
            case "-d" | "--data":
                body = next(values, "")
                method = "POST" if method == "GET" else method
            case "-H" | "--header" | "-o" | "-F" | "--output":
                next(values, None)
            case _ if value.startswith("http"):
                url = value
    problem = request_problem(method, url, body)
    return [problem] if problem else []


def _docker_problems(arguments: list[str], whole: bool) -> Iterator[str]:
    """Names of services and volumes; what runs inside the container is checked, too."""
    if arguments[:1] != ["compose"]:
        return
    files = [REPOSITORY / "docker-compose.yml", *(REPOSITORY / "docker").glob("*.yml")]
    read = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    services = {name for one in read if isinstance(one, dict) for name in one.get("services", {})}
    for place, argument in enumerate(arguments):
        if argument == "--scale" and arguments[place + 1].partition("=")[0] not in services:
            yield f"there is no service {arguments[place + 1]}"
        if argument in ("exec", "run"):
            named = [one for one in arguments[place + 1 :] if not one.startswith("-")]
            if named and named[0] not in services:
                yield f"there is no service {named[0]}"
            if "latent" in named:
                yield from latent_problems(named[named.index("latent") + 1 :], whole=whole)
            return
