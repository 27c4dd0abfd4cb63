"""Compiled graphs without gradients, and when they may run: on arguments that lie in memory as theirs did."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from vllm_ir.frontends.fx.attributes import graph_tensors
from vllm_ir.tools.lowering import without_values
from vllm_ir.tools.offsets import PlacedCall
from vllm_ir.tools.overlap import (
    Arrangement,
    ArrangementCheck,
    CheckedCall,
    can_overlap,
    overlapping_pairs,
    same_window,
)
from vllm_ir.tools.torch_internals import has_address, switches_gradients_on

Compiled = Callable[..., object]


@dataclass(frozen=True)
class Artifact:
    """A compiled graph without gradients."""

    call: Compiled
    """Takes the graph's inputs, followed by the module attributes that it uses."""
    attributes: tuple[str, ...]
    written: frozenset[int]
    """Positions of the arguments of `call` whose contents it changes."""
    overlapping: list[list[int]]
    """Groups of arguments that share memory."""
    places_windows: bool = False
    """Whether it depends on where the arguments begin in their storages."""


Build = Callable[[fx.GraphModule, Sequence[object]], Artifact]
"""Compiles a graph for inputs; may be called again later, with inputs that lie differently in memory."""


def compile_direct(gm: fx.GraphModule, inputs: Sequence[object], build: Build) -> Compiled:
    """Compile a graph without gradients: the IR knows all that it does to its arguments."""
    if _overlap_with_dynamic_sizes(inputs):
        return _for_each_arrangement(gm, build)
    artifact = build(gm, inputs)
    fetch = _attribute_getter(gm, artifact.attributes)
    arguments = (*inputs, *fetch())
    call = _checked(artifact, gm, arguments, build)
    if artifact.places_windows:
        call = _placed(call, artifact, gm, arguments, build)
    return call if not artifact.attributes else lambda *arguments: call(*arguments, *fetch())


def needs_autograd(gm: fx.GraphModule, inputs: Sequence[object]) -> bool:
    """Whether a graph has to go through AOTAutograd: something in it may need gradients or is a tensor subclass."""
    tensors = [value for value in (*inputs, *graph_tensors(gm).tensors) if isinstance(value, Tensor)]
    if any(map(is_traceable_wrapper_subclass, tensors)):
        return True
    gradients = torch.is_grad_enabled() or switches_gradients_on(gm)
    return gradients and any(tensor.requires_grad for tensor in tensors)


def static_inputs(gm: fx.GraphModule) -> list[int]:
    """Inputs of a Dynamo graph whose address stays the same: parameters and buffers of modules."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    return [
        i for i, node in enumerate(placeholders) if node.meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
    ]


def _overlap_with_dynamic_sizes(inputs: Sequence[object]) -> bool:
    """Whether inputs of symbolic sizes are different windows onto the same memory, so only sizes tell how."""
    if not any(isinstance(value, torch.SymInt) for value in inputs) or not can_overlap(inputs):
        return False
    pairs = ((inputs[left], inputs[right]) for left, right in overlapping_pairs(inputs))
    return any(not same_window(cast(Tensor, left), cast(Tensor, right)) for left, right in pairs)


def _for_each_arrangement(gm: fx.GraphModule, build: Build) -> Compiled:
    """Compile once for every size that the arguments come in, when they do."""
    original = without_values(gm)

    def compile_for(arguments: Sequence[object]) -> Compiled:
        return compile_direct(without_values(original), arguments, build)

    return CheckedCall(None, None, compile_for, original.forward)


def _checked(artifact: Artifact, gm: fx.GraphModule, arguments: Sequence[object], build: Build) -> Compiled:
    """Compare addresses at each call; compile once more for arguments that lie differently in memory."""
    if not (artifact.written or artifact.overlapping) or not can_overlap(arguments):
        return artifact.call
    count = len(arguments) - len(artifact.attributes)

    def compile_for(others: Sequence[object]) -> Compiled:
        return build(without_values(gm), others[:count]).call

    check = ArrangementCheck(Arrangement.of(arguments, artifact.written, artifact.overlapping), arguments)
    return CheckedCall(artifact.call, check, compile_for, lambda *others: gm.forward(*others[:count]))


def _placed(
    call: Compiled, artifact: Artifact, gm: fx.GraphModule, arguments: Sequence[object], build: Build
) -> Compiled:
    """Compare offsets at each call; compile once more for arguments that begin elsewhere in their storages."""
    if not all(map(has_address, (value for value in arguments if isinstance(value, Tensor)))):
        return call
    count = len(arguments) - len(artifact.attributes)

    def compile_for(others: Sequence[object]) -> Compiled:
        return _checked(build(without_values(gm), others[:count]), gm, others, build)

    return PlacedCall(call, arguments, compile_for, lambda *others: gm.forward(*others[:count]))


def _attribute_getter(gm: fx.GraphModule, names: Sequence[str]) -> Callable[[], Sequence[object]]:
    """Reads module attributes; at every call, because a program may put other tensors in their place."""
    if not names:
        return tuple
    get = operator.attrgetter(*names)
    return (lambda: get(gm)) if len(names) > 1 else (lambda: (get(gm),))
