"""`custom_call` of a device kernel, run by the simulator that this process has declared for it.

The call says little about the kernel's operands: its own operands are those that are tensors, and the others stand in
the configuration by position. Where that can be read in more than one way, the call is refused; a list of one tensor
reads as a tensor.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor
from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Operation

from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame
from vllm_ir.backends.interpreter.stablehlo.tensors import to_numpy, to_tensor
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.dialects import stablehlo as hlo
from vllm_ir.frontends.ops.device_kernels.calls import decode_backend_config
from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel, kernels_named
from vllm_ir.frontends.ops.device_kernels.simulation import simulate

TARGET = "AwsNeuronCustomNativeKernel"
"""What calls of device kernels call."""


def _custom_call(_frame: Frame, op: hlo.CustomCallOp, values: Sequence[Array]) -> list[Array]:
    target = op.call_target_name.data
    if target != TARGET:
        raise ValueError(f"@{target} is code outside of the module, which is not known; only device kernels can be run")
    config = decode_backend_config(op.backend_config.data if isinstance(op.backend_config, StringAttr) else "")
    kernel = _kernel(str(config.get("func")))
    constants = cast("Mapping[str, object]", config.get("constants", {}))
    by_position = {int(position): constant for position, constant in constants.items()}
    operands = _operands(op, kernel, by_position, [to_tensor(value) for value in values])
    outputs = kernel.outputs(simulate(kernel, operands).fresh, operands)
    return [to_numpy(cast(Tensor, output)).copy() for output in outputs]


def _kernel(name: str) -> DeviceKernel:
    found = kernels_named(name)
    if not found:
        raise ValueError(f"no device kernel {name!r} is declared in this process; import the module that declares it")
    if len(found) > 1:
        raise ValueError(f"{len(found)} device kernels are called {name!r}, and the call does not say which one it is")
    return found[0]


def _operands(
    op: hlo.CustomCallOp, kernel: DeviceKernel, constants: Mapping[int, object], tensors: Sequence[Tensor]
) -> list[object]:
    """The kernel's operands: constants in their places, and tensors in between, some of them perhaps in one list."""
    for position, constant in constants.items():
        if isinstance(constant, str) and isinstance(getattr(torch, constant, None), torch.dtype):
            raise ValueError(
                f"operand {position} of {kernel.describe()} is {constant!r}, which may be a string or a dtype"
            )
    arranged = [_arranged(constants, tensors, len(constants) + len(tensors))]
    total = len(kernel.parameters)
    if (size := len(tensors) - (total - len(constants)) + 1) > 1:
        free = [position for position in range(total) if position not in constants and position not in kernel.aliases]
        arranged += [_arranged(constants, tensors, total, position, size) for position in free]
    fitting = [operands for operands in arranged if operands is not None and _fits(op, kernel, operands, tensors)]
    if len(fitting) != 1:
        raise ValueError(
            f"{kernel.describe()}: {len(tensors)} tensors, and constants in the places {sorted(constants)}, are its "
            f"operands in {len(fitting)} ways; only one operand may be a list of tensors, and its place must be known"
        )
    return fitting[0]


def _arranged(
    constants: Mapping[int, object], tensors: Sequence[Tensor], total: int, place: int | None = None, size: int = 0
) -> list[object] | None:
    """Operands, of which the one at `place` is a list of `size` tensors; None if constants are behind their end."""
    if any(position >= total for position in constants):
        return None
    left = iter(tensors)
    return [
        constants[position]
        if position in constants
        else list(itertools.islice(left, size))
        if position == place
        else next(left)
        for position in range(total)
    ]


def _fits(op: hlo.CustomCallOp, kernel: DeviceKernel, operands: Sequence[object], tensors: Sequence[Tensor]) -> bool:
    """Whether the simulator takes such operands, and the call aliases those that the kernel says."""
    try:
        inspect.signature(kernel.simulator).bind(*operands)
    except TypeError:
        return False
    for alias in op.output_operand_aliases.data:
        index = alias.output_tuple_indices.data
        position = kernel.operand_of_output.get(index[0].value.data if index else 0, len(operands))
        if position >= len(operands) or operands[position] is not tensors[alias.operand_index.value.data]:
            return False
    return True


CUSTOM_CALLS: Mapping[type[Operation], Evaluator] = {hlo.CustomCallOp: _custom_call}
"""What each operation gives for its operands."""
