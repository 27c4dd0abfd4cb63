"""Which pointwise calls leave every element as it is (`x * 1`, `x + -0.0`), found by calling them.

No list says so: `x + 0` does for integers, but makes `0.0` of `-0.0`, and `x * 1` does not for complex numbers, whose
infinities turn into NaN. Elements of up to 16 bits are tried one and all; of wider ones the sample has every exponent
with mantissas of all kinds, every single bit, and the ends of the range. That decides for PyTorch's own operators: what
they do with an element and a constant changes at ends of ranges, at signs, roundings and bits, not somewhere between.
NaN counts as NaN, whatever its payload.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr
from xdsl.ir import Attribute

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.torch_objects import Overload
from vllm_ir.frontends.fx.types import known_dtype
from vllm_ir.frontends.fx.values import decode

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FEW = 61
"""Every so many elements of a sample are tried first: most operators change one of them."""


@lru_cache(maxsize=4096)
def keeps_elements(
    overload: Overload, args: ArrayAttr[Attribute], kwargs: DictionaryAttr | None, element: Attribute, rank: int
) -> bool:
    """Whether a pointwise call with one operand gives elements of type `element` back as they are.

    `rank` is the number of dimensions of the operand: what an operator is told of memory formats depends on it.
    """
    try:
        dtype = known_dtype(element)
        with unset_fake_temporarily(), torch.no_grad():
            sample = _sample(dtype).reshape(-1, *(1,) * (rank - 1))
            return all(_is_kept(overload, args, kwargs, part) for part in (sample[::_FEW], sample))
    except (FxImportError, RuntimeError, TypeError, ValueError, NotImplementedError):
        return False  # there is no such kernel on the CPU, or the call looks at more than its elements


def _is_kept(overload: Overload, args: ArrayAttr[Attribute], kwargs: DictionaryAttr | None, sample: Tensor) -> bool:
    positional = [decode(tree, [sample], str) for tree in args.data]
    keywords = {name: decode(tree, [sample], str) for name, tree in (kwargs.data.items() if kwargs else ())}
    result = cast("Callable[..., object]", overload)(*positional, **keywords)
    if not isinstance(result, Tensor) or result.dtype != sample.dtype or result.shape != sample.shape:
        return False
    return _same_elements(result, sample)


def _same_elements(one: Tensor, other: Tensor) -> bool:
    if one.dtype.is_complex:
        return _same_elements(torch.view_as_real(one), torch.view_as_real(other))
    integers = _SAME_SIZE[one.element_size()]
    same = one.contiguous().view(integers) == other.contiguous().view(integers)
    if one.dtype.is_floating_point:
        same |= one.isnan() & other.isnan()
    return bool(same.all())


@lru_cache(maxsize=32)
def _sample(dtype: torch.dtype) -> Tensor:
    """Elements of a dtype: all that there are, or those at which operators change what they do."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_complex:
        parts = torch.tensor(_COMPLEX_PARTS, dtype=torch.float64)
        pairs = torch.stack(torch.meshgrid(parts, parts, indexing="ij"), -1).reshape(-1, 2)
        return torch.view_as_complex(pairs).to(dtype)
    bits = 8 * dtype.itemsize
    patterns = range(1 << bits) if bits <= 16 else _patterns(bits, dtype)
    signed = [pattern - (1 << bits) if pattern >> (bits - 1) else pattern for pattern in patterns]
    return torch.tensor(signed, dtype=_SAME_SIZE[dtype.itemsize]).view(dtype)


_COMPLEX_PARTS = (0.0, -0.0, 1.0, -1.0, 0.1, -7.3, 1e-45, 1e38, math.inf, -math.inf, math.nan)


def _patterns(bits: int, dtype: torch.dtype) -> Iterator[int]:
    """Bit patterns of wide elements, as numbers without a sign."""
    ends = 1 << (bits - 1)
    if dtype.is_floating_point:
        mantissa = 23 if bits == 32 else 52
        some = (0, 1, 2, 3, (1 << mantissa) - 1, (1 << mantissa) // 3, 1 << (mantissa - 1), 0x5BD1E % (1 << mantissa))
        yield from ((top << mantissa) | part for top in range(1 << (bits - mantissa)) for part in some)
        return
    yield from range(256)
    for shift in range(bits):
        yield from ((1 << shift) + step & (2 * ends - 1) for step in (-1, 0, 1))
        yield from ((2 * ends - (1 << shift) + step) & (2 * ends - 1) for step in (-1, 0, 1))
    yield from ((index * 0x9E3779B97F4A7C15 >> 7) & (2 * ends - 1) for index in range(1, 2048))
