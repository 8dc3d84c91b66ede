"""What happens to an installation in `test_kill.py`: documents that come, change and go, and blows, all by one seed."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final, Literal

import orjson
import pymupdf

LETTERS: Final = "bcdfghjklmnpqrtvwxz"
"""No vowel: no stemmer shortens what is made of them, no splitter takes it apart."""
FILLER: Final = re.findall(
    r"\w+",
    "harbour keeper lantern signal tide vessel anchor rope storm mast deck cargo channel buoy reef "
    "chart compass pilot dock crane barge ferry pier gull north wind cloud rain wave shore light bell",
)
TEXTS: Final = 150
GUIDES: Final = 70
BOOKS: Final = 8
RECORDS: Final = 300
"""More than one turn of a corpus job."""
CHANGED_RECORDS: Final = range(0, RECORDS, 9)
SHORT_RECORDS: Final = 40
LONG_EVERY: Final = 40
DOOMED: Final = "doomed"
"""A container that comes and goes."""

Victim = Literal["main", "postgres", "vectors", "guardian"]


@dataclass(frozen=True, slots=True)
class Step:
    """Something a person does: add these bytes, or (None) delete the document; without a name, the container."""

    container: str
    filename: str
    data: bytes | None = None

    @property
    def uri(self) -> str:
        return f"file:///{self.filename}"

    @property
    def lane(self) -> str:
        """Steps of one lane are done one after the other."""
        return DOOMED if self.container == DOOMED else self.filename


@dataclass(frozen=True, slots=True)
class ExpectedDocument:
    """A document as it must be in the end."""

    word: str
    """In no other document, and in no other version of it; "" for one without text of its own."""
    sha256: str | None = None
    """None for a record of a corpus."""


@dataclass
class Story:
    """All steps, in order, and what must be found when they are done."""

    steps: list[Step] = field(default_factory=list)
    live: dict[tuple[str, str], ExpectedDocument] = field(default_factory=dict)
    """By container and source uri."""
    gone: list[tuple[str, str]] = field(default_factory=list)
    """Container and a word that must not be found in it any more."""


@dataclass(frozen=True, slots=True)
class Blow:
    """A SIGKILL, ``delay`` seconds after so many steps are done (None: all of them)."""

    victim: Victim
    after: int | None
    delay: float
    restarts: tuple[float, ...] = ()
    """`latent up` is killed again so many seconds after each of these starts took its data directory."""

    @property
    def kills(self) -> int:
        """Of `latent up`."""
        return 1 + len(self.restarts) if self.victim == "main" else 0


class Teller:
    """Makes up the story of a seed."""

    def __init__(self, seed: int, *, every: int = 1) -> None:
        """``every`` keeps one file in so many, for a story that is quick to run."""
        self._every = every
        self._random = Random(seed)
        self._numbers = count()
        self._story = Story()
        self._by_key: list[tuple[float, Step]] = []

    def tell(self) -> Story:
        for number in range(0, TEXTS, self._every):
            self._file(f"note-{number:03d}.txt", number)
        for number in range(0, GUIDES, self._every):
            self._file(f"guide-{number:03d}.md", number)
        for number in range(0, BOOKS, self._every):
            self._file(f"book-{number:02d}.pdf", number)
        self._corpus()
        self._dropped_corpus()
        self._doomed()
        self._story.steps = [step for _, step in sorted(self._by_key, key=lambda pair: pair[0])]
        return self._story

    def _file(self, name: str, number: int) -> None:
        """Added; every sixth changed later, every tenth deleted later, and of these every second added again."""
        container = "tales" if number % 3 else "crumbs"
        stages: list[str] = ["add"]
        if number % 6 == 1:
            stages.append("add")
        if number % 10 == 5:
            stages += ["delete", "add"] if number % 20 == 5 else ["delete"]
        versions = [self._version(name, number) if s == "add" else None for s in stages]
        for key, version in zip(self._keys(len(stages)), versions, strict=True):
            data = version[1] if version else None
            self._by_key.append((key, Step(container, name, data)))
        self._remember(container, name, versions)

    def _remember(
        self, container: str, name: str, versions: list[tuple[str, bytes] | None]
    ) -> None:
        *former, last = versions
        self._story.gone += [(container, v[0]) for v in former if v]
        if last is not None:
            word, data = last
            expected = ExpectedDocument(word, hashlib.sha256(data).hexdigest())
            self._story.live[container, f"file:///{name}"] = expected

    def _version(self, name: str, number: int) -> tuple[str, bytes]:
        """A word that is nowhere else, and a file that holds it."""
        word = self._word()
        words = 3000 if number % LONG_EVERY == 7 else self._random.randrange(40, 260)
        match name.rpartition(".")[2]:
            case "md":
                return word, self._guide(word, words).encode()
            case "pdf":
                return word, self._book(word)
        return word, self._text(word, words).encode()

    def _text(self, word: str, words: int) -> str:
        filler = self._random.choices(FILLER, k=words)
        filler.insert(self._random.randrange(words), word)
        return "\n\n".join(" ".join(filler[n : n + 30]) + "." for n in range(0, len(filler), 30))

    def _guide(self, word: str, words: int) -> str:
        table = "| Signal | Meaning |\n|---|---|\n| bell | fog |\n| horn | storm |\n"
        return f"# The {self._random.choice(FILLER)}\n\n{self._text(word, words)}\n\n## Signals\n\n{table}"

    def _book(self, word: str) -> bytes:
        book: Any = pymupdf.open()  # type: ignore[no-untyped-call]
        for page in range(3):
            filler = (
                self._text(word, 40) if page == 1 else " ".join(self._random.choices(FILLER, k=40))
            )
            book.new_page().insert_textbox((72, 72, 500, 700), filler)
        return bytes(book.tobytes())

    def _corpus(self) -> None:
        """Two versions of one corpus; some records differ."""
        first = {f"r{n}": self._word() for n in range(RECORDS)}
        second = first | {f"r{n}": self._word() for n in CHANGED_RECORDS}
        for key, version in zip(self._keys(2), (first, second), strict=True):
            self._by_key.append((key, Step("tales", "corpus.jsonl", self._records(version))))
        self._story.gone += [("tales", first[i]) for i in first if first[i] != second[i]]
        self._expect_corpus("tales", "corpus.jsonl", second)

    def _dropped_corpus(self) -> None:
        """One that is deleted again, records and all."""
        records = {f"d{n}": self._word() for n in range(SHORT_RECORDS)}
        added, deleted = self._keys(2)
        self._by_key.append((added, Step("crumbs", "drop.jsonl", self._records(records))))
        self._by_key.append((deleted, Step("crumbs", "drop.jsonl", None)))
        self._story.gone += [("crumbs", word) for word in records.values()]

    def _doomed(self) -> None:
        *added, deleted = self._keys(13)
        for number, key in enumerate(added):
            data = self._text(self._word(), 60).encode()
            self._by_key.append((key, Step(DOOMED, f"brief-{number}.txt", data)))
        self._by_key.append((deleted, Step(DOOMED, "")))

    def _expect_corpus(self, container: str, name: str, records: dict[str, str]) -> None:
        sha256 = hashlib.sha256(self._records(records)).hexdigest()
        self._story.live[container, f"file:///{name}"] = ExpectedDocument("", sha256)
        for key, word in records.items():
            self._story.live[container, f"file:///{name}#{key}"] = ExpectedDocument(word)

    def _records(self, records: dict[str, str]) -> bytes:
        lines = [
            {"_id": key, "title": f"Entry {key}", "text": f"The {word} of the harbour keeper."}
            for key, word in records.items()
        ]
        return b"\n".join(orjson.dumps(line) for line in lines) + b"\n"

    def _keys(self, n: int) -> list[float]:
        return sorted(self._random.random() for _ in range(n))

    def _word(self) -> str:
        number, letters = next(self._numbers), ""
        for _ in range(4):
            number, digit = divmod(number, len(LETTERS))
            letters = LETTERS[digit] + letters
        return f"zx{letters}"


def blows(seed: int, kills: int, steps: int) -> list[Blow]:
    """At least ``kills`` of `latent up`, two of three while documents come in and the others while the queue
    drains; some of them hit the start that follows. In between its children are hit alone."""
    random = Random(seed)
    dealt: list[Blow] = []
    children: tuple[Victim, ...] = ("vectors", "postgres", "guardian")
    while sum(blow.kills for blow in dealt) < kills:
        after = random.randrange(steps) if len(dealt) % 3 else None
        if len(dealt) % 4 == 3:
            dealt.append(Blow(random.choice(children), after, random.uniform(0.0, 0.5)))
        restarts = [random.uniform(0.0, 1.2) for _ in range(len(dealt) % 5 // 3)]
        dealt.append(Blow("main", after, random.uniform(0.0, 0.8), tuple(restarts)))
    return sorted(dealt, key=lambda blow: steps if blow.after is None else blow.after)
