"""What an implementation depends on, as a hash: its own code, the code that this calls, and constants in them.

The walk goes over compiled code, so comments, docstrings, formatting and other functions of the same file play no part.
It stops at PyTorch, NumPy, xDSL and the standard library, whose versions belong into a key beside this one.
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

_FOREIGN = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "sympy", "xdsl", "ml_dtypes"}
_COMPOUND = (FunctionType, MethodType, type, functools.partial, Tensor, dict, list, tuple, set)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def source_hash(objects: Iterable[object]) -> str:
    """A hash of functions, classes, values and files (`Path`), with all that they use."""
    walk = _Walk()
    for value in objects:
        walk.visit(value)
    return walk.digest.hexdigest()


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.kept: list[object] = []
        """What was visited, so that no other object gets its identity."""

    def say(self, *facts: object) -> None:
        self.digest.update(repr(facts).encode())

    def visit(self, value: Any) -> None:  # Any: code refers to values of every kind
        if id(value) in self.seen:
            self.say("again", self.seen[id(value)])
            return
        same: object = cast(object, value)  # not narrowed to types whose parameters are open
        if isinstance(value, _COMPOUND):
            self.seen[id(same)] = len(self.seen)
            self.kept.append(same)
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self.visit(value.__func__)
            self.visit(value.__self__)
        elif isinstance(value, functools.partial):
            self._partial(cast("functools.partial[object]", value))
        elif isinstance(value, type):
            self._class(cast("type[object]", value))
        elif isinstance(value, OpOverload | OpOverloadPacket):
            self.say("operator", str(same))
        elif isinstance(value, Path):
            self.say("file", value.name, hashlib.sha256(value.read_bytes()).hexdigest())
        elif isinstance(value, ModuleType):
            self.say("module", value.__name__)
        elif isinstance(value, Tensor):
            self.say("tensor", value.dtype, tuple(value.shape), cast(object, value.tolist()))  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
        else:
            self._value(same)

    def _function(self, function: FunctionType) -> None:
        if _is_foreign(function.__module__):
            self.say("function", function.__module__, function.__qualname__)
            return
        self._code(function.__code__)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()):
            self.visit(default)
        for cell in function.__closure__ or ():
            try:
                self.visit(cell.cell_contents)
            except ValueError:
                self.say("empty cell")
        for name in sorted(_names(function.__code__)):
            self._global(name, function.__globals__, function.__code__)

    def _global(self, name: str, scope: Mapping[str, object], code: CodeType) -> None:
        """What a name stands for; of modules that are not foreign, the members that the code may mean."""
        if name not in scope:
            return  # a built-in, or the name of an attribute
        value = scope[name]
        self.say("global", name)
        if isinstance(value, ModuleType) and not _is_foreign(value.__name__):
            for member in sorted(_names(code)):
                if member in vars(value):
                    self.say("member", member)
                    self.visit(vars(value)[member])
            return
        self.visit(value)

    def _code(self, code: CodeType) -> None:
        self.say(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags, code.co_argcount)
        for index, constant in enumerate(code.co_consts):
            if isinstance(constant, CodeType):
                self._code(constant)
            elif index or not isinstance(constant, str):  # a docstring comes first
                self.say(constant)

    def _partial(self, partial: functools.partial[object]) -> None:
        self.visit(partial.func)
        self.visit(partial.args)
        self.visit(partial.keywords)

    def _class(self, kind: type) -> None:
        self.say("class", kind.__module__, kind.__qualname__)
        if _is_foreign(kind.__module__):
            return
        for base in kind.__bases__:
            self.visit(base)
        for name, member in sorted(vars(kind).items()):
            member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if isinstance(member, FunctionType) or not name.startswith("__"):
                self.say("member", name)
                self.visit(member)

    def _value(self, value: object) -> None:
        if isinstance(value, dict):
            for key, item in cast("dict[object, object]", value).items():
                self.visit(key)
                self.visit(item)
        elif isinstance(value, list | tuple):
            for item in cast("Iterable[object]", value):
                self.visit(item)
        elif isinstance(value, set | frozenset):
            self.say(sorted(map(repr, cast("Iterable[object]", value))))
        else:
            self.say(type(value).__qualname__, _ADDRESS.sub("", repr(value)))
            if not _is_foreign(type(value).__module__) and not isinstance(value, str | int | float):
                self.visit(type(value))


def _names(code: CodeType) -> set[str]:
    """Names of globals and attributes in code, nested functions included."""
    return set(code.co_names).union(*map(_names, _inner(code)))


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _is_foreign(module: str | None) -> bool:
    return module is None or module.partition(".")[0] in _FOREIGN


__all__ = ["source_hash"]
