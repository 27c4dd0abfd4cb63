"""StableHLO programs: their text, their serialised forms, and running them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Unknown: jaxlib's compiled modules bring no complete stubs.

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.stablehlo.aliases import (
    MODES,
    MODULE_ALIASES,
    AliasMode,
    aliased_arguments,
    drop_aliases,
    entry_function,
    must_aliases,
)
from vllm_ir.backends.stablehlo.jaxlib_calls import (
    Executable,
    compile_module,
    hlo_proto,
    mlir,
    portable_artifact,
    stablehlo,
)
from vllm_ir.backends.stablehlo.limits import limit_of
from vllm_ir.backends.stablehlo.signature import Signature, signature_of_stablehlo
from vllm_ir.backends.stablehlo.translate import to_jaxlib
from vllm_ir.backends.stablehlo.xla import Compiled, program_of
from vllm_ir.frontends.ops.memory import may_overlap

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_WEEKS = re.compile(r"(4|12) weeks")
_VERSION = re.compile(r"\d+\.\d+\.\d+")


class StableHLOProgram:
    """A program as StableHLO, with what is known about the memory of its arguments and results."""

    def __init__(self, module: ModuleOp, signature: Signature | None = None, alias: AliasMode = "may") -> None:
        """Take a StableHLO module, which is changed to state aliases as `alias` says.

        Args:
            module: has one function `func.func @main`, whose arguments state aliases as `tf.aliasing_output`.
            signature: what is around that function; by default, what the module states.
            alias: `"may"` permits XLA to use the memory of an argument for the result that aliases it, `"must"`
                obliges it to, `"none"` says nothing: whoever runs the program copies results to arguments.

        Raises:
            VerifyException: the module is not valid, in itself or for jaxlib, or an alias is none.
            ImportError: jaxlib is not installed.
        """
        if alias not in MODES:
            raise ValueError(f"alias is {alias!r}, it takes {', '.join(map(repr, MODES))}")
        self._signature = signature_of_stablehlo(module) if signature is None else signature
        self._aliases = aliased_arguments(module)
        self._alias: AliasMode = alias
        self._result_count = len(entry_function(module).function_type.outputs.data)
        if alias != "may":
            drop_aliases(module)
        self._limit = limit_of(module)
        self._module = to_jaxlib(module)
        if alias == "must":
            self._state_must(tuple_root=self._result_count != 1)

    def _state_must(self, *, tuple_root: bool) -> None:
        text = must_aliases(self._aliases, tuple_root=tuple_root)
        attribute = mlir().Attribute.parse(text, self._module.context)
        self._module.operation.attributes[MODULE_ALIASES] = attribute

    @property
    def module(self) -> ir.Module:
        """The module of jaxlib."""
        return self._module

    @property
    def signature(self) -> Signature:
        """What the program takes and returns."""
        return self._signature

    @property
    def text(self) -> str:
        """The module as MLIR text."""
        return str(self._module)

    def __str__(self) -> str:
        """The module as MLIR text."""
        return self.text

    @property
    def io_map(self) -> dict[int, int]:
        """`{output: argument}` of the outputs that are arguments; the user's outputs first, then appended arguments."""
        return dict(self._signature.io_map)

    @property
    def original_output_count(self) -> int:
        """How many outputs are the user's."""
        return len(self._signature.outputs)

    @property
    def output_views(self) -> dict[int, tuple[int, tuple[int, ...], tuple[int, ...], int, torch.dtype]]:
        """`{output: (argument, shape, strides, offset, dtype)}` of outputs that are other windows onto arguments."""
        return self._signature.output_views

    def bytecode(self) -> bytes:
        """The module as MLIR bytecode, of this version of jaxlib only."""
        stream = BytesIO()
        self._module.operation.write_bytecode(stream)
        return stream.getvalue()

    def to_portable_artifact(self, version: str | None = None) -> bytes:
        """The module as VHLO bytecode, which other versions of StableHLO read.

        Args:
            version: `"1.13.7"`, or an age, `"4 weeks"` or `"12 weeks"` (the default): the version that consumers of
                that age have.

        Raises:
            ValueError: there is no such version, or the program has operations that are newer.
        """
        target = _version(version or "12 weeks")
        try:
            return portable_artifact(self.bytecode(), target)
        except (ValueError, RuntimeError) as error:
            raise ValueError(
                f"the program cannot be written as StableHLO {target}: {' '.join(str(error).split())}"
            ) from error

    def to_hlo_proto(self) -> bytes:
        """The module as a serialised HloModuleProto, which accelerator compilers read; its root is always a tuple."""
        if self._alias != "must" or self._result_count != 1:
            return hlo_proto(self.bytecode())
        self._state_must(tuple_root=True)
        try:
            return hlo_proto(self.bytecode())
        finally:
            self._state_must(tuple_root=False)

    @cached_property
    def executable(self) -> Executable:
        """The program, compiled for XLA's CPU device.

        Raises:
            VerifyException: XLA cannot compile it, or would compute something else.
        """
        if self._limit is not None:
            raise VerifyException(self._limit)
        return compile_module(self.bytecode())

    def optimized_hlo(self) -> str:
        """Text of what XLA CPU runs."""
        return self.executable.hlo_modules()[0].to_string()

    @property
    def in_place(self) -> bool:
        """Whether XLA may write results into the memory of arguments."""
        return self._alias != "none"

    @cached_property
    def _call(self) -> Compiled:
        return program_of(self.executable, self._signature, in_place=self.in_place)

    def run(self, *inputs: object) -> tuple[object, ...]:
        """Run on XLA CPU.

        Returns the user's outputs. Arguments that outputs alias have their new contents afterwards, in the memory that
        they have; an output that is an argument is that very tensor.

        Raises:
            ValueError: an input does not fit, or overlaps one that the program writes.
        """
        _check(self._signature, inputs)
        return cast("tuple[object, ...]", self._call(*inputs))


