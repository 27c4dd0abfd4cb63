"""How much of a difference between two runs rounding explains.

A module is run again with every floating-point result, and every input, moved by one unit in the last place up or down
at random. What that changes in an output is what a rounding of another kind may change too: this is Monte Carlo
arithmetic (Parker, "Monte Carlo Arithmetic", UCLA CSD-970002, 1997). Elements that an operator only moves are left
alone. The bound of an output is a small multiple of the largest change seen, so that an output which rounding cannot
reach, such as an integer or a copy, has the bound 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.interpreter.calls import Call, run_call
from vllm_ir.backends.interpreter.interpret import execute
from vllm_ir.tools.operators.observation import copied
from vllm_ir.tools.validation.observe import Observation, errors, observe

_RUNS = 4
_FACTOR = 8.0
"""Roundings of a whole chain add up to more than the few that a handful of runs meets."""


def bounds(
    module: ModuleOp, inputs: Sequence[object], expected: Observation, seed: int, *, values_only: bool
) -> list[float]:
    """For each contents of `expected`, the run of `module` on `inputs`, how far rounding may move an element.

    `inputs` are not changed; errors of perturbed runs are those of `execute`.
    """
    largest = [0.0] * len(expected.contents)
    for run in range(_RUNS):
        noise = _Noise(seed + run)
        copies = noise.perturbed_inputs(inputs)
        execution = execute(module, copies, calls=noise.call, values_only=values_only)
        seen = observe(execution, copies, values_only=values_only)
        for position, (one, other) in enumerate(zip(expected.contents, seen.contents, strict=True)):
            if one.values.dtype.is_floating_point or one.values.dtype.is_complex:
                finite = errors(one.values, other.values)
                finite = finite[finite.isfinite()]
                largest[position] = max(largest[position], float(finite.max()) if len(finite) else 0.0)
    return [_FACTOR * change for change in largest]


class _Noise:
    """Runs calls and moves what they compute by one unit in the last place."""

    def __init__(self, seed: int) -> None:
        self._random = torch.Generator().manual_seed(seed)

    def perturbed_inputs(self, inputs: Sequence[object]) -> list[object]:
        copies = copied(list(inputs))
        moved: set[int] = set()
        for value in copies:
            if isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in moved:
                moved.add(value.untyped_storage().data_ptr())
                self._move(value, None)
        return copies

    def call(self, call: Call) -> object:
        operands = [leaf for leaf in _leaves((call.args, dict(call.kwargs))) if isinstance(leaf, Tensor)]
        before = [operand.detach().clone() for operand in operands if operand.is_floating_point()]
        addresses = {operand.untyped_storage().data_ptr() for operand in operands}
        result = run_call(call)
        for leaf in _leaves(result):
            if isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() not in addresses:
                self._move(leaf, before)
        for operand, was in zip([o for o in operands if o.is_floating_point()], before, strict=True):
            if not _is_same(operand, was):
                self._move(operand, before)
        return result

    def _move(self, tensor: Tensor, sources: Sequence[Tensor] | None) -> None:
        """Move the elements of a tensor, but those that are in one of `sources`."""
        if not tensor.is_floating_point() or not tensor.numel() or tensor.dtype.itemsize == 1:
            return
        signs = torch.randint(2, tensor.shape, generator=self._random) * 2 - 1
        step = signs.to(torch.float64) * torch.finfo(tensor.dtype).eps
        wide = tensor.to(torch.float64)
        moved = (wide * (1 + step)).to(tensor.dtype)
        if sources is not None:
            if not sources:
                return  # what is made of no floating-point numbers is not rounded
            known = torch.cat([source.reshape(-1).to(torch.float64) for source in sources])
            moved = torch.where(torch.isin(wide, known), tensor, moved)
        if 0 not in tensor.stride() or tensor.numel() == 1:
            tensor.copy_(moved)


def _leaves(value: object) -> list[object]:
    return cast("list[object]", pytree.tree_leaves(value))


def _is_same(one: Tensor, other: Tensor) -> bool:
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
