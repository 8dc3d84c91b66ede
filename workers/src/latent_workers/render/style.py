"""How rendered pages look: black on white, tight, with lines round every cell."""

from __future__ import annotations

from typing import Final

PAGE: Final = (595.0, 842.0)
"""A4 in points."""
MARGIN: Final = 36.0
FOOT: Final = 16.0
"""Height of the line at the bottom that names the source."""

# No element has a margin above, and no padding as high as a line: the first thing on a page then
# stands at its top, unless something goes on from the page before.
CSS: Final = """
body { margin: 0; font-family: sans-serif; font-size: 10.5px; line-height: 1.3; color: #000; }
p, ul, ol, blockquote, table, pre, hr { margin: 0 0 7px 0; }
h1 { font-size: 19px; margin: 0 0 8px 0; }
h2 { font-size: 15.5px; margin: 0 0 6px 0; padding-top: 6px; }
h3 { font-size: 13px; margin: 0 0 5px 0; padding-top: 4px; }
h4, h5, h6 { font-size: 11px; margin: 0 0 4px 0; padding-top: 3px; }
ul, ol { padding-left: 20px; }
li { margin: 0 0 2px 0; }
blockquote { margin-left: 6px; padding-left: 10px; border-left: 2px solid #666; }
table { border-collapse: collapse; font-size: 9.5px; line-height: 1.2; }
table.small { font-size: 7px; }
th, td { border: 1px solid #333; padding: 2px 4px; vertical-align: top; }
th { border-bottom: 2px solid #000; font-weight: bold; text-align: left; }
code { font-family: monospace; font-weight: bold; font-size: 0.92em; }
pre { font-family: monospace; white-space: pre-wrap; line-height: 1.22; font-weight: bold; }
pre.file { font-size: 8px; margin: 0; }
pre.fence { font-size: 8px; margin: 0; padding: 1px 4px; background-color: #f3f3f3; }
pre.last { margin-bottom: 7px; }
div.line { white-space: pre-wrap; }
div.foot { font-size: 7.5px; color: #444; }
.picture { font-style: italic; }
.link { text-decoration: underline; }
.n { color: #666; font-weight: normal; }
.k { color: #00008b; }
.s { color: #005a00; }
.c { color: #555; font-style: italic; }
.m { color: #8b0000; }
.f { color: #4b0082; }
.d { color: #7a4a00; }
.b { color: #004a5a; }
"""
