"""Evaluation of modules of StableHLO on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects import func
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import InterpretationError

from vllm_ir.backends.interpreter.stablehlo import casts, choices, elementwise
from vllm_ir.backends.interpreter.stablehlo.casts import CASTS
from vllm_ir.backends.interpreter.stablehlo.collectives import COLLECTIVES, PROCESS_NUMBERS, run_together
from vllm_ir.backends.interpreter.stablehlo.control_flow import CONTROL_FLOW
from vllm_ir.backends.interpreter.stablehlo.custom_calls import CUSTOM_CALLS
from vllm_ir.backends.interpreter.stablehlo.frame import Evaluator, Frame, Program, Stepper, check
from vllm_ir.backends.interpreter.stablehlo.indexing import INDEXING
from vllm_ir.backends.interpreter.stablehlo.products import PRODUCTS
from vllm_ir.backends.interpreter.stablehlo.reductions import REDUCTIONS
from vllm_ir.backends.interpreter.stablehlo.shapes import SHAPES
from vllm_ir.backends.interpreter.stablehlo.sorting import SORTING
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.backends.stablehlo.aliases import entry_function

_ELEMENTWISE: Mapping[type[Operation], Evaluator] = {
    **elementwise.ELEMENTWISE,
    **choices.ELEMENTWISE,
    **casts.ELEMENTWISE,
}
EVALUATORS: Mapping[type[Operation], Evaluator] = {
    **_ELEMENTWISE,
    **CASTS,
    **SHAPES,
    **REDUCTIONS,
    **INDEXING,
    **PRODUCTS,
    **SORTING,
    **CUSTOM_CALLS,
    **PROCESS_NUMBERS,
}
"""Operations that are functions from arrays to arrays."""
STEPPERS: Mapping[type[Operation], Stepper] = {**CONTROL_FLOW, **COLLECTIVES}
"""Operations that may pause for other processes."""


def evaluate(module: ModuleOp, arguments: Sequence[Array], *, whole_windows: bool = False) -> list[Array]:
    """The results of the function `@main` of a module of StableHLO, run by one process.

    Args:
        module: a verified module.
        arguments: one for each parameter, in shape and type; they are not changed.
        whole_windows: have `scatter` leave out windows that do not fit as a whole, as XLA does, and not only those of
            their elements that are outside, as the specification says.

    Raises:
        InterpretationError: an argument does not fit, an operation is not known, or it means nothing for its operands.
        VerifyException: there is no such function.
    """
    return evaluate_processes(module, [arguments], whole_windows=whole_windows)[0]


def evaluate_processes(
    module: ModuleOp, arguments: Sequence[Sequence[Array]], *, whole_windows: bool = False
) -> list[list[Array]]:
    """The results of each process of a group that runs a module, given the arguments of each; as `evaluate`.

    Processes are numbered from 0. They are replicas, unless the module has the attribute `mhlo.num_partitions`.
    """
    functions = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, func.FuncOp)}
    partitions = module.attributes.get("mhlo.num_partitions")
    program = Program(
        functions=functions,
        evaluators=EVALUATORS,
        steppers=STEPPERS,
        elementwise=frozenset(_ELEMENTWISE),
        processes=len(arguments),
        partitioned=isinstance(partitions, IntegerAttr) and partitions.value.data > 1,
        whole_windows=whole_windows,
    )
    function = entry_function(module)
    for given in arguments:
        _check_arguments(function, given)
    frames = [Frame(program, process) for process in range(len(arguments))]
    with np.errstate(all="ignore"):
        results = run_together([frame.call(function, given) for frame, given in zip(frames, arguments, strict=True)])
    return [[np.array(value) for value in values] for values in results]


def _check_arguments(function: func.FuncOp, arguments: Sequence[Array]) -> None:
    kinds = function.function_type.inputs.data
    if len(kinds) != len(arguments):
        raise InterpretationError(f"@main takes {len(kinds)} arguments, {len(arguments)} were given")
    for index, (kind, argument) in enumerate(zip(kinds, arguments, strict=True)):
        try:
            check(argument, kind, f"argument {index}")
        except ValueError as error:
            raise InterpretationError(f"@main: {error}") from error
