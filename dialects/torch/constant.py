"""Tensor constants that tracing lifted out of a program."""

import math

from xdsl.dialects.builtin import DYNAMIC_INDEX, StringAttr, TensorType
from xdsl.ir import Attribute
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from vllm_ir.dialects.vllm_ir.types import byte_size, element_type_of, shape_of, shape_text


@irdl_op_definition
class ConstantOp(IRDLOperation):
    """A tensor whose elements are given as bytes, little-endian, row-major, in hexadecimal."""

    name = "torch.constant"

    data = prop_def(StringAttr)
    result = result_def(TensorType[Attribute])

    traits = traits_def(Pure())
    assembly_format = "$data attr-dict `:` type($result)"

    def verify_(self) -> None:
        """The text is hexadecimal and has the bytes of every element."""
        text = self.data.data
        if len(text) % 2 or not set(text) <= set("0123456789abcdef"):
            raise VerifyException(f"data {text[:16]!r} is not a string of lower-case hexadecimal bytes")
        shape = shape_of(self.result.type)
        if DYNAMIC_INDEX in shape:
            raise VerifyException(f"the constant has the dynamic shape {shape_text(shape)}")
        needed = math.prod(shape) * byte_size(element_type_of(self.result.type))
        if len(text) != 2 * needed:
            raise VerifyException(f"data has {len(text) // 2} bytes, {self.result.type} needs {needed}")
