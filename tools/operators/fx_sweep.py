"""What becomes of the samples of PyTorch's own tests on the way through the IR and back to FX.

Each entry of PyTorch's database of operators is a program of one call: the function, the method, the method that writes
its first argument, and `out=` with tensors that have gaps and without. It is imported, printed, parsed, printed again,
functionalized and exported, then taken back to memory by `lower,eliminate-clones` and exported once more. Both graphs
are compared with eager mode: results bit by bit with their strides, what they share memory with, all memory of the
arguments, and the state of the random numbers.

`python -m vllm_ir.tools.operators.fx_sweep add svd` prints the outcomes of entries.
"""

from __future__ import annotations

import argparse
import itertools
import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from types import MethodDescriptorType
from typing import Any, cast

import torch
from torch import Tensor, fx
from torch.fx.node import Argument
from torch.utils import _pytree as pytree
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.backends.fx.export import export_fx
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import import_fx
from vllm_ir.tools.operators import processes
from vllm_ir.tools.operators.database import Entry, Sample, entries, samples_of, seeds_left_alone, spread
from vllm_ir.tools.operators.observation import copied, observe, strides, tensors_in
from vllm_ir.tools.pipelines import run_passes
from vllm_ir.tools.text import reread

RIGHT, ROUNDED, REFUSED, WRONG, INTERNAL = "right", "rounded", "refused", "wrong", "internal error"
CRASH = f"{INTERNAL}: the process ends by a signal"
FUNCTION, METHOD, IN_PLACE, OUT, OUT_WITH_GAPS = "function", "method", "in place", "out", "out with gaps"
VARIANTS = (FUNCTION, METHOD, IN_PLACE, OUT, OUT_WITH_GAPS)
DTYPES = (
    torch.float32,
    torch.int64,
    torch.bool,
    torch.bfloat16,
    torch.complex64,
    torch.float64,
    torch.float16,
    torch.int32,
)
"""Types of elements, the first that an operator takes is tried with all samples."""
OTHER_DTYPES = 4
"""How many further types are tried."""
FEW = 2
"""How many samples are tried in each of the further types, and of each variant of a call."""
MOST = 40
"""How many samples of an entry are tried at most."""


@dataclass
class Tally:
    """Number of samples by what became of them: right, right up to rounding, and other outcomes in words."""

    right: int = 0
    rounded: int = 0
    others: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, outcome: str) -> None:
        """Count one sample."""
        if outcome == RIGHT:
            self.right += 1
        elif outcome == ROUNDED:
            self.rounded += 1
        else:
            self.others[outcome] = self.others.get(outcome, 0) + 1

    @property
    def samples(self) -> int:
        """Number of all."""
        return self.right + self.rounded + sum(self.others.values())


Tallies = dict[str, Tally]
"""By variant of the call."""


def sweep(names: Sequence[str], report: Callable[[str], object], jobs: int = 1, most: int = MOST) -> dict[str, Tallies]:
    """The tallies of these entries, made in other processes with at most `most` samples of a kind."""
    command = ["vllm_ir.tools.operators.fx_sweep", f"--most={most}"]
    crashed = {FUNCTION: asdict(Tally(0, 0, {CRASH: 1}))}
    found = processes.sweep(command, names, crashed, report, jobs)
    return {name: tallies_of(outcome) for name, outcome in found.items()}


def tallies_of(stored: object) -> Tallies:
    """Tallies from JSON."""
    return {variant: Tally(**counts) for variant, counts in cast("dict[str, dict[str, Any]]", stored).items()}


def tallies(entry: Entry, most: int = MOST) -> Tallies:
    """What becomes of the samples of an entry, at most `most` of a kind. Those that eager mode refuses do not count."""
    found: Tallies = {}
    with seeds_left_alone():
        for call in calls(entry, most):
            outcome = call.outcome()
            if outcome is not None:
                found.setdefault(call.variant, Tally()).add(outcome)
    return found