def _version(wanted: str) -> str:
    """The version of StableHLO that is wanted, as three numbers."""
    dialect = stablehlo()
    if match := _WEEKS.fullmatch(wanted):
        requirement = getattr(dialect.StablehloCompatibilityRequirement, f"WEEK_{match[1]}")
        return dialect.get_version_from_compatibility_requirement(requirement)
    if not _VERSION.fullmatch(wanted):
        raise ValueError(f"version is {wanted!r}, it takes three numbers ('1.13.7'), '4 weeks' or '12 weeks'")
    oldest, newest = dialect.get_minimum_version(), dialect.get_current_version()
    if not _numbers(oldest) <= _numbers(wanted) <= _numbers(newest):
        raise ValueError(f"version {wanted} cannot be written; this jaxlib writes {oldest} to {newest}")
    return wanted


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _check(signature: Signature, inputs: Sequence[object]) -> None:
    if len(inputs) != len(signature.arguments):
        raise ValueError(f"the program takes {len(signature.arguments)} inputs, {len(inputs)} were given")
    for index, (argument, value) in enumerate(zip(signature.arguments, inputs, strict=True)):
        name = f"input {index} ({argument.name})"
        facts = argument.tensor
        if facts is None:
            if not isinstance(value, int):
                raise ValueError(f"{name} is a {type(value).__name__}, it takes an integer")
        elif not isinstance(value, Tensor):
            raise ValueError(f"{name} is a {type(value).__name__}, it takes a tensor")
        elif value.device.type != "cpu" or tuple(value.shape) != facts.shape or value.dtype != facts.dtype:
            given = f"{value.dtype} {list(value.shape)} on {value.device}"
            raise ValueError(f"{name} is {given}, it takes {facts.dtype} {list(facts.shape)} on cpu")
    _check_overlap(signature.writes, signature, inputs)


def _check_overlap(writes: Mapping[int, int], signature: Signature, inputs: Sequence[object]) -> None:
    tensors = {i: value for i, value in enumerate(inputs) if isinstance(value, Tensor)}
    for written in writes.values():
        for other, value in tensors.items():
            if other != written and may_overlap(tensors[written], value):
                names = [f"{i} ({signature.arguments[i].name})" for i in (written, other)]
                raise ValueError(f"inputs {names[0]} and {names[1]} overlap, and the program writes the first")
