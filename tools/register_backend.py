"""Compilers of tensor programs as backends of `torch.compile`: `ir.register_backend`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from typing import Protocol

import torch
from torch import fx
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from vllm_ir.backends.program_call import Compiled, call_of
from vllm_ir.backends.stablehlo.signature import Result, facts_of
from vllm_ir.backends.tensor_function import ExpectedResult, TensorFunction
from vllm_ir.conversions.errors import location_text
from vllm_ir.dialects.vllm_ir.types import device_of
from vllm_ir.frontends.fx.types import is_tensor
from vllm_ir.tools.options import CompileOptions
from vllm_ir.tools.pure_programs import PureCompiler, PureProgram, compile_pure
from vllm_ir.tools.reports import CompileReport, phase
from vllm_ir.tools.stablehlo import PURE
from vllm_ir.tools.torch_internals import add_backend, backend_names

GROUP = "torch_dynamo_backends"
"""The entry point group in which torch looks for backends that are not registered yet."""

_NAME = re.compile(r"[a-z_][a-z_0-9]*")

ModuleCompiler = Callable[[ModuleOp], Callable[..., object]]


class Backend(Protocol):
    """A backend of `torch.compile`."""

    def __call__(
        self,
        gm: fx.GraphModule,
        example_inputs: Sequence[object],
        *,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Compiled:
        """Compile a graph for these inputs; options as for the backend `vllm_ir`."""
        ...


def register_backend(name: str, *, compile: ModuleCompiler, passes: str = PURE) -> Backend:
    """Make a compiler of tensor programs a backend: `torch.compile(model, backend=name)`.

    `compile` is given a module whose function `@main` is pure: it takes and returns tensors of static sizes and
    numbers, nothing in it reads or writes memory, and high-level operations (`vllm_ir.rms_norm`) are still there. It
    returns a callable that computes that function: it takes the arguments of `@main` one by one, and returns a tuple
    with a value for each operand of its `vllm_ir.return`. Everything else is done around it: arguments that the program
    writes get their new values, which are results with the attribute `vllm_ir.aliases`, and aliases, views, strides and
    module attributes are as in eager mode. `docs/out-of-tree.md` has the contract in full.

    Args:
        name: letters in lower case, digits and underscores.
        compile: see above. It may keep and change the module. It is called for each graph, for each set of sizes, and
            for graphs with gradients once for each direction; what it raises reaches the user with the backend's name.
        passes: the pipeline in front of `compile`, as text, where the user's `options` name none. It begins with
            `alias-outputs,functionalize`.

    Returns:
        The backend. It is registered with torch, unless an entry point of the group `torch_dynamo_backends` in the
        package of `compile` has the name: torch then registers what that names, when the name is first used.

    Raises:
        ValueError: the name is malformed or taken.
        TypeError: `compile` cannot be called.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"backend name {name!r} does not match {_NAME.pattern}")
    if not callable(compile):
        raise TypeError(f"backend {name!r}: compile is a {type(compile).__name__}, it has to be callable")
    compiler = PureCompiler(name, partial(_compile_program, name, compile), any_device=True)

    def backend(
        gm: fx.GraphModule,
        example_inputs: Sequence[object],
        *,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Compiled:
        return compile_pure(compiler, gm, example_inputs, mode, options, passes)

    backend.__name__ = backend.__qualname__ = name
    if not _is_brought_along(name, compile):
        if name in backend_names():
            raise ValueError(f"backend {name!r} is registered twice; torch.compile has one of that name")
        add_backend(name, backend)
    return backend


def _is_brought_along(name: str, compile: ModuleCompiler) -> bool:
    """Whether the package of `compile` has an entry point of that name; `ValueError` if another one has."""
    module: object = getattr(compile, "__module__", None)
    package = str(module or type(compile).__module__).partition(".")[0]
    points = entry_points(group=GROUP, name=name)
    for point in points:
        if point.module.partition(".")[0] != package:
            raise ValueError(f"backend {name!r} is registered twice: an entry point names {point.value}")
    return bool(points)


def _compile_program(
    name: str, compile: ModuleCompiler, program: PureProgram, _: CompileOptions, report: CompileReport
) -> Compiled:
    signature = program.signature
    returned = {output.index for output in signature.outputs if isinstance(output, Result)}
    terminator = program.main.terminator
    results = [
        ExpectedResult(
            f"result {index}{_place(value.owner)}",
            facts_of(value.type, f"result {index}", any_device=True),
            torch.device(device_of(value.type)).type if is_tensor(value.type) else "",
            index in returned,
        )
        for index, value in enumerate(terminator.operands)
    ]
    program.main.verify_()  # passes of others may have been here
    with phase(report, "backend"):
        call = _compiled(name, compile, program)
    function = TensorFunction(name, call, results)
    return call_of(signature, function.steps(len(signature.arguments)), program.offsets)


def _compiled(name: str, compile: ModuleCompiler, program: PureProgram) -> Callable[..., object]:
    begin = next((place for op in program.main.block.ops if (place := location_text(op))), None)
    graph = "a graph" if begin is None else f"the graph that begins at {begin}"
    try:
        call = compile(program.module)
    except Exception as error:  # a compiler of others may raise anything
        raise RuntimeError(
            f"backend {name!r} cannot compile {graph}: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from error
    if not callable(call):
        raise TypeError(f"backend {name!r}: compile returned {call!r} for {graph}, it has to return a callable")
    return call


def _place(owner: object) -> str:
    """Where in the user's program an operation comes from, in parentheses; empty if that is not known."""
    place = location_text(owner) if isinstance(owner, Operation) else ""
    return f" ({place})" if place else ""
