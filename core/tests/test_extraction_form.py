from __future__ import annotations

import json
from typing import Any

import pytest

from latent_core.domain import visual_importance
from latent_core.domain.extraction import extraction_of, json_schema
from latent_core.domain.model_answer import AnswerRefused, Violation

GOOD: dict[str, Any] = {
    "summary": "Berths of the harbour.",
    "sections": [{"heading": "Berths", "text": "Berth 7 is let."}],
    "full_text": "Berths\nBerth 7 is let.",
    "visuals": [{"type": "chart", "description": "Ships by year.", "relevance": 4}],
    "visual_importance": 4,
}


def test_an_answer_in_the_form_is_read_as_it_is() -> None:
    read = extraction_of(json.dumps(GOOD))
    assert read.model_dump() == GOOD


VISUAL = GOOD["visuals"][0]


@pytest.mark.parametrize(
    ("answer", "reason", "named"),
    [
        ("Sure! {}", Violation.INVALID_JSON, "not valid JSON"),
        ("```json\n" + json.dumps(GOOD) + "\n```", Violation.INVALID_JSON, "not valid JSON"),
        (json.dumps(GOOD) + "{}", Violation.INVALID_JSON, "Extra data"),
        (json.dumps(GOOD)[:-1] + ', "summary": "b"}', Violation.INVALID_JSON, "occurs twice"),
        (json.dumps(GOOD).replace(": 4}]", ": NaN}]"), Violation.INVALID_JSON, "NaN"),
        ("[" * 100_000, Violation.INVALID_JSON, "not valid JSON"),
        ("[]", Violation.SCHEMA, "answer: "),
        (json.dumps(GOOD | {"note": "a"}), Violation.EXTRA_KEY, "note: "),
        (json.dumps(GOOD | {"visuals": [VISUAL | {"a": 1}]}), Violation.EXTRA_KEY, "visuals.0.a"),
        (json.dumps(GOOD | {"visual_importance": 6}), Violation.OUT_OF_RANGE, "visual_importance"),
        (json.dumps(GOOD | {"visual_importance": 0}), Violation.OUT_OF_RANGE, "visual_importance"),
        (
            json.dumps(GOOD | {"visuals": [VISUAL | {"relevance": 9}]}),
            Violation.OUT_OF_RANGE,
            "visuals.0.relevance",
        ),
        (json.dumps(GOOD | {"visual_importance": "4"}), Violation.SCHEMA, "visual_importance"),
        (json.dumps(GOOD | {"visual_importance": 4.0}), Violation.SCHEMA, "visual_importance"),
        (json.dumps(GOOD | {"visual_importance": True}), Violation.SCHEMA, "visual_importance"),
        (json.dumps(GOOD | {"visuals": [VISUAL | {"type": "map"}]}), Violation.SCHEMA, "type"),
        (json.dumps(GOOD | {"full_text": "a" * 100_001}), Violation.SCHEMA, "100000 characters"),
        (json.dumps(GOOD | {"visuals": [VISUAL] * 101}), Violation.SCHEMA, "100 items"),
        (json.dumps(GOOD | {"full_text": "a\0b"}), Violation.SCHEMA, "no text has"),
        (json.dumps(GOOD | {"summary": "a\ud800b"}), Violation.SCHEMA, "no text has"),
        (json.dumps(GOOD | {"visual_importance": 6, "note": "a"}), Violation.SCHEMA, "note"),
        *[
            (json.dumps({k: v for k, v in GOOD.items() if k != key}), Violation.SCHEMA, key)
            for key in GOOD
        ],
    ],
)
def test_any_other_answer_is_refused_by_name(answer: str, reason: Violation, named: str) -> None:
    with pytest.raises(AnswerRefused, match=named) as refused:
        extraction_of(answer)
    assert (refused.value.reason, refused.value.details) == (reason, {"reason": reason.value})
    assert len(refused.value.message) < 2_000


def test_the_schema_for_servers_is_closed_and_requires_every_key() -> None:
    def closed(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(closed, part))
        if not isinstance(part, dict):
            return 0
        own = 0
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert sorted(part["required"]) == sorted(part["properties"])
            own = 1
        return own + sum(map(closed, part.values()))

    schema = json_schema()
    assert closed(schema) == 3
    assert not {"$ref", "$defs", "maxLength"} & set(json.dumps(schema).split('"'))
    assert schema["properties"]["visual_importance"] == {
        "maximum": 5,
        "minimum": 1,
        "type": "integer",
    }


@pytest.mark.parametrize(
    ("share", "importance", "read_as"),
    [
        (None, None, "text"),
        (0.0, 1, "text"),
        (0.049, 1, "text"),
        (0.05, 2, "text"),
        (0.2, 3, "text"),
        (0.399, 3, "text"),
        (0.4, 4, "image"),
        (0.699, 4, "image"),
        (0.7, 5, "image"),
        (1.0, 5, "image"),
    ],
)
def test_the_measured_share_of_pictures_stands_in_for_a_models_judgement(
    share: float | None, importance: int | None, read_as: str
) -> None:
    assert visual_importance.of_share(share) == importance
    assert visual_importance.read_as(importance) == read_as
