"""Running a program in eager mode and through the IR, and comparing everything that its caller can see."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.backends.fx.export import export_fx, export_split
from vllm_ir.backends.interpreter.interpret import interpret
from vllm_ir.conversions.functionalize import FunctionalizePass
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import import_callable, import_fx
from vllm_ir.tools.operators.observation import Observation, memory, observe, tensors_in
from vllm_ir.tools.text import parse

Program = Callable[..., object]
Inputs = Callable[[], Sequence[object]]


def functionalized(module: ModuleOp) -> ModuleOp:
    """The module at tensor level, verified before and behind the pass."""
    module.verify()
    FunctionalizePass().apply(Context(), module)
    module.verify()
    return module


def _flat(graph: Program) -> Program:
    return lambda *arguments: graph(*pytree.tree_leaves(arguments))


def _interpreted(module: ModuleOp, like: nn.Module | None) -> Program:
    return lambda *arguments: interpret(module, *pytree.tree_leaves(arguments), like=like)


def _split(module: ModuleOp, arguments: Sequence[object]) -> Program:
    """The pure graph followed by what is done with its results; fails if the pure graph changes its arguments."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vllm_ir.backends.fx.export import main_function
    from vllm_ir.backends.fx.metas import example_arguments

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    split = export_split(module, example_arguments(main_function(module), mode), mode)

    def run(*arguments: object) -> object:
        flat = pytree.tree_leaves(arguments)
        before = [memory(tensor.untyped_storage()) for tensor in tensors_in(flat)]
        outputs = split.core(*flat)
        after = [memory(tensor.untyped_storage()) for tensor in tensors_in(flat)]
        assert before == after, "the pure graph changes its arguments"
        if split.epilogue is None:
            return outputs
        return split.epilogue(*(flat[index] for index in split.epilogue_arguments), *outputs)

    return run


def compiled_forms(function: Program, arguments: Sequence[object], text: bool) -> Iterator[tuple[str, Program]]:
    """The program through the chain, exported complete, split, and (with `text`) from its own text."""
    like = function if isinstance(function, nn.Module) else None
    module = import_callable(function, *arguments)
    imported = str(module) if text else ""
    yield "imported module, interpreted", _interpreted(module.clone(), like)
    functionalized(module)
    yield "functional module, interpreted", _interpreted(module, like)
    yield "complete graph", _flat(export_fx(module, like=like))
    if like is None:
        yield "split graph", _split(module, arguments)
    if text:
        parsed = parse(imported)
        assert str(parsed) == imported, "the imported module does not print as it was parsed"
        final = str(functionalized(parsed))
        assert final == str(module), "functionalized from text, the module is another one"
        yield "graph from text", _flat(export_fx(parse(final), like=like))


def check(
    function: Program, inputs: Inputs, *, text: bool = False, dynamo: bool = False, dynamic: bool = False
) -> None:
    """Compare the program in eager mode and through import, functionalize and export.

    `inputs` makes the arguments anew for each run. `text` compares the module that is parsed from its own text as well.
    With `dynamo`, the graph is captured by `torch.compile`.
    """

    def run(program: Program, module: nn.Module | None) -> Observation:
        state = [] if module is None else [*module.parameters(), *module.buffers()]
        return observe(program, inputs(), state)

    own = copy.deepcopy(function) if isinstance(function, nn.Module) else function
    expected = run(own, own if isinstance(own, nn.Module) else None)
    if dynamo:
        own = copy.deepcopy(function) if isinstance(function, nn.Module) else function
        compiled = compile_with_dynamo(own, dynamic)
        expected.compare(run(compiled, own if isinstance(own, nn.Module) else None), "through torch.compile")
        return
    own = copy.deepcopy(function) if isinstance(function, nn.Module) else function
    for name, program in compiled_forms(own, inputs(), text):
        if isinstance(own, nn.Module):
            reset = copy.deepcopy(function)
            with torch.no_grad():
                for tensor, initial in zip(
                    [*own.parameters(), *own.buffers()], [*reset.parameters(), *reset.buffers()], strict=True
                ):
                    tensor.copy_(initial)
        expected.compare(run(program, own if isinstance(own, nn.Module) else None), name)


def compile_with_dynamo(function: Program, dynamic: bool = False) -> Program:
    """`torch.compile` with a backend that imports, functionalizes and exports."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[object]) -> fx.GraphModule:
        return export_fx(functionalized(import_fx(gm, example_inputs)), like=gm)

    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)


def refused(function: Program, inputs: Inputs, *, match: str = "", eager_raises: bool | None = None) -> str:
    """Check that a program is refused by one line that names this test file and a line in it; returns the message.

    `eager_raises` says whether eager mode refuses the program as well; None leaves that open.
    """
    if eager_raises is not None:
        raised = False
        try:
            observe(function, inputs())
        except Exception:  # noqa: BLE001  # eager mode raises many kinds of errors
            raised = True
        assert raised == eager_raises, "eager mode raises" if raised else "eager mode accepts the program"
    try:
        graphs = list(compiled_forms(function, inputs(), text=False))
    except (FxImportError, PassFailedException) as error:
        message = str(error)
        assert "\n" not in message, message
        assert re.search(r"test_\w+\.py:\d+", message), f"no file and line: {message}"
        assert re.search(match, message), message
        return message
    raise AssertionError(f"accepted, as {len(graphs)} graphs")
