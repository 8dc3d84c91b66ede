"""Programming languages by file name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

_ENDINGS: Final = """
python py pyi ipy pyw
cython pyx pxd
javascript js mjs cjs jsx
typescript ts mts cts
tsx tsx
go go
rust rs
java java
kotlin kt kts
scala scala sc
groovy groovy gradle
c c h
cpp cc cpp cxx hh hpp hxx inl
objective-c m mm
csharp cs
fsharp fs fsx
visual-basic vb
swift swift
vue vue
svelte svelte
ruby rb
php php
perl pl pm
lua lua
r r
julia jl
dart dart
elixir ex exs
erlang erl hrl
clojure clj cljs cljc edn
haskell hs lhs
elm elm
ocaml ml mli
nim nim
zig zig
verilog v sv svh
vhdl vhd vhdl
d d
pascal pas pp
assembly asm s
fortran f f90 f95 for
cobol cob
lisp lisp lsp el
scheme scm rkt
sql sql ddl
shell sh bash zsh fish
powershell ps1 psm1
batch bat cmd
awk awk
sed sed
tcl tcl
protobuf proto
thrift thrift
graphql graphql gql
terraform tf tfvars hcl
cmake cmake
make mk make
docker dockerfile
nix nix
starlark bzl bazel
css css
scss scss sass
less less
stylus styl
xml xml xsd xsl xslt svg plist
toml toml
ini ini cfg conf properties env editorconfig
diff patch diff
solidity sol
move move
shader wgsl glsl vert frag hlsl metal
cuda cu cuh
jupyter ipynb
"""
BY_ENDING: Final[Mapping[str, str]] = {
    ending: language
    for language, *endings in map(str.split, _ENDINGS.strip().splitlines())
    for ending in endings
}
BY_NAME: Final[Mapping[str, str]] = {
    "makefile": "make",
    "gnumakefile": "make",
    "dockerfile": "docker",
    "containerfile": "docker",
    "jenkinsfile": "groovy",
    "vagrantfile": "ruby",
    "rakefile": "ruby",
    "gemfile": "ruby",
    "justfile": "make",
    "build": "starlark",
    "workspace": "starlark",
    "cmakelists.txt": "cmake",
    ".bashrc": "shell",
    ".zshrc": "shell",
    ".profile": "shell",
    ".env": "ini",
    ".editorconfig": "ini",
}
_SHEBANG: Final = re.compile(
    r"#![^\r\n]{0,200}?\b(python|node|bash|zsh|sh|ruby|perl|php|lua|awk)(?![a-z])"
)
_INTERPRETERS: Final = {"node": "javascript", "bash": "shell", "zsh": "shell", "sh": "shell"}


def language_of(name: str, text: str = "") -> str | None:
    """By the name, else by the first line of a script; ``None`` if neither shows it."""
    path = PurePosixPath(name.lower())
    found = BY_NAME.get(path.name) or BY_ENDING.get(path.suffix.removeprefix("."))
    if found:
        return found
    script = _SHEBANG.match(text)
    return _INTERPRETERS.get(script[1], script[1]) if script else None
