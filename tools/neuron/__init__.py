"""Neuron's stage on FX graphs, as passes of this product: `ir.neuron`.

Each pass takes a graph and returns a graph and what it found out; `run_fx_passes` runs them in order.
"""

from vllm_ir.frontends.distributed.module_groups import resolve_module as attach_replica_groups
from vllm_ir.frontends.distributed.replica_groups import ReplicaGroupError
from vllm_ir.tools.neuron.aliasing import alias_graph
from vllm_ir.tools.neuron.device_rewriting import rewrite_devices
from vllm_ir.tools.neuron.inplace_to_outofplace import make_functional
from vllm_ir.tools.neuron.kernel_backend_config import fill_backend_configs
from vllm_ir.tools.neuron.pipeline import FX_PASSES, FX_PIPELINES, run_fx_passes
from vllm_ir.tools.neuron.replica_groups import resolve_replica_groups

__all__ = [
    "FX_PASSES",
    "FX_PIPELINES",
    "ReplicaGroupError",
    "alias_graph",
    "attach_replica_groups",
    "fill_backend_configs",
    "make_functional",
    "resolve_replica_groups",
    "rewrite_devices",
    "run_fx_passes",
]
