"""One call of an operator, in eager mode and through the IR, and what became of it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor, fx
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import import_fx
from vllm_ir.frontends.fx.schemas import functional_twin

RIGHT = "right"
ROUNDED = "right up to rounding"
AS_FUNCTIONAL = "as the functional form, which eager mode's writing form differs from"
REFUSED = "refused"
WRONG = "wrong"
CRASHED = "crashed"
NOT_COMPARABLE = "not comparable"

Arguments = dict[str, object]
Maker = Callable[[], Arguments]


@dataclass(frozen=True)
class Outcome:
    """What became of a call; `detail` says why it was refused, or what differs."""

    kind: str
    detail: str = ""


class Example:
    """A call of `overload`, as a program over its tensors and as a graph built by hand.

    With `gaps`, each written tensor is a window onto a larger one, which the program is given.
    """

    def __init__(self, overload: OpOverload, make: Maker, gaps: bool) -> None:
        self.overload = overload
        self.make = make
        schema = overload._schema.arguments
        self.written_names = [a.name for a in schema if a.alias_info is not None and a.alias_info.is_write]
        self.written = set(self.written_names) if gaps else set[str]()
        self.outs = [a.name for a in schema if a.is_out]
        self.positional = [a.name for a in schema if not a.kwarg_only]

    def inputs(self) -> list[Tensor]:
        """The tensors that the program takes."""
        found: list[Tensor] = []
        for name, value in self.make().items():
            tensors = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
            found += [_spread(tensor) if self._has_gaps(name, tensor) else tensor for tensor in tensors]
        return found

    def windows(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The written tensors among the inputs, gaps left out, in the order of the schema."""
        remaining = iter(inputs)
        found: dict[str, list[Tensor]] = {}
        for name, value in self.make().items():
            for leaf in pytree.tree_leaves(value):
                if isinstance(leaf, Tensor):
                    tensor = next(remaining)
                    found.setdefault(name, []).append(tensor[..., ::2] if self._has_gaps(name, leaf) else tensor)
        return [tensor for name in self.written_names for tensor in found.get(name, [])]

    def _has_gaps(self, name: str, tensor: Tensor) -> bool:
        return name in self.written and tensor.dim() > 0

    def _call(
        self, tensors: Sequence[object], window: Callable[[object, int], object], call: Callable[..., object]
    ) -> object:
        remaining = iter(tensors)

        def put(name: str, leaf: Tensor) -> object:
            item = next(remaining)
            return window(item, leaf.dim() - 1) if self._has_gaps(name, leaf) else item

        arguments = {
            name: pytree.tree_map_only(Tensor, lambda leaf, name=name: put(name, leaf), value)
            for name, value in self.make().items()
        }
        args = [arguments.pop(name) for name in itertools.takewhile(arguments.__contains__, self.positional)]
        return call(tuple(args), arguments)

    def run(self, *tensors: Tensor) -> object:
        """The program."""

        def window(tensor: object, dimension: int) -> object:
            return torch.ops.aten.slice.Tensor(tensor, dimension, 0, None, 2)

        return (self._call(tensors, window, lambda args, kwargs: self.overload(*args, **kwargs)),)

    def graph(self) -> fx.GraphModule:
        """The program as a graph."""
        graph = fx.Graph()
        nodes = [graph.placeholder(f"input{number}") for number, _ in enumerate(self.inputs())]

        def window(node: object, dimension: int) -> object:
            return graph.call_function(torch.ops.aten.slice.Tensor, (node, dimension, 0, None, 2))  # type: ignore[arg-type]

        result = self._call(nodes, window, lambda args, kwargs: graph.call_function(self.overload, args, kwargs))
        graph.output((result,))  # type: ignore[arg-type]  # a node
        return fx.GraphModule(torch.nn.Module(), graph)


def _spread(tensor: Tensor) -> Tensor:
    wide = torch.zeros([*tensor.shape[:-1], tensor.shape[-1] * 2], dtype=tensor.dtype)
    wide[..., ::2] = tensor
    return wide


def makers(
    overload: OpOverload, recorded: Mapping[OpOverload, Sequence[object]], samples: ModuleType
) -> Iterator[Maker]:
    """Makers of arguments: from recorded calls of the operator or of its functional form, then from its schema."""
    twin = functional_twin(overload)
    for call in recorded.get(overload, ()):
        yield call.copy  # type: ignore[attr-defined]  # a Call
    outs = [a.name for a in overload._schema.arguments if a.is_out]
    if twin is not None:
        guesses = samples.from_schema(twin.overload) if outs else ()
        for call in [*recorded.get(twin.overload, ()), *guesses]:
            if (maker := _with_outputs(overload, twin.overload, outs, call.copy)) is not None:
                yield maker
    for call in samples.from_schema(overload):
        yield call.copy


