"""`check_impl`: one implementation against the native definition, on many kinds of arguments."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from vllm_ir.frontends.ops import NATIVE, IrOp, IrOpImpl
from vllm_ir.tools.testing.batches import batch_faults
from vllm_ir.tools.testing.cases import DTYPES, Case, cases
from vllm_ir.tools.testing.faults import call_faults
from vllm_ir.tools.testing.without_data import fake_faults, predicate_faults


class ConformanceError(AssertionError):
    """An implementation that does not do what its op says; the message lists what was found, a line each."""


class NotCheckable(RuntimeError):
    """An implementation that nothing can be said about in this process; the message says why."""


@dataclass
class Conformance:
    """What an implementation was tried on."""

    op: str
    provider: str
    accepted: list[str] = field(default_factory=lambda: [])
    """Names of the cases that it ran."""
    refused: list[str] = field(default_factory=lambda: [])
    """Names of those that `supports_args` refused."""
    invalid: dict[str, str] = field(default_factory=lambda: {})
    """By name of those that the native definition refuses, its error."""


def check_impl(
    op: IrOp, provider: str, *, seed: int = 0, most: int = 5, dtypes: Sequence[torch.dtype] = DTYPES
) -> Conformance:
    """Compare an implementation with the native definition over generated arguments.

    Arguments vary in sizes (none and odd ones too), strides, dtypes and contents (infinities, NaN, zeros, large and
    tiny numbers). For each case: results have the native shapes, dtypes, strides and, within `op.get_tolerance`,
    values; nothing changes but the activations that the implementation says it writes, gaps between rows included;
    results are in no memory that they may not reuse; the fake implementation gives what the real one gives;
    `supports_args` answers the same without data, ties a graph to no size, and takes nothing that the native
    definition refuses; rows of a batch-invariant implementation have the same bits alone and among others.

    Args:
        op: an op with an input generator.
        provider: who provides the implementation; `native` is held to all but the comparison with itself.
        seed: of the generated arguments.
        most: how many faults are listed.
        dtypes: to generate arguments of, where the op's generator has the option.

    Returns:
        What was tried.

    Raises:
        ConformanceError: a fault was found, or the implementation takes none of the arguments.
        KeyError: the provider has no implementation.
        NotCheckable: the op has no input generator, or the native definition refuses all that it gives; or the
            implementation is not supported in this process.
    """
    impl = op.impls[provider]
    if not op.has_input_generator:
        raise NotCheckable(f"vllm_ir.{op.name}: No input generator registered; use register_input_generator")
    if not impl.supported:
        raise NotCheckable(f"vllm_ir.{op.name}: provider {provider!r} is not supported in this process")
    found = Conformance(op.name, provider)
    faults: list[str] = []
    for case in cases(op, seed, dtypes):
        faults.extend(f"{case.name}: {fault}" for fault in _faults(impl, case, found))
        if len(faults) >= most:
            break
    if not faults and not found.accepted and not found.refused:
        why = next(iter(found.invalid.values()), "there are none")
        raise NotCheckable(f"vllm_ir.{op.name}: the native definition refuses all generated arguments: {why}")
    if not faults and not found.accepted:
        faults.append("supports_args takes none of the generated arguments, so that nothing was compared")
    if faults:
        listed = "".join(f"\n  {fault}" for fault in faults[:most])
        raise ConformanceError(f"vllm_ir.{op.name}: provider {provider!r} ({impl.location}) is wrong:{listed}")
    return found


def _faults(impl: IrOpImpl, case: Case, found: Conformance) -> Iterator[str]:
    native = impl.op.impls[NATIVE]
    try:
        native.impl_fn(*case.copies())
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        found.invalid[case.name] = f"{type(error).__name__}: {error}"
        if impl is not native and impl.rejection(case.copies()) is None:
            yield f"supports_args takes arguments that the native definition refuses: {error}"
        return
    if impl.rejection(case.copies()) is not None:
        found.refused.append(case.name)
        yield from predicate_faults(impl, case, accepted=False)
        return
    found.accepted.append(case.name)
    yield from predicate_faults(impl, case, accepted=True)
    faults = list(call_faults(impl, case))
    yield from faults
    if faults:
        return
    yield from fake_faults(impl, case)
    if impl.batch_invariant:
        yield from batch_faults(impl, case)
