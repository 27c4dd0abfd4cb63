"""Compilers of pure programs: what is around them, from a graph of Dynamo to a call that writes its arguments.

A compiler of values needs to know nothing of memory. It is given a pure function, with static sizes, and its results
are put where the program has them: see `backends/program_call.py`. Sizes that change, arguments that lie differently in
memory, module attributes and gradients are dealt with here.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from torch import SymInt, Tensor, fx
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ArrayAttr, IntegerAttr, ModuleOp, i64
from xdsl.ir import BlockArgument
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.program_call import Compiled
from vllm_ir.backends.stablehlo.signature import Alias, Result, Signature, TensorFacts, View, signature_of
from vllm_ir.dialects.torch.arguments import TupleAttr
from vllm_ir.dialects.vllm_ir.function import ORIGINAL_OUTPUT_COUNT, FuncOp
from vllm_ir.frontends.fx.torch_objects import is_overload, schema_of
from vllm_ir.frontends.fx.values import operand_reference
from vllm_ir.tools.artifact import Artifact, compile_direct, needs_autograd, static_inputs
from vllm_ir.tools.lowering import lower_graph, overlapping_arguments, without_values
from vllm_ir.tools.offsets import places_windows
from vllm_ir.tools.options import CompileOptions, parse_options
from vllm_ir.tools.overlap import Arrangement, ArrangementCheck, CheckedCall, can_overlap, overlapping_groups
from vllm_ir.tools.reports import CompileReport, recording
from vllm_ir.tools.stablehlo import main_function
from vllm_ir.tools.torch_internals import (
    autocast_enabled,
    autograd_backend,
    compile_lock,
    inputs_written_under_autograd,
    make_floats_constant,
    without_autocast,
)


@dataclass(frozen=True)
class PureProgram:
    """A program to compile: a module, and what is around its main function."""

    module: ModuleOp
    """Its main function is pure, and returns what has to be computed and nothing else."""
    main: FuncOp
    signature: Signature
    overlapping: Sequence[Sequence[int]]
    """Groups of arguments that share memory."""
    offsets: Mapping[int, int]
    """Where in their storages the arguments are."""
    held: frozenset[int]
    """Arguments that are most often the same tensor."""


@dataclass(frozen=True)
class PureCompiler:
    """Makes calls of pure programs."""

    name: str
    """That of the backend, for reports."""
    compile: Callable[[PureProgram, CompileOptions, CompileReport], Compiled]
    """Gives what takes the arguments and does what the program does."""
    any_device: bool = False
    """Whether it takes tensors that are not in main memory."""


def compile_pure(
    compiler: PureCompiler,
    gm: fx.GraphModule,
    inputs: Sequence[object],
    mode: str | None,
    options: Mapping[str, object] | None,
    passes: str,
) -> Compiled:
    """Compile a graph of Dynamo by a compiler of pure programs.

    Args:
        compiler: see there.
        gm: the graph. It is not changed.
        inputs: its inputs: tensors, real or fake, and numbers.
        mode: as for `torch.compile`.
        options: as for the backend `vllm_ir`.
        passes: the pipeline where the options name none; it ends in a pure function.

    Raises:
        ValueError: an option is unknown or malformed.
        FxImportError: the program cannot be imported; the message names the node and the user's line.
        VerifyException: the pipeline does not end in a pure function.
    """
    parsed = parse_options(mode, {"passes": passes, **(options or {})})
    make_floats_constant()
    with compile_lock():
        if needs_autograd(gm, inputs):
            return _with_gradients(compiler, gm, inputs, parsed.resolved())
        return _compile(compiler, gm, inputs, parsed, "inference")


def _compile(
    compiler: PureCompiler, gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, kind: str
) -> Compiled:
    if any(map(_is_symbolic, inputs)):
        return _PerSizes(compiler, gm, options.resolved(), kind)

    def build(gm: fx.GraphModule, inputs: Sequence[object]) -> Artifact:
        with compile_lock():
            return _build(compiler, gm, inputs, options, kind)

    return compile_direct(gm, inputs, build)


def _is_symbolic(value: object) -> bool:
    if isinstance(value, Tensor):
        return any(isinstance(size, SymInt) for size in (*value.shape, *value.stride()))
    return isinstance(value, SymInt)


def _with_gradients(
    compiler: PureCompiler, gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions
) -> Compiled:
    """Compile the graphs that AOTAutograd makes of one, the backward one when it is first needed."""
    original = without_values(gm)  # AOTAutograd takes over what it is given
    kinds = ("forward", "backward", "inference")
    parts = (partial(_compile_part, compiler, options, kind) for kind in kinds)
    compiled = autograd_backend(*parts)(gm, inputs)
    written = inputs_written_under_autograd()
    if not written or not can_overlap(inputs):
        return compiled

    def compile_for(others: Sequence[object]) -> Compiled:
        with compile_lock():
            return _with_gradients(compiler, original, others, options)

    check = ArrangementCheck(Arrangement.of(inputs, written, overlapping_groups(inputs)), inputs)
    return CheckedCall(compiled, check, compile_for, original.forward)


def _compile_part(
    compiler: PureCompiler, options: CompileOptions, kind: str, part: fx.GraphModule, inputs: Sequence[object]
) -> Compiled:
    return _compile(compiler, part, inputs, options, kind)


class _PerSizes:
    """Compiles a graph for every set of sizes that it is called with, and keeps what it has compiled."""

    def __init__(self, compiler: PureCompiler, gm: fx.GraphModule, options: CompileOptions, kind: str) -> None:
        self._compiler = compiler
        self._original = without_values(gm)
        self._static = static_inputs(gm)
        self._options = options
        self._kind = kind
        self._compiled: dict[object, Compiled] = {}
        self._lock = threading.Lock()

    def __call__(self, *arguments: object) -> object:
        key = tuple((v.shape, v.stride()) if isinstance(v, Tensor) else v for v in arguments)
        call = self._compiled.get(key)
        if call is None:
            with self._lock, compile_lock():
                call = self._compiled.get(key)
                if call is None:
                    graph = without_values(self._original)
                    call = _compile(self._compiler, graph, arguments, self._options, self._kind)
                    self._compiled[key] = call
        return call(*arguments)


def _build(
    compiler: PureCompiler, gm: fx.GraphModule, inputs: Sequence[object], options: CompileOptions, kind: str
) -> Artifact:
    with recording(compiler.name, kind) as report:
        normalized, module = lower_graph(gm, inputs, options, report)
        main = main_function(module)
        if main is None:
            raise VerifyException("the pipeline left no vllm_ir function; it must end in a pure one")
        signature = signature_of(main, any_device=compiler.any_device)
        overlapping = overlapping_arguments(module)
        signature = _without_arguments(main, _with_identities(signature, normalized.graph_module.graph))
        held = {*static_inputs(gm), *range(len(inputs), len(inputs) + len(normalized.attributes))}
        offsets = {i: int(v.storage_offset()) for i, v in enumerate(normalized.inputs) if isinstance(v, Tensor)}
        program = PureProgram(module, main, signature, overlapping, offsets, frozenset(held))
        call = compiler.compile(program, options, report)
    if autocast_enabled():
        call = without_autocast(call)
    written, placed = frozenset(signature.writes.values()), places_windows(normalized.graph_module)
    return Artifact(call, normalized.attributes, written, overlapping, placed)


def _with_identities(signature: Signature, graph: fx.Graph) -> Signature:
    """Tell outputs that are arguments themselves from views of all of an argument.

    A view is a tensor of its own in the same memory: what is done to the shape or the gradient of one is not seen in
    the other.
    """
    nodes = cast("list[object]", pytree.tree_leaves(graph.output_node().args[0]))
    numbers = {node: index for index, node in enumerate(graph.find_nodes(op="placeholder"))}
    outputs = list(signature.outputs)
    for position, (output, node) in enumerate(zip(outputs, nodes, strict=True)):
        if not isinstance(output, Alias | View) or not isinstance(node, fx.Node):
            continue
        argument = numbers.get(_written_value(node))
        if argument is not None:
            outputs[position] = Alias(argument)
        elif isinstance(output, Alias):
            value = cast(Tensor, node.meta["val"])
            facts = TensorFacts(tuple(value.shape), value.dtype, value.stride())
            outputs[position] = View(output.argument, facts, int(value.storage_offset()))
    return replace(signature, outputs=tuple(outputs))


def _written_value(node: fx.Node) -> fx.Node:
    """The node of the tensor that calls have written and returned: `x` of `x.add_(1)`."""
    while True:
        number, call = 0, node
        if node.target is operator.getitem and isinstance(node.args[0], fx.Node) and isinstance(node.args[1], int):
            call, number = node.args[0], node.args[1]
        base = _returned_argument(call, number)
        if base is None:
            return node
        node = base


def _returned_argument(call: fx.Node, number: int) -> fx.Node | None:
    """The written argument that a result of a call is, by the operator's schema."""
    if not is_overload(call.target):
        return None
    schema = schema_of(call.target)
    alias = schema.returns[number].alias_info if number < len(schema.returns) else None
    if alias is None or not alias.is_write:
        return None
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.before_set == alias.before_set:
            given = call.args[position] if position < len(call.args) else call.kwargs.get(argument.name)
            return given if isinstance(given, fx.Node) else None
    return None


