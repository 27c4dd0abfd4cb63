"""What a call of an implementation may do wrong."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from vllm_ir.frontends.ops import IrOpImpl
from vllm_ir.frontends.ops.memory import may_overlap
from vllm_ir.frontends.ops.torch_library import as_results
from vllm_ir.tools.testing.cases import Case


def call_faults(impl: IrOpImpl, case: Case) -> Iterator[str]:
    """Faults of results, of what becomes of the arguments, and of whose memory results are in."""
    op = impl.op
    wanted = as_results(op.native(*case.copies()), op.result_count, "the native definition")
    args = case.copies()
    before = [_bytes(arg) for arg in args]
    try:
        results = as_results(impl.impl_fn(*args), op.result_count, "it")
    except Exception as error:  # noqa: BLE001  # whatever it is, it is reported
        yield f"raised {type(error).__name__}: {error}"
        return
    for index, (result, want) in enumerate(zip(results, wanted, strict=True)):
        name = f"result {index}" if len(results) > 1 else "the result"
        yield from _metadata_faults(name, result, want, laid_out=not impl.inplace)
        if result.shape == want.shape and result.dtype == want.dtype:
            yield from _value_faults(impl, case, name, result, want)
    yield from _argument_faults(impl, args, before)
    yield from _memory_faults(impl, args, results)


def _metadata_faults(name: str, result: Tensor, want: Tensor, *, laid_out: bool) -> Iterator[str]:
    """With `laid_out`, strides count too; results in the memory of operands have theirs."""
    for what, got, right in (
        ("shape", list(result.shape), list(want.shape)),
        ("dtype", result.dtype, want.dtype),
        ("device", result.device, want.device),
        ("strides", strides(result), strides(want)),
    ):
        if got != right and (laid_out or what != "strides"):
            yield f"{name} has {what} {got}, the native definition gives {right}"


def strides(tensor: Tensor) -> list[int]:
    """Those that lead somewhere."""
    if tensor.numel() == 0:
        return []
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def _value_faults(impl: IrOpImpl, case: Case, name: str, result: Tensor, want: Tensor) -> Iterator[str]:
    got, right = (t.double() if not t.dtype.is_complex else t for t in (result, want))
    tolerance = impl.op.get_tolerance(want.dtype, length := _reduction_length(case))
    # Terms of a sum may cancel: what its order changes is relative to them, which are as large as the largest result.
    order = tolerance["rtol"] - impl.op.get_tolerance(want.dtype)["rtol"]
    largest = right[right.isfinite()].abs().amax().item() if right.isfinite().any() else 0.0
    atol = tolerance["atol"] + order * largest
    close = torch.isclose(got, right, rtol=tolerance["rtol"], atol=atol, equal_nan=True)
    if not close.all():
        where = [int(index) for index in (~close).nonzero()[0]]
        place = tuple(where)
        yield (
            f"{name} differs in {int((~close).sum())} of {close.numel()} elements, first at {where}: "
            f"{got[place].item()!r}, the native definition gives {right[place].item()!r} (atol {atol:.3g}, rtol "
            f"{tolerance['rtol']:.3g}, for sums of {length})"
        )


def _reduction_length(case: Case) -> int:
    """How many products a result may sum: as many as the longest dimension of the arguments has elements."""
    return max((size for arg in case.args if isinstance(arg, Tensor) for size in arg.shape), default=0)


def _argument_faults(impl: IrOpImpl, args: Sequence[object], before: Sequence[Tensor | None]) -> Iterator[str]:
    for name, arg, old in zip(impl.op.parameters, args, before, strict=True):
        if old is None or not isinstance(arg, Tensor):
            continue
        new = _bytes(arg)
        assert new is not None
        changed = new != old
        if name in impl.written:
            changed[_own_bytes(arg)] = False
            if changed.any():
                yield f"writes memory beside {name!r}, in gaps between its elements"
        elif changed.any():
            kind = "an activation that is not in inplace=" if name in impl.op.activations else "no activation"
            yield f"writes {name!r}, which is {kind}"


def _bytes(arg: object) -> Tensor | None:
    """A copy of all bytes of the storage that a tensor is in."""
    if not isinstance(arg, Tensor):
        return None
    return torch.empty(0, dtype=torch.uint8).set_(arg.untyped_storage()).clone()


def _own_bytes(tensor: Tensor) -> Tensor:
    """Where in its storage the bytes of a tensor's elements are."""
    size = tensor.element_size()
    places = torch.arange(tensor.untyped_storage().nbytes() // size).as_strided(
        tensor.shape, tensor.stride(), tensor.storage_offset()
    )
    return (places.reshape(-1, 1) * size + torch.arange(size)).reshape(-1)


def _memory_faults(impl: IrOpImpl, args: Sequence[object], results: Sequence[Tensor]) -> Iterator[str]:
    named = dict(zip(impl.op.parameters, args, strict=True))
    for index, (result, reused) in enumerate(zip(results, impl.op.reuses, strict=True)):
        for name in impl.written:
            arg = named[name]
            if isinstance(arg, Tensor) and name != reused and may_overlap(result, arg):
                declared = f"may reuse {reused!r} only" if reused else "may reuse none"
                yield f"result {index} is in the memory of {name!r}; the op declares that it {declared}"
    for first, result in enumerate(results):
        for second, other in enumerate(results[:first]):
            if may_overlap(result, other):
                yield f"results {second} and {first} share memory"
