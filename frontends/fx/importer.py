"""PyTorch programs to modules of the IR."""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from torch import SymInt, Tensor, fx, nn
from torch.export import ExportedProgram
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, StringAttr, i64
from xdsl.ir import Attribute, SSAValue

from vllm_ir.dialects.vllm_ir.function import RESOURCE, STORAGE, SYMBOL, WINDOW, FuncOp, root_of
from vllm_ir.dialects.vllm_ir.memory import ViewOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.capture import capture_callable, capture_exported
from vllm_ir.frontends.fx.graph_import import GraphImporter
from vllm_ir.frontends.fx.normalize import Normalized, normalize
from vllm_ir.frontends.fx.regions import may_overlap
from vllm_ir.frontends.fx.storages import storage_key
from vllm_ir.frontends.fx.types import TypeCache, symbolic

MAIN = "main"
"""Name of the imported function."""


def import_fx(gm: fx.GraphModule, example_inputs: Sequence[object] | None = None) -> ModuleOp:
    """An FX graph (from Dynamo, `make_fx` or built by hand) as a module with the function `@main`.

    `example_inputs` are real or fake tensors and numbers, one for each placeholder; without them the metas of the
    placeholders are used. Module attributes become trailing arguments with a resource name. Raises `FxImportError`,
    naming node, file and line, for whatever the IR cannot say.
    """
    return _verified(import_normalized(normalize(gm, example_inputs)))


def import_callable(fn: Callable[..., object] | nn.Module, *example_inputs: object) -> ModuleOp:
    """A function or module, traced on example inputs; see `import_fx`."""
    return _verified(import_normalized(capture_callable(fn, *example_inputs)))


def import_exported(program: ExportedProgram | str | Path) -> ModuleOp:
    """An exported program, or the `.pt2` file that holds one; see `import_fx`."""
    return _verified(import_normalized(capture_exported(program)))


def _verified(module: ModuleOp) -> ModuleOp:
    module.verify()
    return module


@contextmanager
def collector_paused() -> Generator[None]:
    """Hold the cyclic garbage collector: building many small linked objects makes it scan them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def import_normalized(normalized: Normalized) -> ModuleOp:
    """A normalised graph as a module; nothing is traced any more.

    The module is not verified: that takes longer than the import. The functions above do it, and so does whatever
    exports a module, so that a compilation verifies once, at its end.
    """
    return import_with_values(normalized)[0]


def import_with_values(
    normalized: Normalized, arguments: Collection[fx.Node] = ()
) -> tuple[ModuleOp, Mapping[fx.Node, object]]:
    """A normalised graph as a module, and what each node has become: values in lists as the node gives them.

    The attributes in `arguments` are arguments; `normalized.inputs` has their values among those of the placeholders.
    """
    with collector_paused():
        functions: list[FuncOp] = []
        importer = GraphImporter(normalized.graph_module, normalized.constants, TypeCache(), functions, arguments)
        main = importer.run(MAIN)
        _describe_arguments(main, normalized, importer)
        return ModuleOp([main, *functions]), importer.values


def _describe_arguments(main: FuncOp, normalized: Normalized, importer: GraphImporter) -> None:
    """Say in the signature which arguments are attributes, symbols, share memory, or change their window."""
    attributes = [main.argument_attributes(index) for index in range(len(main.block.args))]
    first = len(attributes) - len(normalized.attributes)
    for name, entry in zip(normalized.attributes, attributes[first:], strict=True):
        entry[RESOURCE] = StringAttr(name)
    finals = [*normalized.final_inputs, *([None] * len(attributes))][: len(attributes)]
    for index, (value, final) in enumerate(zip(normalized.inputs, finals, strict=False)):
        if isinstance(value, SymInt):
            attributes[index][SYMBOL] = StringAttr(str(symbolic(value)))
        if isinstance(value, Tensor) and isinstance(final, Tensor):
            before, after = importer.types.buffer(value), importer.types.buffer(final)
            if before != after:
                attributes[index][WINDOW] = after
    _number_shared(main, normalized, attributes)
    main.set_argument_attributes(attributes)


def _number_shared(main: FuncOp, normalized: Normalized, attributes: list[dict[str, Attribute]]) -> None:
    """Give buffers whose memory may overlap the same storage number."""
    groups: list[list[int]] = []
    reached = _reached_by_strides(main)
    keys = [storage_key(value) if isinstance(value, Tensor) else None for value in normalized.inputs]
    for index, argument in enumerate(main.block.args):
        if not isinstance(argument.type, BufferType):
            continue
        joined = [index]
        for group in list(groups):
            if any(
                keys[other] == keys[index]
                and any(may_overlap(*pair) for pair in product(reached[main.block.args[other]], reached[argument]))
                for other in group
            ):
                joined = [*group, *joined]
                groups.remove(group)
        groups.append(joined)
    for number, group in enumerate(group for group in groups if len(group) > 1):
        for index in group:
            attributes[index][STORAGE] = IntegerAttr(number, i64)


def _reached_by_strides(main: FuncOp) -> dict[SSAValue, list[Attribute]]:
    """For each argument the windows onto its storage: its own, and those of `as_strided`, wherever they lead."""
    reached: dict[SSAValue, list[Attribute]] = {argument: [argument.type] for argument in main.block.args}
    for op in main.block.ops:
        if isinstance(op, ViewOp) and op.target == "aten.as_strided.default" and root_of(op.base) in reached:
            reached[root_of(op.base)].append(op.results[0].type)
    return reached
