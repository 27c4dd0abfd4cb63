"""The calls of jaxlib that have no types, behind typed functions; jaxlib is imported when one is first used."""

# pyright: reportPrivateUsage=false, reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# Private and unknown: jaxlib's compiled modules bring no stubs.

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

from torch import Tensor
from torch.utils import dlpack
from xdsl.utils.exceptions import VerifyException

COPY_INSERTION = "xla_cpu_copy_insertion_use_region_analysis"
"""Compares regions when it decides about copies. Without it, XLA CPU copies a whole buffer twice if a program both
reads old contents and writes new ones."""


EXCESS_PRECISION = "xla_allow_excess_precision"
"""Lets XLA leave out roundings to narrow types between operations, which eager mode makes. It is on by default."""


FLAGS, INSTRUCTIONS = "XLA_FLAGS", "xla_cpu_max_isa"
"""The environment variable that XLA reads when it is first used, and the flag for what code it may generate."""


class Buffer(Protocol):
    """An array on XLA's CPU device."""

    def unsafe_buffer_pointer(self) -> int:
        """Address of the first element."""
        ...

    def is_deleted(self) -> bool:
        """Whether it was donated to an execution."""
        ...

    def block_until_ready(self) -> object:
        """Wait until its contents are there."""
        ...


class HloText(Protocol):
    """An HLO module."""

    def to_string(self) -> str:
        """Its text."""
        ...


class Executable(Protocol):
    """A program that XLA has compiled."""

    def execute(self, arguments: Sequence[Buffer]) -> Sequence[Buffer]:
        """Run it; inputs that an output aliases are donated."""
        ...

    def hlo_modules(self) -> Sequence[HloText]:
        """Optimised HLO."""
        ...


class _Computation(Protocol):
    def as_serialized_hlo_module_proto(self) -> bytes: ...


@functools.cache
def _without_half_precision_instructions() -> None:
    """Keep XLA from arithmetic in float16 where the processor has it.

    LLVM then contracts products and sums, which leaves out a rounding that eager mode makes. XLA has no option for that
    but the instructions of the whole process; whoever sets the flag himself keeps it.
    """
    flags = os.environ.get(FLAGS, "")
    processor = Path("/proc/cpuinfo")
    if INSTRUCTIONS in flags or not processor.exists() or "avx512_fp16" not in processor.read_text():
        return
    os.environ[FLAGS] = f"{flags} --{INSTRUCTIONS}=AVX2".strip()


def _import(name: str) -> ModuleType:
    # jaxlib announces its devices on stderr when the first client is made; jax silences that in the same way.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    _without_half_precision_instructions()
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{name} is needed for StableHLO and XLA; install 'vllm_ir[stablehlo]' ({error})") from error


def mlir() -> ModuleType:
    """`jaxlib.mlir.ir`.

    Raises:
        ImportError: jaxlib is not installed.
    """
    _import("jaxlib")
    return _import("jaxlib.mlir.ir")


def stablehlo() -> ModuleType:
    """`jaxlib.mlir.dialects.stablehlo`."""
    mlir()
    return _import("jaxlib.mlir.dialects.stablehlo")


def mlir_extension() -> ModuleType:
    """The extension of jaxlib that knows its dialects."""
    mlir()
    return _import("jaxlib.mlir._mlir_libs._jax_mlir_ext")


def _jax() -> ModuleType:
    return _import("jaxlib._jax")


# Serialisation


def portable_artifact(bytecode: bytes, version: str) -> bytes:
    """VHLO bytecode of a StableHLO module in the given version."""
    return stablehlo().serialize_portable_artifact_str(bytecode, version)


def hlo_proto(bytecode: bytes) -> bytes:
    """A StableHLO module as a serialised HloModuleProto, whose root is a tuple also for a single result."""
    convert = _jax().mlir.mlir_module_to_xla_computation
    computation = cast(_Computation, convert(bytecode, use_tuple_args=False, return_tuple=True))
    return computation.as_serialized_hlo_module_proto()


# Execution


class _Client(Protocol):
    def devices(self) -> Sequence[object]: ...
    def compile_and_load(self, computation: bytes, devices: Sequence[object], options: object) -> Executable: ...


@functools.cache
def _client() -> tuple[_Client, int]:
    """The CPU client, and the process that it works in."""
    # Synchronous: torch may read results, and reuse the memory of inputs, as soon as a call returns.
    return cast(_Client, _import("jaxlib.xla_client").make_cpu_client(asynchronous=False)), os.getpid()


def client() -> _Client:
    """XLA's CPU client.

    Raises:
        RuntimeError: this process was forked from one that had a client; XLA's locks and threads do not survive that.
    """
    made, process = _client()
    if process != os.getpid():
        raise RuntimeError(
            "XLA was used before this process was forked, and does not work in it; start processes by 'spawn', or use "
            "XLA in the children only"
        )
    return made


def compile_module(bytecode: bytes) -> Executable:
    """Compile StableHLO bytecode for XLA's CPU device.

    Raises:
        VerifyException: XLA refuses the module.
    """
    options = _import("jaxlib.xla_client").CompileOptions()
    options.env_option_overrides = [(COPY_INSERTION, True), (EXCESS_PRECISION, False)]
    here = client()
    try:
        return here.compile_and_load(bytecode, here.devices()[:1], options)
    except _jax().JaxRuntimeError as error:
        raise VerifyException(f"XLA cannot compile the module: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of an error message of jaxlib; stack traces follow it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


class Importer:
    """Hands memory of tensors to XLA without a copy. Tensors are contiguous, aligned and on the CPU."""

    def __init__(self) -> None:
        """For this process's client."""
        self._import = _jax().dlpack_managed_tensor_to_buffer
        self._device = client().devices()[0]

    def readable(self, tensor: Tensor) -> Buffer:
        """A buffer that XLA only reads."""
        return self._import(dlpack.to_dlpack(tensor), self._device, None)

    def writable(self, tensor: Tensor) -> Buffer:
        """A buffer that XLA may write when an output aliases it.

        XLA's client copies a donated buffer that it does not own, unless the owner has allowed writes. jaxlib imports
        a tensor so where it is asked for a copy: it takes the capsule, which it has for itself, as that copy. Whoever
        calls this has to compare addresses, in case it does copy.
        """
        return self._import(dlpack.to_dlpack(tensor), self._device, None, copy=True)


@functools.cache
def _exporter() -> Callable[[Buffer], object]:
    return _jax().buffer_to_dlpack_managed_tensor


def exported(buffer: Buffer) -> Tensor:
    """The contents of a buffer as a tensor on the same memory, which lives as long as the tensor."""
    return dlpack.from_dlpack(_exporter()(buffer))
