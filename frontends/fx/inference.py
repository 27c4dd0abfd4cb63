"""Result types of operators, from PyTorch's own fake kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from xdsl.dialects.builtin import DYNAMIC_INDEX, IntegerType, NoneType, i1
from xdsl.ir import Attribute, SSAValue

from vllm_ir.dialects.vllm_ir.types import shape_of, sizes_of
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.symbols import sample
from vllm_ir.frontends.fx.types import NUMBER_TYPES, TypeCache, example, is_shaped
from vllm_ir.frontends.fx.values import decode, is_sequence

_Key: TypeAlias = tuple[OpOverload, tuple[Attribute, ...], tuple[Attribute, ...]]
_TYPES = TypeCache()
_INFERRED: dict[_Key, list[Attribute] | None] = {}


def infer_types(
    overload: OpOverload, trees: Sequence[Attribute], operands: Sequence[SSAValue]
) -> list[Attribute] | None:
    """Types of the results of a call, flattened; None if they depend on the contents of the operands.

    They are found once for each combination of operator and arguments. Dynamic sizes are tried with example values, so
    only shapes without them are to be relied on; None if no example fits. Raises `FxImportError` where the fake kernel
    refuses arguments of static sizes.
    """
    key = (overload, tuple(trees), tuple(operand.type for operand in operands))
    if key not in _INFERRED:
        _INFERRED[key] = _infer_with_examples(overload, trees, key[2])
    return _INFERRED[key]


def _infer_with_examples(
    overload: OpOverload, trees: Sequence[Attribute], types: Sequence[Attribute]
) -> list[Attribute] | None:
    if not any(is_shaped(kind) and DYNAMIC_INDEX in shape_of(kind) for kind in types):
        return _infer(overload, trees, types, sample)
    # What a program proves about its sizes is not in the types: equal ones may have different expressions. Tensors of
    # size 1 fit each other.
    for size in (_one, sample):
        try:
            return _infer(overload, trees, types, size)
        except FxImportError:
            continue
    return None


def _one(_: str) -> int:
    return 1


def _infer(
    overload: OpOverload, trees: Sequence[Attribute], types: Sequence[Attribute], size: Callable[[str], int]
) -> list[Attribute] | None:
    info = op_info(overload)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        values = [_example(kind, size) for kind in types]
        bound = [decode(tree, values, str) for tree in trees]
        names = [argument.name for argument in info.arguments[info.positional :]]
        keywords = dict(zip(names, bound[info.positional :], strict=False))
        try:
            result = overload(*bound[: info.positional], **keywords)
            return [_type(leaf) for leaf in _flatten(result)]
        except FxImportError:
            raise
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException):
            return None
        except Exception as error:
            raise FxImportError(f"{overload} refuses its arguments: {error_summary(error)}") from error


def _flatten(value: object) -> list[object]:
    return [leaf for item in value for leaf in _flatten(item)] if is_sequence(value) else [value]


def _type(value: object) -> Attribute:
    if isinstance(value, Tensor):
        return _TYPES.tensor(value)
    return NUMBER_TYPES.get(type(value), NoneType())


def _example(kind: Attribute, size: Callable[[str], int]) -> object:
    if is_shaped(kind):
        return example(kind, [known if isinstance(known, int) else size(known) for known in sizes_of(kind)])
    if isinstance(kind, IntegerType):
        return True if kind == i1 else 2
    return 1.0
