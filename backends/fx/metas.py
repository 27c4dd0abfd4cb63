"""Fake tensors for exported graphs: what each node gives, found by running it on fakes."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings
from xdsl.dialects.builtin import StringAttr, f64, i1, i64
from xdsl.ir import Attribute

from vllm_ir.backends.fx.errors import located
from vllm_ir.dialects.vllm_ir.function import STORAGE, SYMBOL, FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType, sizes_of
from vllm_ir.frontends.fx.symbols import Symbols, example_tensor
from vllm_ir.frontends.fx.types import is_shaped


def example_arguments(function: FuncOp, mode: FakeTensorMode) -> list[object]:
    """Fakes for the arguments of a function, sharing memory where the signature says so."""
    symbols = Symbols(mode) if _is_dynamic(function) else None
    storages: dict[int, Tensor] = {}
    with mode, located(function):
        return [
            _example(argument.type, function.argument_attributes(index), symbols, storages)
            for index, argument in enumerate(function.block.args)
        ]


def _is_dynamic(function: FuncOp) -> bool:
    return any(
        argument.type == i64 or (is_shaped(argument.type) and any(isinstance(s, str) for s in sizes_of(argument.type)))
        for argument in function.block.args
    )


def _example(
    kind: Attribute, attributes: Mapping[str, Attribute], symbols: Symbols | None, storages: dict[int, Tensor]
) -> object:
    if is_shaped(kind):
        shared = attributes.get(STORAGE) if isinstance(kind, BufferType) else None  # values have no memory to share
        return example_tensor(kind, shared, symbols, storages)
    if kind == i64 and symbols is not None:
        name = attributes.get(SYMBOL)
        return symbols.size(name.data if isinstance(name, StringAttr) else "?")
    if kind == f64:
        return 1.0
    return kind == i1


@contextmanager
def propagating(mode: FakeTensorMode) -> Generator[None]:
    """Run operators on fakes, without gradients; unbacked symbols that appear are bound by `set_value`."""
    with mode, torch.no_grad():
        yield


def set_value(node: fx.Node, value: object, mode: FakeTensorMode) -> None:
    """Make `value` what `node` gives, and bind the data-dependent sizes that appear in it."""
    node.meta["val"] = value
    env = mode.shape_env
    if env is not None and env.pending_fresh_unbacked_symbols:
        bindings = compute_unbacked_bindings(env, value)
        if bindings:
            node.meta["unbacked_bindings"] = bindings
