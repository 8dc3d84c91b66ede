from __future__ import annotations

import io
from importlib.metadata import distribution, packages_distributions

import pytest
from hypothesis import given, settings, strategies as st

from latent_core.domain.chunk import SourceType
from latent_workers.parse.code import definitions, parser
from latent_workers.parse.code.grammars import GRAMMARS
from latent_workers.parse.code.languages import language_of
from latent_workers.parse.parsed import ParsedDocument, SourceFile
from latent_workers.parse.signatures import EXTENSIONS, FILE_NAMES
from latent_workers.parse.text.decode import decode
from latent_workers.parse.text.lines import Lines


def parsed(source: str, name: str) -> ParsedDocument:
    return parser.of_decoded(decode(source.encode()), name)


def outline(source: str, name: str) -> list[tuple[str, int | None, int | None, int | None]]:
    """Path, level, first and last line of each block."""
    return [
        (".".join(block.heading_path), block.level, block.line_start, block.line_end)
        for block in parsed(source, name).blocks
    ]


PYTHON = '''"""Module."""
import os

# About f.
@decorated
def f(x):
    def inner():
        pass
    return inner


LIMIT = 3

class Größe:
    """Ümläute before what follows."""

    async def g(self): ...
if LIMIT:
    print("end")
'''


def test_blocks_of_python_are_its_definitions_and_what_stands_between() -> None:
    assert outline(PYTHON, "a.py") == [
        ("", None, 1, 2),
        ("f", 1, 4, 9),
        ("", None, 12, 12),
        ("Größe", 1, 14, 15),
        ("Größe.g", 2, 17, 17),
        ("", None, 18, 19),
    ]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        (
            "a.js",
            "import x from 'x';\n/** Says. */\nexport default function say() {}\n"
            "const run = async () => {\n};\nconst n = 1;\nclass A {}\n",
            ["", "say", "run", "", "A"],
        ),
        (
            "a.mts",
            "export interface I {\n}\ntype T = string;\nnamespace N {\n}\nexport abstract class C<T> {}\n",
            ["I", "T", "N", "C"],
        ),
        ("a.tsx", "const View = () => <div>{1}</div>;\nenum E { A }\n", ["View", "E"]),
        (
            "a.go",
            "package p\n\n// F does.\nfunc F() {}\n\ntype S struct {\n}\n\nfunc (s *S) M() int { return 1 }\n"
            "func (l *List[T]) P() {}\n",
            ["", "F", "S", "S.M", "List.P"],
        ),
        (
            "a.rs",
            "use a::b;\n/// Doc.\n#[derive(Debug)]\nstruct S;\nimpl Show for S {\n}\nfn main() {}\n"
            "macro_rules! m { () => {} }\n",
            ["", "S", "S", "main", "m"],
        ),
        (
            "A.java",
            "package a;\nimport b.C;\n\n/** Doc. */\n@Deprecated\npublic class A {\n}\nrecord R(int x) {}\n",
            ["", "A", "R"],
        ),
        (
            "a.c",
            "#include <a.h>\n/* F. */\nstatic int *f(int a)\n{\n  return 0;\n}\n#ifdef X\nint g(void) { return 1; }\n"
            "#endif\nstruct S {\n  int a;\n};\n#define M(x) x\n",
            ["", "f", "", "g", "", "S", "M"],
        ),
        (
            "a.cpp",
            "namespace n {\nclass A : B {\n  void m() const {\n  }\n};\ntemplate<class T>\nT g(T t) { return t; }\n}\n"
            "void A::h() {}\n",
            ["n", "n.A", "n.A.m", "n.A", "n.g", "n", "A::h"],
        ),
        (
            "a.cs",
            "namespace N {\n/// Doc.\nclass A {\n  [X]\n  public A() {\n  }\n  int F() { return 1; }\n}\n}\ninterface I {\n}\n",
            ["N", "N.A", "N.A.A", "N.A.F", "N.A", "N", "I"],
        ),
        (
            "a.rb",
            "module M\n  # Doc.\n  class A < B\n    def m(a)\n    end\n    def self.s; end\n  end\nend\n",
            ["M", "M.A", "M.A.m", "M.A.s", "M.A", "M"],
        ),
        (
            "a.php",
            "<?php\n/** Doc. */\nclass A {\n  public function m() {\n  }\n}\nfunction f() {\n}\n",
            ["", "A", "A.m", "A", "f"],
        ),
        (
            "a.kt",
            "package a\n\n/** Doc. */\nclass A {\n  fun m(): Int {\n    return 1\n  }\n}\n\nfun f() {\n}\n\nobject O {\n  fun g() = 1\n}\n",
            ["", "A", "A.m", "A", "f", "O", "O.g", "O"],
        ),
        (
            "a.scala",
            "object O {\n  def f(a: Int): Int = 1\n}\ntrait T\n",
            ["O", "O.f", "O", "T"],
        ),
        (
            "a.swift",
            "// Doc.\nclass A {\n  func m() -> Int {\n    return 1\n  }\n}\nextension A {\n  func g() {}\n}\nfunc f() {}\n",
            ["A", "A.m", "A", "A", "A.g", "A", "f"],
        ),
        (
            "a.lua",
            "local x = 1\nfunction a.b(x)\n  return 1\nend\nlocal function c() end\n",
            ["", "a.b", "c"],
        ),
        (
            "a.sh",
            "set -e\n# Doc.\nf() {\n  echo\n}\nfunction g {\n  echo\n}\n",
            ["", "f", "g"],
        ),
    ],
)
def test_definitions_are_known_by_name(name: str, source: str, expected: list[str]) -> None:
    assert [path for path, *_ in outline(source, name)] == expected


