"""The `vllm_ir` dialect: functions, memory, and the high-level operations with their declared semantics."""

from xdsl.ir import Dialect

from vllm_ir.dialects.vllm_ir.activations import GeluAndMulOp, SiluAndMulOp
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, RelayoutOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.norms import FusedAddRmsNormOp, RmsNormOp
from vllm_ir.dialects.vllm_ir.rope import RotaryEmbeddingOp
from vllm_ir.dialects.vllm_ir.types import BufferType, LayoutAttr

VllmIr = Dialect(
    "vllm_ir",
    [
        AllocOp,
        FuncOp,
        FusedAddRmsNormOp,
        GeluAndMulOp,
        ReadOp,
        RelayoutOp,
        ReturnOp,
        RmsNormOp,
        RotaryEmbeddingOp,
        SiluAndMulOp,
        ViewOp,
        WriteOp,
    ],
    [BufferType, LayoutAttr],
)

__all__ = ["BufferType", "FuncOp", "LayoutAttr", "ReturnOp", "VllmIr"]
