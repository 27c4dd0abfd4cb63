"""Programs for several ranks, each compiled for its rank and run on threads that stand for the ranks."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr

import vllm_ir as ir
from vllm_ir.backends.interpreter.collectives import SimulatedGroup
from vllm_ir.backends.interpreter.interpret import execute
from vllm_ir.frontends.distributed.group_places import Place, set_group_places

Program = Callable[..., object]
Inputs = Sequence[Sequence[Tensor]]
GROUP = "tp"


def compiled(program: Program | str, inputs: Sequence[Tensor], place: Place, passes: str) -> ModuleOp:
    """The program for one rank, as values behind `passes`, which are verified one by one."""
    module = ir.parse(program) if isinstance(program, str) else ir.import_callable(program, *inputs)
    set_group_places(module, {GROUP: place})
    return ir.run_passes(module, "functionalize" + (passes and f",{passes}"), verify_each=True)


def on_ranks(program: Program | str, inputs: Inputs, passes: str) -> tuple[list[ModuleOp], list[list[Tensor]]]:
    """The modules in front of `lower`, and what each rank gets behind it."""
    places = [Place(len(inputs), rank) for rank in range(len(inputs))]
    if passes:
        modules = [compiled(program, given, place, passes) for given, place in zip(inputs, places, strict=True)]
    else:
        modules = [compiled(program, inputs[0], places[0], passes)] * len(inputs)
    # What differs from rank to rank is not in a program that nothing was done to.
    lowered = [ir.run_passes(module.clone(), "lower,eliminate-clones") for module in dict.fromkeys(modules)]
    lowered *= len(inputs) // len(lowered)

    def run(rank: int, calls: Callable[..., object]) -> list[Tensor]:
        copies = [value.clone() for value in inputs[rank]]
        result = execute(lowered[rank], copies, calls=calls).result
        return [result] if isinstance(result, Tensor) else list(result)

    return modules, SimulatedGroup(len(inputs)).run(run)


def same_bits(results: Sequence[Sequence[Tensor]], expected: Sequence[Sequence[Tensor]]) -> bool:
    """Whether all ranks have the same results, bit for bit."""
    pairs = [pair for ours, theirs in zip(results, expected, strict=True) for pair in zip(ours, theirs, strict=True)]
    return all(_equal(*pair) for pair in pairs)


def _equal(one: Tensor, other: Tensor) -> bool:
    alike = one.dtype == other.dtype and one.shape == other.shape and one.stride() == other.stride()
    return alike and torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))


def notes(module: ModuleOp, name: str) -> list[str]:
    """What a pass has noted on a module."""
    found = module.attributes.get(f"vllm_ir.{name}", ArrayAttr([]))
    assert isinstance(found, ArrayAttr)
    return [entry.data for entry in found.data if isinstance(entry, StringAttr)]


def count(module: ModuleOp, text: str) -> int:
    """How often a text is in the functions of a module."""
    return sum(str(function).count(text) for function in module.body.block.ops)