def test_each_grammar_is_a_compiled_wheel_of_its_own_and_nothing_downloads_one() -> None:
    providers = packages_distributions()
    wheels = {one: providers[one] for one in {grammar.module for grammar in GRAMMARS.values()}}
    assert wheels == {one: [one.replace("_", "-")] for one in wheels}
    for (name,) in wheels.values():
        files = distribution(name).files or []
        assert any(file.suffix in (".so", ".pyd", ".dylib") for file in files), name
        needed = distribution(name).requires or []
        assert all("extra ==" in one for one in needed), "a loader of grammars would be among them"


def test_comments_and_attributes_right_above_belong_to_a_definition() -> None:
    source = "use a::b;\n\n// Far.\n\n// Near.\n#[test]\nfn f() {}\n"
    assert outline(source, "a.rs") == [("", None, 1, 3), ("f", 1, 5, 7)]


def test_a_class_is_taken_apart_into_its_methods() -> None:
    body = "".join(f"    def m{n}(self):\n" + "        step()\n" * 30 + "\n" for n in range(3))
    source = f"class Long:\n    x = 1\n\n{body}    y = 2\n\nclass Short:\n    def m(self): ...\n"
    assert outline(source, "a.py") == [
        ("Long", 1, 1, 2),
        ("Long.m0", 2, 4, 34),
        ("Long.m1", 2, 36, 66),
        ("Long.m2", 2, 68, 98),
        ("Long", None, 100, 100),
        ("Short", 1, 102, 102),
        ("Short.m", 2, 103, 103),
    ]


def test_line_numbers_follow_from_offsets_for_every_line_ending() -> None:
    source = "a = 1\r\rdef f():\r\n    return 'ü'\r\n\u2028\ndef g(): pass\r"
    assert outline(source, "a.py")[:2] == [("", None, 1, 1), ("f", 1, 3, 4)]
    assert outline(source, "a.py")[-1] == ("g", 1, 6, 6)


C = "#include <a.h>\n\nint f(void)\n{\n\n    return 1;\n}\n\nstatic int x;\nint g;\n"


def test_without_a_grammar_blank_lines_and_indentation_tell() -> None:
    assert outline(C, "a.m") == [("", 1, 1, 1), ("", 1, 3, 7), ("", 1, 9, 10)]


