"""How far an implementation's results may be from the native definition's.

A tolerance has two parts, which allow an error of `atol + rtol * |expected|`. The first is by dtype of the result: what
torch's and vLLM's own kernel tests allow for one operation with another rounding. The second is for a sum of `n`
products in another order: in arithmetic of unit roundoff `u`, both results are within `n * u / (1 - n * u)` of the
exact sum of absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1), so they are at most
twice that apart. Arithmetic is float32 for all dtypes but float64.
"""

from collections.abc import Mapping
from types import MappingProxyType

import torch

BY_DTYPE: Mapping[torch.dtype, tuple[float, float]] = MappingProxyType(
    {
        torch.float64: (1e-8, 1e-8),
        torch.float32: (1e-5, 1.3e-6),
        torch.float16: (1e-3, 1e-3),
        torch.bfloat16: (1e-3, 1.6e-2),
        torch.float8_e4m3fn: (1e-1, 1e-1),
        torch.float8_e4m3fnuz: (1e-1, 1e-1),
        torch.float8_e5m2: (2e-1, 2e-1),
        torch.float8_e5m2fnuz: (2e-1, 2e-1),
        torch.float4_e2m1fn_x2: (3e-1, 3e-1),
        # A value at a boundary of rounding may fall to either side.
        torch.int8: (1, 0),
        torch.uint8: (1, 0),
        torch.int16: (0, 0),
        torch.int32: (0, 0),
        torch.int64: (0, 0),
        torch.bool: (0, 0),
    }
)
"""`(atol, rtol)` of results by dtype, for operations that sum nothing."""


def tolerance(dtype: torch.dtype, reduction_length: int = 0) -> dict[str, float]:
    """`{"atol": ..., "rtol": ...}` for results of a dtype, each of which sums `reduction_length` products.

    Raises:
        ValueError: there is no tolerance for the dtype.
    """
    if dtype not in BY_DTYPE:
        raise ValueError(f"No tolerance defined for {dtype}; set one with override_tolerance({dtype}, atol=, rtol=)")
    atol, rtol = BY_DTYPE[dtype]
    if not dtype.is_floating_point:
        return {"atol": atol, "rtol": rtol}
    total = reduction_length * (2.0**-53 if dtype is torch.float64 else 2.0**-24)
    order = 2 * total / (1 - total)
    return {"atol": atol + order, "rtol": rtol + order}
