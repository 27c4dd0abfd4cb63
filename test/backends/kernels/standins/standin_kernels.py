"""Kernels with the schemas of vLLM's, in plain torch on the CPU, which record each call.

They refuse what the real ones refuse, or fail on: an empty grid, rows that do not begin where vectors may be loaded.
They see memory as the real ones do: through addresses and the strides that those read, whatever the others are.
"""

import math

import torch
from torch import Tensor

CALLS: list[tuple[object, ...]] = []
"""The name of each operator that ran, and its arguments: of tensors the dtype, shape and strides."""
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def described(arg: object) -> object:
    return (arg.dtype, tuple(arg.shape), arg.stride()) if isinstance(arg, Tensor) else arg


def define(library: torch.library.Library, schema: str, kernel) -> None:
    name = schema.partition("(")[0]

    def recording(*args: object) -> None:
        CALLS.append((f"{library.ns}::{name}", *map(described, args)))
        kernel(*args)

    library.define(schema)
    library.impl(name, recording, "CPU")


def require(condition: bool) -> None:
    if not condition:
        raise RuntimeError("a condition of the kernel does not hold")


def require_floats(*tensors: Tensor) -> None:
    require(all(t.dtype == tensors[0].dtype for t in tensors) and tensors[0].dtype in FLOATS)


def require_aligned(*tensors: Tensor) -> None:
    require(all(t.data_ptr() % 16 == 0 for t in tensors))


def grid(x: Tensor) -> int:
    """How many rows there are; at least one, with elements."""
    require(x.numel() > 0)
    return x.numel() // x.shape[-1]


def window(x: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    return x.as_strided(shape, strides, x.storage_offset())


def even_rows(x: Tensor) -> Tensor:
    """Rows at the distance of the last two, as many as there are in all."""
    return window(x, (grid(x), x.shape[-1]), (x.stride(-2), 1))


def packed_rows(x: Tensor) -> Tensor:
    """Rows without gaps, whatever the strides are."""
    return window(x, (grid(x), x.shape[-1]), (x.shape[-1], 1))


def rms_norm(result: Tensor, x: Tensor, weight: Tensor, epsilon: float) -> None:
    require_floats(result, x, weight)
    require(result.is_contiguous() and weight.is_contiguous() and 2 <= x.dim() <= 4 and x.stride(-1) == 1)
    require(weight.shape == x.shape[-1:])
    grid(x)
    require_aligned(x, weight)
    vector = math.gcd(16 // x.element_size(), x.shape[-1])
    require(all(stride % vector == 0 for size, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True) if size > 1))
    result.copy_(normed(x.float(), x.dtype, weight, epsilon))


def normed(values: Tensor, dtype: torch.dtype, weight: Tensor, epsilon: float) -> Tensor:
    return (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + epsilon)).to(dtype) * weight


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> None:
    require_floats(x, residual, weight)
    require(residual.is_contiguous() and weight.is_contiguous())
    rows, sums = even_rows(x), packed_rows(residual)
    total = rows.float() + sums.float()
    sums.copy_(total)
    rows.copy_(normed(total, x.dtype, weight, epsilon))


def gated(activation):
    def kernel(result: Tensor, x: Tensor) -> None:
        require_floats(result, x)
        require_aligned(x)
        gate, up = packed_rows(x).chunk(2, -1)
        packed_rows(result).copy_(activation(gate) * up)

    return kernel


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    table: Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    require(positions.dtype is torch.int64 and positions.dim() in (1, 2) and (rope_dim_offset, inverse) == (0, False))
    require_floats(query, table)
    last, tokens = positions.dim() - 1, positions.numel()
    require(tokens > 0)
    require(key is not None and query.shape[: last + 1] == key.shape[: last + 1] == positions.shape)
    heads = [x.numel() // tokens // head_size for x in (query, key)]
    require(heads[0] % heads[1] == 0 and all(x.numel() % (tokens * head_size) == 0 for x in (query, key)))
    head_stride = query.stride(-2) if query.dim() == last + 3 else head_size
    flat_positions = window(positions, (tokens,), (1,))
    require(table.shape[1] <= head_size and table.is_contiguous())
    cos, sin = table[flat_positions].unsqueeze(1).chunk(2, -1)
    half = cos.shape[-1]
    for x, count in zip((query, key), heads, strict=True):
        require(x.dtype == query.dtype)
        places = window(x, (tokens, count, 2 * half), (x.stride(last), head_stride, 1))
        left, right = (places[..., :half], places[..., half:]) if is_neox else (places[..., ::2], places[..., 1::2])
        turned = left * cos - right * sin, right * cos + left * sin
        left.copy_(turned[0])
        right.copy_(turned[1])


FP8_MAX = 448.0


def as_fp8(values: Tensor, scale: Tensor) -> Tensor:
    return (values * scale.reciprocal()).clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn)


