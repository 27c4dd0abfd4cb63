"""How an op runs on real tensors: the chosen implementation, and the copies that keep it right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from vllm_ir.frontends.ops.memory import copied, fresh, lie_apart, separated, tensors_in, without_overlap
from vllm_ir.frontends.ops.torch_library import as_results

if TYPE_CHECKING:
    from vllm_ir.frontends.ops.impl import IrOpImpl


def run_functional(impl: IrOpImpl, args: Sequence[object]) -> tuple[Tensor, ...]:
    """Run an implementation such that no argument changes and every result has a storage of its own.

    Only the activations that the implementation writes are copied.
    """
    operands = copied(args, impl.written_indices) if impl.inplace else list(args)
    return fresh(results_of(impl, impl.impl_fn(*operands)), tensors_in(args))


def run_donating(impl: IrOpImpl, args: Sequence[object]) -> tuple[Tensor, ...]:
    """Run an implementation that may overwrite the activations and give them back as results.

    An activation that the implementation must not overwrite, because another argument would change with it, is copied
    first. Results share memory with no argument but the activations that were written, and not with one another.
    """
    if not impl.inplace:
        return run_functional(impl, args)
    written = impl.written_indices
    apart = lie_apart(args)
    operands = list(args) if apart else separated(args, written)
    if torch.is_grad_enabled():
        # A kernel may write without telling autograd, which has to notice that what it saved is gone.
        given = [operands[index] for index in written]
        torch.autograd.graph.increment_version([t for t in given if isinstance(t, Tensor) and not t.is_inference()])
    results = results_of(impl, impl.impl_fn(*operands))
    return beside_written(impl, results, args) if apart else _without_unwritten(impl, results, args)


def beside_written(impl: IrOpImpl, results: tuple[Tensor, ...], args: Sequence[object]) -> tuple[Tensor, ...]:
    """The results, none with memory in common with another one or an argument that is not written."""
    written = impl.written_indices
    if _are_different(results, [args[position] for position in written]):
        return results
    return _without_unwritten(impl, results, args)


def _without_unwritten(impl: IrOpImpl, results: tuple[Tensor, ...], args: Sequence[object]) -> tuple[Tensor, ...]:
    """The results, copied where one has memory in common with another one or an argument that is not written."""
    written = impl.written_indices
    return without_overlap(results, tensors_in(arg for position, arg in enumerate(args) if position not in written))


def _are_different(results: Sequence[Tensor], written: Sequence[object]) -> bool:
    """Whether the results are written arguments themselves, none of them twice."""
    found = {id(result) for result in results}
    return len(found) == len(results) and found <= set(map(id, written))


def run_traced(impl: IrOpImpl, args: Sequence[Any]) -> tuple[Any, ...]:  # Any: what tracers put in tensors' places
    """`run_functional` in code that a tracer follows, where storages cannot be compared.

    A result that is an argument itself is copied; one that is a view of an argument stays a view.
    """
    operands = [arg.clone() if index in impl.written_indices else arg for index, arg in enumerate(args)]
    results = impl.impl_fn(*operands)
    several = cast("tuple[Any, ...]", results if isinstance(results, tuple) else (results,))
    return tuple(result.clone() if any(result is arg for arg in args) else result for result in several)


def results_of(impl: IrOpImpl, value: object) -> tuple[Tensor, ...]:
    """What an implementation gave back, as a tuple; TypeError if it is not what the op gives."""
    if isinstance(value, Tensor) and impl.op.result_count == 1:
        return (value,)
    described = f"vllm_ir.{impl.op_name}: provider {impl.provider!r} ({impl.location})"
    return as_results(value, impl.op.result_count, described)