def _without_arguments(main: FuncOp, signature: Signature) -> Signature:
    """Take out of the function what the caller has: windows onto arguments, and arguments that are returned as such.

    A compiler would compute a copy of each window, and of each argument that it may not use the memory of.
    """
    operands = list(main.terminator.operands)
    unchanged = {
        result
        for result, argument in signature.writes.items()
        if isinstance(value := operands[result], BlockArgument) and value.index == argument
    }
    wanted = {output.index for output in signature.outputs if isinstance(output, Result)}
    kept = sorted((wanted | signature.writes.keys()) - unchanged)
    numbers = {old: new for new, old in enumerate(kept)}
    attributes = main.result_attributes()
    main.terminator.operands = [operands[index] for index in kept]
    main.terminator.properties["structure"] = TupleAttr(ArrayAttr([operand_reference(i) for i in range(len(kept))]))
    main.attributes[ORIGINAL_OUTPUT_COUNT] = IntegerAttr(len(kept), i64)
    main.set_result_attributes([dict(attributes[index]) for index in kept])
    main.update_type()
    return replace(
        signature,
        outputs=tuple(
            replace(output, index=numbers[output.index]) if isinstance(output, Result) else output
            for output in signature.outputs
        ),
        writes={numbers[result]: argument for result, argument in signature.writes.items() if result in numbers},
    )
