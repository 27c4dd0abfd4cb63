"""Composite operators, traced into what eager mode calls.

PyTorch has two versions of some operators that consist of others (`matmul`, `dropout`, `upsample_linear1d`): one in
C++, which eager mode runs, and one in Python, which tracing takes. They differ in roundings, in the random numbers that
they draw, and in whether they return their argument or a copy of it. While we trace, the C++ version is taken. The
Python version is taken for symbolic sizes, which not every C++ version knows; for dimensions of size 1, whose strides
are others in fake tensors than in real ones, and the C++ version of `matmul` goes by them; and where C++ looks at
elements.

Some C++ versions that take outputs (`linalg_matrix_rank.out`) give a new tensor while they are traced, and leave the
output as it was. It is written here: the operator's schema says that the result is the output.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
# Private: what is registered for an operator has no public form. Unknown: it is not typed.

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import cache
from typing import cast

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.torch_internals import ambient_tracer, has_symbolic_metadata, last_node, nodes_since

_COMPOSITE = DispatchKey.CompositeImplicitAutograd
_thread = threading.local()


@contextmanager
def as_in_eager() -> Generator[None]:
    """Trace composite operators, in this thread, into what eager mode calls."""
    _prefer_native()
    outer = getattr(_thread, "tracing", False)
    _thread.tracing = True
    try:
        yield
    finally:
        _thread.tracing = outer


@cache
def _prefer_native() -> None:
    """Put a choice in the place of the Python versions; it takes those as before outside of `as_in_eager`."""
    for op in _with_both_versions():
        op.py_kernels[_COMPOSITE] = _choice(op, cast("Callable[..., object]", op.py_kernels[_COMPOSITE]))
        op._dispatch_cache.clear()
    for op in _composites():
        if _COMPOSITE not in op.py_kernels and any(argument.is_out for argument in op._schema.arguments):
            op.py_kernels[_COMPOSITE] = _writing_outputs(op)
            op._dispatch_cache.clear()


def _with_both_versions() -> Iterator[OpOverload]:
    return (op for op in _composites() if _COMPOSITE in op.py_kernels)


def _composites() -> Iterator[OpOverload]:
    """The operators of ATen whose C++ version consists of others."""
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace != "aten" or not torch._C._dispatch_has_kernel_for_dispatch_key(name, _COMPOSITE):
            continue
        op = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if isinstance(op, OpOverload):
            yield op


def _choice(op: OpOverload, python: Callable[..., object]) -> Callable[..., object]:
    def kernel(*args: object, **kwargs: object) -> object:
        leaves = pytree.tree_leaves((args, kwargs))
        if not getattr(_thread, "tracing", False) or not all(map(_is_known, leaves)):
            return python(*args, **kwargs)
        before = last_node(tracer) if (tracer := ambient_tracer()) is not None else None
        try:
            return op._op_dk(_COMPOSITE, *args, **kwargs)
        except Exception:  # noqa: BLE001  # it looks at elements, in one of many ways; else the other version fails too
            if tracer is not None and before is not None:
                for node in list(nodes_since(tracer, before)):
                    tracer.graph.erase_node(node)
            return python(*args, **kwargs)

    return kernel


def _writing_outputs(op: OpOverload) -> Callable[..., object]:
    names = [argument.name for argument in op._schema.arguments if argument.is_out]

    def kernel(*args: object, **kwargs: object) -> object:
        given = op._op_dk(_COMPOSITE, *args, **kwargs)
        if not getattr(_thread, "tracing", False):
            return given
        results, structure = pytree.tree_flatten(given)
        return pytree.tree_unflatten(list(map(_written, results, (kwargs[name] for name in names))), structure)

    return kernel


def _written(result: object, output: object) -> object:
    """The output that a result should be."""
    if not isinstance(result, torch.Tensor) or not isinstance(output, torch.Tensor):
        return result
    if result.untyped_storage()._cdata == output.untyped_storage()._cdata:
        return result
    if output.shape != result.shape:
        output.resize_(result.shape)
    return output.copy_(result)


def _is_known(leaf: object) -> bool:
    """Whether an argument is for the C++ version what it is in eager mode."""
    if isinstance(leaf, torch.Tensor):
        return not has_symbolic_metadata(leaf) and 1 not in leaf.shape
    return not isinstance(leaf, torch.SymInt | torch.SymFloat | torch.SymBool)
