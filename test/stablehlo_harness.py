"""Runs converted programs on XLA's CPU backend, the judge of what we convert to."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jaxlib._hlo as _hlo
import ml_dtypes
import numpy as np
import torch
from jaxlib import _jax
from jaxlib import xla_client as xc
from jaxlib.mlir import ir as mlir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import stablehlo
from xdsl.dialects.builtin import ModuleOp

import vllm_ir as ir
from vllm_ir.backends.stablehlo.jaxlib_calls import client, compile_module

# numpy has no such types: bits go through integers of the same size.
_BITS = {
    torch.bfloat16: (torch.int16, ml_dtypes.bfloat16),
    torch.float8_e4m3fn: (torch.uint8, ml_dtypes.float8_e4m3fn),
    torch.float8_e5m2: (torch.uint8, ml_dtypes.float8_e5m2),
}


@functools.cache
def mlir_context() -> Any:
    """A context with the dialects that jaxlib brings."""
    context = mlir.Context()
    stablehlo.register_dialect(context)
    registry = mlir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    context.append_dialect_registry(registry)
    context.load_all_available_dialects()
    return context


def verified(text: str) -> str:
    """The text, after jaxlib has parsed and verified it."""
    assert mlir.Module.parse(text, mlir_context()).operation.verify()
    return text


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """The elements of a tensor in numpy's type for them."""
    tensor = tensor.detach().contiguous()
    if tensor.dtype in _BITS:
        bits, kind = _BITS[tensor.dtype]
        return tensor.view(bits).numpy().view(kind)
    return tensor.numpy()


def to_torch(array: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """A tensor with the elements of an array."""
    if dtype in _BITS:
        bits, _ = _BITS[dtype]
        numbers = np.int16 if bits == torch.int16 else np.uint8
        return torch.from_numpy(np.array(array).view(numbers)).view(dtype)
    return torch.from_numpy(np.array(array))


class _Sharding(xc.SingleDeviceSharding):
    memory_kind = None

    def __new__(cls) -> Any:
        return xc.SingleDeviceSharding.__new__(cls, client().devices()[0])

    def __init__(self) -> None:
        super().__init__(client().devices()[0])

    def _to_xla_hlo_sharding(self, ndim: int) -> Any:
        return _hlo.HloSharding.replicate()


class _Aval:
    weak_type = False

    def __init__(self, array: np.ndarray) -> None:
        self.shape, self.dtype, self.ndim = tuple(array.shape), array.dtype, array.ndim

    def str_short(self, *_args: object, **_keywords: object) -> str:
        return f"{self.dtype}{list(self.shape)}"


def execute(text: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a StableHLO program; narrow types are rounded where the program says so."""
    device = client().devices()[0]
    program: Any = compile_module(verified(text).encode())
    semantics = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL
    buffers = [
        _jax.batched_device_put(_Aval(array), _Sharding(), [array], [device], True, True, semantics, True)
        for array in arrays
    ]
    results = program.execute_sharded(buffers).disassemble_into_single_device_arrays()
    return [np.asarray(result[0]) for result in results]


def converted(function: Callable[..., object], *inputs: object, passes: str = "functionalize") -> ModuleOp:
    """The module of a program that mutates nothing, converted, and verified by xDSL."""
    module = ir.import_callable(function, *inputs)
    ir.run_passes(module, f"{passes},convert-to-stablehlo")
    module.verify()
    return module


def run(function: Callable[..., object], *inputs: object) -> list[torch.Tensor]:
    """The tensors that XLA gives for a program, in the order in which eager's are flattened.

    Copies are returned, so that a program which returns views of its arguments is one of values alone.
    """
    expected = flat(function(*inputs))
    text = str(converted(lambda *values: [tensor.clone() for tensor in flat(function(*values))], *inputs))
    arrays = [to_numpy(value) if isinstance(value, torch.Tensor) else np.array(value) for value in inputs]
    results = execute(text, arrays)
    return [to_torch(result, value.dtype) for result, value in zip(results, expected, strict=True)]


def flat(outputs: object) -> list[torch.Tensor]:
    """The tensors of a program's results."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [tensor for item in outputs for tensor in flat(item)] if isinstance(outputs, list | tuple) else []


def compare(function: Callable[..., object], *inputs: object, **tolerance: float) -> None:
    """XLA's results are eager's: bit for bit, or within `rtol` and `atol`."""
    expected = flat(function(*inputs))
    for index, (result, value) in enumerate(zip(run(function, *inputs), expected, strict=True)):
        assert result.shape == value.shape
        if value.dtype in _BITS and value.dtype.itemsize == 1:
            result, value = result.float(), value.float()
        torch.testing.assert_close(
            result,
            value,
            equal_nan=True,
            msg=lambda text, index=index: f"result {index}: {text}",
            **(tolerance or {"rtol": 0.0, "atol": 0.0}),
        )
