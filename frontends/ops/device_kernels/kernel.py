"""Declaring a kernel and calling it.

This is the part that Dynamo traces through: it is kept to what Dynamo can follow, and `launch` becomes one node.
"""

from __future__ import annotations

import inspect
import json
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import SymInt, Tensor

from vllm_ir.frontends.ops.impl import location_of

Simulator = Callable[..., object]
_KERNELS: dict[str, DeviceKernel] = {}
"""Declared kernels by key. Like the op registry, it only grows: graphs refer to kernels by key."""


class DeviceKernel:
    """A kernel; call it as `kernel[grid](*operands)`.

    Attributes:
        name: what code generation calls it.
        key: the name of its operators. Equal to `name` where that is an identifier that no earlier kernel has.
        aliases: which output is which operand, by positions among all operands of a call, constants included.
        simulator: what runs in eager mode.
        fake: what tells shapes and dtypes of outputs; None where the simulator does.
        backend_config: what the user adds to the configuration that code generation gets.
    """

    def __init__(
        self,
        name: str,
        aliases: Mapping[int, int],
        simulator: Simulator,
        fake: Simulator | None,
        backend_config: Mapping[str, object],
    ) -> None:
        """Declare the kernel; use `device_kernel`, which describes the arguments."""
        self.name = name
        self.aliases = dict(aliases)
        self.simulator = simulator
        self.fake = fake
        self.backend_config = dict(backend_config)
        self.parameters = _parameters(simulator)
        self.operand_of_output = {output: operand for operand, output in self.aliases.items()}
        self.key = _free_key(name)
        _KERNELS[self.key] = self

    def __getitem__(self, grid: int | tuple[int, ...]) -> KernelLaunch:
        """The kernel on a grid: one number, or several."""
        return KernelLaunch(self, grid if isinstance(grid, tuple) else (grid,))

    def __call__(self, *operands: Any, **named: Any) -> Any:  # Any: a kernel's operands and outputs are its own
        """Launch without a grid."""
        return KernelLaunch(self, ())(*operands, **named)

    def __repr__(self) -> str:
        return f"<DeviceKernel {self.name} {self.aliases}>"

    def describe(self) -> str:
        """How errors name it."""
        return f"device kernel {self.name!r} ({location_of(self.simulator)})"

    def bind(self, operands: tuple[object, ...], named: Mapping[str, object]) -> tuple[object, ...]:
        """All operands by position; `named` ones stand where the simulator has parameters of these names."""
        complete = list(operands)
        used = 0
        for name, has_default, default in self.parameters[len(operands) :]:
            if name in named:
                complete.append(named[name])
                used += 1
            elif not has_default:
                raise TypeError(f"device kernel {self.name!r}: operand {name!r} is missing")
            else:
                complete.append(default)
        if used != len(named):
            raise TypeError(f"device kernel {self.name!r}: its simulator has no parameters for {sorted(named)}")
        return tuple(complete)

    def outputs(self, fresh: Sequence[Tensor], operands: Sequence[object]) -> tuple[object, ...]:
        """The outputs in order: operands where they are aliased, new tensors elsewhere."""
        found: list[object] = []
        taken = 0
        for output in range(len(fresh) + len(self.aliases)):
            if output in self.operand_of_output:
                found.append(operands[self.operand_of_output[output]])
            else:
                found.append(fresh[taken])
                taken += 1
        return tuple(found)


class KernelLaunch:
    """A kernel on a grid."""

    def __init__(self, kernel: DeviceKernel, grid: tuple[int | SymInt, ...]) -> None:
        """`grid` may be empty."""
        self.kernel = kernel
        self.grid = grid

    def __call__(self, *operands: Any, **named: Any) -> Any:  # Any: a kernel's operands and outputs are its own
        """Run the kernel: aliased operands are written, and given back as outputs.

        Operands are tensors, numbers, strings, dtypes, None, and lists of tensors or numbers. The result is one tensor
        or a tuple, as the simulator returns it.

        Raises:
            TypeError: an operand is of no such type, or a named one is not known.
            ValueError: the simulator's outputs are not what was declared.
        """
        # Not at the top: Dynamo, which it loads, takes seconds, and most of the product does without.
        from vllm_ir.frontends.ops.device_kernels.launch import launch

        complete = self.kernel.bind(operands, named) if named else operands
        fresh = launch(self.kernel.key, self.grid, *complete)
        outputs = self.kernel.outputs(fresh, complete)
        # Only kinds of containers are known to Dynamo, see `launch`.
        return outputs if isinstance(fresh, list) else outputs[0]


