"""Our dialects, passes and targets for plain `xdsl-opt`, which finds them through an entry point."""

from xdsl.universe import Universe

from vllm_ir.dialects.context import OUR_DIALECTS
from vllm_ir.tools.pipelines import TORCH_PASSES
from vllm_ir.tools.targets import OUR_TARGETS

VLLM_IR_UNIVERSE = Universe(
    all_dialects=dict(OUR_DIALECTS),
    all_passes=dict(TORCH_PASSES),
    all_targets=dict(OUR_TARGETS),
)
