"""Capture of plain callables, modules and exported programs, as normalised ATen graphs."""

import inspect
import os
from collections.abc import Callable, Iterator
from typing import cast

import torch
from torch import nn
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.attributes import ModuleTensors
from vllm_ir.frontends.fx.eager_strides import EagerStrides
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.exported_file import load_exported
from vllm_ir.frontends.fx.fakes import InputSource
from vllm_ir.frontends.fx.normalize import Normalized, normalize, trace_normalized


def capture_callable(function: Callable[..., object], *example_inputs: object) -> Normalized:
    """Traces a function or an `nn.Module` on examples of its positional arguments.

    The examples may nest tensors, numbers and constants in lists, tuples and dictionaries: every leaf becomes a
    placeholder, named after the parameter and the path to it (`caches_0`). Numbers and other constants are specialised;
    sizes are those of the examples. Tensors of modules become attributes under their qualified names: those of
    `function` itself, or of modules that it is a method of, closes over or names as a global (then prefixed with that
    name). Modules run in the mode (training or not) that they are in; gradients are not traced.

    Raises `FxImportError` where eager would raise, for data-dependent control flow, and for tensors that are neither
    arguments nor held by such a module.
    """
    leaves, structure = pytree.tree_flatten(example_inputs)
    sources = [
        InputSource(name, leaf, True, None)
        for name, leaf in zip(_leaf_names(function, example_inputs), leaves, strict=True)
    ]
    tensors = ModuleTensors()
    for prefix, module in _modules_of(function):
        tensors.add_module(prefix, module)

    def run(*arguments: object) -> object:
        inputs = pytree.tree_unflatten(arguments[: len(leaves)], structure)
        attributes = cast("tuple[torch.Tensor, ...]", arguments[len(leaves) :])
        with tensors.replaced(attributes), EagerStrides():
            return function(*inputs)

    return trace_normalized(run, sources, tensors, None, record_user_frames=True)


def capture_exported(program: torch.export.ExportedProgram | str | os.PathLike[str]) -> Normalized:
    """Normalises an exported program, or the one in a `.pt2` file.

    Parameters, buffers (persistent or not) and constants become attributes, and buffers that the program mutates are
    mutated. Inputs are the program's arguments, flattened; outputs keep their nesting. Symbolic sizes are kept.

    Raises `FxImportError` for a file that `torch.export.load` does not accept, or that is not safe to load.
    """
    if not isinstance(program, torch.export.ExportedProgram):
        path = os.fspath(program)
        if not os.path.isfile(path):
            raise FxImportError(f"there is no file `{path}`")
        try:
            program = load_exported(path)
        except FxImportError as error:
            raise FxImportError(f"`{path}` is {error.reason}") from error
    # Guards on the example's sizes are for callers with other inputs; the graph is complete without them.
    return normalize(program.module(check_guards=False))


def _modules_of(function: Callable[..., object]) -> Iterator[tuple[str, nn.Module]]:
    """The modules that calling `function` may use, with the prefix for their tensors' names."""
    if isinstance(function, nn.Module):
        yield "", function
        return
    function = inspect.unwrap(function)
    bound_to = getattr(function, "__self__", None)
    if isinstance(bound_to, nn.Module):
        yield "", bound_to
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        return
    variables = inspect.getclosurevars(function)
    for name, value in {**variables.globals, **variables.nonlocals}.items():
        if isinstance(value, nn.Module):
            yield name, value


def _leaf_names(function: Callable[..., object], example_inputs: tuple[object, ...]) -> list[str]:
    paths, _ = pytree.tree_flatten_with_path(example_inputs)
    parameters = _parameter_names(function, len(example_inputs))
    return [_leaf_name(parameters, path) for path, _ in paths]


def _leaf_name(parameters: list[str], path: tuple[object, ...]) -> str:
    """`caches_0` for the path `(1, 0)` if the second parameter is `caches`."""
    position, *rest = [getattr(key, "idx", getattr(key, "key", getattr(key, "name", key))) for key in path]
    return "_".join([parameters[cast(int, position)], *map(str, rest)])


def _parameter_names(function: Callable[..., object], count: int) -> list[str]:
    """Names of the first `count` positional parameters; `arg3` where the signature has no name for one."""
    called = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = list(inspect.signature(called).parameters.values())
    except (TypeError, ValueError):  # built-in functions without a signature
        parameters = []
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional][:count]
    return names + [f"arg{i}" for i in range(len(names), count)]
