"""All conversions by operator, and the operators that are refused whatever their arguments are."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_ir.conversions.convert_to_stablehlo import (
    attention,
    casts,
    collectives,
    complex_numbers,
    convolution,
    creation,
    cumulative,
    elementwise,
    grouped,
    indexing,
    matmul,
    pooling,
    powers,
    prims,
    reductions,
    scalars,
    scans,
    scatter,
    shapes,
    sorting,
    special_functions,
    writes,
)
from vllm_ir.conversions.convert_to_stablehlo.builder import Converter
from vllm_ir.conversions.convert_to_stablehlo.control_flow import HIGHER_ORDER

FAMILIES = (
    attention,
    casts,
    collectives,
    complex_numbers,
    convolution,
    creation,
    cumulative,
    elementwise,
    grouped,
    indexing,
    matmul,
    pooling,
    powers,
    prims,
    reductions,
    scalars,
    scans,
    scatter,
    shapes,
    sorting,
    special_functions,
    writes,
)
"""Modules with a table `CONVERSIONS` each."""


def _merged() -> dict[str, Converter]:
    table: dict[str, Converter] = {}
    for family in FAMILIES:
        for name, convert in family.CONVERSIONS.items():
            if name in table:
                raise ValueError(f"{name} has two conversions")
            table[name] = convert
    return table


CONVERSIONS: Mapping[str, Converter] = _merged()
"""Converters by name of the operator: `aten.add.Tensor`."""

REJECTIONS: Mapping[str, str] = {**indexing.REJECTIONS}
"""Operators that PyTorch would decompose, but not to something that is right here; with the reason."""

__all__ = ["CONVERSIONS", "FAMILIES", "HIGHER_ORDER", "REJECTIONS"]
