"""Stands in for AITER: functions of its signatures."""

from aiter.ops import rms_norm, rmsnorm2d_fwd_with_add, silu_and_mul

__all__ = ["rms_norm", "rmsnorm2d_fwd_with_add", "silu_and_mul"]
