"""The strides of eager's results, where fake tensors are traced that have others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import torch
from torch import fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.locations import running_line
from vllm_ir.frontends.fx.refusals import EagerCalls, Strides
from vllm_ir.frontends.fx.torch_internals import (
    PythonKeyTracer,
    ambient_tracer,
    has_symbolic_metadata,
    node_of_tensor,
    restride_fake,
)
from vllm_ir.frontends.fx.torch_objects import is_overload


class EagerStrides(TorchDispatchMode):
    """Compares each operator that runs under `make_fx` with eager's; for functions that are not there as a graph."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        """To be entered inside of the trace, above the mode that records it."""
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
        self._calls = EagerCalls()

    @classmethod
    def is_infra_mode(cls) -> bool:
        """As tracing itself, it is none of the program's modes."""
        return True

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run an operator; what it gives has the strides that eager's kernel would give it."""
        keywords = kwargs or {}
        known = is_overload(func) and func.namespace in ("aten", "prims")
        key = self._calls.key_of(func, args, keywords) if known else None
        result = func(*args, **keywords)
        tracer = ambient_tracer()
        if key is None or tracer is None:
            return result
        try:
            strides = self._calls.strides_of(key, (args, keywords), result, seen=False)
        except FxImportError as error:
            raise FxImportError(error.reason, location=running_line()) from error
        if strides is not None:
            restride(tracer, result, strides)
        return result


def restride(tracer: PythonKeyTracer, result: object, strides: Sequence[Strides]) -> None:
    """Give the fakes that a call gave, and the values recorded of them, other strides."""
    for leaf, steps in zip(pytree.tree_leaves(result), strides, strict=True):
        if isinstance(leaf, torch.Tensor) and not has_symbolic_metadata(leaf):
            restride_fake(leaf, steps)
            for value in _recorded(node_of_tensor(tracer, leaf)):
                restride_fake(value, steps)


def _recorded(node: fx.Node | None) -> Iterator[torch.Tensor]:
    """The values recorded of what `node` gives: its own, and the result of a call that it is an item of."""
    path: list[int] = []
    while node is not None:
        value: object = node.meta.get("val")
        for index in reversed(path):
            value = cast("Sequence[object]", value)[index]
        if isinstance(value, torch.Tensor):
            yield value
        is_item = node.target is operator.getitem
        if is_item:
            path.append(cast(int, node.args[1]))
        node = cast(fx.Node, node.args[0]) if is_item else None
