"""What a node of an FX graph that calls a kernel says about it, and the configuration that code generation gets."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx
from torch._ops import HigherOrderOperator

from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.values import is_sequence
from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel, kernel_of_key
from vllm_ir.frontends.ops.device_kernels.launch import launch
from vllm_ir.frontends.ops.device_kernels.operators import kernel_of, signature_of


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel in a graph."""

    kernel: DeviceKernel
    operands: tuple[object, ...]
    grid: tuple[object, ...]
    first: int
    """Position of operand 0 among the arguments of the node; the other operands follow."""
    backend_config: str | None


def kernel_call(node: fx.Node) -> KernelCall | None:
    """What a node says about the kernel that it calls; None if it calls none.

    The node may call `launch`, as Dynamo records it, or the kernel's operator, as other tracers do, perhaps wrapped by
    `auto_functionalized`.

    Raises:
        KeyError: the kernel is not declared in this process.
    """
    if node.op != "call_function":
        return None
    config = cast("str | None", node.kwargs.get("backend_config"))
    if node.target is launch:
        key, grid = node.args[:2]
        kernel = kernel_of_key(str(key))
        if kernel is None:
            raise KeyError(f"no device kernel is called {key!r}; import the module that declares it")
        return KernelCall(kernel, node.args[2:], tuple(cast("Sequence[object]", grid)), 2, config)
    target, first = node.target, 0
    if isinstance(target, HigherOrderOperator) and node.args:
        target, first = node.args[0], 1
    kernel = kernel_of(target) if is_overload(target) else None
    signature = signature_of(target) if is_overload(target) else None
    if kernel is None or signature is None:
        return None
    grid = node.kwargs.get("grid", ())
    named = [node.kwargs.get(f"operand_{position}") for position in range(len(signature.kinds))]
    operands = node.args if first == 0 else tuple(named)
    return KernelCall(kernel, operands, tuple(grid) if is_sequence(grid) else (), first, config)


def encode_backend_config(kernel: DeviceKernel, grid: Sequence[object], operands: Sequence[object]) -> str:
    """The configuration of a call as base64 of JSON: `func`, `grid`, `has_collectives`, and what the user added.

    `constants` holds the operands that are numbers, strings, None and the like, by position; others, whatever they are
    (nodes, values), are known only when the kernel runs. The user's entries come last, so that they may also say
    another `func` or `has_collectives`.

    Raises:
        ValueError: a number of the grid is not known before the program runs.
    """
    if any(type(number) is not int for number in grid):
        raise ValueError(
            f"{kernel.describe()}: the grid {tuple(grid)} is not constant; code generation needs numbers: "
            "compile with dynamic=False"
        )
    config: dict[str, object] = {"func": kernel.name, "grid": list(grid), "has_collectives": False}
    constants = {str(position): _json(operand) for position, operand in enumerate(operands) if _is_constant(operand)}
    if constants:
        config["constants"] = constants
    config.update(kernel.backend_config)
    return base64.b64encode(json.dumps(config, sort_keys=True).encode()).decode()


def _is_constant(operand: object) -> bool:
    if is_sequence(operand):
        return all(map(_is_constant, operand))
    return operand is None or isinstance(operand, bool | int | float | str | torch.dtype)


def _json(constant: object) -> object:
    if is_sequence(constant):
        return list(map(_json, constant))
    return str(constant).removeprefix("torch.") if isinstance(constant, torch.dtype) else constant


def decode_backend_config(text: str) -> Mapping[str, object]:
    """What `encode_backend_config` encoded; `ValueError` if it did not encode it."""
    try:
        config: object = json.loads(base64.b64decode(text, validate=True))
    except ValueError as error:
        raise ValueError(f"backend_config {text!r} is not base64 of JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(f"backend_config holds a {type(config).__name__}, not an object")
    return cast("dict[str, object]", config)
