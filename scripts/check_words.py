"""Find words that the project does not use: in names, SQL, log events, messages and docs.

The list of regular expressions is below. Findings have no exceptions: `ALLOWED` stays empty. `make check` runs it.
To check a part of the tree: `python scripts/check_words.py --rule identifier core/src`.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Final

from typing_extensions import override

ROOT: Final = Path(__file__).parent.parent

IDENTIFIER_PART: Final = re.compile(
    "afar|asked|away|beside|blameless|buried|bury|comeback|doubtful|emptied|gathering|holding|house|keeping|least"
    "|lent|likeness|loose|most|ord|patience|refuted|room|said|saying|tally|told|turns?|unjudged|unseen|visitor"
    "|wanted"
)
"""One part of a snake_case or CamelCase name; the whole part must match."""

PHRASE: Final = re.compile(
    r"\b(?:(?:is|are)\s+told|told\s+of|nobody|whoever|who\s+gets|with\s+an\s+end|as\s+good\s+as|comes\s+back"
    r"|goes\s+by|stands\s+at|looked\s+at|left\s+out|anew|afar|lacks\s+what|is\s+what\s+it\s+was)\b",
    re.IGNORECASE,
)

TIME: Final = r"(?:second|minute|hour|day|night|week|month|year)s?\b"
NOT_A_NOUN: Final = (
    r"(?:an?|after|and|are|as|at|be|before|but|by|can|for|from|had|has|have|if|in|into|is|like|may|more|must|not|of"
    r"|on|once|or|per|since|such|than|that|the|then|through|to|was|were|when|where|which|while|who|will|with"
    r"|within|without)\b"
)
DISTRIBUTIVE: Final = re.compile(
    rf"\b(?:one\s+(?!{NOT_A_NOUN})(?:[a-z-]+\s+)?(?!{NOT_A_NOUN})[a-z-]*[a-rt-z]"
    rf"|(?:\d[\d.,]*|two|three|four|five|ten|twenty|hundred|thousand)"
    rf"\s+(?!{NOT_A_NOUN})(?:[a-z-]+\s+)?(?!{NOT_A_NOUN})[a-z-]+s)\s+an?\s+(?!{TIME})(?!few\b|little\b)[a-z-]+",
    re.IGNORECASE,
)
"""A number, a noun, "a", and a noun that is not a unit of time: "one file a kind". Write "per"."""

BARE_CLASS: Final = re.compile(
    r"[A-Z][a-z]*(?:ed|en|ing)|Absent|Afar|Again|Alone|Away|Begun|Beyond|Bound|Built|Busy|Calm|Cut|Dead|Deaf|Done"
    r"|Drawn|Empty|Far|Fit|Found|Free|Fresh|Full|Gone|Held|Here|Kept|Known|Late|Live|Loose|Lost|Made|Near|Nearby"
    r"|Once|Read|Ready|Said|Seen|Sent|Shown|Slow|Stale|Told|Torn|Unsure|Wrong"
)
NOUNS: Final = re.compile(
    "Binding|Building|Drawing|Embedding|Encoding|Evening|Feed|Finding|Heading|Listing|Mapping|Meeting|Padding"
    "|Pooling|Ranking|Reading|Recording|Screen|Seed|Setting|Speed|String|Thing|Token"
)
EVENT: Final = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
LOG_METHODS: Final = frozenset(
    {"critical", "debug", "error", "exception", "info", "log", "warning"}
)
SQL: Final = re.compile(
    r"\s*(?:--[^\n]*\n\s*)*(?:ALTER|COPY|CREATE|DELETE|DROP|INSERT|LOCK|SELECT|UPDATE|WITH)\s"
)
NOT_SQL_NAMES: Final = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\bleast(?=\()", re.IGNORECASE)
MAX_LINE: Final = 120
PRODUCT: Final = re.compile(r"(?:cli|client|core|mcp-server|workers)/src/|migrations/")
OWN_PACKAGES: Final = re.compile(r"latent_\w+|tests|scripts|benchmarks|conftest")
TEXT_FILES: Final = re.compile(r".*\.(?:md|html)|(?:.*/)?\.env\.example")
EXAMPLES: Final = re.compile(r"samples/|.*/data/")
"""Sample documents that tests and readers search. Their authors choose the words."""

ALLOWED: Final[frozenset[tuple[str, str, str]]] = frozenset()
"""(path, rule, text) of accepted findings. Keep it empty."""


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    text: str

    @override
    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes. Several rules read them, and walking a tree takes most of the time."""
    return tuple(ast.walk(tree))


@dataclass(frozen=True)
class CheckedFile:
    path: str
    text: str
    tree: ast.Module | None
    """Findings in a Python file."""

    @property
    def is_product(self) -> bool:
        return PRODUCT.match(self.path) is not None

    def found(self, rule: str, line: int, text: str) -> Finding:
        return Finding(self.path, line, rule, " ".join(text.split())[:160])


