"""Which operators of PyTorch convert to StableHLO, found by converting the samples that PyTorch's own tests use.

Each entry of PyTorch's database of operators is a program of one call. It is imported, made pure and converted, for a
few samples; what became of it says something about the entry, and about the ATen operators that the program consists
of. Nothing is compiled or executed.

`python -m vllm_ir.tools.operators.stablehlo_sweep add svd` prints the outcomes of entries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import import_callable
from vllm_ir.frontends.fx.schemas import op_info, target_name
from vllm_ir.tools.operators import processes
from vllm_ir.tools.operators.database import Entry, Sample, entries, samples_of, spread
from vllm_ir.tools.operators.observation import copied
from vllm_ir.tools.pipelines import run_passes

SAMPLES, _LOOKED_AT = 4, 48
"""How many samples of an entry are converted, taken at equal distances from the first ones."""
_DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.complex64, torch.bfloat16)
_REFUSED = re.compile(r"(?:.*:\d+: )?@(?P<operator>[\w.]+): (?P<reason>.*)", re.DOTALL)
INTERNAL = "internal error:"
CRASH = "PyTorch crashes while it traces it"


@dataclass
class Attempt:
    """What became of one sample: the operators that it consists of, and the one that is refused, with the reason.

    `operators` are those that eager mode calls and those of the program in the IR, which may be others: PyTorch takes
    some apart while it traces. `refused` is None if the reason is not about one operator.
    """

    operators: list[str] = field(default_factory=list[str])
    refused: str | None = None
    reason: str | None = None


def attempts(entry: Entry) -> list[Attempt]:
    """What becomes of the samples of an entry; none that eager mode refuses."""
    found: list[Attempt] = []
    dtype = next((dtype for dtype in _DTYPES if dtype in entry.supported_dtypes("cpu")), None)
    if dtype is None:
        return found
    for sample in spread(samples_of(entry, dtype)[:_LOOKED_AT], SAMPLES):
        called = _Called()
        if _runs(entry, sample, called):
            attempt = _attempt(*program_of(entry, sample))
            attempt.operators = sorted({*attempt.operators, *called.names})
            found.append(attempt)
    return found


class _Called(TorchDispatchMode):
    """Keeps the names of the operators of values that are called."""

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        if not op_info(func).writes:
            self.names.add(target_name(func))
        return func(*args, **(kwargs or {}))


def _runs(entry: Entry, sample: Sample, called: _Called) -> bool:
    """Whether eager mode takes a sample; some need libraries that PyTorch was built without."""
    first, args, kwargs = copied((sample.input, sample.args, sample.kwargs))
    try:
        with called:
            entry.op(first, *args, **kwargs)
    except Exception:  # noqa: BLE001  # operators raise all kinds of errors
        return False
    return True


def program_of(entry: Entry, sample: Sample) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
    """A function of the tensors of a sample, and these."""
    leaves, structure = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def program(*tensors: Tensor) -> list[Tensor]:
        given = dict(zip(places, tensors, strict=True))
        first, args, keywords = pytree.tree_unflatten(
            [given.get(place, leaf) for place, leaf in enumerate(leaves)], structure
        )
        return [leaf for leaf in pytree.tree_leaves(entry.op(first, *args, **keywords)) if isinstance(leaf, Tensor)]

    return program, [cast(Tensor, leaves[place]) for place in places]


def _attempt(program: Callable[..., list[Tensor]], tensors: Sequence[Tensor]) -> Attempt:
    attempt = Attempt()
    try:
        module = run_passes(import_callable(program, *tensors), "alias-outputs,functionalize")
        attempt.operators = _operators(module)
        run_passes(module, "convert-to-stablehlo")
    except FxImportError as error:
        attempt.reason = error.reason
    except PassFailedException as error:
        refused = _REFUSED.fullmatch(str(error))
        attempt.refused, attempt.reason = refused.groups() if refused else (None, str(error))
    except Exception as error:  # noqa: BLE001  # to be found out: neither importer nor passes should raise others
        attempt.reason = f"{INTERNAL} {type(error).__name__}: {error}"
    return attempt


def _operators(module: ModuleOp) -> list[str]:
    """The operators that a program consists of, each once."""
    return sorted({op.target for op in module.walk() if isinstance(op, CallOp)})


def sweep(names: Iterable[str], report: Callable[[str], object], jobs: int = 1) -> dict[str, list[Attempt]]:
    """The attempts of these entries, made in other processes; see `processes.sweep`.

    An entry that crashes has one attempt with the reason `CRASH`.
    """
    crashed = [asdict(Attempt(reason=CRASH))]
    found = processes.sweep(["vllm_ir.tools.operators.stablehlo_sweep"], names, crashed, report, jobs)
    return {
        name: [Attempt(**attempt) for attempt in cast("list[dict[str, Any]]", outcome)]
        for name, outcome in found.items()
    }


def main(names: Sequence[str]) -> None:
    """Print the attempts of entries, one line of JSON each, as soon as they are known."""
    known = entries()
    processes.work(names, lambda name: [asdict(attempt) for attempt in attempts(known[name])])


if __name__ == "__main__":
    main(sys.argv[1:])
