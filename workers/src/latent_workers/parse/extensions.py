"""Names and types of files, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from latent_core.domain.chunk import SourceType

_CODE: Final = (
    "py pyi pyx pxd ipy rb rs go java kt kts scala sc groovy gradle c h cc cpp cxx hh hpp hxx inl m mm "
    "cs fs fsx vb swift js mjs cjs jsx ts mts cts tsx vue svelte php pl pm lua r jl dart ex exs erl hrl "
    "clj cljs cljc edn hs lhs elm ml mli nim zig v sv svh vhd vhdl d pas pp asm s f f90 f95 for cob "
    "lisp lsp el scm rkt sql ddl sh bash zsh fish ps1 psm1 bat cmd awk sed tcl proto thrift graphql gql "
    "tf tfvars hcl cmake mk make dockerfile nix bzl bazel css scss sass less styl xml xsd xsl xslt svg "
    "toml ini cfg conf properties env plist editorconfig gitignore dockerignore patch diff sol move wgsl "
    "glsl vert frag hlsl metal cu cuh ipynb lock"
)
_CODE_NAMES: Final = (
    "makefile gnumakefile dockerfile containerfile jenkinsfile vagrantfile rakefile gemfile procfile "
    "justfile build workspace cmakelists.txt .gitignore .dockerignore .editorconfig .bashrc .zshrc "
    ".profile .env"
)
_TEXT: Final = (
    "txt text log rst adoc asciidoc org tex bib sty cls csv tsv srt vtt po pot me nfo wiki"
)

EXTENSIONS: Final[Mapping[str, SourceType]] = {
    **dict.fromkeys(_CODE.split(), SourceType.CODE),
    **dict.fromkeys(_TEXT.split(), SourceType.TEXT),
    **dict.fromkeys(("md", "markdown", "mdown", "mkd", "mdx", "qmd", "rmd"), SourceType.MARKDOWN),
    **dict.fromkeys(("yaml", "yml"), SourceType.YAML),
    **dict.fromkeys(("json", "json5", "jsonc", "geojson", "jsonl", "ndjson"), SourceType.JSON),
    **dict.fromkeys(("html", "htm", "xhtml"), SourceType.WEB),
    "pdf": SourceType.PDF,
}
CORPUS: Final = frozenset({"jsonl", "ndjson"})
FILE_NAMES: Final[Mapping[str, SourceType]] = dict.fromkeys(_CODE_NAMES.split(), SourceType.CODE)
MIME_OF_TYPE: Final[Mapping[SourceType, str]] = {
    SourceType.TEXT: "text/plain",
    SourceType.MARKDOWN: "text/markdown",
    SourceType.PDF: "application/pdf",
    SourceType.CODE: "text/plain",
    SourceType.YAML: "application/yaml",
    SourceType.JSON: "application/json",
    SourceType.WEB: "text/html",
}
MIME_TYPES: Final[Mapping[str, SourceType]] = {
    "text/plain": SourceType.TEXT,
    "text/csv": SourceType.TEXT,
    "text/markdown": SourceType.MARKDOWN,
    "text/x-markdown": SourceType.MARKDOWN,
    "application/pdf": SourceType.PDF,
    "application/yaml": SourceType.YAML,
    "application/x-yaml": SourceType.YAML,
    "text/yaml": SourceType.YAML,
    "application/json": SourceType.JSON,
    "text/html": SourceType.WEB,
    "application/xhtml+xml": SourceType.WEB,
    "text/css": SourceType.CODE,
    "text/javascript": SourceType.CODE,
    "application/javascript": SourceType.CODE,
    "text/x-python": SourceType.CODE,
    "application/xml": SourceType.CODE,
    "text/xml": SourceType.CODE,
}
