"""Device kernels: `stablehlo.custom_call @AwsNeuronCustomNativeKernel`.

Inputs are the operands that are tensors, in their order; other operands are constants of the kernel and stand in its
configuration. Outputs are those of the kernel, in its order, and those that are operands are stated as such
(`output_operand_aliases`): the operand is read, and its memory gets the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects.builtin import I64, ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.conversions.convert_to_stablehlo.builder import Builder, Rejected
from vllm_ir.dialects import stablehlo
from vllm_ir.dialects.torch.arguments import operand_indices
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.values import is_sequence
from vllm_ir.frontends.ops.device_kernels.calls import decode_backend_config, encode_backend_config
from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel
from vllm_ir.frontends.ops.device_kernels.operators import kernel_of
from vllm_ir.frontends.ops.device_kernels.signature import NAMESPACE

KERNELS = f"{NAMESPACE}."
"""What the names of the operators of kernels begin with."""

TARGET = "AwsNeuronCustomNativeKernel"


def convert_kernel(
    b: Builder, *operands: object, grid: Sequence[object], backend_config: str | None = None
) -> Sequence[SSAValue]:
    """The new outputs of a kernel, then the new values of the operands that it writes."""
    call, kernel = _called(b)
    inputs, places = _inputs(operands)
    count = len(b.results)
    written = _written(call, kernel)
    # Results of the call are the new outputs, then the updates; those of the kernel are in its own order.
    fresh = iter(range(count - len(written)))
    order = [
        count - len(written) + written.index(kernel.operand_of_output[output])
        if output in kernel.operand_of_output
        else next(fresh)
        for output in range(count)
    ]
    config = backend_config if backend_config is not None else _config(kernel, grid, operands)
    aliases = [
        stablehlo.OutputOperandAlias(
            _numbers(*([output] if count > 1 else [])), IntegerAttr(places[operand], i64), _numbers()
        )
        for output, operand in sorted(kernel.operand_of_output.items())
    ]
    properties: dict[str, Attribute] = {
        "call_target_name": StringAttr(TARGET),
        "backend_config": StringAttr(config),
        "output_operand_aliases": ArrayAttr(aliases),
    }
    outputs = b.emit_all(stablehlo.CustomCallOp, inputs, [b.results[number] for number in order], properties)
    if _has_collectives(config) and isinstance(emitted := b.block.last_op, stablehlo.CustomCallOp):
        # The compiler must not take two kernels that communicate out of order.
        emitted.attributes["mhlo.frontend_attributes"] = DictionaryAttr({"has_collectives": StringAttr("1")})
    results = dict(zip(order, outputs, strict=True))
    return [results[number] for number in range(count)]


def _numbers(*numbers: int) -> ArrayAttr[IntegerAttr[I64]]:
    return ArrayAttr([IntegerAttr(number, i64) for number in numbers])


def _called(b: Builder) -> tuple[CallOp, DeviceKernel]:
    call = b.source
    target = resolve(call.target) if isinstance(call, CallOp) else None
    kernel = kernel_of(target) if is_overload(target) else None
    if not isinstance(call, CallOp) or kernel is None:
        raise TypeError(f"{call} is no call of a device kernel")
    return call, kernel


def _inputs(operands: Sequence[object]) -> tuple[list[SSAValue], dict[int, int]]:
    """The values among the operands, and for operands that are values their place in that list."""
    inputs: list[SSAValue] = []
    places: dict[int, int] = {}
    for position, operand in enumerate(operands):
        if is_sequence(operand):
            inputs.extend(cast(SSAValue, item) for item in operand if isinstance(item, SSAValue))
        elif isinstance(operand, SSAValue):
            places[position] = len(inputs)
            inputs.append(cast(SSAValue, operand))
    return inputs, places


def _written(call: CallOp, kernel: DeviceKernel) -> list[int]:
    """The operands that the kernel writes, in the order in which the call gives their new values."""
    trees = call.arguments()
    positions = {index: position for position in kernel.aliases for index in operand_indices([trees[position]])}
    written = [positions[index] for index in call.update_indices]
    if len(written) != len(kernel.aliases):
        raise Rejected("two operands that it writes are one tensor; pass a clone")
    return written


def _config(kernel: DeviceKernel, grid: Sequence[object], operands: Sequence[object]) -> str:
    try:
        return encode_backend_config(kernel, grid, operands)
    except ValueError as error:
        raise Rejected(str(error)) from error


def _has_collectives(config: str) -> bool:
    try:
        return bool(cast(object, decode_backend_config(config).get("has_collectives")))
    except ValueError as error:
        raise Rejected(str(error)) from error
