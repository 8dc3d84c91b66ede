"""Common endings of words, a list per language: what follows a stem while a word is being typed.

They need not be complete. Without the right one, the longest term of the index that begins the word is searched.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from latent_core.bm25.language import CODE, DEFAULT

ENDINGS: Final[Mapping[str, str]] = {
    "danish": "en er erne et ende ens heden hed elser else ede isk iske lig lige ning ninger",
    "dutch": "en e heden heid ing ingen lijk lijke baar isch ische end ende elijk atie aties",
    "english": "s es ed er ers ing ings ly ment ments ness nesses ation ations ational ization izations ized izing "
    "ability able ible ibility ive ively iveness ful fully fulness less ity ities ies ism ist ists ous ously al ally "
    "ance ances ence ences ant ent ional ically ical ion ions",
    "french": "s es e ees er ez ons ent ement ements ation ations ateur ateurs ite ites ique iques isme ismes iste istes "
    "able ables eux euse euses if ifs ive ives ance ances ence ences ment aient ait issement",
    "german": "e en er es em ern est ung ungen heit heiten keit keiten lich liche lichen isch ische ischen ig ige igen "
    "end ende enden t te ten tet",
    "italian": "i e o a are ere ire ando endo ato ata ati ate zione zioni azione azioni mente amente ita ista isti ismo "
    "abile abili ibile ivo iva ivi ive anza anze enza enze oso osa",
    "norwegian": "en er ene et ende ens heten het elser else ede isk iske lig lige ing inger",
    "portuguese": "s es os as ar er ir ando endo indo ado ada ados adas acao acoes mente amente idade idades ista istas "
    "ismo avel ivel ivo iva oso osa encia encias ancia ancias",
    "russian": "\u0430 \u044b \u0438 \u043e\u0432 \u043e\u043c \u0430\u043c \u0430\u043c\u0438 \u0430\u0445 \u0435\u0439 \u0438\u044f \u0438\u0438 \u0438\u0439 \u0438\u0435\u0439 \u043e\u0439 \u044b\u0439 \u043e\u0433\u043e \u043e\u043c\u0443 \u044b\u043c\u0438 \u044b\u0445 \u0430\u044f "
    "\u043e\u0435 \u044b\u0435 \u043e\u0441\u0442\u044c \u043e\u0441\u0442\u0438 \u0430\u0442\u044c \u0438\u0442\u044c \u043b\u0430 \u043b\u0438 \u043d\u0438\u0435 \u043d\u0438\u044f \u0430\u0446\u0438\u044f \u0430\u0446\u0438\u0438",
    "spanish": "s es os as ar er ir ando iendo ado ada ados adas acion aciones mente amente idad idades ista istas ismo "
    "able ables ible ibles ivo iva oso osa encia encias ancia ancias",
    "swedish": "en ar or er arna orna erna et ande ende heten het else elser ade isk iska lig liga ning ningar",
}


@cache
def tails(language: str) -> tuple[str, ...]:
    """Every end of an ending: what may be missing of a word that stops within one."""
    endings = ENDINGS.get(DEFAULT if language == CODE else language, "").split()
    return tuple(sorted({ending[at:] for ending in endings for at in range(len(ending))}))
