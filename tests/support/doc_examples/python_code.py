"""Python of an example: it compiles, its names are bound, and what it uses of our packages exists."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

OURS: Final = "latent_"


@dataclass
class Names:
    """Names that a page's blocks have bound so far."""

    bound: set[str] = field(default_factory=lambda: set(dir(builtins)))
    objects: dict[str, Any] = field(default_factory=dict)
    """Imported names of our packages, to what they are."""
    instances: dict[str, type] = field(default_factory=dict)
    """Variables, to the class of ours that they are an instance of."""


def python_problems(text: str, names: Names, *, in_coroutine: bool) -> list[str]:
    """What is wrong with a block. ``in_coroutine``: the page says that its blocks run in one."""
    flags = ast.PyCF_ONLY_AST | (ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if in_coroutine else 0)
    try:
        tree = compile(text, "example", "exec", flags)
        compile(text, "example", "exec", flags & ~ast.PyCF_ONLY_AST)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    problems = list(_imported(tree, names))
    names.bound |= set(_bound(tree))
    _note_instances(tree, names)
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Load()) if node.id not in names.bound:
                problems.append(f"line {node.lineno}: {node.id} is not defined")
            case ast.Attribute():
                problems += _attribute_problems(node, names)
            case ast.Call():
                problems += _call_problems(node, names)
    return problems


def _imported(tree: ast.AST, names: Names) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.bound.add((alias.asname or alias.name).partition(".")[0])
        if not isinstance(node, ast.ImportFrom):
            continue
        for alias in node.names:
            names.bound.add(alias.asname or alias.name)
            if not (node.module or "").startswith(OURS):
                continue
            try:
                names.objects[alias.asname or alias.name] = getattr(
                    import_module(node.module or ""), alias.name
                )
            except (ImportError, AttributeError):
                yield f"line {node.lineno}: {node.module} has no {alias.name}"


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.ExceptHandler(name=str(name)):
                yield name


def _note_instances(tree: ast.AST, names: Names) -> None:
    """Remember ``x = Class(…)`` and ``with Class(…) as x``."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                _note(name, call, names)
            case ast.withitem(context_expr=ast.Call() as call, optional_vars=ast.Name(id=name)):
                _note(name, call, names)


def _note(name: str, call: ast.Call, names: Names) -> None:
    made = _object_of(call.func, names)
    if isinstance(made, type):
        names.instances[name] = made


def _attribute_problems(node: ast.Attribute, names: Names) -> Iterator[str]:
    owner = _owner_of(node, names)
    if owner is not None and not has_member(owner, node.attr):
        yield f"line {node.lineno}: {ast.unparse(node.value)} has no {node.attr}"


def _owner_of(node: ast.Attribute, names: Names) -> Any:
    """The object or class before the dot, if it is ours and can be known."""
    match node.value:
        case ast.Name(id=name):
            return names.objects.get(name, names.instances.get(name))
        case ast.Call(func=function):
            made = _object_of(function, names)
            return made if isinstance(made, type) else None
    return None


def has_member(owner: Any, member: str) -> bool:
    return hasattr(owner, member) or member in getattr(owner, "model_fields", {})


def _call_problems(node: ast.Call, names: Names) -> Sequence[str]:
    """Whether our function takes the arguments; calls with ``*`` and ``…`` are not checked."""
    called = _object_of(node.func, names)
    starred = [one for one in node.args if isinstance(one, ast.Starred)]
    if called is None or starred or any(keyword.arg is None for keyword in node.keywords):
        return ()
    first = [None] if isinstance(node.func, ast.Attribute) and _is_method(node.func, names) else []
    try:
        inspect.signature(called).bind(
            *first, *node.args, **{str(keyword.arg): keyword for keyword in node.keywords}
        )
    except TypeError as error:
        return [f"line {node.lineno}: {ast.unparse(node.func)}: {error}"]
    except ValueError:
        pass  # no signature
    return ()


def _is_method(function: ast.Attribute, names: Names) -> bool:
    """Whether the first argument is the object before the dot."""
    is_class = isinstance(function.value, ast.Name) and function.value.id in names.objects
    return not is_class


def _object_of(function: ast.expr, names: Names) -> Any:
    """The object of ours that is called, if it can be known."""
    match function:
        case ast.Name(id=name):
            return names.objects.get(name)
        case ast.Attribute(attr=attribute):
            owner = _owner_of(function, names)
            return getattr(owner, attribute, None) if owner is not None else None
    return None
