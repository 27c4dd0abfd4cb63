"""Where a program's eager and compiled forms would run kernels that round differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from vllm_ir.frontends.fx.locations import running_line
from vllm_ir.frontends.ops.priority import using_inductor
from vllm_ir.frontends.ops.registry import get_op
from vllm_ir.frontends.ops.torch_library import as_results
from vllm_ir.tools.operators.observation import contents
from vllm_ir.tools.options import CompileOptions, parse_options
from vllm_ir.tools.providers import IrOp, IrOpImpl, ops

Program: TypeAlias = Callable[..., object]


@dataclass(frozen=True)
class Choice:
    """What the two modes choose for one call of an op."""

    op: str
    location: str
    """`file:line` of the call, or `generated inputs`."""
    eager: str
    """The provider that eager mode runs."""
    compiled: str
    """The provider that the compiled graph gets."""
    difference: float | None
    """The largest absolute difference between their results on the arguments of the call; None if no bit differs."""

    @property
    def is_consistent(self) -> bool:
        """Whether both modes give the same bits."""
        return self.difference is None

    def __str__(self) -> str:
        said = "same bits" if self.difference is None else f"results differ by up to {self.difference:.3g}"
        return f"vllm_ir.{self.op} ({self.location}): eager {self.eager!r}, compiled {self.compiled!r}, {said}"


@dataclass(frozen=True)
class ConsistencyReport:
    """The choices for all calls of a program, in the order in which they happened."""

    choices: tuple[Choice, ...]

    @property
    def differing(self) -> tuple[Choice, ...]:
        """The calls for which the modes round differently."""
        return tuple(choice for choice in self.choices if not choice.is_consistent)

    @property
    def is_consistent(self) -> bool:
        """Whether all calls give the same bits in both modes, as far as the choice of kernels goes."""
        return not self.differing

    def __str__(self) -> str:
        return "\n".join(map(str, self.choices))


def consistency_report(
    program: Program | None = None,
    *example_inputs: object,
    backend: str = "vllm_ir",
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> ConsistencyReport:
    """Compare which kernels eager mode and a compiled graph choose, by the bits of their results.

    The program runs once in eager mode, on copies of the tensors among its arguments; each call of an op is looked at
    on the arguments that it gets there. Without a program, every registered op is called with its generated inputs.

    Args:
        program: a function or module; what it does beside calling ops plays no part.
        example_inputs: its arguments. Modules' buffers that it writes are written.
        backend: `vllm_ir`, which compiles through Inductor, or `vllm_ir_eager`; platforms may order providers
            differently for the two.
        mode: as for `torch.compile`.
        options: those that the graph is compiled with; `ir_op_priority` and `batch_invariant` decide here.

    Raises:
        ValueError: the backend is another one, or an option is unknown or malformed.
    """
    if backend not in ("vllm_ir", "vllm_ir_eager"):
        raise ValueError(f"backend must be 'vllm_ir' or 'vllm_ir_eager', got {backend!r}")
    parsed, inductor = parse_options(mode, options), backend == "vllm_ir"
    choices: list[Choice] = []

    def look(op: IrOp, args: Sequence[object], location: str) -> None:
        choices.append(_choice(op, args, location, parsed, inductor=inductor))

    if program is None:
        for name in ops:
            if ops[name].has_input_generator:
                look(ops[name], ops[name].generate_inputs(), "generated inputs")
    else:
        with torch.no_grad(), _Calls(look):
            program(*pytree.tree_map_only(Tensor, Tensor.clone, example_inputs))
    return ConsistencyReport(tuple(choices))


def _choice(op: IrOp, args: Sequence[object], location: str, options: CompileOptions, *, inductor: bool) -> Choice:
    complete = op.complete(args)
    eager = op.select(complete)[0]
    with options.apply_priorities(), using_inductor(inductor):
        compiled = op.select(complete)[0]
    return Choice(op.name, location, eager.provider, compiled.provider, _difference(eager, compiled, complete))


def _difference(one: IrOpImpl, other: IrOpImpl, args: Sequence[object]) -> float | None:
    """The largest difference between the results of two implementations; None if they are the same bit for bit."""
    if one is other:
        return None
    largest: float | None = None
    for left, right in zip(_results(one, args), _results(other, args), strict=True):
        if _bits_differ(left, right):
            distance = (left.double() - right.double()).abs().nan_to_num(nan=float("inf"))
            largest = max(largest or 0.0, distance.amax().item() if distance.numel() else 0.0)
    return largest


def _results(impl: IrOpImpl, args: Sequence[object]) -> tuple[Tensor, ...]:
    return as_results(impl.func_impl_fn(*args), impl.op.result_count, f"provider {impl.provider!r}")


def _bits_differ(left: Tensor, right: Tensor) -> bool:
    return left.dtype != right.dtype or left.shape != right.shape or contents(left) != contents(right)


class _Calls(TorchDispatchMode):
    """Shows each call of an op that happens."""

    def __init__(self, look: Callable[[IrOp, Sequence[object], str], None]) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
        self._look = look

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        op = get_op(func)
        if op is not None:
            self._look(op, op.bound(args, kwargs or {}), _location())
        return func(*args, **(kwargs or {}))


def _location() -> str:
    """The innermost line of the program that is running."""
    place = running_line(ignored=__file__)
    return "?" if place is None else f"{place[0]}:{place[1]}"
