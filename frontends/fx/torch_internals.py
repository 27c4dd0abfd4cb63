"""The parts of torch's tracing machinery that are private or untyped, behind typed functions."""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# Private: storage identity, operator tags, proxies, node order and autocast state have no public form. Unknown:
# symbolic numbers, contexts and FX graphs lack types.

import functools
import linecache
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import cast

import torch
from torch import fx, nn
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import TracingContext, active_fake_mode, tracing
from torch._subclasses.fake_impls import fast_detach
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode, unset_fake_temporarily
from torch.fx import _symbolic_trace
from torch.fx._lazy_graph_module import _LazyGraphModule, _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import (
    PythonKeyTracer,
    disable_proxy_modes_tracing,
    get_proxy_mode,
    make_fx,
)
from torch.fx.experimental.sym_node import METHOD_TO_OPERATOR
from torch.fx.experimental.symbolic_shapes import (
    StatefulSymbolicContext,
    cast_symbool_to_symint_guardless,
    rebind_unbacked,
)
from torch.fx.graph import _Namespace
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._thunk import Thunk

# These load nothing of torch's tracing; whoever needs no more takes them from where they are.
from vllm_ir.frontends.fx.torch_objects import SYMBOLIC_TYPES as SYMBOLIC_TYPES
from vllm_ir.frontends.fx.torch_objects import Overload as Overload
from vllm_ir.frontends.fx.torch_objects import SymbolicNumber as SymbolicNumber
from vllm_ir.frontends.fx.torch_objects import expression as expression
from vllm_ir.frontends.fx.torch_objects import schema_of as schema_of
from vllm_ir.frontends.ops.torch_internals import storage_id as storage_id


@functools.cache
def number_functions() -> Mapping[str, Callable[..., object]]:
    """Python functions that graphs call on symbolic numbers, by module and name: those that torch traces."""
    traced = [*METHOD_TO_OPERATOR.values(), cast_symbool_to_symint_guardless]
    traced += [value for name, value in vars(torch).items() if name.startswith("sym_") and callable(value)]
    functions = cast("list[Callable[..., object]]", traced)
    return {f"{function.__module__}.{function.__name__}": function for function in functions}


enter_autocast = cast(Callable[..., object], torch.amp.autocast_mode._enter_autocast)
exit_autocast = cast(Callable[..., object], torch.amp.autocast_mode._exit_autocast)


# Symbolic numbers. None of these installs a guard.


def hint(size: int | torch.SymInt) -> int | None:
    """The example's value of a size; None if it has none, as sizes that depend on data."""
    if not isinstance(size, torch.SymInt):
        return size
    return size.node.hint if size.node.has_hint() else None


def shape_env_of(number: SymbolicNumber) -> object:
    """The `ShapeEnv` that a symbolic number belongs to."""
    return number.node.shape_env


def number_if_constant(number: SymbolicNumber) -> SymbolicNumber | bool | int | float:
    """A plain number for a symbolic one whose expression has become constant: no node computes it."""
    constant = number.node.expr
    if not constant.is_number:
        return number
    return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(number)](constant)


# Fake tensors and the modes and contexts that they live in.


def has_symbolic_metadata(tensor: torch.Tensor) -> bool:
    """Whether sizes, strides or offset of a fake tensor are symbolic."""
    return isinstance(tensor, FakeTensor) and tensor._has_symbolic_sizes_strides


def alias_of_fake(mode: FakeTensorMode, fake: FakeTensor) -> FakeTensor:
    """A fake in `mode` with metadata of its own, on the same storage; without gradient or parameter class."""
    return fast_detach(mode, fake)


def fakes_on_new_storage(
    mode: FakeTensorMode, nbytes: int | torch.SymInt, templates: list[tuple[torch.Tensor, torch.dtype, torch.device]]
) -> list[FakeTensor]:
    """Fakes on one new storage of `nbytes` bytes, each with sizes, strides and offset of a template tensor."""
    fakes: list[FakeTensor] = []
    guards = mode.shape_env.suppress_guards() if mode.shape_env is not None else nullcontext()
    with guards, no_dispatch(), torch.no_grad():
        storage = torch.empty(nbytes, dtype=torch.uint8, device="meta").untyped_storage()
        for template, dtype, device in templates:
            empty = torch.empty(0, dtype=dtype, device="meta")
            window = empty.set_(storage, template.storage_offset(), template.size(), template.stride())
            fakes.append(FakeTensor(mode, window, device))
    return fakes


def restride_fake(fake: torch.Tensor, strides: Sequence[int]) -> None:
    """Change the strides of a fake tensor, which nothing records, and which ties no symbolic offset to a number."""
    environment = fake.fake_mode.shape_env if isinstance(fake, FakeTensor) else None
    guards = environment.suppress_guards() if environment is not None else nullcontext()
    with guards, disable_proxy_modes_tracing(), no_dispatch(), torch.no_grad():
        fake.as_strided_(fake.size(), strides)


