"""What an implementation depends on, as a hash: its own code, the code that this calls, and constants in them.

The walk goes over compiled code, so comments, docstrings, formatting and other functions of the same file play no part.
It stops at PyTorch, NumPy, xDSL and the standard library, whose versions belong into a key beside this one. What code
finds elsewhere when it runs, in files or in the environment, it cannot see: such files are named when a kernel is
registered (`sources`).
"""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Protocol, cast, runtime_checkable

from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket

from vllm_ir.frontends.ops.torch_internals import operator_defined_by, python_parts

_FOREIGN = frozenset(sys.stdlib_module_names) | {"torch", "numpy", "sympy", "xdsl", "ml_dtypes", "triton"}
_ATOMS = (str, bytes, int, float, complex, bool, type(None))
_HAS_DOCSTRING = 0x4000000
"""The flag of code that has a docstring, from Python 3.13 on (`inspect.CO_HAS_DOCSTRING`)."""
_WRAPPED = ("__wrapped__", "fn")
"""Where objects of other libraries keep the function that they were made from: `functools.cache`, Triton's kernels."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def source_hash(objects: Iterable[object]) -> str:
    """A hash of functions, classes, values and files (`Path`), with all that they use."""
    walk = _Walk()
    for value in objects:
        walk.visit(value)
    return walk.digest.hexdigest()


@runtime_checkable
class HasSources(Protocol):
    """An object that says by itself what code depends on that refers to it."""

    def sources_in_use(self, names: Iterable[str]) -> Iterable[object]:
        """What stands for the object in the hash of code in which `names` occur."""
        ...


class _Walk:
    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: dict[int, int] = {}
        self.kept: list[object] = []
        """What was visited, so that no other object gets its identity."""

    def say(self, *facts: object) -> None:
        self.digest.update(repr(facts).encode())

    def visit(self, value: Any, names: Iterable[str] = ()) -> None:  # Any: code refers to values of every kind
        """Take in a value that code refers to in which `names` occur."""
        if id(value) in self.seen:
            self.say("again", self.seen[id(value)])
            return
        same: object = cast(object, value)  # not narrowed to types whose parameters are open
        if not isinstance(value, _ATOMS):
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
        elif isinstance(value, OpOverload):
            self._operator(cast("OpOverload[..., object]", value))
        elif isinstance(value, OpOverloadPacket):
            self.say("operator", str(same))
            for name in cast("Iterable[str]", value.overloads()):
                self.visit(getattr(cast("OpOverloadPacket[..., object]", value), name))
        elif isinstance(value, Path):
            self.say("file", value.name, hashlib.sha256(value.read_bytes()).hexdigest())
        elif isinstance(value, ModuleType):
            self.say("module", value.__name__)
        elif isinstance(value, Tensor):
            self.say("tensor", value.dtype, value.device, tuple(value.shape), value.stride())
            self.say(cast(object, value.tolist()))  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
        elif isinstance(value, HasSources):
            self.say("object", type(value).__qualname__)
            for part in value.sources_in_use(names):
                self.visit(part)
        else:
            self._value(same)

    def _function(self, function: FunctionType) -> None:
        if _is_foreign(function.__module__):
            self.say("function", function.__module__, function.__qualname__)
            for wrapped in _closed_over(function):
                if isinstance(wrapped, FunctionType):  # decorated by another library
                    self.visit(wrapped)
            return
        self._code(function.__code__)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()):
            self.visit(default)
        for value in _closed_over(function):
            self.visit(value)
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
                    self.visit(vars(value)[member], _names(code))
            return
        self.visit(value, _names(code))

    def _code(self, code: CodeType) -> None:
        self.say(code.co_code, code.co_exceptiontable, code.co_names, code.co_varnames, code.co_freevars)
        self.say(code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)
        for index, constant in enumerate(code.co_consts):
            if index or not _has_docstring(code):
                self._constant(constant)

    def _constant(self, constant: object) -> None:
        if isinstance(constant, CodeType):
            self._code(constant)
        elif isinstance(constant, tuple):
            self.say("constants", len(cast("tuple[object, ...]", constant)))
            for item in cast("tuple[object, ...]", constant):
                self._constant(item)
        elif isinstance(constant, frozenset):  # in no fixed order, which is another one in each process
            self.say("constants", sorted(map(repr, cast("frozenset[object]", constant))))
        else:
            self.say(constant)

    def _operator(self, overload: OpOverload[..., object]) -> None:
        """An operator: its schema; if it is not PyTorch's, also what it does in Python and what it does when traced."""
        self.say("operator", str(overload._schema))  # pyright: ignore[reportPrivateUsage]  # has no public name
        for function in python_parts(overload):
            self.visit(function)

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
        elif (overload := operator_defined_by(value)) is not None:
            self._operator(overload)
        elif isinstance(value, _ATOMS) or _is_foreign(type(value).__module__):
            self.say(type(value).__qualname__, _ADDRESS.sub("", repr(value)))
            for name in _WRAPPED:
                if isinstance(function := getattr(value, name, None), FunctionType):
                    self.visit(function)
        else:
            self._instance(value)

    def _instance(self, value: object) -> None:
        """An object of a class that is not foreign: the class, and the state of the object. Its `repr` may say less."""
        self.visit(type(value))
        slots = [name for kind in type(value).__mro__ for name in _slots(kind) if hasattr(value, name)]
        state = {**getattr(value, "__dict__", {}), **{name: getattr(value, name) for name in slots}}
        for name, member in sorted(state.items()):
            self.say("state", name)
            self.visit(member)


def _closed_over(function: FunctionType) -> Iterator[object]:
    """Values of the variables of enclosing functions that a function uses."""
    for cell in function.__closure__ or ():
        try:
            value: object = cell.cell_contents
        except ValueError:
            value = "no value yet"
        yield value


def _slots(kind: type) -> Iterable[str]:
    named: object = vars(kind).get("__slots__", ())
    names = (named,) if isinstance(named, str) else cast("Iterable[str]", named)
    return (name for name in names if name not in ("__dict__", "__weakref__"))


def _has_docstring(code: CodeType) -> bool:
    """Whether the first constant is a docstring. Before Python 3.13 every named function has a place for one there."""
    if not code.co_consts or not isinstance(code.co_consts[0], str):
        return False
    if sys.version_info >= (3, 13):
        return bool(code.co_flags & _HAS_DOCSTRING)
    return not code.co_name.startswith("<")


def _names(code: CodeType) -> set[str]:
    """Names of globals and attributes in code, nested functions included."""
    return set(code.co_names).union(*map(_names, _inner(code)))


def _inner(code: CodeType) -> Iterator[CodeType]:
    return (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _is_foreign(module: str | None) -> bool:
    return module is None or module.partition(".")[0] in _FOREIGN


__all__ = ["HasSources", "source_hash"]
