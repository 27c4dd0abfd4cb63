"""`example_numpy`: a compiler of a handful of operations, which runs them with NumPy.

It sees pure functions on tensors only. That arguments are written, that results alias them and what their strides are
is dealt with by `ir.register_backend`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

import vllm_ir as ir
from vllm_ir.conversions.errors import fail
from vllm_ir.dialects.torch import CallOp
from vllm_ir.dialects.vllm_ir import FuncOp
from vllm_ir.frontends.fx.values import decode
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.ops.dialect import call_arguments

Array = np.ndarray[Any, Any]  # of any shape and dtype
Kernel = Callable[..., Any]  # takes arrays and numbers, as its operation does


def _rms_norm(x: Array, weight: Array | None, epsilon: float, variance_size: int | None) -> Array:
    measured = x[..., :variance_size]
    normed = x / np.sqrt(np.mean(measured * measured, axis=-1, keepdims=True) + np.float32(epsilon))
    return normed if weight is None else normed * weight


def _fused_add_rms_norm(x: Array, residual: Array, *others: Any) -> tuple[Array, Array]:
    total = x + residual
    return _rms_norm(total, *others), total


def _soft_cap(x: Array, cap: float) -> Array:
    return np.float32(cap) * np.tanh(x / np.float32(cap))


KERNELS: Mapping[str, Kernel] = {
    "aten.add.Tensor": lambda x, y, alpha: x + y if alpha == 1 else x + alpha * y,
    "aten.clone.default": lambda x, _: x,  # values have no memory: nobody can tell them from copies
    "aten.mul.Tensor": lambda x, y: x * y,
    "aten.permute.default": lambda x, dims: np.transpose(x, dims),
    "aten.t.default": np.transpose,
    "aten.relu.default": lambda x: np.maximum(x, 0),
    "vllm_ir.rms_norm": _rms_norm,
    "vllm_ir.fused_add_rms_norm": _fused_add_rms_norm,
    "vllm_ir.soft_cap": _soft_cap,
}
"""What there is code for, by the name of the operator or operation."""


def compile_module(module: ModuleOp) -> Callable[..., tuple[object, ...]]:
    """A callable for the function `@main`; `PassFailedException` for operations that there is no code for."""
    (main,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    *body, _ = main.block.ops
    steps = [_step(op) for op in body]
    parameters, results = main.block.args, main.terminator.operands

    def run(*arguments: object) -> tuple[object, ...]:
        values: dict[SSAValue, Any] = dict(zip(parameters, map(_array, arguments), strict=True))
        for step in steps:
            step(values)
        return tuple(_tensor(values[result]) for result in results)

    return run


def _step(op: Operation) -> Callable[[dict[SSAValue, Any]], None]:
    kernel = KERNELS.get(op.target if isinstance(op, CallOp) else op.name)
    if kernel is None:
        fail(op, f"example_numpy has no code for it; it has for {', '.join(KERNELS)}")

    def step(values: dict[SSAValue, Any]) -> None:
        given = kernel(*_arguments(op, [values[operand] for operand in op.operands]))
        results: Sequence[Any] = given if isinstance(given, tuple) else (given,)
        values.update(zip(op.results, results, strict=True))

    return step


def _arguments(op: Operation, operands: Sequence[object]) -> Sequence[object]:
    """The arguments of an operation in the order of its schema: operands and constants."""
    if isinstance(op, CallOp):
        return [decode(tree, operands, str) for tree in op.arguments()]
    return call_arguments(op, ops[op.name.removeprefix("vllm_ir.")], operands)


def _array(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    if value.dtype is not torch.float32 or value.device.type != "cpu":
        raise NotImplementedError(f"example_numpy takes float32 on cpu, not {value.dtype} on {value.device}")
    return value.numpy()


def _tensor(value: Any) -> object:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


example_numpy = ir.register_backend(
    "example_numpy", compile=compile_module, passes="alias-outputs,functionalize,example-fuse-add-norm"
)
"""The backend. The entry point names it, so torch registers it."""