def test_code_that_its_grammar_cannot_read_is_still_cut() -> None:
    source = "}}} not python at all\n\n{{{ ((\n\nmore ]]]\n"
    assert [block.text for block in parsed(source, "a.py").blocks] != []
    assert len(outline(source, "a.py")) == 3


def test_code_beyond_the_bounds_is_cut_by_its_indentation(monkeypatch: pytest.MonkeyPatch) -> None:
    by_grammar = outline(PYTHON, "a.py")
    monkeypatch.setattr(definitions, "MAX_CHARS", 10)
    assert outline(PYTHON, "a.py") != by_grammar
    assert parsed(PYTHON, "a.py").meta["code_language"] == "python"


def test_a_parser_that_does_not_come_to_an_end_is_stopped() -> None:
    assert outline("((" * 200_000, "a.ts") == [("", 1, 1, 1)]


@pytest.mark.parametrize(
    ("name", "source", "language"),
    [
        ("a.PY", "", "python"),
        ("a.jsx", "", "javascript"),
        ("a.cts", "", "typescript"),
        ("Makefile", "", "make"),
        ("run", "#!/usr/bin/env python3\nx = 1\n", "python"),
        ("run", "#!/bin/sh\nls\n", "shell"),
        ("a.lock", "x", None),
    ],
)
def test_the_language_is_detected_from_name_or_first_line(
    name: str, source: str, language: str | None
) -> None:
    assert language_of(name, source) == language
    assert parsed(source or "x", name).meta.get("code_language") == language


def test_nearly_every_ending_of_code_has_a_language() -> None:
    endings = {end for end, source_type in EXTENSIONS.items() if source_type is SourceType.CODE}
    silent = {end for end in endings if language_of(f"a.{end}") is None}
    assert silent == {"lock", "gitignore", "dockerignore"}
    unnamed = {name for name in FILE_NAMES if language_of(name) is None}
    assert unnamed == {"procfile", ".gitignore", ".dockerignore"}


FRAGMENTS = st.sampled_from(
    [
        *("def f():", "class A:", "    x = 1", "", "  ", "@d", "# c", '"""', "}", "fn f() {", "\t"),
        *(
            "export const a = () => {",
            "é = '中'",
            "/*",
            "*/",
            "impl A {",
            "func (",
            "if x:",
            "a" * 500,
        ),
    ]
)
NAMES = st.sampled_from(["a.py", "a.js", "a.ts", "a.tsx", "a.go", "a.rs", "A.java", "a.c", "x"])


@settings(max_examples=200, deadline=None)
@given(st.lists(FRAGMENTS, min_size=1, max_size=25), st.sampled_from(["\n", "\r\n", "\r"]), NAMES)
def test_blocks_stand_in_order_and_hold_every_filled_line(
    rows: list[str], end: str, name: str
) -> None:
    text = end.join(rows)
    found = parsed(text, name)
    lines = Lines(text)
    done = 0
    held: list[int] = []
    for block in found.blocks:
        assert block.line_start is not None
        assert block.line_end is not None
        assert done < block.line_start <= block.line_end
        assert lines.span(block.line_start, block.line_end) == (
            block.offset_start,
            block.offset_end,
        )
        assert text[block.offset_start : block.offset_end] == block.text
        done = block.line_end
        held += range(block.line_start, block.line_end + 1)
    assert {n for n, filled in enumerate(lines.filled(), start=1) if filled} <= set(held)
    assert found == parsed(text, name)


def test_a_file_is_read_with_its_title_and_what_was_replaced() -> None:
    data = b"x = 1\0\ndef f():\n    return '\xed\xa0\x80'\n"
    found = parser.parse(SourceFile("a.py", io.BytesIO(data), SourceType.CODE, max_pages=1))
    assert found.title == "a.py"
    assert found.replaced_characters == 2
    assert [block.heading_path for block in found.blocks] == [(), ("f",)]
