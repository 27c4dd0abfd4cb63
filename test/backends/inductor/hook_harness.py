"""Graphs that write, put in place of functional ones at Inductor's last custom pass, compared with eager mode."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, fx
from torch._dynamo.source import ConstantSource
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.fx_passes.post_grad import view_to_reshape
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.profiler import ProfilerActivity, profile

from vllm_ir.backends.inductor.prepare import prepare_for_inductor, prepare_node
from vllm_ir.backends.inductor.settings import effective_patches
from vllm_ir.backends.inductor.torch_internals import compile_inference, decompositions, inference_state, patched
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload, schema_of
from vllm_ir.frontends.ops.torch_internals import storage_id

Program = Callable[..., Sequence[Tensor]]
Arguments = Sequence[Tensor]

_LIBRARY = torch.library.Library("inductor_hook", "DEF")
_NUMBERS = itertools.count()


# Operators that Inductor only calls: `torch.ops.inductor_hook.write` and so on.


def write(window: Tensor, v: Tensor) -> None:
    """Writes one window."""
    window.copy_(v)


def write_list(windows: Sequence[Tensor], v: Tensor) -> None:
    """Writes the same into several windows."""
    for window in windows:
        window.copy_(v)


def write_two(v: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Writes two windows, and returns something else."""
    first.copy_(v)
    second.copy_(first)
    return v.clone(), v.clone()


