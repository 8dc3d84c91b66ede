"""Judged sets in other languages: the figures that have to hold, and the published files of xquad as such sets.

python -m benchmarks.languages SOURCE TARGET      xquad.<language>.json to TARGET/xquad/<language>/
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

SETS: Final = "xquad-"
"""Begin of the names of these sets."""
SEMANTIC: Final = {
    "xquad-de": 0.90,
    "xquad-es": 0.90,
}
"""The lowest nDCG@10 by vectors alone, of the multilingual model."""
HYBRID_LOSS: Final = 0.005
"""By so much hybrid search may be below words alone, of any embedder: by the fusion of new containers in all languages,
by RRF in those that have a bar for vectors."""


def convert(published: Path, target: Path) -> str:
    """Write one ``xquad.<language>.json`` as a judged set below ``target``; the language."""
    language = published.name.split(".")[1]
    articles = json.loads(published.read_bytes())["data"]
    folder = target / "xquad" / language
    folder.mkdir(parents=True, exist_ok=True)
    corpus, queries, qrels = [], [], ["query-id\tcorpus-id\tscore"]
    for number, article in enumerate(articles):
        for place, paragraph in enumerate(article["paragraphs"]):
            name = f"p{number}-{place}"
            title = article.get("title", "")
            corpus.append({"_id": name, "title": title, "text": paragraph["context"]})
            for question in paragraph["qas"]:
                queries.append({"_id": question["id"], "text": question["question"]})
                qrels.append(f"{question['id']}\t{name}\t1")
    _write(folder / "corpus.jsonl", corpus)
    _write(folder / "queries.jsonl", queries)
    (folder / "qrels.tsv").write_text("\n".join(qrels) + "\n", encoding="utf-8")
    return language


def _write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", type=Path, help="folder with xquad.<language>.json")
    parser.add_argument("target", type=Path, help="folder of judged sets")
    arguments = parser.parse_args()
    for published in sorted(arguments.source.glob("xquad.*.json")):
        print(convert(published, arguments.target))


if __name__ == "__main__":
    main()