def ambient_fake_mode() -> FakeTensorMode | None:
    """The mode of the compilation that is going on, or the one that is active."""
    context = TracingContext.try_get()
    return (context.fake_mode if context is not None else None) or active_fake_mode()


def dynamo_context(mode: FakeTensorMode, tensor: torch.Tensor) -> StatefulSymbolicContext | None:
    """What Dynamo decided about the sizes of a real input tensor, if it is compiling with `mode`."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is not mode:
        return None
    return cast("StatefulSymbolicContext | None", context.tensor_to_context.get(tensor))


def fake_from_dynamo(
    mode: FakeTensorMode,
    converter: FakeTensorConverter,
    tensor: torch.Tensor,
    context: StatefulSymbolicContext | None,
) -> FakeTensor:
    """A fake of a real tensor, with the symbols that Dynamo gave it; static without a context.

    One `converter` keeps storages shared among the fakes that it makes.
    """
    fake = converter.from_real_tensor(
        mode,
        tensor,
        shape_env=None if context is None else mode.shape_env,
        source=None if context is None else context.tensor_source,
        symbolic_context=context,
        trace=False,
    )
    # The converter gives the same fake for the same tensor, and keeps parameters' class and gradient.
    alias = alias_of_fake(mode, fake)
    alias.item_memo = fake.item_memo  # the symbol of `item()` of a number that Dynamo passes as a tensor
    return alias


# Operators.


def aten_overloads_tagged(tag: torch.Tag) -> Iterator[Overload]:
    """ATen overloads with a tag. Looks at tags only, so it does not load thousands of Python operators."""
    for qualified in torch._C._dispatch_get_all_op_names():
        name, _, overload = qualified.partition(".")
        namespace, _, packet = name.partition("::")
        if namespace != "aten":
            continue
        # Returns nothing for operators that are declared but have no schema, whatever its annotation says.
        found = cast("tuple[object, object, list[torch.Tag]] | None", torch._C._get_operation_overload(name, overload))
        if found is not None and tag in found[2]:
            yield cast(Overload, getattr(getattr(torch.ops.aten, packet), overload or "default"))


def aten_overload(packet: str, overload: str) -> Overload | None:
    """`torch.ops.aten.<packet>.<overload>`, if it exists."""
    found = getattr(torch.ops.aten, packet, None)
    return getattr(found, overload) if found is not None and overload in found.overloads() else None


def names_of(op: Overload) -> tuple[str, str]:
    """The names of an overload's packet and of the overload: `("as_strided_copy", "default")`."""
    return op.overloadpacket.__name__, op._overloadname


# Modules.


def registered_tensors(module: nn.Module) -> tuple[dict[str, torch.Tensor | None], ...]:
    """The dictionaries in which a module itself registers its tensors: parameters, then buffers."""
    return cast("dict[str, torch.Tensor | None]", module._parameters), module._buffers


# Tracing.


@contextmanager
def tracing_state(mode: FakeTensorMode) -> Generator[None]:
    """Everything ambient that tracing depends on, put back afterwards."""
    context = TracingContext.try_get()
    if context is None or context.fake_mode is not mode:
        # Without it, `detect_fake_mode` inside higher-order operators may find another mode.
        context = TracingContext(mode)
    with (
        tracing(context),
        torch.inference_mode(False),  # fakes are ordinary tensors, which inference mode would not let it mutate
        torch.no_grad(),
        mode,
        # As AOTAutograd: the C++ versions of composite operators do not all know symbolic sizes; see `composites.py`.
        enable_python_dispatcher(),
        _use_lazy_graph_module(True),  # most callers never run the graph's Python code
    ):
        yield


def traced(
    function: Callable[..., object],
    decompositions: Mapping[Overload, Callable[..., object]],
    arguments: list[object],
) -> fx.GraphModule:
    """Runs `function(*arguments)` under `make_fx`, on the arguments as they are."""

    def run(*arguments: object) -> object:
        # FX notes for the whole process that it traces, and Dynamo refuses to call what it has compiled meanwhile: also
        # in other threads, which have nothing to do with this trace. FX puts back what was there before.
        _symbolic_trace._is_fx_tracing_flag = False
        return function(*arguments)

    # "real" means "as given": the arguments are fakes already, and converting them again would lose symbols.
    make = make_fx(run, decompositions, tracing_mode="real", _disable_torch_fn_metadata_mode=True)
    return make(*arguments)


def current_tracer() -> PythonKeyTracer:
    """The tracer of the `make_fx` that is running."""
    tracer = ambient_tracer()
    assert tracer is not None, "only under make_fx"
    return tracer


def ambient_tracer() -> PythonKeyTracer | None:
    """The tracer of the `make_fx` that is running; None if none is."""
    mode = get_proxy_mode()
    return None if mode is None else cast(PythonKeyTracer, mode.tracer)


