"""Passes on FX graphs by name, and running them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import torch
from torch import fx
from torch._C._distributed_c10d import ProcessGroup

from vllm_ir.tools.neuron.aliasing import alias_graph
from vllm_ir.tools.neuron.device_rewriting import device_of_inputs, rewrite_devices, traced_on
from vllm_ir.tools.neuron.graphs import Metadata, Result
from vllm_ir.tools.neuron.inplace_to_outofplace import make_functional
from vllm_ir.tools.neuron.kernel_backend_config import fill_backend_configs
from vllm_ir.tools.neuron.replica_groups import resolve_replica_groups


@dataclass(frozen=True)
class _Run:
    """What the passes of one run are given beside the graph."""

    inputs: Sequence[object] | None
    device: torch.device | None
    """The target."""
    inputs_device: torch.device | None
    """Where the inputs are, if the graph is for another device."""
    group: ProcessGroup | None


FxPass: TypeAlias = Callable[[fx.GraphModule, _Run], Result]


def _devices(gm: fx.GraphModule, run: _Run) -> Result:
    return (gm, {"rewrite_count": 0}) if run.device is None else rewrite_devices(gm, run.device)


def _traced(gm: fx.GraphModule, run: _Run, function: Callable[..., Result]) -> Result:
    return traced_on(run.inputs_device, run.device, gm, lambda here: function(here, run.inputs))


FX_PASSES: Mapping[str, FxPass] = MappingProxyType(
    {
        "device-rewriting": _devices,
        "kernel-backend-config": lambda gm, _: fill_backend_configs(gm),
        "aliasing": lambda gm, run: _traced(gm, run, alias_graph),
        "in-place-to-out-of-place": lambda gm, run: _traced(gm, run, make_functional),
        "replica-groups": lambda gm, run: resolve_replica_groups(gm, run.group),
    }
)
"""Every pass on FX graphs, in the order in which they belong."""

FX_PIPELINES: Mapping[str, str] = MappingProxyType({"neuron-fx": ",".join(FX_PASSES)})
"""Named sequences of them."""


def run_fx_passes(
    gm: fx.GraphModule,
    example_inputs: Sequence[object] | None = None,
    target_device: str | torch.device | None = None,
    process_group: ProcessGroup | None = None,
    *,
    passes: str = "neuron-fx",
) -> tuple[fx.GraphModule, dict[str, Metadata]]:
    """Run passes on an FX graph; returns the new graph, and what each pass found out, by its name.

    Args:
        gm: a graph from Dynamo or another tracer. It is not changed.
        example_inputs: its inputs, real or fake, which tell what shares memory; by default the metas of placeholders.
        target_device: what all devices in the graph become; None leaves them.
        process_group: a group that collectives may name without its being registered under that name.
        passes: names of passes and pipelines, with commas between them.

    The functions of `ir.neuron` say what each pass does, its metadata and errors. When `replica-groups` is among them
    and a collective's group is not the world, all ranks must call this for the same program.

    Raises:
        ValueError: a pass does not exist; or as the passes raise.
    """
    names = _expanded(passes)
    device = None if target_device is None else torch.device(target_device)
    rewritten = device is not None and "device-rewriting" in names
    inputs_device = device_of_inputs(gm, example_inputs) if rewritten else None
    run = _Run(example_inputs, device, inputs_device, process_group)
    metadata: dict[str, Metadata] = {}
    for name in names:
        gm, metadata[name] = FX_PASSES[name](gm, run)
    return gm, metadata


def _expanded(passes: str) -> list[str]:
    names: list[str] = []
    for name in filter(None, (name.strip() for name in passes.split(","))):
        if name in FX_PIPELINES:
            names.extend(FX_PIPELINES[name].split(","))
        elif name in FX_PASSES:
            names.append(name)
        else:
            near = difflib.get_close_matches(name, [*FX_PASSES, *FX_PIPELINES], n=1)
            hint = f", did you mean {near[0]!r}?" if near else ";"
            raise ValueError(
                f"unknown pass on FX graphs {name!r}{hint} passes are {', '.join(FX_PASSES)}; "
                f"pipelines are {', '.join(FX_PIPELINES)}"
            )
    return names