def parts(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    spaced = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", spaced)
    return [part for part in spaced.lower().split("_") if part]


def is_banned(name: str) -> bool:
    return any(IDENTIFIER_PART.fullmatch(part) for part in parts(name))


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Names that an import binds. Of third-party packages, only aliases that we choose."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    for alias in node.names:
        if alias.asname is not None:
            yield alias.asname
        if OWN_PACKAGES.match(module or alias.name):
            yield alias.name.rpartition(".")[2]


def _named(node: ast.AST) -> Iterable[str | None]:
    """Names that a node defines. Uses are not checked: their definition is checked or belongs to third parties."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Name(ctx=ast.Store()):
            return [node.id]
        case ast.Attribute(ctx=ast.Store()):
            return [node.attr]
        case ast.arg() | ast.keyword():
            return [node.arg]
        case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
            return [node.name]
        case ast.MatchMapping():
            return [node.rest]
        case ast.Import() | ast.ImportFrom():
            return _imported(node)
        case _:
            return []


def identifiers(file: CheckedFile) -> Iterator[Finding]:
    if file.tree is None:
        return
    for part in PurePosixPath(file.path).with_suffix("").parts:
        if is_banned(part.replace("-", "_")):
            yield file.found("identifier", 1, f"module {part}")
    for node in nodes(file.tree):
        for name in _named(node):
            if name is not None and is_banned(name):
                yield file.found("identifier", getattr(node, "lineno", 1), name)


def _exceptions(trees: Iterable[ast.Module]) -> frozenset[str]:
    """Names of classes that are exceptions: they name a condition, as `Unreachable` does."""
    bases: dict[str, set[str]] = {}
    for tree in trees:
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef):
                own = bases.setdefault(node.name, set())
                own |= {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    known = {"BaseException", "Exception"}
    while more := {name for name, own in bases.items() if own & known} - known:
        known |= more
    return frozenset(known)


def class_names(exceptions: frozenset[str]) -> Callable[[CheckedFile], Iterator[Finding]]:
    def rule(file: CheckedFile) -> Iterator[Finding]:
        for node in nodes(file.tree) if file.tree is not None else ():
            if not isinstance(node, ast.ClassDef) or node.name in exceptions:
                continue
            name = node.name.lstrip("_")
            if BARE_CLASS.fullmatch(name) and not NOUNS.fullmatch(name):
                yield file.found("class-name", node.lineno, f"{node.name} needs a noun")

    return rule


def _docstrings(tree: ast.Module) -> set[ast.Constant]:
    return {
        node.value
        for node in nodes(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string with its line; an f-string is one string, with `{}` in place of its values."""
    inside: set[ast.AST] = set()
    for node in nodes(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= set(node.values)
            values = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
            yield node.lineno, "".join(map(str, values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in inside:
            yield node.lineno, node.value


def sql_names(file: CheckedFile) -> Iterator[Finding]:
    if file.tree is None or not file.is_product:
        return
    for node in nodes(file.tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if not SQL.match(node.value) or node in _docstrings(file.tree):
            continue
        plain = NOT_SQL_NAMES.sub(lambda m: "\n" * m.group().count("\n"), node.value)
        for word in re.finditer(r"[A-Za-z_][A-Za-z0-9_]*", plain):
            if is_banned(word.group()):
                line = node.lineno + plain.count("\n", 0, word.start())
                yield file.found("sql", line, word.group())


def _is_logger(node: ast.expr) -> bool:
    return re.fullmatch(r"_?log(?:ger)?", ast.unparse(node).rpartition(".")[2].lower()) is not None


def log_events(file: CheckedFile) -> Iterator[Finding]:
    if file.tree is None or not file.is_product:
        return
    for node in nodes(file.tree):
        if not isinstance(node, ast.Call):
            continue
        for event in _events(node):
            name = event.value if isinstance(event, ast.Constant) else None
            if not isinstance(name, str) or not EVENT.fullmatch(name) or is_banned(name):
                text = ast.unparse(event) if event is not None else "no event"
                yield file.found("log-event", node.lineno, text)


def _events(call: ast.Call) -> Iterator[ast.expr | None]:
    """The events that a call names: one of a logger, or the pair of an ``OutageLog``, which logs its attributes."""
    if isinstance(call.func, ast.Name) and call.func.id == "OutageLog":
        yield from (word.value for word in call.keywords if word.arg in ("failed", "recovered"))
    elif isinstance(call.func, ast.Attribute) and call.func.attr in LOG_METHODS:
        if not _is_logger(call.func.value):
            return
        event = call.args[1 if call.func.attr == "log" else 0] if call.args else None
        if not isinstance(event, ast.Attribute):
            yield event


def blanked(path: str, text: str) -> str:
    """The prose of a text file: code and template tags become blanks, line numbers stay the same."""
    code = r"^(```|~~~).*?^\1[^\n]*|``[^`]+``|`[^`\n]+`" if path.endswith(".md") else r"$^"
    if path.endswith(".html"):
        code = r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}|<(?:script|style)\b.*?</(?:script|style)>"
    return re.sub(code, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.DOTALL | re.M)


def prose(file: CheckedFile) -> Iterator[tuple[int, str]]:
    if file.tree is not None:
        yield from strings(file.tree) if file.is_product else ()
    elif TEXT_FILES.fullmatch(file.path):
        yield 1, blanked(file.path, file.text)


def _in_prose(rule: str, pattern: re.Pattern[str]) -> Callable[[CheckedFile], Iterator[Finding]]:
    def found(file: CheckedFile) -> Iterator[Finding]:
        for first, text in prose(file):
            for match in pattern.finditer(text):
                around = text[max(0, match.start() - 30) : match.end() + 30]
                line = first + text.count("\n", 0, match.start())
                yield file.found(rule, line, f"{match.group()!r} in “{around}”")

    return found


phrases: Final = _in_prose("phrase", PHRASE)
distributives: Final = _in_prose("distributive", DISTRIBUTIVE)


def _breakable(line: str) -> int:
    """Length of a line of Markdown, without table cells that consist of one link or one code span."""
    if not line.lstrip().startswith("|"):
        return len(line) if " " in line.strip() else 0
    whole = re.compile(r"`[^`]+`|!?\[[^]]*\]\([^)]*\)")
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    return sum(3 + len(cell) for cell in cells if not whole.fullmatch(cell))


def line_lengths(file: CheckedFile) -> Iterator[Finding]:
    if not file.path.endswith(".md"):
        return
    fence = None
    for number, line in enumerate(file.text.splitlines(), start=1):
        if mark := re.match(r"\s*(```|~~~)", line):
            fence = None if fence == mark[1] else fence or mark[1]
        elif fence is None and len(line) > MAX_LINE and _breakable(line) > MAX_LINE:
            yield file.found("line-length", number, f"{len(line)} characters: {line[:60]}")


RULES: Final = (
    "identifier",
    "sql",
    "log-event",
    "phrase",
    "distributive",
    "class-name",
    "line-length",
)


def check(files: Sequence[CheckedFile], rules: Iterable[str] = RULES) -> list[Finding]:
    exceptions = _exceptions(file.tree for file in files if file.tree is not None)
    by_name: dict[str, Callable[[CheckedFile], Iterator[Finding]]] = {
        "identifier": identifiers,
        "sql": sql_names,
        "log-event": log_events,
        "phrase": phrases,
        "distributive": distributives,
        "class-name": class_names(exceptions),
        "line-length": line_lengths,
    }
    found = {one for file in files for name in rules for one in by_name[name](file)}
    kept = (one for one in found if (one.path, one.rule, one.text) not in ALLOWED)
    return sorted(kept, key=lambda one: (one.path, one.line, one.rule, one.text))


def source_file(path: str, text: str) -> CheckedFile:
    return CheckedFile(path, text, ast.parse(text) if path.endswith(".py") else None)


def tracked(root: Path) -> list[CheckedFile]:
    """Python, Markdown, console templates and .env.example, as listed by git."""
    command = ["git", "ls-files", "*.py", "*.md", "*.html", ".env.example"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    paths = [path for path in listed.splitlines() if not EXAMPLES.match(path)]
    return [source_file(p, (root / p).read_text("utf-8")) for p in paths if (root / p).is_file()]


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", help="files or folders, from the repository's root")
    parser.add_argument("--rule", action="append", choices=RULES, help="only this rule; repeatable")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser.parse_args(given)


def report(found: Sequence[Finding], rules: Iterable[str], *, as_json: bool) -> str:
    counts = Counter(one.rule for one in found)
    if as_json:
        return json.dumps({"counts": counts, "findings": [asdict(one) for one in found]})
    summary = ", ".join(f"{rule} {counts[rule]}" for rule in rules)
    return "\n".join([*map(str, found), f"{len(found)} findings: {summary}"])


def main(given: Sequence[str]) -> int:
    options = arguments(given)
    folders = [path.rstrip("/") for path in options.paths]
    rules = options.rule or RULES
    gc.disable()  # millions of nodes live to the end
    found = check(tracked(ROOT), rules)
    if folders:
        found = [
            f for f in found if any(f.path == p or f.path.startswith(f"{p}/") for p in folders)
        ]
    print(report(found, rules, as_json=options.json))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
