"""What implementations, predicates and fakes say of tensors without data."""

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from vllm_ir.frontends.ops import NATIVE, IrOpImpl
from vllm_ir.frontends.ops.torch_library import as_results
from vllm_ir.tools.testing.cases import Case
from vllm_ir.tools.testing.faults import strides


def predicate_faults(impl: IrOpImpl, case: Case, *, accepted: bool) -> Iterator[str]:
    """Whether `supports_args` answers without data as with it, and ties a graph to no number of rows."""
    try:
        if (impl.rejection(_fake(case, symbolic=False)) is None) != accepted:
            answer = "refuses" if accepted else "takes"
            yield f"supports_args {answer} the arguments without data; with data it does not"
        taken = impl.rejection(_fake(case, symbolic=True)) is None
        if taken and not accepted:
            yield "supports_args takes any number of rows, but refuses these"
    except (RuntimeError, TypeError) as error:
        yield str(error)


def fake_faults(impl: IrOpImpl, case: Case) -> Iterator[str]:
    """Whether tracers are told of the results that a call gives."""
    op = impl.op
    with op.set_priority([impl.provider, NATIVE] if impl.provider != NATIVE else [NATIVE]):
        real = as_results(op.torch_op(*case.copies()), op.result_count, "it")
    try:
        fakes = as_results(op.torch_op(*_fake(case, symbolic=False)), op.result_count, "the fake implementation")
    except Exception as error:  # noqa: BLE001  # whatever it is, it is reported
        yield f"the fake implementation raised {type(error).__name__}: {error}"
        return
    for index, (result, fake) in enumerate(zip(real, fakes, strict=True)):
        for what, got, told in (
            ("shape", list(result.shape), list(fake.shape)),
            ("dtype", result.dtype, fake.dtype),
            ("strides", strides(result), strides(fake)),
        ):
            if got != told:
                yield f"result {index} has {what} {got}, the fake implementation says {told}"


def _fake(case: Case, *, symbolic: bool) -> list[object]:
    """The arguments without data; with `symbolic`, nothing is known of the first size of those that have several."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), static_shapes=not symbolic)
    return [_fake_tensor(mode, arg, symbolic) if isinstance(arg, Tensor) else arg for arg in case.args]


def _fake_tensor(mode: FakeTensorMode, tensor: Tensor, symbolic: bool) -> Tensor:
    if not symbolic or tensor.dim() < 2 or tensor.shape[0] < 2:
        return mode.from_tensor(tensor, static_shapes=True)
    sizes = [DimDynamic.DYNAMIC, *[DimDynamic.STATIC] * (tensor.dim() - 1)]
    make: Any = StatelessSymbolicContext  # Any: torch leaves its type parameters open
    return mode.from_tensor(tensor, symbolic_context=make(dynamic_sizes=sizes))


__all__ = ["fake_faults", "predicate_faults"]
