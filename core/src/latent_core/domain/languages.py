"""Names of languages: documents store the names of the Snowball stemmers; input may use ISO codes."""

from __future__ import annotations

import difflib
from typing import Final

# Name, then its codes of ISO 639-1 and 639-2 or -3.
_TABLE: Final = """
arabic ar ara
armenian hy hye arm
basque eu eus baq
catalan ca cat
code
czech cs ces cze
danish da dan
dutch nl nld dut
english en eng
esperanto eo epo
estonian et est
finnish fi fin
french fr fra fre
german de deu ger
greek el ell gre
hindi hi hin
hungarian hu hun
indonesian id ind
irish ga gle
italian it ita
lithuanian lt lit
nepali ne nep
norwegian no nor nb nob nn nno
persian fa fas per
polish pl pol
portuguese pt por
romanian ro ron rum
russian ru rus
serbian sr srp
sesotho st sot
simple und
spanish es spa
swedish sv swe
tamil ta tam
turkish tr tur
yiddish yi yid
"""

_NAMES: Final = {
    word: words[0]
    for words in (line.split() for line in _TABLE.strip().splitlines())
    for word in words
}
LANGUAGES: Final = tuple(dict.fromkeys(_NAMES.values()))
"""``code`` is source code and similar text, ``simple`` any other language."""


def language_named(written: str) -> str:
    """The name for a name, a code or a tag such as ``de-AT``; ``ValueError`` for an unknown one."""
    name_given = written.strip().lower()
    name = _NAMES.get(name_given) or _NAMES.get(name_given.replace("_", "-").partition("-")[0])
    if name is not None:
        return name
    near = difflib.get_close_matches(name_given[:40], LANGUAGES, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(LANGUAGES)}"
    raise ValueError(f"is not a supported language; {hint}")
