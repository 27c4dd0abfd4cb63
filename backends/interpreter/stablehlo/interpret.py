"""Modules of StableHLO run on tensors, with the memory that their arguments state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.interpreter.stablehlo.evaluate import evaluate_processes
from vllm_ir.backends.interpreter.stablehlo.tensors import to_numpy, to_tensor
from vllm_ir.backends.interpreter.stablehlo.values import Array
from vllm_ir.backends.stablehlo.aliases import entry_function
from vllm_ir.backends.stablehlo.signature import Alias, Result, Signature, signature_of_stablehlo
from vllm_ir.dialects.vllm_ir.function import STORAGE
from vllm_ir.frontends.ops.memory import may_overlap


def interpret_stablehlo(module: ModuleOp, *inputs: object) -> tuple[object, ...]:
    """Run a module of StableHLO on tensors on the CPU; integers stand for tensors of one.

    Returns the user's outputs. An input that a result aliases (`tf.aliasing_output`) has its new contents afterwards,
    and as an output it is that very tensor; all other outputs are new tensors.

    Raises:
        ValueError: an input is missing, is no tensor, or overlaps one that the program writes.
        InterpretationError: as for `evaluate`.
        VerifyException: the module is not valid.
    """
    return interpret_processes(module, [inputs])[0]


def interpret_values(module: ModuleOp, *inputs: object) -> tuple[Tensor, ...]:
    """Like `interpret_stablehlo`, but nothing is written: all results of the function are new tensors."""
    arguments = [_array(index, value) for index, value in enumerate(inputs)]
    return tuple(map(to_tensor, evaluate_processes(module, [arguments])[0]))


def interpret_processes(module: ModuleOp, inputs: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """Like `interpret_stablehlo` for each process of a group, which has inputs of its own."""
    signature = signature_of_stablehlo(module)
    for given in inputs:
        _check_inputs(module, signature, given)
    arguments = [[_array(index, value) for index, value in enumerate(given)] for given in inputs]
    results = evaluate_processes(module, arguments)
    return [_outputs(signature, given, found) for given, found in zip(inputs, results, strict=True)]


def _array(index: int, value: object) -> Array:
    if isinstance(value, int):
        return np.array(value)
    if not isinstance(value, Tensor) or value.device.type != "cpu":
        what = f"on {value.device}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"
        raise ValueError(f"input {index} is {what}; it takes a tensor on cpu")
    return to_numpy(value)


def _outputs(signature: Signature, inputs: Sequence[object], results: Sequence[Array]) -> tuple[object, ...]:
    outputs: list[object] = []
    for output in signature.outputs:
        if isinstance(output, Alias):
            outputs.append(inputs[output.argument])
        else:
            outputs.append(to_tensor(results[cast(Result, output).index]))
    with torch.no_grad():
        for result, argument in signature.writes.items():
            cast(Tensor, inputs[argument]).copy_(to_tensor(results[result]))
    return tuple(outputs)


def _check_inputs(module: ModuleOp, signature: Signature, inputs: Sequence[object]) -> None:
    """There are as many inputs as the program takes; none shares memory with one that is written.

    The program may know that some do: it then gives each the same new contents where they overlap.
    """
    if len(inputs) != len(signature.arguments):
        raise ValueError(f"the program takes {len(signature.arguments)} inputs, {len(inputs)} were given")
    stated = entry_function(module).arg_attrs
    storages = [None] * len(inputs) if stated is None else [entry.data.get(STORAGE) for entry in stated.data]
    for written in signature.writes.values():
        for other, value in enumerate(inputs):
            known = other == written or (storages[other] is not None and storages[other] == storages[written])
            target = inputs[written]
            if not known and isinstance(value, Tensor) and isinstance(target, Tensor) and may_overlap(target, value):
                raise ValueError(f"inputs {written} and {other} overlap, and the program writes the first")
