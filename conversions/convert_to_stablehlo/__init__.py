"""`convert-to-stablehlo`: pure functions as StableHLO; one family of operators per file, merged in `table.py`."""

from vllm_ir.conversions.convert_to_stablehlo.convert_to_stablehlo import ConvertToStablehloPass

__all__ = ["ConvertToStablehloPass"]
