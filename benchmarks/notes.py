"""Notes that stay true: facts that newer ones supersede, and rewritten notes that name the one they repeat.

Adds pairs of an old and a new fact, linked by ``supersedes``, among notes on other subjects, and asks for each fact in
other words. Then exports the container, imports it again and rebuilds its vectors, and asks again. Adds paraphrases of
notes and counts those whose original is among the nearest that the answer names. The built-in model.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

from benchmarks.installation import create, ended, running, work_folder
from latent_client import AsyncClient
from latent_core.domain.job import JobKind, JobState
from latent_core.wire.refresh import RefreshAnswer, RefreshRequest, Strategy
from latent_core.wire.search import Hit, SearchRequest

SUBJECTS: Final = (
    ("The staging database listens on port {}.", "On which port does the staging database listen?"),
    ("Releases are cut on {}.", "On which weekday do we make a release?"),
    ("The on-call phone is kept by {}.", "Who has the phone for emergencies?"),
    ("The backup of the wiki runs at {}.", "At what time is the wiki saved?"),
    ("The office key is in the drawer of {}.", "In whose drawer is the key of the office?"),
    ("Invoices are sent to {}.", "Where do we send bills?"),
    ("The build server has {} cores.", "How many processors does the machine for builds have?"),
    ("The lighthouse lamp is {}.", "Which colour does the lamp of the lighthouse have?"),
    ("Ada prefers {} for new services.", "Which language does Ada like for a new service?"),
    ("The search index is rebuilt every {}.", "How often is the index of the search built again?"),
)
VALUES: Final = (
    (("5432", "6432"), ("7000", "7100"), ("1521", "1621"), ("3306", "3406")),
    (("Monday", "Thursday"), ("Tuesday", "Friday"), ("Wednesday", "Sunday"), ("Friday", "Monday")),
    (("Grace", "Alan"), ("Barbara", "Edsger"), ("Donald", "Tony"), ("Leslie", "Robin")),
    (("two at night", "four"), ("noon", "six"), ("nine", "eleven"), ("one", "five")),
    (("Linus", "Margaret"), ("Ken", "Dennis"), ("Bjarne", "Guido"), ("Larry", "Yukihiro")),
    (("Bergen", "Oslo"), ("Turku", "Helsinki"), ("Gdansk", "Warsaw"), ("Aarhus", "Odense")),
    (("eight", "thirty-two"), ("four", "sixteen"), ("two", "six"), ("twelve", "forty")),
    (("green", "white"), ("red", "amber"), ("blue", "violet"), ("yellow", "orange")),
    (("Go", "Rust"), ("Python", "Elixir"), ("Java", "Kotlin"), ("Perl", "Ruby")),
    (("hour", "night"), ("week", "day"), ("month", "fortnight"), ("minute", "quarter")),
)
TEAMS: Final = ("the harbour team", "the museum team", "the ferry team", "the archive team")
PARAPHRASES: Final = (
    ("The harbour closes at nine in winter.", "In the cold season the port shuts at 9 pm."),
    ("Never deploy on a Friday afternoon.", "Deployments late on Fridays are forbidden."),
    ("Grace is allergic to peanuts.", "Peanuts make Grace ill."),
    (
        "The API token expires after ninety days.",
        "Access keys of the interface are valid for 90 days.",
    ),
    ("Use metric units in all reports.", "Reports must give measures in metres and kilograms."),
    (
        "The ferry to the island takes two hours.",
        "It is a two hour crossing to the island by ferry.",
    ),
    ("Tests run in parallel on three workers.", "We use three parallel workers for the tests."),
    (
        "The museum is free on the first Sunday.",
        "Entry to the museum costs nothing on first Sundays.",
    ),
    ("Alan wants short commit messages.", "Commit messages should be brief, says Alan."),
    ("The printer on floor two is broken.", "The second floor's printer does not work."),
    ("Customers in Norway pay in kroner.", "Norwegian clients are billed in crowns."),
    ("The lamp room is locked at night.", "At night the lamp room cannot be entered."),
    (
        "We chose Postgres because of its transactions.",
        "Transactions were why Postgres was picked.",
    ),
    ("The seagull survey starts in April.", "Counting gulls begins in April."),
    ("Logs are kept for fourteen days.", "Log files are deleted after two weeks."),
    ("Barbara works from Lisbon on Mondays.", "On Mondays Barbara is in Lisbon for work."),
    ("The cache must not exceed two gigabytes.", "Keep the cache below 2 GB."),
    ("The old crane was sold in 2019.", "In 2019 a buyer took the old crane."),
    ("Passwords are stored in the vault only.", "The vault is the only place for passwords."),
    ("The bakery delivers bread before seven.", "Bread from the bakery comes earlier than 7 am."),
)


@dataclass(frozen=True, slots=True)
class FactPair:
    question: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class NotesFigures:
    """Counts of pairs and of paraphrases."""

    pairs: int
    current_first: int
    old_hidden: int
    old_on_request: int
    current_first_after_import: int
    old_on_request_after_import: int
    paraphrases: int
    original_among_nearest: int


def pairs() -> list[FactPair]:
    """Each subject once per team, so that others of the same subject compete."""
    found = []
    for (fact, question), values in zip(SUBJECTS, VALUES, strict=True):
        for team, (old, new) in zip(TEAMS, values, strict=True):
            found.append(
                FactPair(
                    f"{question} I mean {team}.",
                    f"For {team}: {fact.format(old)}",
                    f"For {team}: {fact.format(new)}",
                )
            )
    return found


async def hits(
    client: AsyncClient, container: str, query: str, *, superseded: bool = False
) -> list[Hit]:
    request = SearchRequest(
        containers=[container], query=query, top_k=10, include_superseded=superseded
    )
    return (await client.search(request)).hits


async def ingested(client: AsyncClient, container: str) -> None:
    """Return when no document of the container waits for its ingest. Purges wait for leases; they do not matter."""
    jobs = [
        job.job_id
        async for job in client.jobs(
            container_id=container, states=(JobState.QUEUED, JobState.RUNNING)
        )
        if job.kind is JobKind.INGEST
    ]
    await ended(client, jobs)


async def counted(
    client: AsyncClient, container: str, facts: list[FactPair]
) -> tuple[int, int, int]:
    """Pairs whose new fact is first, whose old fact is hidden, and whose old fact is found on request."""
    first = hidden = on_request = 0
    for fact in facts:
        found = await hits(client, container, fact.question)
        texts = [(hit.text or "").strip() for hit in found]
        first += texts[:1] == [fact.new]
        hidden += fact.old not in texts
        everything = await hits(client, container, fact.question, superseded=True)
        on_request += any((hit.text or "").strip() == fact.old for hit in everything)
    return first, hidden, on_request


async def measured(client: AsyncClient, folder: Path) -> NotesFigures:
    facts = pairs()
    await create(client, "facts")
    old: dict[str, UUID] = {}
    jobs = []
    for fact in facts:
        added = await client.add("facts", text=fact.old)
        old[fact.old] = added.doc_id
        jobs.append(added.job_id)
    await ended(client, jobs)
    jobs = [(await client.add("facts", text=f.new, supersedes=old[f.old])).job_id for f in facts]
    await ended(client, jobs)
    first, hidden, on_request = await counted(client, "facts", facts)
    archive = folder / "facts.latent.tar.zst"
    exported = await client.export("facts")
    (done,) = await ended(client, [exported.job_id or 0])
    link = await client.exported(int((done.result or {})["archive_id"]))
    await client.download(link, archive)
    imported = await client.import_archive(archive, container_id="facts-again")
    await ended(client, [imported.job_id])
    for strategy in (Strategy.PARALLEL, Strategy.REPARSE):
        refreshed = await client.refresh("facts-again", RefreshRequest(strategy=strategy))
        if isinstance(refreshed, RefreshAnswer):
            await ended(client, [refreshed.job_id])
        await ingested(client, "facts-again")
    first_again, _, on_request_again = await counted(client, "facts-again", facts)
    await create(client, "notes")
    originals = {}
    jobs = []
    for original, _ in PARAPHRASES:
        added = await client.add("notes", text=original)
        originals[original] = added.doc_id
        jobs.append(added.job_id)
    await ended(client, jobs)
    near = 0
    for original, again in PARAPHRASES:
        added = await client.add("notes", text=again)
        near += originals[original] in {one.doc_id for one in added.nearest}
        await ended(client, [added.job_id])
        await client.delete_document("notes", added.doc_id, now=True)
    return NotesFigures(
        len(facts),
        first,
        hidden,
        on_request,
        first_again,
        on_request_again,
        len(PARAPHRASES),
        near,
    )


async def run(kept: Path | None) -> NotesFigures:
    with work_folder(kept, "notes") as folder:
        async with (
            running(folder, {"LLC_SEARCH_TIMEOUT_MS": "30000"}) as installation,
            installation.client() as client,
        ):
            return await measured(client, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="keeps the containers for the next run")
    print(asyncio.run(run(parser.parse_args().work)))


if __name__ == "__main__":
    main()