def as_int8(values: Tensor, scale: Tensor) -> Tensor:
    quotients = values * scale.reciprocal()
    return quotients.masked_fill(quotients.isnan(), 0.0).round().clamp(-128, 127).to(torch.int8)


def require_quantized(result: Tensor, x: Tensor, dtype: torch.dtype) -> None:
    require_floats(x)
    require_aligned(x)
    require(result.dtype is dtype and result.is_contiguous() and result.shape == x.shape)


def static_scaled_fp8_quant(result: Tensor, x: Tensor, scale: Tensor, group_shape: object = None) -> None:
    require_quantized(result, x, torch.float8_e4m3fn)
    require(scale.dtype is torch.float32 and scale.numel() == 1 and group_shape is None and x.stride(-1) == 1)
    packed_rows(result).copy_(as_fp8(even_rows(x).float(), scale.reshape(())))


def dynamic_per_token_scaled_fp8_quant(result: Tensor, x: Tensor, scale: Tensor, scale_ub: Tensor | None) -> None:
    require_quantized(result, x, torch.float8_e4m3fn)
    require(scale.dtype is torch.float32 and scale.is_contiguous() and scale.numel() == grid(x) and x.stride(-1) == 1)
    values = even_rows(x).float()
    most = values.abs().amax(-1, keepdim=True)
    if scale_ub is not None:
        require(scale_ub.dtype is torch.float32 and scale_ub.numel() == 1)
        most = torch.minimum(most, scale_ub.reshape(()))
    packed_rows(scale).copy_((most / FP8_MAX).clamp(min=1.0 / (FP8_MAX * 512.0)))
    packed_rows(result).copy_(as_fp8(values, packed_rows(scale)))


def per_token_group_fp8_quant(
    x: Tensor, result: Tensor, scales: Tensor, size: int, eps: float, least: float, most: float, ue8m0: bool, *_: bool
) -> None:
    require_quantized(result, x, torch.float8_e4m3fn)
    require(x.is_contiguous() and x.numel() % size == 0 and scales.dtype is torch.float32 and scales.dim() == 2)
    require((least, most, ue8m0) == (-FP8_MAX, FP8_MAX, False) and scales.stride(0) >= scales.stride(1))
    groups = window(x, (x.numel() // size, size), (size, 1)).float()
    found = groups.abs().amax(-1, keepdim=True).clamp(min=eps) / most
    window(scales, (len(groups), 1), (1, 1)).copy_(found)
    window(result, tuple(groups.shape), (size, 1)).copy_(as_fp8(groups, found))


def static_scaled_int8_quant(result: Tensor, x: Tensor, scale: Tensor, azp: Tensor | None) -> None:
    require_quantized(result, x, torch.int8)
    require(x.is_contiguous() and scale.numel() == 1 and scale.dtype is torch.float32 and azp is None)
    packed_rows(result).copy_(as_int8(packed_rows(x).float(), scale.reshape(())))


def dynamic_scaled_int8_quant(result: Tensor, x: Tensor, scale: Tensor, azp: Tensor | None) -> None:
    require_quantized(result, x, torch.int8)
    require(x.is_contiguous() and scale.is_contiguous() and scale.dtype is torch.float32 and azp is None)
    values = packed_rows(x).float()
    window(scale, (len(values), 1), (1, 1)).copy_(values.abs().amax(-1, keepdim=True) / 127.0)
    packed_rows(result).copy_(as_int8(values, window(scale, (len(values), 1), (1, 1))))


def reshape_and_cache_flash(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str,
    k_scale: Tensor,
    v_scale: Tensor,
) -> None:
    require_floats(key, value, key_cache, value_cache)
    require(kv_cache_dtype == "auto" and key_cache.stride(0) == value_cache.stride(0))
    require(all(scale.dtype is torch.float32 and scale.numel() == 1 for scale in (k_scale, v_scale)))
    require_aligned(key, value)
    (tokens, heads, size), blocks = key.shape, key_cache.shape[0]
    grid(key)
    require(tokens == len(slot_mapping) and slot_mapping.dtype is torch.int64)
    # The strides of the key cache, and dense heads, for both.
    strides = (*key_cache.stride()[:3], 1)
    slots = window(slot_mapping, (tokens,), (1,))
    written, block_size = slots >= 0, key_cache.shape[1]
    for new, cache in ((key, key_cache), (value, value_cache)):
        rows = window(new, (tokens, heads, size), (new.stride(0), size, 1))
        places = window(cache, (blocks, block_size, heads, size), strides)
        places[slots[written] // block_size, slots[written] % block_size] = rows[written]
