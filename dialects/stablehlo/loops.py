"""`stablehlo.while`, in place of that of xdsl-jax, which prints the names of the arguments of one region only."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType, i1
from xdsl.ir import Attribute, Operation
from xdsl.irdl import IRDLOperation, irdl_op_definition, region_def, traits_def, var_operand_def, var_result_def
from xdsl.traits import RecursiveMemoryEffect
from xdsl.utils.exceptions import VerifyException


@irdl_op_definition
class WhileOp(IRDLOperation):
    """The operands, after `body` has been applied to them as long as `cond` holds for them."""

    name = "stablehlo.while"

    operand = var_operand_def(Attribute)
    res = var_result_def(Attribute)
    cond = region_def("single_block")
    body = region_def("single_block")

    traits = traits_def(RecursiveMemoryEffect())

    def verify_(self) -> None:
        """Both regions take what the operands are, `cond` gives one boolean, and `body` what it takes."""
        types = list(self.operand_types)
        for name, given in (
            ("results", self.result_types),
            ("arguments of cond", self.cond.block.arg_types),
            ("arguments of body", self.body.block.arg_types),
            ("values that body returns", _returned(self.body.block.last_op)),
        ):
            if list(given) != types:
                raise VerifyException(f"{name} have types ({_text(given)}), the operands ({_text(types)})")
        if _returned(self.cond.block.last_op) != [TensorType(i1, [])]:
            raise VerifyException(f"cond returns ({_text(_returned(self.cond.block.last_op))}), expected tensor<i1>")


def _returned(last: Operation | None) -> list[Attribute]:
    return list(last.operand_types) if last is not None and last.name == "stablehlo.return" else []


def _text(types: Sequence[Attribute]) -> str:
    return ", ".join(map(str, types))
