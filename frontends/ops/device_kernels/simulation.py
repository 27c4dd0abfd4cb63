"""Running simulators, and comparing what they do with what was declared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from vllm_ir.frontends.fx.torch_internals import hint
from vllm_ir.frontends.ops.device_kernels.kernel import DeviceKernel, Simulator
from vllm_ir.frontends.ops.device_kernels.torch_internals import version, without_modes
from vllm_ir.frontends.ops.memory import tensors_in
from vllm_ir.frontends.ops.torch_internals import storage_id


class Outputs(NamedTuple):
    """What a simulator returned."""

    fresh: tuple[Tensor, ...]
    """The outputs that are new tensors."""
    several: bool
    """Whether it returned a tuple, perhaps of one."""


class Form(NamedTuple):
    """What the outputs of a call are, as far as it is known before the call."""

    fresh: int
    several: bool


def simulate(kernel: DeviceKernel, operands: Sequence[object]) -> Outputs:
    """Run the simulator on real tensors: aliased operands are written.

    Raises:
        TypeError: it returned something else than tensors.
        ValueError: it wrote or returned other tensors than were declared.
    """
    found = _run_and_check_writes(kernel, kernel.simulator, operands)
    for operand, output in kernel.aliases.items():
        expected = operands[operand]
        got = found.outputs[output]
        if not isinstance(expected, Tensor) or not _same_window(expected, got):
            raise KernelOutputError(
                f"{kernel.describe()}: output {output} is not operand {operand}, as operand_output_aliases says; "
                "the simulator must write the operand in place and return it"
            )
    return _fresh(kernel, operands, found)


def simulate_fakes(kernel: DeviceKernel, operands: Sequence[object]) -> tuple[Tensor, ...]:
    """The new outputs of a call on tensors without data; errors as for `simulate`."""
    return _fresh(kernel, operands, _run(kernel, kernel.fake or kernel.simulator, operands)).fresh


def form_of(kernel: DeviceKernel, operands: Sequence[object]) -> Form:
    """How many new outputs a call has, from a run without data, once for each kind of operands.

    A simulator that needs data needs no such run if all its outputs are aliased operands; they are then as declared,
    which the run on data checks.

    Raises:
        ValueError: the simulator does not run without data, and `fake` is not given.
    """
    return _form(kernel, tuple(_description(operand) for operand in operands))


@lru_cache(maxsize=1024)
def _form(kernel: DeviceKernel, descriptions: tuple[object, ...]) -> Form:
    function = kernel.fake or kernel.simulator
    try:
        with without_modes(), torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
            operands = [_materialized(description) for description in descriptions]
            found = _fresh(kernel, operands, _run_and_check_writes(kernel, function, operands))
        return Form(len(found.fresh), found.several)
    except Exception as error:  # the user's function may raise anything; it is said which kernel it is of
        if isinstance(error, KernelOutputError):
            raise
        count = len(kernel.aliases)
        if kernel.fake is None and count and set(kernel.operand_of_output) == set(range(count)):
            return Form(0, count > 1)
        what = "fake" if kernel.fake is not None else "the simulator"
        raise ValueError(
            f"{kernel.describe()}: {what} does not run on tensors without data: {type(error).__name__}: "
            f"{str(error).strip().partition(chr(10))[0]}; give fake=, which returns tensors of the outputs' shapes"
        ) from error


class KernelOutputError(ValueError):
    """A simulator's outputs are not what was declared."""


class _Tensor(NamedTuple):
    """A tensor without data."""

    shape: tuple[int | None, ...]
    """None for sizes that depend on data; nothing runs with them."""
    strides: tuple[int | None, ...]
    dtype: torch.dtype
    device: torch.device


class _Constant(NamedTuple):
    """A constant, whose type tells `1` from `True`."""

    type: type
    value: object


def _description(operand: object) -> object:
    if isinstance(operand, Tensor):
        shape, strides = tuple(map(hint, operand.shape)), tuple(map(hint, operand.stride()))
        return _Tensor(shape, strides, operand.dtype, operand.device)
    if isinstance(operand, list | tuple):
        return tuple(_description(item) for item in cast("Sequence[object]", operand))
    if isinstance(operand, torch.SymInt):
        return _Constant(int, hint(operand))
    return _Constant(type(operand), operand)


def _materialized(description: object) -> object:
    match description:
        case _Tensor():
            shape, strides = (cast("tuple[int, ...]", numbers) for numbers in (description.shape, description.strides))
            return torch.empty_strided(shape, strides, dtype=description.dtype, device=description.device)
        case _Constant():
            return description.value
        case _:
            return [_materialized(item) for item in cast("tuple[object, ...]", description)]


class _Returned(NamedTuple):
    outputs: Sequence[Tensor]
    several: bool


def _run(kernel: DeviceKernel, function: Simulator, operands: Sequence[object]) -> _Returned:
    value = function(*operands)
    several = isinstance(value, tuple | list)
    items = cast("Sequence[object]", value) if several else [value]
    outputs = [item for item in items if isinstance(item, Tensor)]
    if len(outputs) != len(items) or not items:
        kinds = ", ".join("Tensor" if isinstance(item, Tensor) else type(item).__name__ for item in items)
        raise KernelOutputError(
            f"{kernel.describe()}: must return a tensor or a tuple of tensors, got {kinds or 'nothing'}"
        )
    missing = [output for output in kernel.operand_of_output if output >= len(outputs)]
    if missing:
        raise KernelOutputError(
            f"{kernel.describe()}: returns {len(outputs)} output{'s' * (len(outputs) > 1)}, "
            f"but operand_output_aliases names output {min(missing)}"
        )
    return _Returned(outputs, several)


def _fresh(kernel: DeviceKernel, operands: Sequence[object], found: _Returned) -> Outputs:
    """The outputs that are not declared as operands; they must be new."""
    taken: dict[int, str] = {}
    for position, operand in enumerate(operands):
        advice = f"if it is that operand, operand_output_aliases must say so: {{{position}: ...}}; else return a copy"
        taken.update({storage_id(tensor): f"operand {position}; {advice}" for tensor in tensors_in([operand])})
    fresh: list[Tensor] = []
    for output, tensor in enumerate(found.outputs):
        if output in kernel.operand_of_output:
            continue
        if (other := taken.get(storage_id(tensor))) is not None:
            raise KernelOutputError(f"{kernel.describe()}: output {output} is in the memory of {other}")
        taken[storage_id(tensor)] = f"output {output}; return a copy"
        fresh.append(tensor)
    return Outputs(tuple(fresh), found.several)


def _run_and_check_writes(kernel: DeviceKernel, function: Simulator, operands: Sequence[object]) -> _Returned:
    before = [version(operand) if isinstance(operand, Tensor) else None for operand in operands]
    found = _run(kernel, function, operands)
    declared = {storage_id(tensor) for tensor in tensors_in(operands[position] for position in kernel.aliases)}
    for position, (operand, old) in enumerate(zip(operands, before, strict=True)):
        if not isinstance(operand, Tensor) or old is None or version(operand) == old:
            continue
        # Windows onto one memory count their versions together.
        if position not in kernel.aliases and storage_id(operand) not in declared:
            raise KernelOutputError(
                f"{kernel.describe()}: the simulator writes operand {position}, which operand_output_aliases does not "
                "name; return it and name it there"
            )
    return found


def _same_window(left: Tensor, right: Tensor) -> bool:
    return left is right or (
        storage_id(left) == storage_id(right)
        and left.storage_offset() == right.storage_offset()
        and left.shape == right.shape
        and left.stride() == right.stride()
        and left.dtype == right.dtype
    )
