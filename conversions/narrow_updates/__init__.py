"""`narrow-updates`: StableHLO that updates parts of parts of a tensor updates the tensor instead."""

from vllm_ir.conversions.narrow_updates.narrow_updates import NarrowUpdatesPass

__all__ = ["NarrowUpdatesPass"]
