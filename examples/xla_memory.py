"""What XLA does with the memory of a program: aliases and writes of whole buffers, read from its optimised HLO."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, fx

import vllm_ir as ir

_ALIAS = re.compile(r"\{(\d*)\}: \((\d+), \{\}, (?:may|must)-alias\)")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\{$")
_INSTRUCTION = re.compile(r"^ +(ROOT )?%([\w.-]+) = (\([^)]*\)|\S+) ([\w-]+)\((.*)$")
_CALLED = re.compile(r"\b(?:calls|to_apply)=%([\w.-]+)")
_COMMENT = re.compile(r"/\*.*?\*/")
_ARRAY = re.compile(r"\w+\[([\d,]*)\]")

# What these give is memory that is there already, or is inside of the instructions of a computation they call.
_WITHOUT_MEMORY = frozenset(
    {"parameter", "get-tuple-element", "tuple", "bitcast", "while", "conditional", "call", "optimization-barrier"}
)
# XLA computes these in the memory of their first operand: where it may not, it has put a copy in front.
_IN_PLACE = frozenset({"dynamic-update-slice", "scatter"})


@dataclass(frozen=True)
class _Instruction:
    name: str
    opcode: str
    elements: tuple[int, ...]
    """Of each array in its result."""
    operands: str
    root: bool

    @property
    def called(self) -> str | None:
        """The computation that it calls."""
        found = _CALLED.search(self.operands)
        return None if found is None else found[1]


def aliased_parameters(hlo: str) -> dict[int, int]:
    """`{result: parameter}` of the module's `input_output_alias`."""
    header = hlo.partition("\n")[0]
    start = header.find("input_output_alias=")
    stop = header.find("entry_computation_layout", start)
    return {int(out or 0): int(parameter) for out, parameter in _ALIAS.findall(header[start:stop])} if start > 0 else {}


def whole_writes(hlo: str, elements: int) -> list[str]:
    """Instructions that write a new buffer of so many elements, as `name: opcode`.

    Updates in place are none. What is inside of a fusion has no memory, but for its root. The program must not have
    other tensors of that number of elements.
    """
    computations = _computations(hlo)
    fused = {i.called for body in computations.values() for i in body if i.opcode == "fusion"}
    return [
        f"{instruction.name}: {instruction.opcode}"
        for name, body in computations.items()
        if name not in fused
        for instruction in body
        if elements in instruction.elements and not _keeps_memory(instruction, computations)
    ]


def _keeps_memory(instruction: _Instruction, computations: dict[str, list[_Instruction]]) -> bool:
    if instruction.opcode != "fusion":
        return instruction.opcode in _WITHOUT_MEMORY | _IN_PLACE
    body = {one.name: one for one in computations[instruction.called or ""]}
    root = next(one for one in body.values() if one.root)
    while root.opcode == "bitcast":
        root = body[_first_operand(root)]
    if root.opcode not in _IN_PLACE:
        return False
    base = body[_first_operand(root)]
    while base.opcode == "bitcast":
        base = body[_first_operand(base)]
    return base.opcode == "parameter"


def _first_operand(instruction: _Instruction) -> str:
    return re.findall(r"%([\w.-]+)", instruction.operands)[0]


def _computations(hlo: str) -> dict[str, list[_Instruction]]:
    found: dict[str, list[_Instruction]] = {}
    current: list[_Instruction] = []
    for line in _COMMENT.sub("", hlo).splitlines():
        if head := _COMPUTATION.match(line):
            current = found[head[1]] = []
        elif one := _INSTRUCTION.match(line):
            sizes = [math.prod(map(int, filter(None, dims.split(",")))) for dims in _ARRAY.findall(one[3])]
            current.append(_Instruction(one[2], one[4], tuple(sizes), one[5], one[1] is not None))
    return found


def scratch(program: Any) -> int:  # Any: jaxlib's executables have more than their protocol here
    """Bytes that XLA allocates for a call of a program: temporaries, and results that are no arguments."""
    stats = program.executable.get_compiled_memory_stats()
    return stats.temp_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes


@dataclass
class Recorder:
    """A backend of `torch.compile` that exports every graph to StableHLO, and runs it as it is."""

    programs: list[Any] = field(default_factory=lambda: [])
    """With aliases; `ir.export_stablehlo` returns them."""
    copying: list[Any] = field(default_factory=lambda: [])
    """The same ones without."""
    arguments: list[tuple[object, ...]] = field(default_factory=lambda: [])
    """Of the first call of each."""

    def __call__(self, gm: fx.GraphModule, inputs: Sequence[object], **_: object) -> Callable[..., object]:
        """Export a graph."""
        module = ir.import_fx(gm, inputs)
        index = len(self.programs)
        self.programs.append(ir.export_stablehlo(module))
        self.copying.append(ir.export_stablehlo(module, alias="none"))

        def call(*arguments: object) -> object:
            if len(self.arguments) == index:
                self.arguments.append(arguments)
            return gm(*arguments)

        return call


def record(function: Callable[..., object], *arguments: object) -> Recorder:
    """The programs of a function for some arguments; it is called once."""
    recorder = Recorder()
    with torch.no_grad():
        cast("Callable[..., object]", torch.compile(function, backend=recorder, fullgraph=True, dynamic=False))(
            *arguments
        )
    return recorder


def written(program: Any, arguments: Sequence[object]) -> list[Tensor]:
    """The tensors among the arguments of a program that it writes."""
    found = [arguments[index] for index in program.io_map.values()]
    return [tensor for tensor in found if isinstance(tensor, Tensor)]
