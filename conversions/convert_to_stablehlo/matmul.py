"""Products of matrices, as `dot_general`.

Products of narrow floating-point types are summed in `f32` and rounded once, `alpha` and `beta` included.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.ir import SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Converter
from vllm_ir.conversions.convert_to_stablehlo.dtypes import Number, computation_type, element, shape
from vllm_ir.conversions.convert_to_stablehlo.takes import dims
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.stablehlo import DotAttr


def dot(
    b: Builder,
    left: SSAValue,
    right: SSAValue,
    contracted: tuple[Sequence[int], Sequence[int]],
    batches: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> SSAValue:
    """Sums of products over the contracted dimensions, in the type that narrow ones are computed in.

    The result has the batch dimensions first, then what is left of each operand.
    """
    free = [
        [size for index, size in enumerate(shape(value)) if index not in (*batch, *sums)]
        for value, batch, sums in ((left, batches[0], contracted[0]), (right, batches[1], contracted[1]))
    ]
    sizes = [*(shape(left)[index] for index in batches[0]), *free[0], *free[1]]
    numbers = DotAttr(dims(batches[0]), dims(batches[1]), dims(contracted[0]), dims(contracted[1]))
    kind = b.tensor(sizes, computation_type(element(left)))
    return b.emit(stablehlo.DotGeneralOp, (left, right), kind, {"dot_dimension_numbers": numbers})


def _finished(b: Builder, value: SSAValue) -> SSAValue:
    return b.reshape(b.convert(value, b.result.element_type), b.result.get_shape())


def _matrix_product(b: Builder, left: SSAValue, right: SSAValue, *_: object) -> SSAValue:
    return _finished(b, dot(b, left, right, ((1,), (0,))))


def _batch_product(b: Builder, left: SSAValue, right: SSAValue, *_: object) -> SSAValue:
    return _finished(b, dot(b, left, right, ((2,), (1,)), ((0,), (0,))))


def _vector_product(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    return _finished(b, dot(b, left, right, ((len(shape(left)) - 1,), (0,))))


def _scaled(b: Builder, value: SSAValue, scale: Number) -> SSAValue:
    return value if scale == 1 else b.binary(stablehlo.MultiplyOp, value, scale)


def _combined(b: Builder, bias: SSAValue, product: SSAValue, beta: Number, alpha: Number) -> SSAValue:
    """`beta * bias + alpha * product`; a bias that does not count is not looked at, whatever is in it."""
    product = _scaled(b, product, alpha)
    if beta != 0:
        wide = b.convert(bias, element(product))
        bias = b.broadcast(_scaled(b, wide, beta), shape(product))
        product = b.binary(stablehlo.AddOp, bias, product)
    return _finished(b, product)


def _add_matrix_product(
    b: Builder, bias: SSAValue, left: SSAValue, right: SSAValue, beta: Number = 1, alpha: Number = 1
) -> SSAValue:
    return _combined(b, bias, dot(b, left, right, ((1,), (0,))), beta, alpha)


def _add_batch_product(
    b: Builder, bias: SSAValue, left: SSAValue, right: SSAValue, beta: Number = 1, alpha: Number = 1
) -> SSAValue:
    return _combined(b, bias, dot(b, left, right, ((2,), (1,)), ((0,), (0,))), beta, alpha)


def _linear(b: Builder, value: SSAValue, weight: SSAValue, bias: SSAValue | None = None) -> SSAValue:
    product = dot(b, value, weight, ((len(shape(value)) - 1,), (len(shape(weight)) - 1,)))
    return _finished(b, product) if bias is None else _combined(b, bias, product, 1, 1)


def _matmul(b: Builder, left: SSAValue, right: SSAValue) -> SSAValue:
    """A product of any ranks; dimensions before the last two are batches, repeated where they have size 1."""
    first, second = len(shape(left)), len(shape(right))
    if second <= 2 or first == 1:
        return _finished(b, dot(b, left, right, ((first - 1,), (max(0, second - 2),))))
    lead = b.result.get_shape()[:-2]
    left = b.broadcast(left, (*lead, *shape(left)[-2:]))
    right = b.broadcast(right, (*lead, *shape(right)[-2:]))
    rank = len(lead)
    return _finished(b, dot(b, left, right, ((rank + 1,), (rank,)), (range(rank), range(rank))))


CONVERSIONS: Mapping[str, Converter] = {
    "aten.mm.default": _matrix_product,
    "aten.bmm.default": _batch_product,
    "aten.mv.default": _vector_product,
    "aten.dot.default": _vector_product,
    "aten.addmm.default": _add_matrix_product,
    "aten.addmv.default": _add_matrix_product,
    "aten.baddbmm.default": _add_batch_product,
    "aten.linear.default": _linear,
    "aten.matmul.default": _matmul,
}
"""Converters of this family."""
