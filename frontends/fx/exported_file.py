"""Loading `.pt2` files without running what is in them.

`torch.export.load` trusts its file. It unpickles, which calls what a pickle names; it evaluates the texts of symbolic
sizes; names become the source code of the graph's `forward`; compiled libraries in the archive are loaded. So a file is
looked at first, and one that asks for any of this is refused. Programs that `torch.export.save` writes do not, unless
they hold objects of Python or TorchBind classes.
"""

from __future__ import annotations

import ast
import json
import operator
import os
import re
import zipfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import sympy  # pyright: ignore[reportMissingTypeStubs]  # SymPy ships none
import torch
from torch import fx
from torch._ops import HigherOrderOperator
from torch.utils._sympy import functions as torch_functions

from vllm_ir.dialects.vllm_ir.expressions import shortened
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.torch_internals import number_functions
from vllm_ir.frontends.fx.torch_objects import is_overload

_WRONG = "not a program saved by torch.export.save"
_UNSAFE = "not safe to load"
_CODE = ("aotinductor", "custom_obj", "opaque_obj")
"""Parts of names of records that are code, or pickles whose loading cannot be restricted."""
_WEIGHTS_ONLY = {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": None}
_NAME = re.compile(r"[\w.]*")
_NOT_IN_CODE = re.compile(r"[\"'\\\x00-\x1f\x7f]")
_DATA = ("metadata", "as_string", "as_strings", "guards_code", "torch_version")
"""Fields whose texts are only data."""
_IMPORTS = ("default_factory_module", "__enum__")
"""Fields of structures of inputs that name a module to import."""


def load_exported(path: str) -> torch.export.ExportedProgram:
    """The program in a `.pt2` file.

    Raises:
        FxImportError: the file is not one that `torch.export.save` wrote, or loading it could run code. The reason
            reads on behind "the file is".
    """
    _verify_archive(path)
    try:
        with _environment(_WEIGHTS_ONLY):
            program = torch.export.load(path)
    except Exception as error:
        raise FxImportError(f"{_WRONG}: {error_summary(error)}") from error
    _verify_targets(program.graph_module)
    return program


def _verify_archive(path: str) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist()]
            # Readers differ in which of two records of one name they take, and in whether they look at its case.
            [(name, count)] = Counter(map(str.lower, names)).most_common(1) or [("", 0)]
            if count > 1:
                raise FxImportError(f"{_WRONG}: it has two records {name!r}")
            for name in names:
                if any(part in name.lower() for part in _CODE):
                    raise FxImportError(f"{_UNSAFE}: it holds {name!r}, which is code or can name any")
            for name in names:
                if name.endswith(".json"):
                    _verify_record(archive.read(name))
    except (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, FxImportError):
            raise
        raise FxImportError(f"{_WRONG}: {error_summary(error)}") from error


def _verify_record(data: bytes) -> None:
    try:
        content: object = json.loads(data)
    except (ValueError, RecursionError):
        return  # no JSON: the loader cannot read it either
    for field, text in _texts(content, ""):
        if (reason := _refusal(field, text)) is not None:
            raise FxImportError(f"{_UNSAFE}: it has the {field or 'key'} {shortened(text)!r}, {reason}")


def _texts(value: object, field: str) -> Iterator[tuple[str, str]]:
    """All texts in a tree of JSON but plain data, each with the field that it is in; keys have none."""
    pending: list[tuple[object, str]] = [(value, field)]
    while pending:
        item, field = pending.pop()
        if isinstance(item, str):
            yield field, item
        elif isinstance(item, dict):
            entries = cast("Mapping[str, object]", item)
            yield from (("", key) for key in entries)
            pending += [(entry, key) for key, entry in entries.items() if key not in _DATA]
        elif isinstance(item, list):
            pending += [(entry, field) for entry in cast("Sequence[object]", item)]


def _refusal(field: str, text: str) -> str | None:
    """Why a text is not what `torch.export.save` writes; None if it may be."""
    if field == "expr_str":
        return None if _is_expression(text) else "which is not an expression of SymPy"
    if field in ("in_spec", "out_spec"):
        return _refusal_of_structure(text)
    if field in ("name", "as_name"):
        return None if _NAME.fullmatch(text) else "which is not a name"
    return "which is not a name" if _NOT_IN_CODE.search(text) else None


def _refusal_of_structure(text: str) -> str | None:
    """Structures are JSON in a text of JSON; contexts in them are texts again."""
    pending = [text]
    while pending:
        text = pending.pop()
        if any(word in text for word in _IMPORTS):
            return "which names a module to import"
        try:
            content: object = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if not isinstance(content, str):
            pending += [inner for _, inner in _texts(content, "")]
        elif content != text:
            pending.append(content)
    return None


def _is_expression(text: str) -> bool:
    """Whether a text is what `sympy.srepr` prints: calls of classes of expressions, numbers, names of symbols."""
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return all(_is_part(node, id(node) in called) for node in ast.walk(tree))


def _is_part(node: ast.AST, called: bool) -> bool:
    match node:
        case ast.Name(name) if called:
            found: object = getattr(torch_functions, name, getattr(sympy, name, None))
            return isinstance(found, type) and issubclass(found, sympy.Basic)
        case ast.Name(name):
            return name.isidentifier() and not hasattr(sympy, name)
        case ast.Constant(value):
            return not isinstance(value, str) or value.isidentifier()
        case _:
            return isinstance(node, ast.Expression | ast.Call | ast.keyword | ast.UnaryOp | ast.USub | ast.Load)


def _verify_targets(module: torch.nn.Module) -> None:
    """All that the graph calls are operators, and functions of numbers."""
    known = {operator.getitem, *number_functions().values()}
    for graph_module in module.modules():
        for node in graph_module.graph.nodes if isinstance(graph_module, fx.GraphModule) else ():
            target = node.target
            plain = node.op in ("placeholder", "get_attr", "output") or is_overload(target)
            if not plain and not isinstance(target, HigherOrderOperator) and target not in known:
                raise FxImportError(f"{_UNSAFE}: it calls {shortened(str(target))!r}, which is no operator")


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Generator[None]:
    """Set environment variables, or unset them where None is given."""
    before = {name: os.environ.get(name) for name in values}
    try:
        for name, value in values.items():
            _set(name, value)
        yield
    finally:
        for name, value in before.items():
            _set(name, value)


def _set(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
