"""Exporting modules to FX graphs.

`export_fx` gives one complete graph that does what the program does: results, writes to arguments, aliases. For
compilers that want pure functions, `export_split` gives the computing part and what happens to the caller's memory
afterwards as two graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor, fx, nn
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from xdsl.dialects.builtin import ModuleOp, NameLoc, StringAttr
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.fx.errors import located
from vllm_ir.backends.fx.function import FunctionExporter, GraphBuilder
from vllm_ir.backends.fx.layout import needs_all_strides
from vllm_ir.backends.fx.metas import example_arguments, propagating
from vllm_ir.backends.fx.pure import returned_values
from vllm_ir.backends.fx.tail import Results, TailExporter
from vllm_ir.dialects.torch.arguments import OperandAttr, TupleAttr
from vllm_ir.dialects.vllm_ir.function import DONATED, RESOURCE, WINDOW, FuncOp, ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.memory import ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.checks import check_module
from vllm_ir.frontends.fx.importer import MAIN, collector_paused
from vllm_ir.frontends.fx.torch_internals import lazy_module
from vllm_ir.frontends.fx.torch_objects import output_node


def main_function(module: ModuleOp) -> FuncOp:
    """The function `@main`, or the only one."""
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
    named = [function for function in functions if function.sym_name.data == MAIN]
    if len(named) == 1 or len(functions) == 1:
        return (named or functions)[0]
    raise VerifyException(f"the module has {len(functions)} functions and none is @{MAIN}")


def export_fx(
    module: ModuleOp,
    like: fx.GraphModule | nn.Module | None = None,
    *,
    inputs: Sequence[object] | None = None,
    fake_mode: FakeTensorMode | None = None,
    opaque: bool = False,
) -> fx.GraphModule:
    """The module as a complete FX graph.

    Calling it is like calling the program: mutated arguments are written, returned aliases are aliases, new tensors are
    new and have the strides of eager mode. Arguments that stand for module attributes become `get_attr` nodes on the
    attributes of `like`, taken by reference; without `like` they stay placeholders. `inputs` are fakes for the
    arguments, in `fake_mode`; by default they are made from the argument types. The graph of a pure function (after
    `alias-outputs,functionalize`) writes nothing and returns a flat tuple of new tensors; an output that is an argument
    which did not change may be that argument. With `opaque`, custom operators that
    write become operators that Inductor cannot take apart. Raises `VerifyException` if the module is not valid or
    states other effects than the schemas of the operators that it calls.
    """
    return export_graph(module, like, inputs=inputs, fake_mode=fake_mode or _mode_of(like), opaque=opaque).graph_module


@dataclass(frozen=True)
class ExportedGraph:
    """A complete FX graph, and its nodes that copy a tensor with the reason for each."""

    graph_module: fx.GraphModule
    copies: Mapping[fx.Node, str]


def export_graph(
    module: ModuleOp,
    like: fx.GraphModule | nn.Module | None = None,
    *,
    inputs: Sequence[object] | None = None,
    fake_mode: FakeTensorMode,
    opaque: bool = False,
    trusted: bool = False,
) -> ExportedGraph:
    """The module as a complete FX graph, with an account of its copies; see `export_fx`.

    With `trusted`, the module comes from our own import and passes: only the contracts of its functions are verified.
    """
    function = _checked(module, trusted=trusted)
    with collector_paused(), propagating(fake_mode):
        fakes = example_arguments(function, fake_mode) if inputs is None else inputs
        return _export_function(function, fake_mode, fakes, like, _sub_graphs(module, function, fake_mode), opaque)


@dataclass(frozen=True)
class SplitGraph:
    """A program as a pure graph and what is done with its outputs.

    `core` takes the function's arguments and returns a flat tuple of new tensors and numbers: results first, then the
    final values of arguments and sizes that the epilogue needs. `epilogue`, called with `epilogue_arguments` of the
    arguments and then all outputs of the core, writes the arguments and returns what the program returns; None if that
    is what the core returned.
    """

    core: fx.GraphModule
    epilogue: fx.GraphModule | None
    epilogue_arguments: tuple[int, ...]
    copies: Mapping[fx.Node, str]
    """Nodes of the core that copy a tensor, and why."""
    finals: Mapping[int, int]
    """Outputs of the core that are the final values of whole arguments, and the positions of these."""
    donated: tuple[int, ...]
    """Arguments whose memory the core may use as it likes."""


def export_split(module: ModuleOp, inputs: Sequence[object], fake_mode: FakeTensorMode) -> SplitGraph:
    """The functionalized module as a pure graph and an epilogue; `inputs` are fakes for the arguments.

    The module comes from our own import and passes: only the contracts of its functions are verified.
    """
    function = _checked(module, trusted=True)
    if function.functional is None:
        raise VerifyException(f"@{function.sym_name.data} is not functional; run functionalize first")
    with collector_paused(), propagating(fake_mode):
        root = nn.Module()
        builder = GraphBuilder(fake_mode, opaque=True)
        exporter = FunctionExporter(function, builder, root, _sub_graphs(module, function, fake_mode))
        _placeholders(exporter, inputs)
        tail = exporter.body()
        results = Results(exporter, tail)
        for value in _symbols(tail):
            if not isinstance(value, BlockArgument):
                results.nodes.setdefault(value, exporter.values[value])
        returned = _returned(tail)
        order = sorted(results.nodes, key=lambda value: value not in returned)
        outputs = [value for value in order if isinstance(results.nodes[value], fx.Node)]
        output_node(builder.graph, tuple(results.nodes[value] for value in outputs))
        core = lazy_module(root, builder.graph)
        if _is_plain(function, tail, outputs, results):
            return SplitGraph(core, None, (), builder.copies, {}, _donated(function))
        return _with_epilogue(function, core, tail, results, outputs, fake_mode)


def _returned(tail: Sequence[Operation]) -> set[SSAValue]:
    return set(tail[-1].operands)


def _is_plain(function: FuncOp, tail: Sequence[Operation], outputs: Sequence[SSAValue], results: Results) -> bool:
    """Whether the outputs of the core are what the program returns."""
    returned = tail[-1]
    if not isinstance(returned, ReturnOp) or any(isinstance(op, WriteOp) for op in tail):
        return False
    if any(WINDOW in function.argument_attributes(index) for index in range(len(function.block.args))):
        return False
    for value in outputs:
        node = results.nodes[value]
        fake = node.meta["val"] if isinstance(node, fx.Node) else None
        if isinstance(fake, Tensor) and needs_all_strides(fake, value.type, trust_values=False):
            return False
    structure = returned.structure
    items = structure.items.data if isinstance(structure, TupleAttr) else ()
    indices = [item.index.data for item in items if isinstance(item, OperandAttr)]
    flat = isinstance(structure, TupleAttr) and indices == list(range(len(returned.operands)))
    return flat and len(indices) == len(items) and list(returned.operands) == list(outputs)


def _with_epilogue(
    function: FuncOp,
    core: fx.GraphModule,
    tail: Sequence[Operation],
    results: Results,
    outputs: Sequence[SSAValue],
    mode: FakeTensorMode,
) -> SplitGraph:
    builder = GraphBuilder(mode)
    known: dict[SSAValue, object] = {
        value: node for value, node in results.nodes.items() if not isinstance(node, fx.Node)
    }
    used: dict[BlockArgument, fx.Node] = {}

    def argument(value: BlockArgument) -> fx.Node:
        if value not in used:
            raise VerifyException(f"%{value.name_hint} is used by the epilogue but not known to be")
        return used[value]

    for value in _epilogue_arguments(function, tail):
        used[value] = _placeholder(builder, value, results.exporter.node(value).meta["val"])
    for value in outputs:
        node = results.nodes[value]
        known[value] = _placeholder(builder, value, node.meta["val"] if isinstance(node, fx.Node) else None)
    known.update((value, node) for value, node in used.items())
    TailExporter(function, builder, argument, known, trust_values=False).run(tail)
    epilogue = fx.GraphModule(nn.Module(), builder.graph)
    positions = tuple(value.index for value in used)
    finals = _finals(tail, outputs)
    return SplitGraph(core, epilogue, positions, results.builder.copies, finals, _donated(function))


def _donated(function: FuncOp) -> tuple[int, ...]:
    return tuple(i for i in range(len(function.block.args)) if DONATED in function.argument_attributes(i))


def _finals(tail: Sequence[Operation], outputs: Sequence[SSAValue]) -> dict[int, int]:
    """Outputs that are only there to be written to a whole argument, and the positions of the arguments."""
    writes = [op for op in tail if isinstance(op, WriteOp)]
    uses = Counter([op.value for op in writes] + list(_returned(tail)))
    return {
        outputs.index(op.value): op.buffer.index
        for op in writes
        if isinstance(op.buffer, BlockArgument) and op.value in outputs and uses[op.value] == 1
    }


def _placeholder(builder: GraphBuilder, value: SSAValue, fake: object) -> fx.Node:
    return builder.placeholder(value.name_hint or "value", fake)


def _epilogue_arguments(function: FuncOp, tail: Sequence[Operation]) -> list[BlockArgument]:
    """Arguments that are written, returned as windows, or change their window, and the sizes that views need."""
    found: dict[BlockArgument, None] = {}
    buffers = [op.buffer for op in tail if isinstance(op, WriteOp)]
    buffers += [value for value in tail[-1].operands if isinstance(value.type, BufferType)]
    for buffer in buffers:
        root = root_of(buffer)
        if isinstance(root, BlockArgument):
            found[root] = None
    for index, value in enumerate(function.block.args):
        if WINDOW in function.argument_attributes(index):
            found[value] = None
    for value in _symbols(tail):
        if isinstance(value, BlockArgument):
            found[value] = None
    return list(found)


def _symbols(tail: Sequence[Operation]) -> list[SSAValue]:
    """Integers that the views of the tail take."""
    found: dict[SSAValue, None] = {}
    pending = [op.buffer for op in tail if isinstance(op, WriteOp)]
    pending += [value for value in tail[-1].operands if isinstance(value.type, BufferType)]
    while pending:
        owner = pending.pop().owner
        if isinstance(owner, ViewOp):
            pending.append(owner.base)
            found.update(dict.fromkeys(owner.operands[1:]))
    return list(found)


def _checked(module: ModuleOp, *, trusted: bool = False) -> FuncOp:
    if not trusted:
        module.verify()
        check_module(module)
    for function in module.body.block.ops if trusted else ():
        if isinstance(function, FuncOp):
            function.verify_()
    return main_function(module)


def _mode_of(like: nn.Module | None) -> FakeTensorMode:
    if isinstance(like, fx.GraphModule):
        metas = [node.meta.get("val", node.meta.get("example_value")) for node in like.graph.nodes]
        if (mode := detect_fake_mode([meta for meta in metas if isinstance(meta, Tensor)])) is not None:
            return mode
    # Sizes that depend on elements are symbols.
    return FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)


def _sub_graphs(module: ModuleOp, main: FuncOp, mode: FakeTensorMode) -> dict[str, fx.GraphModule]:
    """The other functions of the module; callees come before callers."""
    found: dict[str, fx.GraphModule] = {}
    for function in module.body.block.ops:
        if isinstance(function, FuncOp) and function is not main:
            inputs = example_arguments(function, mode)
            found[function.sym_name.data] = _export_function(function, mode, inputs, None, found).graph_module
    return found


def _export_function(
    function: FuncOp,
    mode: FakeTensorMode,
    inputs: Sequence[object],
    like: nn.Module | None,
    functions: Mapping[str, fx.GraphModule],
    opaque: bool = False,
) -> ExportedGraph:
    root = nn.Module()
    builder = GraphBuilder(mode, opaque)
    exporter = FunctionExporter(function, builder, root, functions)
    _placeholders(exporter, inputs, like)
    tail = exporter.body()
    if function.is_pure:
        with located(function.terminator):
            output_node(builder.graph, returned_values(exporter, function.terminator))
        return ExportedGraph(fx.GraphModule(root, builder.graph), builder.copies)
    results = Results(exporter, tail)
    known: dict[SSAValue, object] = dict(results.nodes)
    for value in _symbols(tail):
        known.setdefault(value, exporter.values.get(value))
    ending = TailExporter(function, builder, exporter.node, known)
    ending.buffers.update(
        {value: node for value, node in exporter.values.items() if isinstance(node, fx.Node) and _is_buffer(value)}
    )
    ending.run(tail)
    return ExportedGraph(fx.GraphModule(root, builder.graph), builder.copies)


def _is_buffer(value: SSAValue) -> bool:
    return isinstance(value.type, BufferType)


def _placeholders(exporter: FunctionExporter, inputs: Sequence[object], like: nn.Module | None = None) -> None:
    function = exporter.function
    for index, (argument, fake) in enumerate(zip(function.block.args, inputs, strict=True)):
        resource = function.argument_attributes(index).get(RESOURCE)
        if like is not None and isinstance(resource, StringAttr):
            with located(function):
                node = _get_attribute(exporter, resource.data, like)
            node.meta["val"] = fake
        else:
            node = exporter.builder.placeholder(argument_name(argument), fake)
        exporter.values[argument] = node


def argument_name(argument: BlockArgument) -> str:
    """Name that the argument had in the imported graph."""
    location = argument.location
    return location.desc.data if isinstance(location, NameLoc) else argument.name_hint or f"arg{argument.index}"


def tensor_attribute(like: nn.Module, name: str) -> Tensor | None:
    """The tensor at a dotted path of modules; None if there is none. Names come from text: nothing else is reached."""
    value: object = like
    for part in name.split("."):
        value = getattr(value, part, None) if isinstance(value, nn.Module) else None
    return value if isinstance(value, Tensor) else None


def _get_attribute(exporter: FunctionExporter, name: str, like: nn.Module) -> fx.Node:
    """A node for the attribute `name` of `like`, which the exported module shares."""
    value = tensor_attribute(like, name)
    if value is None or '"' in name or "\\" in name or not name.isprintable():  # it becomes code
        raise VerifyException(f"`like` has no tensor attribute {name!r} that FX can name")
    *path, last = name.split(".")
    owner = exporter.root
    for part in path:
        if not hasattr(owner, part):
            owner.add_module(part, nn.Module())
        owner = getattr(owner, part)
    if not hasattr(owner, last):
        if isinstance(value, nn.Parameter):
            owner.register_parameter(last, value)
        else:
            owner.register_buffer(last, value)
    return exporter.builder.graph.get_attr(name)
