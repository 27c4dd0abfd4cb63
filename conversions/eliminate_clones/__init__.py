"""Updates in place by proof."""

from vllm_ir.conversions.eliminate_clones.eliminate_clones import CLONES, EliminateClonesPass

__all__ = ["CLONES", "EliminateClonesPass"]
