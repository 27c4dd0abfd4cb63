"""The `torch` dialect: calls of PyTorch operators, their static arguments, and tensor constants."""

from xdsl.ir import Dialect

# The dialects refer to each other: the types of vllm_ir load first, whichever of the two is asked for.
import vllm_ir.dialects.vllm_ir  # noqa: F401  # pyright: ignore[reportUnusedImport]
from vllm_ir.dialects.torch.arguments import (
    ComplexAttr,
    DeviceAttr,
    LayoutFormatAttr,
    MemoryFormatAttr,
    NoneArgumentAttr,
    OperandAttr,
    TupleAttr,
)
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.torch.constant import ConstantOp

Torch = Dialect(
    "torch",
    [CallOp, ConstantOp],
    [ComplexAttr, DeviceAttr, LayoutFormatAttr, MemoryFormatAttr, NoneArgumentAttr, OperandAttr, TupleAttr],
)

__all__ = ["CallOp", "ConstantOp", "Torch"]
