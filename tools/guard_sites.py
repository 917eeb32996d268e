"""The places in the source that refuse what comes from somebody whose time is over, found each time they are asked for.

A *guard* raises an error that says so (a stale receipt, an earlier generation, a producer that was replaced, sequences
and transactions that have ended), or asks whether a shard is led here. Like ``disk_sites`` a guard is named by its
module, its function, what stands there, and which of its kind it is. ``without`` takes one out: it raises nothing, or
takes a shard for led.
"""

from __future__ import annotations

import ast
import gc
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "goqueue"
ERRORS = {
    "DuplicateSequence",
    "InvalidReceipt",
    "MemberFenced",
    "NotAssigned",
    "NotLeader",
    "OutOfOrderSequence",
    "ProducerFenced",
    "StaleGeneration",
    "StaleReceipt",
    "TransactionAborted",
    "TransactionConflict",
    "TransactionNotFound",
    "UnknownMember",
    "UnknownProducer",
}
QUESTION = "is_leading"
WAIT = "acknowledged"
"""A future that is only waited for: this place of ``disk_sites`` can be taken out here, and by no double."""
_WHERE = ("broker/", "coordination/", "delivery/", "model/producer_sequences.py")
_NOT_WHERE = ("broker/checkup/",)
_BETWEEN = "  "


def in_source() -> list[str]:
    """Every guard there is now."""
    modules = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))
    chosen = [each for each in modules if each.startswith(_WHERE) and not each.startswith(_NOT_WHERE)]
    return [site for module in chosen for site in _Finder(module, _text(module)).found()]


@contextmanager
def without(site: str) -> Iterator[None]:
    """The guard at a place lets everything pass."""
    module, function, _, _ = site.split(_BETWEEN)
    # Python 3.11 fails if what is collected while it parses runs code of its own, as killed tasks do.
    gc.disable()
    try:
        tree = _Finder(module, _text(module), taken_out=site).tree()
        changed = _code_of(compile(tree, str(SOURCE / module), "exec"), function)
    finally:
        gc.enable()
    live = _live_function(module, function)
    before, live.__code__ = live.__code__, changed
    try:
        yield
    finally:
        live.__code__ = before


class _Finder(ast.NodeTransformer):
    """Goes through a module, notes its guards, and takes out one of them if it is told which."""

    def __init__(self, module: str, text: str, taken_out: str = "") -> None:
        self._module = module
        self._tree = ast.parse(text)
        self._taken_out = taken_out
        self._errors = ERRORS | _makers_of_errors(self._tree)
        self._inside: list[str] = []
        self._seen: Counter[tuple[str, str]] = Counter()
        self._found: list[str] = []
        self._before_errors: set[ast.AST] = set()

    def visit_Await(self, node: ast.Await) -> ast.expr:
        self.generic_visit(node)
        is_wait = isinstance(node.value, ast.Attribute) and node.value.attr == WAIT
        if is_wait and self._taken_out and self._is_taken_out(f"await {WAIT}"):
            return ast.copy_location(ast.Constant(None), node)
        return node

    def found(self) -> list[str]:
        self.visit(self._tree)
        return self._found

    def tree(self) -> ast.Module:
        changed = ast.fix_missing_locations(self.visit(self._tree))
        if self._taken_out not in self._found:
            raise LookupError(f"there is no guard {self._taken_out!r}")
        assert isinstance(changed, ast.Module)
        return changed

    def _visit_scope(self, node: Any) -> Any:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()
        return node

    visit_ClassDef = visit_FunctionDef = visit_AsyncFunctionDef = _visit_scope  # noqa: N815

    def visit_Raise(self, node: ast.Raise) -> ast.stmt:
        self.generic_visit(node)
        call = node.exc
        name = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if name in self._errors and self._is_taken_out(f"raise {name}"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        is_asked = isinstance(node.ctx, ast.Load) and node.attr == QUESTION and node not in self._before_errors
        if is_asked and self._is_taken_out(QUESTION):
            return ast.copy_location(ast.Constant(True), node)
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        if isinstance(node.body[0], ast.Raise):
            # To take out the error is the same.
            self._before_errors.update(ast.walk(node.test))
        self.generic_visit(node)
        return node

    def _is_taken_out(self, what: str) -> bool:
        function = ".".join(self._inside)
        self._seen[function, what] += 1
        site = _BETWEEN.join((self._module, function, what, str(self._seen[function, what])))
        self._found.append(site)
        return site == self._taken_out


def _makers_of_errors(tree: ast.Module) -> set[str]:
    """Functions of a module that return an error to be raised."""
    return {
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef) and isinstance(each.returns, ast.Name) and each.returns.id in ERRORS
    }


def _code_of(within: CodeType, function: str) -> CodeType:
    for each in within.co_consts:
        if isinstance(each, CodeType):
            if each.co_qualname == function:
                return each
            if function.startswith(f"{each.co_qualname}."):
                return _code_of(each, function)
    raise LookupError(f"there is no function {function!r}")


def _live_function(module: str, function: str) -> FunctionType:
    found: Any = import_module(f"goqueue.{module.removesuffix('.py').replace('/', '.')}")
    for name in function.split("."):
        found = vars(found)[name]
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    assert isinstance(found, FunctionType), f"{function} of {module} is no function"
    return found


@cache
def _text(module: str) -> str:
    return (SOURCE / module).read_text()
