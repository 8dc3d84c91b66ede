"""Search in dialogues: questions whose evidence is labelled, by sessions and by single turns.

    python -m benchmarks.dialogues locomo10.json [--dialogues 3] [--work FOLDER] [--json FILE]

The file is LoCoMo's: a list of dialogues, each with sessions of turns and questions with the ids of the turns that
answer them. Every dialogue is two containers: one document per session, and one per turn. Photos are represented by their
captions. Measured with the built-in model, in the default mode and with words alone:

- by sessions: the share of questions with all evidence among the first five, and with evidence as the first hit;
- by turns: the mean share of the evidence among the first ten.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import orjson

from benchmarks.installation import BenchmarkInstallation, add, create, ended, running, work_folder
from latent_client import AsyncClient
from latent_core.domain.manifest.model import SearchMode
from latent_core.wire.search import SearchRequest

TOP: Final = 10
FIRST: Final = 5
AT_ONCE: Final = 2
"""Queries; more would wait for each other, and might miss their deadline."""
PATIENT: Final = {"LLC_SEARCH_TIMEOUT_MS": "30000"}
MODES: Final[dict[str, SearchMode | None]] = {"default": None, "lexical": SearchMode.LEXICAL}
_SESSION: Final = re.compile(r"session_(\d+)")
_EVIDENCE: Final = re.compile(r"D(\d+):0*(\d+)")
_TIME: Final = "%I:%M %p on %d %B, %Y"


@dataclass(frozen=True, slots=True)
class DialogueQuestion:
    text: str
    evidence: frozenset[str]
    """Ids of turns: ``D3:12`` is the twelfth of session 3."""

    @property
    def sessions(self) -> frozenset[str]:
        return frozenset(one.partition(":")[0] for one in self.evidence)


@dataclass(frozen=True, slots=True)
class Dialogue:
    sessions: dict[str, list[dict[str, Any]]]
    """Session id to its messages, each with the id of its turn."""
    questions: list[DialogueQuestion]


@dataclass(frozen=True, slots=True)
class DialogueQuality:
    """Of all questions of all dialogues."""

    mode: str
    questions: int
    sessions_all_in_5: float
    sessions_first: float
    single_recall_at_10: float


def read_dialogues(path: Path) -> Iterator[Dialogue]:
    """Questions without evidence in the dialogue are skipped."""
    for written in json.loads(path.read_text(encoding="utf-8")):
        sessions = dict(_sessions(written["conversation"]))
        known = {message["id"] for messages in sessions.values() for message in messages}
        questions = []
        for one in written["qa"]:
            named = _EVIDENCE.findall(" ".join(one.get("evidence") or ()))
            evidence = frozenset(f"D{session}:{number}" for session, number in named) & known
            if evidence:
                questions.append(DialogueQuestion(one["question"], evidence))
        yield Dialogue(sessions, questions)


def _sessions(written: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    for key, messages in written.items():
        match = _SESSION.fullmatch(key)
        if match is None or not messages:
            continue
        time = datetime.strptime(written[f"{key}_date_time"], _TIME).isoformat()  # noqa: DTZ007
        yield (
            f"D{match[1]}",
            [
                {
                    "id": f"D{match[1]}:{number}",
                    "name": message["speaker"],
                    "content": _content(message),
                    "time": time,
                }
                for number, message in enumerate(messages, start=1)
            ],
        )


def _content(message: dict[str, Any]) -> str:
    photo = message.get("blip_caption")
    text = message.get("text", "").strip()
    return "\n".join(filter(None, [text, photo and f"[photo: {photo}]"]))


async def measure(
    installation: BenchmarkInstallation, dialogues: Sequence[Dialogue]
) -> list[DialogueQuality]:
    """Ingest the dialogues and ask all their questions in every mode."""
    async with installation.client() as client:
        for number, dialogue in enumerate(dialogues):
            await _ingest(client, installation.folder, number, dialogue)
        return [await _quality(client, mode, dialogues) for mode in MODES]


async def _ingest(client: AsyncClient, folder: Path, number: int, dialogue: Dialogue) -> None:
    sessions = [(key, messages) for key, messages in dialogue.sessions.items()]
    single = [(m["id"], [m]) for messages in dialogue.sessions.values() for m in messages]
    for container, documents in (
        (f"sessions-{number}", sessions),
        (f"single-{number}", single),
    ):
        file = folder / f"{container}.jsonl"
        await asyncio.to_thread(file.write_bytes, b"".join(map(_line, documents)))
        await create(client, container)
        await ended(client, [await add(client, container, file)])


def _line(document: tuple[str, list[dict[str, Any]]]) -> bytes:
    identity, messages = document
    stored = [{key: message[key] for key in ("name", "content", "time")} for message in messages]
    return orjson.dumps({"_id": identity, "messages": stored}, option=orjson.OPT_APPEND_NEWLINE)


async def _quality(
    client: AsyncClient, mode: str, dialogues: Sequence[Dialogue]
) -> DialogueQuality:
    free = asyncio.Semaphore(AT_ONCE)

    async def found(container: str, query: str) -> list[str]:
        request = SearchRequest(
            containers=[container], query=query, top_k=TOP, mode=MODES[mode], detail="brief"
        )
        async with free:
            answer = await client.search(request)
        if answer.partial:
            raise RuntimeError(f"a search in {container} was partial: {answer.issues}")
        return [str(hit.external_id) for hit in answer.hits]

    async def judge(number: int, question: DialogueQuestion) -> tuple[bool, bool, float]:
        sessions = await found(f"sessions-{number}", question.text)
        single = await found(f"single-{number}", question.text)
        return (
            question.sessions <= set(sessions[:FIRST]),
            bool(sessions) and sessions[0] in question.sessions,
            len(question.evidence & set(single)) / len(question.evidence),
        )

    judged = await asyncio.gather(
        *(judge(n, question) for n, one in enumerate(dialogues) for question in one.questions)
    )
    every, first, recall = zip(*judged, strict=True)
    return DialogueQuality(
        mode, len(judged), round(fmean(every), 4), round(fmean(first), 4), round(fmean(recall), 4)
    )


async def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("file", type=Path, help="locomo10.json")
    parser.add_argument("--dialogues", type=int, help="the first of them; default: all")
    parser.add_argument("--work", type=Path, help="a folder for the installation")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    dialogues = list(read_dialogues(arguments.file))[: arguments.dialogues]
    with work_folder(arguments.work, "dialogues") as folder:
        async with running(folder, PATIENT) as installation:
            results = await measure(installation, dialogues)
    for result in results:
        print(result)
    if arguments.json is not None:
        written = orjson.dumps([asdict(one) for one in results], option=orjson.OPT_INDENT_2)
        await asyncio.to_thread(arguments.json.write_bytes, written)


if __name__ == "__main__":
    asyncio.run(main())
