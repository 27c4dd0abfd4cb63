"""How an op runs on real tensors: the chosen implementation, and the copies that keep it right."""

from collections.abc import Sequence

from torch import Tensor

from vllm_ir.frontends.ops.impl import IrOpImpl
from vllm_ir.frontends.ops.memory import copied, fresh, separated, tensors_in, without_overlap
from vllm_ir.frontends.ops.torch_library import as_results


def run_functional(impl: IrOpImpl, args: Sequence[object], activations: Sequence[int]) -> tuple[Tensor, ...]:
    """Run an implementation such that no argument changes and every result has a storage of its own."""
    operands = copied(args, activations) if impl.inplace else list(args)
    return fresh(_call(impl, operands), tensors_in(args))


def run_donating(impl: IrOpImpl, args: Sequence[object], activations: Sequence[int]) -> tuple[Tensor, ...]:
    """Run an implementation that may overwrite the activations and give them back as results.

    An activation that the implementation must not overwrite, because another argument would change with it, is copied
    first. Results share memory with no argument but the activations, and not with one another.
    """
    if not impl.inplace:
        return run_functional(impl, args, activations)
    operands = separated(args, activations)
    others = [arg for position, arg in enumerate(args) if position not in activations]
    return without_overlap(_call(impl, operands), tensors_in(others))


def _call(impl: IrOpImpl, operands: Sequence[object]) -> tuple[Tensor, ...]:
    described = f"vllm_ir.{impl.op_name}: provider {impl.provider!r} ({impl.location})"
    return as_results(impl.fn(*operands), impl.result_count, described)
