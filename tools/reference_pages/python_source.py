"""What a class or a function says of itself, read from its source.

The source and not the loaded object: what an interpreter makes of annotations and defaults differs by its version.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import FunctionType

_LINE = 96

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Member:
    """A method, a property or a field: its name, how it is written and what it says."""

    name: str
    written: str
    doc: str
    is_method: bool


class _Constants(ast.NodeTransformer):
    """Puts a constant's value where its name is, for readers who do not have the source beside them."""

    def __init__(self, known: dict[str, object]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        value = self._known.get(node.id)
        return ast.Constant(value) if isinstance(value, str | int | float) else node


@cache
def _module(name: str) -> ast.Module:
    module = import_module(name)
    parsed = ast.parse(inspect.getsource(module))
    constants = _Constants(vars(module))
    for node in ast.walk(parsed):
        if isinstance(node, ast.arguments):
            node.defaults = [constants.visit(default) for default in node.defaults]
            node.kw_defaults = [default and constants.visit(default) for default in node.kw_defaults]
    return parsed


def function(thing: FunctionType) -> str:
    """A function of a module's top level as it is called."""
    for node in _module(thing.__module__).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == thing.__name__:
            return signature(node)
    raise LookupError(f"{thing.__module__} defines no function {thing.__name__}")


def _definition(kind: type) -> ast.ClassDef:
    for node in _module(kind.__module__).body:
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__:
            return node
    raise LookupError(f"{kind.__module__} defines no class {kind.__name__}")


def signature(function: Function, name: str = "") -> str:
    """A function as it is called: without ``self``, over many lines if it is long."""
    arguments = _arguments(function)
    prefix = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    returns = ast.unparse(function.returns) if function.returns else "None"
    is_manager = "asynccontextmanager" if "asynccontextmanager" in _decorators(function) else "contextmanager"
    if is_manager in _decorators(function) and isinstance(function.returns, ast.Subscript):
        given = function.returns.slice
        prefix = "async with " if is_manager == "asynccontextmanager" else "with "
        returns = ast.unparse(given.elts[0] if isinstance(given, ast.Tuple) else given)
    start = f"{prefix}{name or function.name}"
    end = "" if function.name == "__init__" else f" -> {returns}"
    line = f"{start}({', '.join(arguments)}){end}"
    if len(line) <= _LINE:
        return line
    return "\n".join([f"{start}(", *(f"    {argument}," for argument in arguments), f"){end}"])


def members(kind: type) -> list[Member]:
    """What a class offers, its bases in this package included: fields first, then methods as the source has them."""
    found: dict[str, Member] = {}
    for base in kind.__mro__:
        if base.__module__.startswith("goqueue."):
            for member in _members_of(_definition(base), base.__module__):
                found.setdefault(member.name, member)
    return sorted(found.values(), key=lambda member: member.is_method)


def constructor(kind: type) -> str | None:
    """How an instance is made, where a class has something of its own to say about it."""
    for base in kind.__mro__:
        if base.__module__.startswith("goqueue."):
            for node in _definition(base).body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    return signature(node, kind.__name__)
    return None


def _members_of(node: ast.ClassDef, module: str) -> Iterator[Member]:
    for place, statement in enumerate(node.body):
        if derived := _derived(statement, module):
            yield derived
        elif isinstance(statement, ast.AnnAssign | ast.Assign):
            yield from _field(statement, _text_behind(node.body, place))
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name == "__init__":
                yield from _attributes(statement)
            elif not statement.name.startswith("_") and "overload" not in _decorators(statement):
                yield _method(statement)


def _derived(statement: ast.stmt, module: str) -> Member | None:
    """A method of a synchronous class that is made of an asynchronous one: ``poll = blocking(AsyncConsumer.poll)``."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(name)],
            value=ast.Call(func=ast.Name("blocking" | "made_on_loop"), args=[ast.Attribute(ast.Name(kind)), *made]),
        ):
            for base in getattr(import_module(module), kind).__mro__:
                for node in _definition(base).body if base.__module__.startswith("goqueue.") else ():
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                        returns = made[0] if made else node.returns
                        waits = ast.FunctionDef(name, node.args, [], [], returns)
                        return Member(name, signature(waits), f"As ``{kind}.{name}``.", is_method=True)
    return None


def _field(statement: ast.AnnAssign | ast.Assign, doc: str) -> Iterator[Member]:
    if isinstance(statement, ast.AnnAssign):
        target: ast.expr = statement.target
        kind = f": {ast.unparse(statement.annotation)}"
    else:
        target, kind = statement.targets[0], ""
    if not isinstance(target, ast.Name) or target.id.startswith("_") or "ClassVar" in kind:
        return
    default = f" = {_written(statement.value)}" if statement.value and _is_plain(statement.value) else ""
    yield Member(target.id, f"{target.id}{kind}{default}", doc, is_method=False)


def _attributes(function: Function) -> Iterator[Member]:
    """Public attributes that a constructor sets and says something about."""
    for place, statement in enumerate(function.body):
        target: ast.expr | None = None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
        elif isinstance(statement, ast.AnnAssign):
            target = statement.target
        doc = _text_behind(function.body, place)
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_") and doc:
            made = statement.value if isinstance(statement, ast.Assign) else None
            kind = f": {ast.unparse(made.func)}" if isinstance(made, ast.Call) else ""
            yield Member(target.attr, f"{target.attr}{kind}", doc, is_method=False)


def _method(function: Function) -> Member:
    doc = inspect.cleandoc(ast.get_docstring(function) or "")
    if {"property", "cached_property"} & _decorators(function):
        returns = ast.unparse(function.returns) if function.returns else "Any"
        return Member(function.name, f"{function.name}: {returns}", doc, is_method=False)
    return Member(function.name, signature(function), doc, is_method=True)


def _arguments(function: Function) -> list[str]:
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(given.defaults)) + list(given.defaults)
    written = [_argument(one, default) for one, default in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        written = written[1:]
    if given.vararg:
        written.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        written.append("*")
    named = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    written += [_argument(one, default) for one, default in named]
    return [*written, f"**{_argument(given.kwarg, None)}"] if given.kwarg else written


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(one.annotation)}" if one.annotation else ""
    if default is None:
        return one.arg + kind
    return f"{one.arg}{kind} = {_written(default)}" if kind else f"{one.arg}={_written(default)}"


def _written(value: ast.expr) -> str:
    """An expression with the quotes that the source has."""
    text = ast.unparse(value)
    return text if '"' in text else text.replace("'", '"')


def _decorators(function: Function) -> set[str]:
    return {ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in function.decorator_list}


def _is_plain(value: ast.expr) -> bool:
    """Whether a default says something to a reader: what is made by a call does not."""
    return not any(isinstance(part, ast.Call | ast.Lambda) for part in ast.walk(value))


def _text_behind(body: list[ast.stmt], place: int) -> str:
    """The text directly behind a statement, which documents it."""
    following = body[place + 1] if place + 1 < len(body) else None
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return inspect.cleandoc(following.value.value) if isinstance(following.value.value, str) else ""
    return ""
