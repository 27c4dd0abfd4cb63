"""Which operators of PyTorch convert to StableHLO, found by converting the samples that PyTorch's own tests use.

Each entry of PyTorch's database of operators is a program of one call. It is imported, made pure and converted, for a
few samples; what became of it says something about the entry, and about the ATen operators that the program consists
of. Nothing is compiled or executed. Entries run in other processes, some at a time: a few of them crash or hang while
PyTorch traces them.

`python -m vllm_ir.tools.stablehlo_sweep add svd` prints the outcomes of entries.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Protocol, cast

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
from vllm_ir.tools.pipelines import run_passes

SAMPLES, _LOOKED_AT = 4, 48
"""How many samples of an entry are converted, taken at equal distances from the first ones."""
_SECONDS = 300
"""What an entry may take: a guard against endless loops. It ends the sweep, whose outcome is not to depend on time."""
_BATCH = 60
_DTYPES = (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.complex64, torch.bfloat16)
_REFUSED = re.compile(r"(?:.*:\d+: )?@(?P<operator>[\w.]+): (?P<reason>.*)", re.DOTALL)
INTERNAL = "internal error:"
CRASH = "PyTorch crashes while it traces it"


class Sample(Protocol):
    """A sample of PyTorch's tests: `op(input, *args, **kwargs)`."""

    input: object
    args: tuple[object, ...]
    kwargs: dict[str, object]


class Entry(Protocol):
    """An operator of PyTorch's database, the part that is needed here."""

    op: Callable[..., object]
    name: str
    variant_test_name: str

    def supported_dtypes(self, device: str) -> set[torch.dtype]:
        """The types of elements that the operator takes."""
        ...

    def sample_inputs(self, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
        """Arguments for it."""
        ...


@dataclass
class Attempt:
    """What became of one sample: the operators that it consists of, and the one that is refused, with the reason.

    `operators` are those that eager mode calls and those of the program in the IR, which may be others: PyTorch takes
    some apart while it traces. `refused` is None if the reason is not about one operator.
    """

    operators: list[str] = field(default_factory=list[str])
    refused: str | None = None
    reason: str | None = None


def entries() -> dict[str, Entry]:
    """PyTorch's database of operators by name, with the variants of an operator as entries of their own."""
    from torch.testing._internal.common_methods_invocations import op_db  # needs expecttest, and seconds

    return {
        f"{entry.name} ({entry.variant_test_name})" if entry.variant_test_name else entry.name: entry
        for entry in cast("list[Entry]", op_db)
    }


def attempts(entry: Entry) -> list[Attempt]:
    """What becomes of the samples of an entry; none that eager mode refuses."""
    found: list[Attempt] = []
    dtype = next((dtype for dtype in _DTYPES if dtype in entry.supported_dtypes("cpu")), None)
    if dtype is None:
        return found
    torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
    samples = list(itertools.islice(entry.sample_inputs("cpu", dtype, requires_grad=False), _LOOKED_AT))
    for sample in samples[:: -(-len(samples) // SAMPLES)] if samples else []:
        called = _Called()
        if _runs(entry, sample, called):
            attempt = _attempt(*_program(entry, sample))
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
    given = pytree.tree_map_only(Tensor, Tensor.clone, (sample.input, sample.args, sample.kwargs))
    try:
        with called:
            entry.op(given[0], *given[1], **given[2])
    except Exception:  # noqa: BLE001  # operators raise all kinds of errors
        return False
    return True


def _program(entry: Entry, sample: Sample) -> tuple[Callable[..., list[Tensor]], list[Tensor]]:
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


# --- processes -------------------------------------------------------------------------------------------------------


def sweep(names: Iterable[str], report: Callable[[str], object]) -> dict[str, list[Attempt]]:
    """The attempts of these entries, made in other processes; `report` is told how far it is.

    An entry that crashes has one attempt with the reason `CRASH`. Raises RuntimeError if one does not come to an end,
    or if its samples cannot be made.
    """
    found: dict[str, list[Attempt]] = {}
    waiting = list(names)
    while waiting:
        done, problem = _in_process(waiting[:_BATCH])
        found.update(done)
        waiting = [name for name in waiting if name not in done]
        if problem is not None:
            crashed = waiting.pop(0)
            if problem != CRASH:
                raise RuntimeError(f"{crashed}: {problem}")
            found[crashed] = [Attempt(reason=CRASH)]
        report(f"{len(found)} entries done, {len(waiting)} to go")
    return found


def _in_process(batch: Sequence[str]) -> tuple[dict[str, list[Attempt]], str | None]:
    """The attempts of the entries of a batch; up to one that has a problem, which is told."""
    command = [sys.executable, "-m", "vllm_ir.tools.stablehlo_sweep", *batch]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in run.stdout.splitlines() if line.startswith(_MARK)]
    done = {line["entry"]: [Attempt(**attempt) for attempt in line["attempts"]] for line in lines}
    if len(done) == len(batch):
        return done, None
    if run.returncode == -signal.SIGALRM:
        return done, f"takes more than {_SECONDS} seconds"
    return done, CRASH if run.returncode < 0 else run.stderr.strip().rpartition("\n")[2]


_MARK = '{"entry": '  # operators may print as well


def main(names: Sequence[str]) -> None:
    """Print the attempts of entries, one line of JSON each, as soon as they are known."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # fake tensors log each call that they refuse
    known = entries()
    for name in names:
        signal.alarm(_SECONDS)  # ends the process
        print(json.dumps({"entry": name, "attempts": [asdict(one) for one in attempts(known[name])]}), flush=True)
    signal.alarm(0)


if __name__ == "__main__":
    main(sys.argv[1:])
