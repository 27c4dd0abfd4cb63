"""What the high-level operations share: operands that may be values or buffers, and donated operands.

An operand listed in `donated` may be overwritten by the kernel that is chosen later: whoever donates it does not read
it again. At buffer level this is an effect on the operand's storage; at tensor level the value has no later use.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TypeAlias, cast

from xdsl.dialects.builtin import AnyFloat, DenseArrayBase, IntegerType, TensorType
from xdsl.ir import Attribute, Operation
from xdsl.traits import EffectInstance, MemoryEffect, MemoryEffectKind
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.messages import operand_text, result_text
from vllm_ir.dialects.vllm_ir.types import BufferType, device_of, element_type_of, shape_of, shape_text

TensorOrBuffer: TypeAlias = TensorType[Attribute] | BufferType


class OperandEffects(MemoryEffect):
    """The op reads its buffer operands, may write those that are donated to it, and allocates its buffer results."""

    @classmethod
    def get_effects(cls, op: Operation) -> Set[EffectInstance]:
        donated = donated_indices(op)
        effects = {
            EffectInstance(MemoryEffectKind.ALLOC, result)
            for result in op.results
            if isinstance(result.type, BufferType)
        }
        for index, operand in enumerate(op.operands):
            if isinstance(operand.type, BufferType):
                effects.add(EffectInstance(MemoryEffectKind.READ, operand))
                if index in donated:
                    effects.add(EffectInstance(MemoryEffectKind.WRITE, operand))
        return effects


def donated_indices(op: Operation) -> tuple[int, ...]:
    """Operands that `op` may overwrite."""
    donated = op.properties.get("donated")
    if not isinstance(donated, DenseArrayBase):
        return ()
    return cast(DenseArrayBase[IntegerType], donated).get_values()


def verify_donated(op: Operation) -> None:
    """`donated` names operands of `op`, each once."""
    donated = donated_indices(op)
    for number, index in enumerate(donated):
        if not 0 <= index < len(op.operands):
            raise VerifyException(f"donated names operand {index} of {len(op.operands)}")
        if index in donated[:number]:
            raise VerifyException(f"donated names {operand_text(op, index)} twice")


def verify_element_type(what: str, type: Attribute, reference: str, other: Attribute) -> None:
    """Two operands or results have one element type."""
    if element_type_of(type) != element_type_of(other):
        raise VerifyException(f"{what} has element type {element_type_of(type)}, {reference} {element_type_of(other)}")


def verify_float(what: str, type: Attribute) -> None:
    """`type` has floating-point elements."""
    if not isinstance(element_type_of(type), AnyFloat):
        raise VerifyException(f"{what} has element type {element_type_of(type)}, which is not floating-point")


def verify_same_shape(what: str, type: Attribute, reference: str, other: Attribute) -> None:
    """Two operands or results have one shape."""
    if shape_of(type) != shape_of(other):
        raise VerifyException(
            f"{what} has shape {shape_text(shape_of(type))}, {reference} {shape_text(shape_of(other))}"
        )


def verify_one_device(op: Operation) -> None:
    """All operands and results of `op` are on one device."""
    devices = [(operand_text(op, index), device_of(operand.type)) for index, operand in enumerate(op.operands)]
    devices += [(result_text(op, index), device_of(result.type)) for index, result in enumerate(op.results)]
    for name, device in devices[1:]:
        if device != devices[0][1]:
            raise VerifyException(f"{name} is on {device}, {devices[0][0]} on {devices[0][1]}")
