"""What is hidden of a text, in whatever dress a secret comes, and what is left."""

from __future__ import annotations

import json
import string
from urllib.parse import quote

import pytest
from hypothesis import given, settings, strategies as st
from pydantic import SecretStr

from latent_core.telemetry.redaction import HIDDEN, RUN, OwnKey, names_a_secret, redacted

# Both ends are as no word around a secret is: none may be left of it, neither its head nor its tail.
HEAD, TAIL = "Zq7Zq", "qZ7qZ"
ANY = st.text(string.printable, max_size=40).map(lambda inner: f"{HEAD}{inner}{TAIL}")
BARE = st.text(
    sorted(set(string.printable) - set(string.whitespace) - set("\"'\\&")), max_size=40
).map(lambda inner: f"{HEAD}{inner}{TAIL}")
NAMES = st.sampled_from(
    [
        *("password", "PASSWORD", "passwd", "pwd", "passphrase", "secret", "client_secret"),
        *("api_key", "api-key", "X-Api-Key", "LLC_EMBED_API_KEY", "aws_secret_access_key"),
        *("access_token", "credential", "authorization", "X-Amz-Signature"),
    ]
)
KEYS = st.text(string.ascii_letters + string.digits + "-_./+=\"\\'!", min_size=12, max_size=400)


def is_hidden(text: str) -> bool:
    shown = redacted(text)
    return HEAD not in shown and TAIL not in shown


@settings(max_examples=100, deadline=None)
@given(NAMES, BARE)
def test_what_follows_the_name_of_a_secret_is_hidden(name: str, secret: str) -> None:
    for text in (f"{name}={secret}", f"{name}: {secret}", f"({name} = {secret} and more)"):
        assert is_hidden(text), text
    assert redacted(f"{name}: {secret} said the server").endswith(" said the server")


@settings(max_examples=100, deadline=None)
@given(NAMES, ANY)
def test_a_quoted_secret_is_hidden_to_its_last_character(name: str, secret: str) -> None:
    as_json = json.dumps({name: secret, "after": "it"})
    for text in (as_json, json.dumps(as_json), json.dumps({"body": json.dumps(as_json)})):
        assert is_hidden(text), text
    assert is_hidden(as_json[: as_json.index(TAIL) + 2]), "cut off within"


def test_a_long_path_full_of_beginnings_of_tokens_is_read_once() -> None:
    path = (
        "/" + "eyJ-" * 250_000
    )  # read again from each beginning it takes the better part of an hour
    assert redacted(path) == path
    assert redacted(f"{path} eyJhbGciOiJI.eyJzdWIiOiIx.c2ln") == f"{path} {HIDDEN}"


@settings(max_examples=100, deadline=None)
@given(BARE, ANY)
def test_bearer_tokens_addresses_and_links_are_hidden(token: str, password: str) -> None:
    for text in (
        f"Authorization: Bearer {token}",
        f"called with bearer {token}",
        f"authorization: Basic {token}",
        f'"Authorization": "Bearer {token}"',
        f"postgresql://latent:{quote(password, safe='')}@postgres:5432/latent refused",
        f"/v1/blobs/ab?exp=1&sig={token}&type=x",
        f"https://s3/b/k?X-Amz-Signature={token}",
        f"Incorrect API key provided: {token}",
    ):
        assert is_hidden(text), text


@pytest.mark.parametrize(
    "secret",
    [
        "lct_abc123XYZ",
        "sk-proj-abcdefghijklmnop1234",
        "hf_abcdefghijklmnopqrstuvwx",
        "jina_abcdefghijklmnopqrstuvwx",
        *(f"gh{kind}_abcdefghijklmnopqrstuvwx" for kind in "pousr"),
        "github_pat_abcdefghijklmnopqrstuvwx",
        "glpat-abcdefghijklmnopqrstuvwx",
        "xoxb-1234567890-abc",
        "AIzaabcdefghijklmnopqrstuvwxyz1234567",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    ],
)
def test_what_shows_itself_by_its_form_is_hidden(secret: str) -> None:
    assert redacted(f"it was called with {secret}.") == f"it was called with {HIDDEN}."


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:7801/v1/containers",
        "http://127.0.0.1:7801/v1/hits?of=me@example.com",
        "the link's signature is not valid; request a new link",
        "two secrets: keep one of them",
        "user@example.com asked for design=dark",
        "embedding_tokens=512, tokens: 3, tokenizer: words, monkey=1",
        "LLC_EMBED_API_KEY_FILE: /run/secrets/embed cannot be read",
        "check LLC_EMBED_API_KEY, restart, and try what failed again",
        'password authentication failed for user "latent"',
        "unexpected token: }",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redacted(text) == text


def test_fields_are_secret_by_their_name() -> None:
    assert all(
        map(names_a_secret, ("password", "embed_api_key", "X-Amz-Signature", "client_secret"))
    )
    assert not any(map(names_a_secret, ("tokens", "job_id", "api_key_file", "design", "key")))


@settings(max_examples=100, deadline=None)
@given(KEYS, st.integers(0, 300), st.integers(0, 500))
def test_of_our_own_key_no_piece_is_shown_however_a_server_writes_it(
    key: str, before: int, cut: int
) -> None:
    own = OwnKey(SecretStr(key), "LLC_EMBED_API_KEY")
    filler = " ".join(["spoken"] * (before // 7))
    for dress in (key, json.dumps(key), quote(key, safe=""), f"{key[:10]}…{key[-10:]}", key[:cut]):
        shown = own.redacted_text(f"{filler} {dress} {filler}".encode())
        runs = {key[at : at + RUN] for at in range(len(key) - RUN + 1)}
        assert not any(shown[at : at + RUN] in runs for at in range(len(shown)))
        assert len(shown) <= 200
    assert key not in own.redacted_text(f"called with {key}".encode())


def test_without_a_key_none_is_sent_and_the_text_is_unchanged() -> None:
    own = OwnKey(None, "LLC_EMBED_API_KEY")
    assert own.header == {}
    assert own.redacted_text(b"no  such\nmodel") == "no such model"
    assert OwnKey(SecretStr(" k1 "), "LLC_EMBED_API_KEY").header == {"Authorization": "Bearer k1"}
