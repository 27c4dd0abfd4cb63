"""`kernel-backend-config`: what code generation needs to know about each call of a kernel, in the graph."""

from __future__ import annotations

from torch import fx

from vllm_ir.frontends.ops.device_kernels.calls import encode_backend_config, kernel_call
from vllm_ir.frontends.ops.device_kernels.launch import launch
from vllm_ir.tools.neuron.graphs import Result, copied, graphs_in, where


def fill_backend_configs(gm: fx.GraphModule) -> Result:
    """A copy of `gm` in which each call of a device kernel has a `backend_config`.

    That is base64 of JSON, with the kernel's name (`func`), `grid`, `has_collectives`, the operands that are
    `constants`, and the entries that the kernel was declared with. Calls that have one keep it. A call as Dynamo
    records it also gets `operand_output_aliases`, `{operand: output}`: positions among all operands.

    Metadata: `kernel_call_count`, and `kernels`: for each call, by the node's name, the kernel and its aliases.

    Raises:
        ValueError: a kernel is not declared in this process, or a grid is not constant; node, file and line are named.
    """
    gm = copied(gm)
    kernels: dict[str, object] = {}
    for module in graphs_in(gm):
        for node in module.graph.nodes:
            try:
                call = kernel_call(node)
                if call is None:
                    continue
                config = call.backend_config or encode_backend_config(call.kernel, call.grid, call.operands)
            except (KeyError, ValueError) as error:
                reason = str(error.args[0]) if error.args else str(error)
                raise ValueError(f"{where(node)}: {reason}") from error
            kwargs = {**node.kwargs, "backend_config": config}
            if node.target is launch:
                kwargs["operand_output_aliases"] = dict(call.kernel.aliases)
            node.kwargs = kwargs
            kernels[node.name] = {"name": call.kernel.name, "operand_output_aliases": dict(call.kernel.aliases)}
        module.recompile()
    return gm, {"kernel_call_count": len(kernels), "kernels": kernels}