def write_slots(k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Writes rows of two caches."""
    keys.index_copy_(0, slots, k)
    values.index_copy_(0, slots, v)


def write_and_return(window: Tensor, v: Tensor) -> Tensor:
    """Returns what it writes."""
    return window.copy_(v)


def write_out(v: Tensor, *, out: Tensor) -> Tensor:
    """Has an output argument."""
    return out.copy_(v)


for schema, kernel in {
    "write(Tensor(a!) window, Tensor v) -> ()": write,
    "write_list(Tensor(a!)[] windows, Tensor v) -> ()": write_list,
    "write_two(Tensor v, Tensor(a!) first, Tensor(b!) second) -> (Tensor, Tensor)": write_two,
    "write_slots(Tensor k, Tensor v, Tensor(a!) keys, Tensor(b!) values, Tensor slots) -> ()": write_slots,
    "write_(Tensor(a!) window, Tensor v) -> Tensor(a!)": write_and_return,
    "write_out(Tensor v, *, Tensor(a!) out) -> Tensor(a!)": write_out,
}.items():
    name = schema.split("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"inductor_hook::{name}", kernel, lib=_LIBRARY)


class ReplaceBody(CustomGraphPass):
    """Replaces the body of the first graph it sees by that of another with the same placeholders."""

    def __init__(self, body: fx.GraphModule) -> None:
        self.body: fx.GraphModule | None = body

    def __call__(self, graph: fx.Graph) -> None:
        if self.body is None:
            return
        old = [node for node in graph.nodes if node.op not in ("placeholder", "output")]
        new = dict(zip(self.body.graph.find_nodes(op="placeholder"), graph.find_nodes(op="placeholder"), strict=True))
        output = graph.output_node()
        with graph.inserting_before(output):
            for node in self.body.graph.nodes:
                if node.op == "output":
                    output.args = (tuple(fx.map_arg(list(node.args[0]), new.__getitem__)),)
                elif node.op != "placeholder":
                    assert node.op == "call_function", "constants are not carried over"
                    new[node] = graph.node_copy(node, new.__getitem__)
        for node in reversed(old):
            graph.erase_node(node)
        self.body = None

    def uuid(self) -> object:
        return None  # not to be cached: the key would not tell one body from another


@dataclass(frozen=True)
class Compiled:
    """A compiled graph with a replaced body, and that body."""

    body: fx.GraphModule
    inputs: Sequence[object]
    run: Callable[[list[object]], Sequence[Tensor]]

    def __call__(self, *arguments: Tensor) -> Sequence[Tensor]:
        sizes: dict[object, int] = {}
        fakes = self.inputs[-len(arguments) :]
        for fake, argument in zip(fakes, arguments, strict=True):
            symbols = (size.node.expr if isinstance(size, torch.SymInt) else size for size in fake.shape)
            sizes.update(zip(symbols, argument.shape, strict=True))
        return self.run([*(sizes[size.node.expr] for size in self.inputs[: -len(arguments)]), *arguments])


def compile_writing(
    program: Program, arguments: Arguments, *, dynamic: bool = False, reshapes: bool = False
) -> Compiled:
    """Compile what a program does, writes included, as Inductor would if they were put back at its last custom pass.

    Inductor has replaced `view` by `reshape` by then; with `reshapes` that is done to the writing graph as well.
    """
    mode = FakeTensorMode(shape_env=ShapeEnv() if dynamic else None)
    fakes = [_fake(mode, argument, index, dynamic) for index, argument in enumerate(arguments)]
    with patched({**effective_patches({}), "fx_graph_cache": False}):
        with mode:
            functional = make_fx(_stand_in(program))(*fakes)
            body = traced(program, fakes, reshapes=reshapes)
        sizes = _symbols(fakes)
        for gm in (functional, body):
            _add_sizes(gm, sizes)
        for node in body.graph.nodes:
            prepare_node(node)
        prepare_for_inductor(functional, decompositions(), mode)
        hook = ReplaceBody(body)
        with inference_state(mode), patched({"post_grad_custom_post_pass": hook}):
            run = compile_inference(functional, [*sizes, *fakes], [])
    assert hook.body is None
    return Compiled(body, [*sizes, *fakes], run)


def traced(program: Program, fakes: Arguments, *, reshapes: bool = False) -> fx.GraphModule:
    """The graph of a program, with its writes, in the operators that are left at the last custom pass."""
    gm = make_fx(program, decomposition_table=dict(decompositions()))(*fakes)
    if reshapes:
        view_to_reshape(gm)
    return gm


def _fake(mode: FakeTensorMode, argument: Tensor, index: int, dynamic: bool) -> Tensor:
    if not dynamic:
        return mode.from_tensor(argument)
    context = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * argument.dim())
    return mode.from_tensor(argument, symbolic_context=context, source=ConstantSource(f"argument{index}"))


def _stand_in(program: Program) -> Program:
    """A functional program of one opaque operator, with results like those of `program`."""
    name = f"stand_in_{next(_NUMBERS)}"

    def fake(arguments: Sequence[Tensor]) -> list[Tensor]:
        results = program(*(argument.clone() for argument in arguments))
        return [torch.empty_strided(result.shape, result.stride(), dtype=result.dtype) for result in results]

    _LIBRARY.define(f"{name}(Tensor[] arguments) -> Tensor[]")
    torch.library.register_fake(f"inductor_hook::{name}", fake, lib=_LIBRARY)
    operator = getattr(torch.ops.inductor_hook, name).default
    return lambda *arguments: tuple(operator(arguments))


def _symbols(fakes: Arguments) -> list[torch.SymInt]:
    found: list[torch.SymInt] = []
    for size in (size for fake in fakes for size in fake.shape):
        known = isinstance(size, int) or any(size.node.expr == other.node.expr for other in found)
        if not known and size.node.expr.is_symbol:
            found.append(size)
    return found


def _add_sizes(gm: fx.GraphModule, sizes: Sequence[torch.SymInt]) -> None:
    with gm.graph.inserting_before(next(iter(gm.graph.nodes))):
        for index, size in enumerate(sizes):
            gm.graph.placeholder(f"size_{index}_").meta["val"] = size
    gm.recompile()


# What a graph writes.


@dataclass(frozen=True)
class Form:
    """A write in a graph: the operator, and for one of its windows the views that lead there and the element type."""

    target: Overload
    views: tuple[Overload, ...]
    dtype: torch.dtype
    temporary: bool


def forms(case: Case, *, reshapes: bool = False) -> Iterator[Form]:
    """The writes of a program."""
    mode = FakeTensorMode()
    fakes = [mode.from_tensor(argument) for argument in case.arguments()]
    with mode:
        gm = traced(case.program, fakes, reshapes=reshapes)
    for node in gm.graph.nodes:
        if node.op != "call_function" or not is_overload(node.target):
            continue
        for index, argument in enumerate(schema_of(node.target).arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = node.kwargs[argument.name] if argument.is_out else node.args[index]
                for window in value if isinstance(value, list | tuple) else [value]:
                    yield _form(node.target, window)


def _form(target: Overload, window: fx.Node) -> Form:
    views: list[Overload] = []
    node = window
    while node.op == "call_function" and (node.target is operator.getitem or _shares_memory(node)):
        if is_overload(node.target) and not schema_of(node.target).is_mutable:
            views.insert(0, node.target)
        node = node.args[0]
    return Form(target, tuple(views), window.meta["val"].dtype, node.op != "placeholder")


def _shares_memory(node: fx.Node) -> bool:
    values = node.meta["val"]
    value = values[0] if isinstance(values, list | tuple) else values
    source = node.args[0].meta["val"] if isinstance(node.args[0], fx.Node) else None
    return isinstance(source, Tensor) and storage_id(value) == storage_id(source)


# Comparing.


@dataclass(frozen=True)
class Case:
    """A program and its arguments; `reference` is what it should do, if that is not what eager mode makes of it."""

    program: Program
    arguments: Callable[[], Arguments]
    reference: Program | None = None


def wrong(cases: Mapping[str, Case], *, dynamic: bool = False, reshapes: bool = False) -> list[str]:
    """The cases, compiled as one graph, in which a result or any byte of an argument's storage is not as in eager mode.

    Arguments of different cases have nothing in common; those of one case keep the storages that they share.
    """
    # A tensor that several cases give would have one fake value, and be one argument.
    arguments = copies([list(case.arguments()) for case in cases.values()])
    counts = [len(own) for own in arguments]
    lengths = [
        len((case.reference or case.program)(*own)) for case, own in zip(cases.values(), copies(arguments), strict=True)
    ]

    def program(*given: Tensor) -> list[Tensor]:
        parts = zip(cases.values(), _split(given, counts), strict=True)
        return [result for case, own in parts for result in case.program(*own)]

    everything = [argument for own in arguments for argument in own]
    compiled = compile_writing(program, everything, dynamic=dynamic, reshapes=reshapes)
    expected = copies(arguments)
    torch.manual_seed(0)
    wanted = [(case.reference or case.program)(*own) for case, own in zip(cases.values(), expected, strict=True)]
    found: set[str] = set()
    # What races may turn out right by chance; one thread shows at least what is wrong in order.
    for threads in (1, torch.get_num_threads()):
        actual = copies(arguments)
        with _threads(threads):
            torch.manual_seed(0)
            results = compiled(*(argument for own in actual for argument in own))
        runs = zip(cases, wanted, _split(results, lengths), expected, actual, strict=True)
        for name, want, got, before, after in runs:
            if not all(map(same, want, got)) or not all(map(same_storage, before, after)):
                found.add(name)
    return [name for name in cases if name in found]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def copies(arguments: Sequence[Arguments]) -> list[list[Tensor]]:
    """The arguments in new memory, which those of one case share as before."""
    return [_copies(own) for own in arguments]


def _copies(arguments: Arguments) -> list[Tensor]:
    storages: dict[int, torch.UntypedStorage] = {}
    copied: list[Tensor] = []
    for tensor in arguments:
        address = tensor.untyped_storage().data_ptr()
        storage = storages.setdefault(address, tensor.untyped_storage().clone())
        empty = torch.empty(0, dtype=tensor.dtype)
        copied.append(empty.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride()))
    return copied


def _split(items: Sequence[Tensor], counts: Sequence[int]) -> Iterator[Sequence[Tensor]]:
    start = 0
    for count in counts:
        yield items[start : start + count]
        start += count


def _bytes(tensor: Tensor) -> Tensor:
    dense = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)
    return torch.empty(0, dtype=torch.uint8).set_(dense.untyped_storage())


def same(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors have the same sizes, strides, element type, and elements, bit by bit."""
    if (left.shape, left.stride(), left.dtype) != (right.shape, right.stride(), right.dtype):
        return False
    return torch.equal(_bytes(left), _bytes(right))


def same_storage(left: Tensor, right: Tensor) -> bool:
    """Whether the storages of two tensors hold the same bytes."""
    whole = [torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()) for tensor in (left, right)]
    return torch.equal(*whole)


def allocations(run: Callable[[], object]) -> tuple[list[int], list[str]]:
    """Sizes of the allocations that a function makes, and the operators that it calls."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        run()
    events = list(recorded.profiler.kineto_results.events())
    return [e.nbytes() for e in events if e.name() == "[memory]" and e.nbytes() > 0], [e.name() for e in events]
