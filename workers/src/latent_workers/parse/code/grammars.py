"""Tree-sitter grammars: the languages that have one, and the nodes that are definitions."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from tree_sitter import Language, Node, Parser


@dataclass(frozen=True, slots=True)
class Grammar:
    """``module`` is a wheel with one language in its ``function``."""

    module: str
    definitions: frozenset[str]
    """Kinds of nodes that define a name."""
    wrappers: Mapping[str, str]
    """Kinds of nodes around a definition, with the field that contains it."""
    attached: frozenset[str]
    """Kinds of nodes that belong to the definition directly below."""
    function: str = "language"
    scopes: frozenset[str] = frozenset()
    """Kinds of definitions whose members are definitions by themselves: classes, not functions."""
    transparent: frozenset[str] = frozenset()
    """Kinds of nodes whose definitions belong to what is around them: ``if`` at the top of a file."""


_JAVASCRIPT: Final = frozenset(
    [
        "function_declaration",
        "generator_function_declaration",
        "class_declaration",
        "method_definition",
        "lexical_declaration",
        "variable_declaration",
        "field_definition",
    ]
)
_TYPESCRIPT: Final = _JAVASCRIPT | frozenset(
    [
        "abstract_class_declaration",
        "interface_declaration",
        "type_alias_declaration",
        "enum_declaration",
        "module",
        "internal_module",
        "function_signature",
        "abstract_method_signature",
        "public_field_definition",
    ]
)
_EXPORTS: Final = {"export_statement": "declaration"}
_COMMENTS: Final = frozenset({"comment", "line_comment", "block_comment"})
_JAVASCRIPT_SCOPES: Final = frozenset({"class_declaration"})
_TYPESCRIPT_SCOPES: Final = _JAVASCRIPT_SCOPES | {
    *("abstract_class_declaration", "module", "internal_module")
}
_TYPESCRIPT_FILE: Final = Grammar(
    "tree_sitter_typescript",
    _TYPESCRIPT,
    _EXPORTS,
    _COMMENTS | {"decorator"},
    "language_typescript",
    _TYPESCRIPT_SCOPES,
)
_C: Final = frozenset(
    {
        "function_definition",
        "struct_specifier",
        "union_specifier",
        "enum_specifier",
        "preproc_function_def",
    }
)
_CONDITIONAL_C: Final = frozenset(
    {
        *("preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif"),
        *("linkage_specification", "declaration_list"),
    }
)

GRAMMARS: Final[Mapping[str, Grammar]] = {
    "python": Grammar(
        "tree_sitter_python",
        frozenset({"function_definition", "class_definition"}),
        {"decorated_definition": "definition"},
        _COMMENTS,
        scopes=frozenset({"class_definition"}),
        transparent=frozenset(
            {
                *("if_statement", "elif_clause", "else_clause", "try_statement"),
                *("except_clause", "finally_clause", "with_statement", "block"),
            }
        ),
    ),
    "javascript": Grammar(
        "tree_sitter_javascript",
        _JAVASCRIPT,
        _EXPORTS,
        _COMMENTS | {"decorator"},
        scopes=_JAVASCRIPT_SCOPES,
    ),
    "typescript": _TYPESCRIPT_FILE,
    "tsx": Grammar(
        "tree_sitter_typescript",
        _TYPESCRIPT,
        _EXPORTS,
        _TYPESCRIPT_FILE.attached,
        "language_tsx",
        _TYPESCRIPT_SCOPES,
    ),
    "go": Grammar(
        "tree_sitter_go",
        frozenset({"function_declaration", "method_declaration", "type_declaration"}),
        {},
        _COMMENTS,
    ),
    "rust": Grammar(
        "tree_sitter_rust",
        frozenset(
            [
                "function_item",
                "struct_item",
                "enum_item",
                "union_item",
                "trait_item",
                "impl_item",
                "mod_item",
                "type_item",
                "macro_definition",
                "function_signature_item",
            ]
        ),
        {},
        _COMMENTS | {"attribute_item"},
        scopes=frozenset({"trait_item", "impl_item", "mod_item"}),
    ),
    "java": Grammar(
        "tree_sitter_java",
        frozenset(
            [
                "class_declaration",
                "interface_declaration",
                "enum_declaration",
                "record_declaration",
                "annotation_type_declaration",
                "method_declaration",
                "constructor_declaration",
                "compact_constructor_declaration",
            ]
        ),
        {},
        _COMMENTS,
        scopes=frozenset({"class_declaration", "enum_declaration", "record_declaration"}),
    ),
    "c": Grammar("tree_sitter_c", _C, {}, _COMMENTS, transparent=_CONDITIONAL_C),
    "cpp": Grammar(
        "tree_sitter_cpp",
        _C | {"class_specifier", "namespace_definition", "template_declaration"},
        {},
        _COMMENTS,
        scopes=frozenset({"class_specifier", "struct_specifier", "namespace_definition"}),
        transparent=_CONDITIONAL_C,
    ),
    "csharp": Grammar(
        "tree_sitter_c_sharp",
        frozenset(
            [
                *("namespace_declaration", "class_declaration", "struct_declaration"),
                *("interface_declaration", "enum_declaration", "record_declaration"),
                *("method_declaration", "constructor_declaration", "delegate_declaration"),
            ]
        ),
        {},
        _COMMENTS,
        scopes=frozenset(
            {
                *("namespace_declaration", "class_declaration"),
                *("struct_declaration", "record_declaration"),
            }
        ),
    ),
    "ruby": Grammar(
        "tree_sitter_ruby",
        frozenset({"module", "class", "method", "singleton_method"}),
        {},
        _COMMENTS,
        scopes=frozenset({"module", "class"}),
    ),
    "php": Grammar(
        "tree_sitter_php",
        frozenset(
            [
                *("class_declaration", "interface_declaration", "trait_declaration"),
                *("enum_declaration", "function_definition", "method_declaration"),
            ]
        ),
        {},
        _COMMENTS,
        function="language_php",
        scopes=frozenset({"class_declaration", "trait_declaration", "enum_declaration"}),
    ),
    "kotlin": Grammar(
        "tree_sitter_kotlin",
        frozenset({"class_declaration", "object_declaration", "function_declaration"}),
        {},
        _COMMENTS,
        scopes=frozenset({"class_declaration", "object_declaration"}),
    ),
    "scala": Grammar(
        "tree_sitter_scala",
        frozenset(
            [
                *("object_definition", "class_definition", "trait_definition"),
                *("enum_definition", "function_definition"),
            ]
        ),
        {},
        _COMMENTS,
        scopes=frozenset({"object_definition", "class_definition", "trait_definition"}),
    ),
    "swift": Grammar(
        "tree_sitter_swift",
        frozenset({"class_declaration", "protocol_declaration", "function_declaration"}),
        {},
        _COMMENTS | {"multiline_comment"},
        scopes=frozenset({"class_declaration"}),
    ),
    "lua": Grammar("tree_sitter_lua", frozenset({"function_declaration"}), {}, _COMMENTS),
    "shell": Grammar("tree_sitter_bash", frozenset({"function_definition"}), {}, _COMMENTS),
}
_FUNCTIONS: Final = frozenset(
    {"arrow_function", "function_expression", "generator_function", "class", "class_expression"}
)
_VARIABLES: Final = frozenset({"lexical_declaration", "variable_declaration"})
_FIELDS: Final = frozenset({"field_definition", "public_field_definition"})
_TEMPLATES: Final = frozenset({"function_definition", "class_specifier", "struct_specifier"})
_TYPES_AROUND: Final = ("pointer_type", "generic_type")


@cache
def parser_for(language: str) -> Parser | None:
    """``None`` for a language without a grammar."""
    grammar = GRAMMARS.get(language)
    if grammar is None:
        return None
    module = importlib.import_module(grammar.module)
    return Parser(Language(getattr(module, grammar.function)()))


def definition(node: Node, grammar: Grammar) -> tuple[Node, Sequence[Node]] | None:
    """What ``node`` defines, directly or inside a wrapper, with the nodes of its name."""
    field = grammar.wrappers.get(node.type)
    if field:
        inner = node.child_by_field_name(field)
        return definition(inner, grammar) if inner is not None else None
    if node.type == "expression_statement":
        # ``namespace a {}`` is an expression to the grammar of TypeScript.
        return next(
            (definition(n, grammar) for n in node.named_children if n.type == "internal_module"),
            None,
        )
    if node.type not in grammar.definitions:
        return None
    names = [name for name in _names(node) if name is not None]
    return (node, names) if names else None


def _names(node: Node) -> Sequence[Node | None]:
    if node.type in _VARIABLES:
        return [_assigned(node)]
    if node.type in _FIELDS and not _is_function(node):
        return []
    if node.type == "impl_item":
        kind = node.child_by_field_name("type")
        generic = kind is not None and kind.type == "generic_type"
        return [kind.child_by_field_name("type") if kind is not None and generic else kind]
    if node.type == "template_declaration":
        found = (_names(child) for child in node.named_children if child.type in _TEMPLATES)
        return next(found, [])
    if (declarator := node.child_by_field_name("declarator")) is not None:
        return [_declared(declarator)]
    if node.type == "type_declaration":
        return [child.child_by_field_name("name") for child in node.named_children][:1]
    name = node.child_by_field_name("name") or node.child_by_field_name("property")
    return [_receiver(node), name] if node.type == "method_declaration" else [name]


def _declared(node: Node) -> Node:
    """The name within a declarator of C: ``*name(int argument)``."""
    while (inner := node.child_by_field_name("declarator")) is not None:
        node = inner
    return node


def _assigned(node: Node) -> Node | None:
    """The name of a variable whose value is a function or class."""
    for child in node.named_children:
        if child.type == "variable_declarator" and _is_function(child):
            return child.child_by_field_name("name")
    return None


def _is_function(node: Node) -> bool:
    value = node.child_by_field_name("value")
    return value is not None and value.type in _FUNCTIONS


def _receiver(node: Node) -> Node | None:
    """The type that a method of Go belongs to."""
    receiver = node.child_by_field_name("receiver")
    if receiver is None or not receiver.named_children:
        return None
    kind = receiver.named_children[0].child_by_field_name("type")
    while kind is not None and kind.type in _TYPES_AROUND and kind.named_children:
        kind = kind.named_children[0]
    return kind
