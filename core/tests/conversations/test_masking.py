"""Secrets are masked before text is stored; prose and code stay as they are."""

from __future__ import annotations

import random
import string
from pathlib import Path
from typing import Final

import pytest

from latent_core.domain.conversation import MAX_MESSAGE_CHARS, read_conversation
from latent_core.ingest.masking import mask, mask_conversation

ALNUM: Final = string.ascii_letters + string.digits
DOCS: Final = Path(__file__).parents[3] / "docs"
_RANDOM: Final = random.Random(18)


def _run(length: int, alphabet: str = ALNUM) -> str:
    return "".join(_RANDOM.choice(alphabet) for _ in range(length))


# Made here: a real one would be one, and a fixed one would stop every push that is checked for secrets.
SECRETS: Final = {
    "github": f"ghp_{_run(36)}",
    "gitlab": f"glpat-{_run(20)}",
    "anthropic": f"sk-ant-api03-{_run(93)}AA",
    "openai": f"sk-proj-{_run(74)}T3BlbkFJ{_run(74)}",
    "slack": f"xoxb-{_run(12, string.digits)}-{_run(12, string.digits)}-{_run(24)}",
    "stripe": f"sk_live_{_run(24)}",
    "google": f"AIza{_run(35)}",
    "own": f"lct_{_run(40)}",
    "private key": "\n".join(
        [
            "-----BEGIN RSA PRIVATE KEY-----",
            *(_run(64, ALNUM + "+/") for _ in range(12)),
            "-----END RSA PRIVATE KEY-----",
        ]
    ),
}
NAMED: Final = (
    ('password = "{}"', "a7Kq92mZx1Lp"),
    ("DB_PASSWORD={}", "Zk38vLq0Tt61xYbb"),
    ("password: {}", "Tr0ub4dor&3xyz"),
    ("The password is {}, please remember it.", "hunter2-Blue!77"),
    ("my wifi password was {}.", "Xk29!vanilla"),
    ("client_secret: '{}'", "k3J9s0QpLm28ZxNv71Bt"),
    ("api_key = `{}`", "9f2c7e1ab04d5f6e8c3b7a90d1e2f4a6"),
    ("Authorization: Bearer {}", "q8Z2mB4kT7xW1nV9cR5yL3pS6dF0gHj"),
    ("postgres://app:{}@db.internal:5432/x", "Vq71kLm0Zr42"),
)
ORDINARY: Final = (
    "The password is required; the token: budget is 512 tokens, the key is the name.",
    "token = request.headers['authorization'].removeprefix('Bearer ')",
    "api_key = os.getenv('OPENAI_API_KEY')",
    "encoding token: o200k_base, model text-embedding-3-small, secret: SecretStr | None, token: GPT-4o-mini",
    "password: ${DB_PASSWORD}, api_key=<your-key>, Bearer YOUR_API_KEY, token=xxxxxxxx12",
    "access key: /run/secrets/key_2026.pem, token: 2026-03-01T10:00:00",
    "commit 9f2c7e1ab04d5f6e8c3b7a90d1e2f4a6b8c0d2e4, id 3f0c2b1e-6a56-4b7e-9c55-0d5a3a8f9e10",
    "the secret is that 3 of 4 cooks use Maldon-salt",
)


@pytest.mark.parametrize("name", SECRETS)
def test_keys_and_tokens_of_services_are_masked_in_prose(name: str) -> None:
    secret = SECRETS[name]
    masked, counts = mask(f"Ünïcode before. Use {secret} for it, then go on.")
    assert secret not in masked
    assert masked.startswith("Ünïcode before. Use [masked: ")
    assert masked.endswith("] for it, then go on.")
    assert sum(counts.values()) == 1


@pytest.mark.parametrize(("form", "secret"), NAMED)
def test_a_password_is_found_by_the_name_before_it(form: str, secret: str) -> None:
    masked, counts = mask(form.format(secret))
    before, after = form.split("{}")
    assert masked.startswith(f"{before}[masked: ")
    assert masked.endswith(f"]{after}")
    assert sum(counts.values()) == 1


@pytest.mark.parametrize("text", ORDINARY)
def test_prose_code_and_placeholders_stay_as_they_are(text: str) -> None:
    assert mask(text) == (text, {})


def test_masking_again_changes_nothing() -> None:
    once, _ = mask(f"password: Tr0ub4dor&3xyz and {SECRETS['github']}")
    assert mask(once) == (once, {})


def test_the_documentation_of_this_project_holds_nothing_to_mask() -> None:
    for file in sorted(DOCS.rglob("*.md")):
        assert mask(file.read_text(encoding="utf-8"))[1] == {}, file.name


def test_title_and_messages_of_a_conversation_are_masked_and_counted() -> None:
    one = read_conversation(
        {
            "title": f"Rotate {SECRETS['gitlab']}",
            "messages": [{"content": "Which?"}, {"content": f"{SECRETS['gitlab']}, of course"}],
        }
    )
    masked, counts = mask_conversation(one)
    assert SECRETS["gitlab"].encode() not in masked.encode()
    assert sum(counts.values()) == 2
    assert masked.messages[0] == one.messages[0]


def test_a_masked_message_is_no_longer_than_a_message_may_be() -> None:
    content = "password: Tr0ub4dor&3xyz " + "x" * (MAX_MESSAGE_CHARS - 25)
    one = read_conversation({"messages": [{"content": content}]})
    masked, _ = mask_conversation(one)
    assert read_conversation(masked.encode()).messages[0].content.startswith("password: [masked")
