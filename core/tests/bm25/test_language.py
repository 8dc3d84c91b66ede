"""Languages of texts: golden samples, what a container adds for short ones, code, and texts without a language."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from latent_core.bm25.language import detect_language, language_of_code
from latent_core.domain.text import LANGUAGES

PARAGRAPHS = {
    "arabic": "تفتح المكتبة أبوابها كل صباح في الساعة التاسعة، ويمكن للزوار استعارة ثلاثة كتب لمدة أسبوعين.",
    "catalan": "La biblioteca obre cada matí a les nou, i els visitants poden endur-se tres llibres durant dues setmanes.",
    "czech": "Knihovna se otevírá každé ráno v devět hodin a návštěvníci si mohou půjčit tři knihy na dva týdny.",
    "danish": "Biblioteket åbner hver morgen klokken ni, og de besøgende kan låne tre bøger i to uger ad gangen.",
    "dutch": "De bibliotheek gaat elke ochtend om negen uur open en bezoekers mogen drie boeken twee weken lenen.",
    "english": "The library opens every morning at nine, and visitors may borrow three books for two weeks.",
    "estonian": "Raamatukogu avatakse igal hommikul kell üheksa ja külastajad võivad laenutada kolm raamatut.",
    "finnish": "Kirjasto avataan joka aamu kello yhdeksän, ja kävijät voivat lainata kolme kirjaa kahdeksi viikoksi.",
    "french": "La bibliothèque ouvre chaque matin à neuf heures et les visiteurs peuvent emprunter trois livres.",
    "german": "Die Bibliothek öffnet jeden Morgen um neun Uhr, und Besucher können drei Bücher zwei Wochen ausleihen.",
    "greek": "Η βιβλιοθήκη ανοίγει κάθε πρωί στις εννέα και οι επισκέπτες μπορούν να δανειστούν τρία βιβλία.",
    "hindi": "पुस्तकालय हर सुबह नौ बजे खुलता है और आगंतुक दो सप्ताह के लिए तीन किताबें ले जा सकते हैं।",
    "hungarian": "A könyvtár minden reggel kilenckor nyit, és a látogatók három könyvet kölcsönözhetnek két hétre.",
    "indonesian": "Perpustakaan dibuka setiap pagi pukul sembilan, dan pengunjung boleh meminjam tiga buku.",
    "italian": "La biblioteca apre ogni mattina alle nove e i visitatori possono prendere in prestito tre libri.",
    "lithuanian": "Biblioteka atidaroma kiekvieną rytą devintą valandą, lankytojai gali pasiskolinti tris knygas.",
    "norwegian": "Biblioteket åpner hver morgen klokken ni, og besøkende kan låne tre bøker i to uker om gangen.",
    "persian": "کتابخانه هر روز صبح ساعت نه باز می‌شود و بازدیدکنندگان می‌توانند سه کتاب به امانت بگیرند.",
    "polish": "Biblioteka jest otwierana codziennie o dziewiątej rano, a czytelnicy mogą wypożyczyć trzy książki.",
    "portuguese": "A biblioteca abre todas as manhãs às nove horas e os visitantes podem levar três livros.",
    "romanian": "Biblioteca se deschide în fiecare dimineață la ora nouă, iar vizitatorii pot împrumuta trei cărți.",
    "russian": "Библиотека открывается каждое утро в девять часов, и посетители могут взять три книги.",
    "spanish": "La biblioteca abre cada mañana a las nueve y los visitantes pueden llevarse tres libros prestados.",
    "swedish": "Biblioteket öppnar varje morgon klockan nio, och besökarna får låna tre böcker i två veckor.",
    "turkish": "Kütüphane her sabah saat dokuzda açılır ve ziyaretçiler üç kitabı iki haftalığına ödünç alabilir.",
}
WITHOUT_STEMMER = {
    "bulgarian": "Библиотеката отваря всяка сутрин в девет часа и посетителите могат да заемат три книги.",
    "chinese": "图书馆每天早上九点开门，读者可以借三本书，借期两周。",
    "croatian": "Knjižnica se otvara svako jutro u devet sati, a posjetitelji mogu posuditi tri knjige.",
    "hebrew": "הספרייה נפתחת כל בוקר בתשע, והמבקרים יכולים לשאול שלושה ספרים לשבועיים.",
    "japanese": "図書館は毎朝九時に開き、利用者は三冊の本を二週間借りることができます。",
    "korean": "도서관은 매일 아침 아홉 시에 문을 열며 방문객은 책 세 권을 빌릴 수 있습니다.",
    "thai": "ห้องสมุดเปิดทุกเช้าเวลาเก้าโมง และผู้เข้าชมสามารถยืมหนังสือได้สามเล่ม",
    "ukrainian": "Бібліотека відчиняється щоранку о дев'ятій, і відвідувачі можуть взяти три книжки.",
    "vietnamese": "Thư viện mở cửa mỗi buổi sáng lúc chín giờ và khách có thể mượn ba cuốn sách trong hai tuần.",
}
TITLES = {
    "czech": "Zápis z porady",
    "danish": "Referat fra mødet",
    "dutch": "Notulen van de vergadering",
    "finnish": "Kokouksen pöytäkirja",
    "french": "Compte rendu",
    "german": "Protokoll der Sitzung",
    "hungarian": "Értekezlet jegyzőkönyve",
    "italian": "Verbale della riunione",
    "norwegian": "Referat fra møtet",
    "polish": "Notatki ze spotkania",
    "portuguese": "Ata da reunião",
    "romanian": "Proces-verbal",
    "spanish": "Acta de la reunión",
    "swedish": "Protokoll",
    "turkish": "Toplantı notları",
}
"""Of at most six words, as of meeting notes; some could be of several languages."""


@pytest.mark.parametrize("language", PARAGRAPHS)
def test_a_paragraph_has_the_language_of_its_stemmer(language: str) -> None:
    assert detect_language(PARAGRAPHS[language]) == language
    assert language in LANGUAGES


@pytest.mark.parametrize("language", WITHOUT_STEMMER)
def test_a_language_without_a_stemmer_is_simple_and_never_english(language: str) -> None:
    assert detect_language(WITHOUT_STEMMER[language]) == "simple"


@pytest.mark.parametrize("language", TITLES)
def test_a_title_has_the_language_of_its_container(language: str) -> None:
    assert detect_language(TITLES[language], {language: 20}) == language


@pytest.mark.parametrize("text", ["Q3 2026", "", "3.14", "OK"])
def test_a_text_without_evidence_has_the_majoritys_language_and_english_without_one(
    text: str,
) -> None:
    assert detect_language(text) == "english"
    assert detect_language(text, {"swedish": 30, "english": 2}) == "swedish"
    assert detect_language(text, {"code": 500}) == "english"


@pytest.mark.parametrize("language", PARAGRAPHS)
def test_a_paragraph_keeps_its_language_in_a_container_of_another(language: str) -> None:
    other = "turkish" if language == "english" else "english"
    assert detect_language(PARAGRAPHS[language], {other: 10_000}) == language


def test_what_the_source_declares_decides_short_texts_and_not_long_ones() -> None:
    assert detect_language("Protokoll", declared="swedish") == "swedish"
    assert detect_language(PARAGRAPHS["turkish"], declared="english") == "turkish"
    yiddish = "די ביבליאטעק עפנט זיך יעדן אינדערפרי ניין אזייגער"
    assert detect_language(yiddish, declared="yiddish") == "yiddish"  # unknown to the model


def test_the_prose_decides_about_a_text_with_names_of_many_languages() -> None:
    names = "\n".join(
        f"| {name} | Guadalajara | Zaragoza |" for name in ("Muñoz", "Peña", "Ibáñez")
    )
    prose = "The players of the season and their clubs, as announced by the league."
    assert detect_language(f"{prose}\n{names}", prose=prose) == "english"


CODE = "def total(items):\n    found = [one.price for one in items if one]\n    return sum(found)\n"
GERMAN_CODE = "def gruss(name):\n    # der Name ist nicht leer und wird auch so gesagt wie er ist\n    return name"


def test_code_is_code_unless_its_comments_are_in_another_language() -> None:
    assert language_of_code("x = 1") == "code"
    assert language_of_code(CODE) == detect_language(CODE, {"turkish": 500}) == "code"
    assert language_of_code(GERMAN_CODE) == detect_language(GERMAN_CODE) == "german"


def test_threads_load_one_model_and_agree() -> None:
    texts = list(PARAGRAPHS.items()) * 4
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(detect_language, (text for _, text in texts))) == [
            language for language, _ in texts
        ]


def test_foreign_names_in_a_heading_and_in_rows_do_not_make_a_record_foreign() -> None:
    rows = "\n".join("| Persatuan Sepakbola Seluruh Indonesia | penghargaan |" for _ in range(20))
    record = f"Garuda di Dadaku - Awards\n\n# Garuda di Dadaku\n\n## Awards\n\n{rows}"
    assert detect_language(record, {"english": 1000}) == "english"
    assert detect_language(rows) == "indonesian"  # nothing else is there