def node_of_tensor(tracer: PythonKeyTracer, tensor: torch.Tensor) -> fx.Node | None:
    """The node that a tensor's latest value comes from."""
    found = tracer.tensor_tracker.get(tensor)
    return None if found is None else found.proxy.node


def node_of_symbol(tracer: PythonKeyTracer, number: SymbolicNumber) -> fx.Node | None:
    """The node that computes a symbolic number, if one has been made; they are made when first used."""
    thunk = cast("Thunk[fx.Proxy] | None", tracer.symnode_tracker.get(number))
    return None if thunk is None or thunk.r is None else thunk.r.node


def last_node(tracer: PythonKeyTracer) -> fx.Node:
    """The newest node of the graph being traced; its sentinel if there is none."""
    return tracer.graph._root._prev


def nodes_since(tracer: PythonKeyTracer, last: fx.Node) -> Iterator[fx.Node]:
    """The nodes made after `last`, newest first."""
    root = tracer.graph._root
    node = root._prev
    while node is not last and node is not root:
        yield node
        node = node._prev


def rebind_symbols(node: fx.Node, result: object) -> None:
    """Tells the `ShapeEnv` that data-dependent sizes of `result` are those that `node` had when it was made."""
    mode = active_fake_mode()
    if mode is not None and mode.shape_env is not None:
        cast(Callable[..., None], rebind_unbacked)(mode.shape_env, node, result)


def structured_outputs(graph: fx.Graph, outputs: object) -> object:
    """Outputs in the structure of the program that was exported; as they are for other graphs."""
    return graph.process_outputs(outputs)


def is_leaf(value: object) -> bool:
    """Whether pytree knows `value` as no container."""
    return pytree.tree_is_leaf(value)


def record_stack_traces(keep: Callable[[str], bool]) -> None:
    """Makes the running `make_fx` note, on each node, the frames below the caller's, of files that pass `keep`.

    Formatted as Python formats tracebacks, innermost frame last. Walks the stack itself: torch's own recorder takes
    milliseconds per node.
    """
    tracer = current_tracer()
    create_node = tracer.create_node
    caller = sys._getframe(1)

    def create_located_node(kind: str, *args: object, **kwargs: object) -> fx.Node:
        node = cast(Callable[..., fx.Node], create_node)(kind, *args, **kwargs)
        if kind != "output":
            node.meta.setdefault("stack_trace", "".join(reversed(list(user_frames(sys._getframe(1))))))
        return node

    def user_frames(frame: FrameType | None) -> Iterator[str]:
        while frame is not None and frame is not caller:
            if keep(frame.f_code.co_filename):
                yield _formatted_frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            frame = frame.f_back

    tracer.create_node = create_located_node


@functools.lru_cache(maxsize=4096)
def _formatted_frame(file: str, line: int, function: str) -> str:
    return f'  File "{file}", line {line}, in {function}\n    {linecache.getline(file, line).strip()}\n'


def rename_nodes(graph: fx.Graph, wanted: Mapping[fx.Node, str]) -> None:
    """Gives the wanted names, the first node that wants one first, and unique names to all others."""
    namespace = _Namespace()
    others: list[fx.Node] = []
    taken: set[str] = set()
    for node in graph.nodes:
        name = wanted.get(node)
        if name is None or name in taken or not name.isidentifier():
            others.append(node)
            continue
        taken.add(name)
        # Not `create_name`: it would change names that end in a number or shadow a builtin.
        namespace._used_names.add(name)
        namespace.associate_name_with_obj(name, node)
        _set_name(node, name)
    for node in others:
        _set_name(node, namespace.create_name(wanted.get(node, node.name), node))
    graph._graph_namespace = namespace


def _set_name(node: fx.Node, name: str) -> None:
    node.name = name
    if node.op == "placeholder":
        node.target = name


def lazy_module(root: nn.Module, graph: fx.Graph) -> fx.GraphModule:
    """A graph module whose Python code is only made when it is called: most are only looked at by compilers."""
    return _LazyGraphModule(root, graph)


def new_fake(
    mode: FakeTensorMode, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> FakeTensor:
    """A fake tensor alone in its memory, made without asking a fake kernel."""
    with unset_fake_temporarily():
        data = torch.empty_strided(tuple(sizes), tuple(strides), dtype=dtype, device="meta")
    return FakeTensor(mode, data, device)


def new_fake_view(
    base: FakeTensor, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, offset: int
) -> FakeTensor:
    """A fake tensor in the memory of another one, made without asking a fake kernel; `offset` counts in `dtype`."""
    storage = base.untyped_storage()
    with unset_fake_temporarily():
        data = torch.empty((0,), dtype=dtype, device="meta")
        data.set_(storage, offset, tuple(sizes), tuple(strides))  # pyright: ignore[reportArgumentType]  # stub: Storage
    return FakeTensor(base.fake_mode, data, base.device)