def calls(entry: Entry, most: int) -> Iterator[Call]:
    """The calls of an entry, at most `most` of a kind."""
    supported = entry.supported_dtypes("cpu")
    dtypes = [dtype for dtype in DTYPES if dtype in supported][: 1 + OTHER_DTYPES]
    for dtype in dtypes:
        samples = samples_of(entry, dtype)
        few = spread(samples, min(FEW, most))
        yield from (
            Call(FUNCTION, entry.op, sample) for sample in (spread(samples, most) if dtype == dtypes[0] else few)
        )
        if (method := entry.get_method()) is not None and dtype == dtypes[0]:
            yield from (Call(METHOD, method, sample) for sample in few)
        if (in_place := entry.get_inplace()) is not None:
            # PyTorch does not say what becomes of an argument that is too small for what is written to it.
            yield from (Call(IN_PLACE, in_place, sample) for sample in few if not sample.broadcasts_input)
        if entry.supports_out and dtype == dtypes[0]:
            for sample, variant in itertools.product(few, (OUT, OUT_WITH_GAPS)):
                if (given := _with_out(entry, sample, gaps=variant == OUT_WITH_GAPS)) is not None:
                    yield Call(variant, entry.op, given)


@dataclass
class _Given:
    """A sample of ours."""

    input: object
    args: tuple[object, ...]
    kwargs: dict[str, object]
    broadcasts_input: bool = False


def _with_out(entry: Entry, sample: Sample, *, gaps: bool) -> Sample | None:
    """The sample with tensors for the results; None if eager mode refuses it, or gives other things than tensors."""
    first, args, kwargs = copied(_arguments(sample))
    try:
        results = entry.op(first, *args, **kwargs)
    except Exception:  # noqa: BLE001  # operators raise all kinds of errors
        return None
    several = cast("tuple[object, ...]", results) if isinstance(results, tuple) else (results,)
    if not all(isinstance(result, Tensor) for result in several):
        return None

    def place(result: Tensor) -> Tensor:
        if not gaps or result.dim() == 0:
            return torch.ones_like(result)
        return torch.ones([*result.shape[:-1], 2 * result.shape[-1]], dtype=result.dtype)[..., ::2]

    places = tuple(map(place, cast("tuple[Tensor, ...]", several)))
    out = places if isinstance(results, tuple) else places[0]
    return _Given(sample.input, tuple(sample.args), {**sample.kwargs, "out": out})


def _arguments(sample: Sample) -> tuple[object, tuple[object, ...], dict[str, object]]:
    return sample.input, sample.args, sample.kwargs


