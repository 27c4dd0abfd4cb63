"""The fusions that are always there, a family per file."""

from vllm_ir.conversions.fusion.catalog import (
    activation_quant,
    add_rms_norm,
    all_reduce_norm,
    attention_quant,
    gated_norm,
    mla,
    mrope,
    norm_pad,
    recognize_cache_update,
    recognize_gated_activations,
    recognize_grouped_attention,
    recognize_rms_norm,
    recognize_rotary,
    rms_norm_quant,
    rms_norm_reshape,
    rope,
    rope_cache_quant,
)
from vllm_ir.conversions.fusion.fusion import Fusion

FUSIONS: tuple[Fusion, ...] = (
    *recognize_rms_norm.FUSIONS,
    *recognize_gated_activations.FUSIONS,
    *recognize_rotary.FUSIONS,
    *recognize_grouped_attention.FUSIONS,
    *recognize_cache_update.FUSIONS,
    *add_rms_norm.FUSIONS,
    *rms_norm_reshape.FUSIONS,
    *rms_norm_quant.FUSIONS,
    *norm_pad.FUSIONS,
    *gated_norm.FUSIONS,
    *all_reduce_norm.FUSIONS,
    *activation_quant.FUSIONS,
    *rope.FUSIONS,
    *mrope.FUSIONS,
    *rope_cache_quant.FUSIONS,
    *mla.FUSIONS,
    *attention_quant.FUSIONS,
)
"""All of them. The order says nothing: it is derived from what they consist of."""
