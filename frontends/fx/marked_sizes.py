"""Types of real tensors, sizes that are marked as dynamic being symbols."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from vllm_ir.frontends.fx.marks import marked_dimensions
from vllm_ir.frontends.fx.types import TypeCache


def types_of_marked(tensors: Iterable[Tensor]) -> Iterator[TensorType[Attribute]]:
    """Types of tensors that come together: marked sizes that are equal are one symbol, as Dynamo has it."""
    given, types = list(tensors), TypeCache()
    if not any(map(marked_dimensions, given)):
        yield from map(types.tensor, given)
        return
    # These load Dynamo and SymPy, which static examples do without.
    from torch._dynamo.source import ConstantSource
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    mode = FakeTensorMode(shape_env=ShapeEnv())
    make: Any = StatelessSymbolicContext  # Any: torch leaves its type parameters open
    for number, tensor in enumerate(given):
        marked = marked_dimensions(tensor)
        sizes = [DimDynamic.DUCK if index in marked else DimDynamic.STATIC for index in range(tensor.dim())]
        source = ConstantSource(f"argument{number}")
        yield types.tensor(mode.from_tensor(tensor, source=source, symbolic_context=make(dynamic_sizes=sizes)))