class Call:
    """One call of an operator, as a program over its tensors."""

    def __init__(self, variant: str, function: Callable[..., object], sample: Sample) -> None:
        """`function` of the arguments of a sample."""
        self.variant = variant
        self.function = function
        self.leaves, self.structure = cast(
            "tuple[list[object], pytree.TreeSpec]", pytree.tree_flatten(_arguments(sample))
        )
        self.places = [place for place, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]

    def inputs(self) -> list[Tensor]:
        """New tensors to call the program with."""
        return cast("list[Tensor]", copied([self.leaves[place] for place in self.places]))

    def _filled(self, tensors: Sequence[object]) -> tuple[tuple[object, ...], dict[str, object]]:
        given = dict(zip(self.places, tensors, strict=True))
        leaves = [given.get(place, leaf) for place, leaf in enumerate(self.leaves)]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.structure)
        return (first, *args), kwargs

    def run(self, *tensors: Tensor) -> object:
        """The program; named tuples of PyTorch are plain ones, as in graphs."""
        args, kwargs = self._filled(tensors)
        return _plain(self.function(*args, **kwargs))

    def _call_function(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)

    def graph(self) -> fx.GraphModule:
        """The program as a graph."""
        graph = fx.Graph()
        nodes = [graph.placeholder(f"input{number}") for number, _ in enumerate(self.places)]
        args, kwargs = cast("tuple[tuple[Argument, ...], dict[str, Argument]]", self._filled(nodes))
        if isinstance(self.function, MethodDescriptorType):
            result = graph.call_method(self.function.__name__, args, kwargs)
        else:
            # Nodes take their name from the function, which partial functions do not have.
            function = self.function if hasattr(self.function, "__name__") else self._call_function
            result = graph.call_function(function, args, kwargs)
        graph.output(result)
        return fx.GraphModule(torch.nn.Module(), graph)

    def outcome(self) -> str | None:
        """What becomes of it; None if eager mode refuses it or does something else each time."""
        try:
            with _new_memory_filled():
                expected, again = observe(self.run, self.inputs()), observe(self.run, self.inputs())
        except Exception:  # noqa: BLE001  # operators raise all kinds of errors
            return None
        if expected != again:
            return f"{WRONG}: eager mode does not do the same twice"
        try:
            graphs = self._exported()
        except (FxImportError, PassFailedException) as error:
            return f"{REFUSED}: {_reason(error)}"
        except Exception as error:  # noqa: BLE001  # to be found out: neither importer, passes nor export raise others
            return f"{INTERNAL}: {type(error).__name__}: {_one_line(error)}"
        outcome = RIGHT
        for name, graph in graphs:
            try:
                with _new_memory_filled():
                    found = observe(partial(_run, graph), self.inputs())
            except Exception as error:  # noqa: BLE001  # see above
                return f"{INTERNAL}: {name} raises {type(error).__name__}: {_one_line(error)}"
            differing = expected.differing(found)
            if differing and not (set(differing) <= {"results", "memory"} and self._is_rounded(graph)):
                return f"{WRONG}: {name} differs in {', '.join(differing)}"
            outcome = ROUNDED if differing else outcome
        return outcome

    def _exported(self) -> list[tuple[str, fx.GraphModule]]:
        module = reread(import_fx(self.graph(), self.inputs()))
        run_passes(module, "functionalize")
        functional = export_fx(module)
        module = reread(module)
        run_passes(module, "lower,eliminate-clones")
        return [("the functional graph", functional), ("the graph in place", export_fx(module))]

    def _is_rounded(self, graph: Callable[..., object]) -> bool:
        """Whether numbers differ as they may when they are added in another order, or by another kernel."""
        mine, theirs = self.inputs(), self.inputs()
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
        results = tensors_in(graph(*mine))
        torch.manual_seed(0)  # pyright: ignore[reportUnknownMemberType]  # half typed by PyTorch
        expected = tensors_in(self.run(*theirs))
        if [strides(tensor) for tensor in results] != [strides(tensor) for tensor in expected]:
            return False
        try:
            torch.testing.assert_close(
                (results, list(map(_whole, mine))), (expected, list(map(_whole, theirs))), equal_nan=True
            )
        except AssertionError:
            return False
        return True


def _whole(tensor: Tensor) -> Tensor:
    """All memory that a tensor is a window onto; lazy and sparse tensors as they are."""
    if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
        return tensor
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return tensor.as_strided((size,), (1,), 0)


def _run(graph: Callable[..., object], *tensors: Tensor) -> object:
    return _plain(graph(*tensors))


def _plain(value: object) -> object:
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, tuple):
        return tuple(map(_plain, cast("tuple[object, ...]", value)))
    return list(map(_plain, cast("list[object]", value))) if isinstance(value, list) else value


def _reason(error: Exception) -> str:
    """Why a call is refused, without where it is; raises if that is more than one line."""
    reason = error.reason if isinstance(error, FxImportError) else str(error)
    if "\n" in reason:
        raise ValueError(f"a refusal of more than one line: {reason}")
    return _kind(re.sub(r"^(?:\S*:\d+: )?", "", reason))


def _one_line(error: Exception) -> str:
    return _kind(" ".join(str(error).split()))[:200]


def _kind(reason: str) -> str:
    """A reason without the types and numbers of one call."""
    return re.sub(r"-?\b\d+\b", "N", re.sub(r"(?:!vllm_ir\.)?\b(?:buffer|tensor)<[^>]*>+", "T", reason))


@contextmanager
def _new_memory_filled() -> Generator[None]:
    """Have `empty` give the same numbers each time, so that it can be compared."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def main(arguments: Sequence[str]) -> None:
    """Print the tallies of entries, one line of JSON each, as soon as they are known."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", help="entries")
    parser.add_argument("--most", type=int, default=MOST, help="how many samples of a kind are tried at most")
    options = parser.parse_args(arguments)
    known = entries()

    def outcome(name: str) -> object:
        return {variant: asdict(tally) for variant, tally in tallies(known[name], options.most).items()}

    processes.work(options.names, outcome)


if __name__ == "__main__":
    main(sys.argv[1:])