def _with_outputs(overload: OpOverload, twin: OpOverload, outs: Sequence[str], make: Maker) -> Maker | None:
    """The arguments of a functional call, and for `out=` arguments tensors that are like its results."""
    if not outs:
        return make
    try:
        results = [leaf for leaf in pytree.tree_leaves(twin(**make())) if isinstance(leaf, Tensor)]
    except Exception:  # noqa: BLE001  # not a call that eager mode accepts
        return None
    kinds = [str(a.type) for a in overload._schema.arguments if a.is_out]
    if any("List" in kind for kind in kinds):
        values: list[object] = [results] if len(outs) == 1 else []
    else:
        values = list(results)
    if len(values) != len(outs):
        return None

    def with_outs() -> Arguments:
        filled = pytree.tree_map_only(Tensor, lambda t: torch.ones_like(t), values)
        return {**make(), **dict(zip(outs, filled, strict=True))}

    return with_outs


def classify(example: Example, harness: ModuleType) -> Outcome | None:
    """Compare a call with eager mode; None if eager mode does not accept it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected = harness.observe(example.run, example.inputs())
            again = harness.observe(example.run, example.inputs())
        except Exception:  # noqa: BLE001  # whatever eager mode says, the call is not one to compare
            return None
        if expected != again:
            return Outcome(NOT_COMPARABLE)
        return _compare(example, expected, harness)


def _compare(example: Example, expected: object, harness: ModuleType) -> Outcome:
    try:
        module = harness.functionalized(import_fx(example.graph(), example.inputs()))
        compiled = harness.export_fx(module)
    except (FxImportError, PassFailedException) as error:
        return Outcome(REFUSED, str(error))
    except Exception as error:  # noqa: BLE001  # anything else is a fault, which the report names
        return Outcome(CRASHED, f"{type(error).__name__}: {error}")
    try:
        actual = harness.observe(compiled, example.inputs())
    except Exception as error:  # noqa: BLE001  # see above
        resized = [tensor.shape for tensor in example.inputs()] != [entry[1] for entry in expected.arguments]
        kind = REFUSED if resized else CRASHED
        return Outcome(kind, f"when run: {type(error).__name__}: {error}")
    if actual == expected:
        return Outcome(RIGHT)
    differing = [entry for entry in vars(actual) if getattr(actual, entry) != getattr(expected, entry)]
    detail = "; ".join(f"{entry}: {getattr(expected, entry)} became {getattr(actual, entry)}" for entry in differing)
    if set(differing) <= {"results", "memory"} and _is_rounding(example, compiled):
        return Outcome(ROUNDED, detail)
    return Outcome(AS_FUNCTIONAL if _is_as_functional(example, compiled) else WRONG, detail)


def _is_rounding(example: Example, compiled: Callable[..., object]) -> bool:
    """Whether floats differ by rounding only: matrix products sum in another order when a layout is another one."""
    with torch.no_grad():
        mine, theirs = example.inputs(), example.inputs()
        results = compiled(*mine), example.run(*theirs)
    try:
        torch.testing.assert_close((results[0], mine), (results[1], theirs), equal_nan=True)
    except AssertionError:
        return False
    return True


def _is_as_functional(example: Example, compiled: Callable[..., object]) -> bool:
    """Whether what is written is what the functional form of the operator returns.

    Some kernels of eager mode do not write `out=` tensors with gaps, give them other strides, or return another tensor
    than the schema says. There the functional form shows what the operator means.
    """
    twin = functional_twin(example.overload)
    if twin is None or not set(example.outs) <= set(example.written_names):
        return False
    names = [argument.name for argument in example.overload._schema.arguments]
    arguments = example.make()
    torch.manual_seed(0)
    with torch.no_grad():
        wanted = twin.overload(
            **{
                names[position]: arguments[names[position]]
                for position in twin.arguments
                if names[position] in arguments
            }
        )
    torch.manual_seed(0)
    inputs = example.inputs()
    with torch.no_grad():
        compiled(*inputs)
    windows = example.windows(inputs)
    fresh = len(twin.fresh)
    wanted_values = [leaf for leaf in pytree.tree_leaves(wanted) if isinstance(leaf, Tensor)][fresh:]
    try:
        torch.testing.assert_close(
            windows, [w.to(v.dtype) for v, w in zip(windows, wanted_values, strict=True)], equal_nan=True
        )
    except (AssertionError, ValueError):
        return False
    return True
