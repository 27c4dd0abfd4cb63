"""The StableHLO dialect: that of xdsl-jax, and the operations that it lacks, one family per file.

Ours print in the generic form, which the official parser reads as well.
"""

from __future__ import annotations

from xdsl.ir import Dialect

try:
    from xdsl_jax.dialects.stablehlo import StableHLO as _Base
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"StableHLO needs the package {error.name!r}; install the extra: pip install 'vllm_ir[stablehlo]'",
        name=error.name,
    ) from error

from xdsl_jax.dialects.stablehlo.attributes import (
    ComparisonDirection,
    ComparisonDirectionAttr,
    DotAttr,
    GatherDimensionNumbers,
    OutputOperandAlias,
    ScatterDimensionNumbers,
)
from xdsl_jax.dialects.stablehlo.control_flow_ops import (
    AfterAllOp,
    CaseOp,
    IfOp,
    OptimizationBarrierOp,
)
from xdsl_jax.dialects.stablehlo.data_movement_ops import (
    BroadcastInDimOp,
    ConcatenateOp,
    ReshapeOp,
    TransposeOp,
)
from xdsl_jax.dialects.stablehlo.dynamism_ops import (
    DynamicBroadcastInDimOp,
)
from xdsl_jax.dialects.stablehlo.elementwise_binary_ops import (
    AddOp,
    AndOp,
    Atan2Op,
    ComplexOp,
    DivideOp,
    MaximumOp,
    MinimumOp,
    MultiplyOp,
    OrOp,
    PowerOp,
    RemainderOp,
    ShiftLeftOp,
    ShiftRightArithmeticOp,
    ShiftRightLogicalOp,
    SubtractOp,
    XorOp,
)
from xdsl_jax.dialects.stablehlo.elementwise_other_ops import (
    BitcastConvertOp,
    ClampOp,
    CompareOp,
    MapOp,
    ReducePrecisionOp,
    SelectOp,
)
from xdsl_jax.dialects.stablehlo.elementwise_unary_ops import (
    AbsOp,
    CbrtOp,
    CeilOp,
    ConvertOp,
    CosineOp,
    CountLeadingZerosOp,
    ExponentialMinusOneOp,
    ExponentialOp,
    FloorOp,
    ImagOp,
    IsFiniteOp,
    LogisticOp,
    LogOp,
    LogPlusOneOp,
    NegateOp,
    NotOp,
    PopcntOp,
    RealOp,
    RoundNearestAfzOp,
    RoundNearestEvenOp,
    RsqrtOp,
    SignOp,
    SineOp,
    SqrtOp,
    TanhOp,
    TanOp,
)
from xdsl_jax.dialects.stablehlo.extensibility_ops import (
    CustomCallOp,
)
from xdsl_jax.dialects.stablehlo.miscellaneous_ops import (
    ConstantOp,
    IotaOp,
)
from xdsl_jax.dialects.stablehlo.modularity_ops import (
    ReturnOp,
)
from xdsl_jax.dialects.stablehlo.reduction_ops import (
    DotGeneralOp,
    ReduceOp,
)

from vllm_ir.dialects.stablehlo.collectives import (
    AllGatherOp,
    AllReduceOp,
    AllToAllOp,
    ChannelHandleAttr,
    CollectiveBroadcastOp,
    CollectivePermuteOp,
    PartitionIdOp,
    ReduceScatterOp,
    ReplicaIdOp,
)
from vllm_ir.dialects.stablehlo.convolution import ConvDimensionsAttr, ConvolutionOp
from vllm_ir.dialects.stablehlo.loops import WhileOp
from vllm_ir.dialects.stablehlo.ordering import ReverseOp, SortOp
from vllm_ir.dialects.stablehlo.padding import PadOp
from vllm_ir.dialects.stablehlo.parts import DynamicSliceOp, GatherOp, ScatterOp, SliceOp
from vllm_ir.dialects.stablehlo.updates import DynamicUpdateSliceOp
from vllm_ir.dialects.stablehlo.windows import ReduceWindowOp, SelectAndScatterOp

_REPLACED = tuple(op.name for op in (DynamicSliceOp, GatherOp, PadOp, ScatterOp, SliceOp, WhileOp))

StableHlo = Dialect(
    "stablehlo",
    [
        *(operation for operation in _Base.operations if operation.name not in _REPLACED),
        AllGatherOp,
        AllReduceOp,
        AllToAllOp,
        CollectiveBroadcastOp,
        CollectivePermuteOp,
        ConvolutionOp,
        DynamicSliceOp,
        DynamicUpdateSliceOp,
        GatherOp,
        PadOp,
        PartitionIdOp,
        ReduceScatterOp,
        ReduceWindowOp,
        ReplicaIdOp,
        ReverseOp,
        ScatterOp,
        SelectAndScatterOp,
        SliceOp,
        SortOp,
        WhileOp,
    ],
    [*_Base.attributes, ChannelHandleAttr, ConvDimensionsAttr],
)

__all__ = [
    "AbsOp",
    "AddOp",
    "AfterAllOp",
    "AllGatherOp",
    "AllReduceOp",
    "AllToAllOp",
    "AndOp",
    "Atan2Op",
    "BitcastConvertOp",
    "BroadcastInDimOp",
    "CaseOp",
    "CbrtOp",
    "CeilOp",
    "ChannelHandleAttr",
    "ClampOp",
    "CollectiveBroadcastOp",
    "CollectivePermuteOp",
    "CompareOp",
    "ComparisonDirection",
    "ComparisonDirectionAttr",
    "ComplexOp",
    "ConcatenateOp",
    "ConstantOp",
    "ConvDimensionsAttr",
    "ConvertOp",
    "ConvolutionOp",
    "CosineOp",
    "CountLeadingZerosOp",
    "CustomCallOp",
    "DivideOp",
    "DotAttr",
    "DotGeneralOp",
    "DynamicBroadcastInDimOp",
    "DynamicSliceOp",
    "DynamicUpdateSliceOp",
    "ExponentialMinusOneOp",
    "ExponentialOp",
    "FloorOp",
    "GatherDimensionNumbers",
    "GatherOp",
    "IfOp",
    "ImagOp",
    "IotaOp",
    "IsFiniteOp",
    "LogOp",
    "LogPlusOneOp",
    "LogisticOp",
    "MapOp",
    "MaximumOp",
    "MinimumOp",
    "MultiplyOp",
    "NegateOp",
    "NotOp",
    "OptimizationBarrierOp",
    "OrOp",
    "OutputOperandAlias",
    "PadOp",
    "PartitionIdOp",
    "PopcntOp",
    "PowerOp",
    "RealOp",
    "ReduceOp",
    "ReducePrecisionOp",
    "ReduceScatterOp",
    "ReduceWindowOp",
    "RemainderOp",
    "ReplicaIdOp",
    "ReshapeOp",
    "ReturnOp",
    "ReverseOp",
    "RoundNearestAfzOp",
    "RoundNearestEvenOp",
    "RsqrtOp",
    "ScatterDimensionNumbers",
    "ScatterOp",
    "SelectAndScatterOp",
    "SelectOp",
    "ShiftLeftOp",
    "ShiftRightArithmeticOp",
    "ShiftRightLogicalOp",
    "SignOp",
    "SineOp",
    "SliceOp",
    "SortOp",
    "SqrtOp",
    "StableHlo",
    "SubtractOp",
    "TanOp",
    "TanhOp",
    "TransposeOp",
    "WhileOp",
    "XorOp",
]