def device_kernel(
    name: str,
    operand_output_aliases: Mapping[int, int],
    simulator: Simulator,
    backend_config: Mapping[str, object] | None = None,
    *,
    fake: Simulator | None = None,
) -> DeviceKernel:
    """Declare a kernel of an accelerator, to be called as `kernel[grid](*operands)`.

    Args:
        name: its name for code generation.
        operand_output_aliases: `{operand: output}`: the operand is read and written, and the output is its new value.
            Operands count from 0 as they stand in a call, constants included; outputs as the simulator returns them.
        simulator: computes in eager mode what the kernel does: it writes aliased operands in place, changes no others,
            and returns a tensor or a tuple of tensors, among them the aliased operands themselves.
        backend_config: what code generation needs beside name and grid, as JSON can hold it.
        fake: takes the operands without data and returns tensors like the simulator's. By default the simulator runs on
            such operands. It is not asked when every output is an aliased operand.

    Raises:
        TypeError: an argument is of the wrong type, or JSON cannot hold `backend_config`.
        ValueError: the name is empty, or two operands are aliased by one output.
    """
    described = f"device kernel {name!r}"
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users are not type checked
        raise TypeError(f"device_kernel: the name must be a string, got {name!r}")
    if not name:
        raise ValueError("device_kernel: the name must not be empty")
    for what, function in (("simulator", simulator), ("fake", fake)):
        if not callable(function) and (what == "simulator" or function is not None):
            raise TypeError(f"{described}: {what} must be callable, got {function!r}")
    aliases = _checked_aliases(described, operand_output_aliases)
    config = dict(backend_config or {})
    try:
        json.dumps(config)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{described}: JSON cannot hold backend_config: {error}") from error
    return DeviceKernel(name, aliases, simulator, fake, config)


def kernel_of_key(key: str) -> DeviceKernel | None:
    """The kernel whose operators have this name; None if none has."""
    return _KERNELS.get(key)


def kernels_named(name: str) -> list[DeviceKernel]:
    """The kernels that code generation calls by this name."""
    return [kernel for kernel in _KERNELS.values() if kernel.name == name]


def _checked_aliases(described: str, aliases: Mapping[int, int]) -> dict[int, int]:
    if not isinstance(aliases, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # users are not type checked
        raise TypeError(f"{described}: operand_output_aliases must map operands to outputs, got {aliases!r}")
    operands: dict[int, int] = {}
    for operand, output in aliases.items():
        for number in (operand, output):
            if type(number) is not int or number < 0:
                raise TypeError(
                    f"{described}: operand_output_aliases takes numbers of operands and outputs, got {number!r}"
                )
        if output in operands:
            raise ValueError(f"{described}: output {output} cannot be operand {operands[output]} and operand {operand}")
        operands[output] = operand
    return dict(aliases)


def _parameters(simulator: Simulator) -> list[tuple[str, bool, object]]:
    """Positional parameters of the simulator: name, whether it has a default, and the default."""
    try:
        signature = inspect.signature(simulator)
    except (TypeError, ValueError):  # a function of a C extension, which says nothing about itself
        return []
    return [
        (p.name, p.default is not p.empty, cast(object, p.default))
        for p in signature.parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]


def _free_key(name: str) -> str:
    """An identifier for operators that no other kernel has; kernels of one name are told apart by a number."""
    key = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not key.isidentifier() or keyword.iskeyword(key) or key.startswith("_"):
        key = f"kernel_{key}"
    number, free = 1, key
    while free in _KERNELS:
        number += 1
        free = f"{key}_{number}"
    return free
