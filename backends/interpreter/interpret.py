"""Reference execution of modules: `ir.interpret`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import BlockArgument
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.fx.export import main_function, tensor_attribute
from vllm_ir.backends.interpreter.aliases import user_outputs
from vllm_ir.backends.interpreter.arguments import bind_arguments, give_back
from vllm_ir.backends.interpreter.calls import Call, run_call
from vllm_ir.backends.interpreter.collectives import Groups, SimulatedGroup
from vllm_ir.backends.interpreter.function import Frame
from vllm_ir.backends.interpreter.poison import Poison
from vllm_ir.dialects.vllm_ir.function import RESOURCE, FuncOp
from vllm_ir.frontends.fx.checks import check_module


def interpret(module: ModuleOp, *inputs: object, like: nn.Module | None = None) -> object:
    """Run a module of any level on real tensors, one operation after the other.

    What the caller can see is what the program does: arguments that it mutates are written, returned buffers are
    windows onto the arguments' memory, tensors are new and have the strides of eager mode. Contents of donated
    arguments become garbage. At the levels behind `alias-outputs` the alias facts are carried out: an output that is an
    argument is written there, and that argument is returned.

    Args:
        module: a module of `vllm_ir.func`s, or of StableHLO. It is verified, and the effects that its calls state are
            compared with PyTorch's schemas.
        inputs: the arguments of the main function in order, tensors and numbers. Integers that only carry the value of
            a symbolic size may be left out, all or none.
        like: where arguments that stand for module attributes are taken from; without it they are among the inputs.

    Returns:
        What the program returns; of a module with alias facts, a tuple of the program's outputs.

    Raises:
        ValueError: an input does not fit the signature, in number, dtype, shape, strides, or in what memory it shares.
        VerifyException: the module is not valid.
        InterpretationError: an operation fails, gives something else than its type says, or reads donated memory.
    """
    return execute(module, inputs, like=like).result


@dataclass(frozen=True)
class Execution:
    """One run of a module: what it returns, and which memory was given away."""

    result: object
    undefined: Callable[[torch.UntypedStorage], Tensor | None]
    """Which bytes of a storage have no defined contents; None if all have."""


def execute(
    module: ModuleOp,
    inputs: Sequence[object],
    *,
    like: nn.Module | None = None,
    calls: Callable[[Call], object] = run_call,
    values_only: bool = False,
) -> Execution:
    """Like `interpret`, with `calls` to run the calls of operators.

    With `values_only`, alias facts of a pure function, or of StableHLO, are not carried out: the arguments stay as they
    are, and the result is a tuple of all values that the function returns, numbers as tensors without dimensions.
    """
    poison = Poison()
    if is_stablehlo(module):
        from vllm_ir.backends.interpreter.stablehlo.interpret import interpret_stablehlo, interpret_values

        result: object = (interpret_values if values_only else interpret_stablehlo)(module, *inputs)
        return Execution(result, poison.undefined)
    module.verify()
    check_module(module)
    main = main_function(module)
    frame = Frame(main, _sub_functions(module, main, poison, calls), poison, calls)
    with torch.no_grad():
        bind_arguments(frame, _with_attributes(main, inputs, like))
        result = frame.run()
        if values_only and main.is_pure:
            result = tuple(_as_tensor(frame.values[value]) for value in main.terminator.operands)
        else:
            result = user_outputs(frame, result, [frame.values[argument] for argument in main.block.args])
            give_back(frame, poison)
    return Execution(result, poison.undefined)


def interpret_ranks(module: ModuleOp, inputs: Sequence[Sequence[object]], groups: Groups | None = None) -> list[object]:
    """Run a module on all ranks of a simulated process group, whose functional collectives meet in memory.

    Args:
        module: see `interpret`; one program for all ranks.
        inputs: the arguments of each rank.
        groups: ranks by group name; a list of rank lists is one communicator for each. Other names are all ranks.

    Returns:
        What the program returns on each rank. Raises what `interpret` raises, on any rank.
    """
    world = SimulatedGroup(len(inputs), groups)
    return world.run(lambda rank, calls: execute(module, inputs[rank], calls=calls).result)


def is_stablehlo(module: ModuleOp) -> bool:
    """Whether a module is made of StableHLO functions."""
    return any(op.name == "func.func" for op in module.body.block.ops)


def _as_tensor(value: object) -> Tensor:
    return value if isinstance(value, Tensor) else torch.tensor(value)


def _sub_functions(
    module: ModuleOp, main: FuncOp, poison: Poison, calls: Callable[[Call], object]
) -> Mapping[str, Callable[..., object]]:
    """The other functions of the module, as what control flow calls."""
    functions: dict[str, Callable[..., object]] = {}

    def callable_for(function: FuncOp) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            frame = Frame(function, functions, poison, calls)
            bind_arguments(frame, arguments)
            return frame.run()

        return call

    for op in module.body.block.ops:
        if isinstance(op, FuncOp) and op is not main:
            functions[op.sym_name.data] = callable_for(op)
    return functions


def _with_attributes(main: FuncOp, inputs: Sequence[object], like: nn.Module | None) -> list[object]:
    """The inputs, with the attributes of `like` where arguments stand for them."""
    if like is None:
        return list(inputs)
    remaining = iter(inputs)
    arguments: list[object] = []
    for argument in main.block.args:
        resource = main.argument_attributes(argument.index).get(RESOURCE)
        arguments.append(_attribute(like, argument, resource) if isinstance(resource, StringAttr) else next(remaining))
    return [*arguments, *remaining]


def _attribute(like: nn.Module, argument: BlockArgument, resource: StringAttr) -> Tensor:
    if (value := tensor_attribute(like, resource.data)) is None:
        raise VerifyException(f"`like` has no tensor attribute {resource.data!r} for %{argument.name_hint}")
    return value
