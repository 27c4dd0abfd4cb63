"""`print-aliases`: annotates operations with where their results are, and which state of memory they see and make.

A storage is called by the value that brings it into the function. `%cache[4xf32, offset = 8]` is a window of it, in the
notation of buffer types, `%cache` the window of that value itself, and `%cache[?]` one that is not known at compile
time. Versions count writes to a storage: it is at version 0 when the function begins, or when it is made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.printer import Printer
from xdsl.traits import MemoryEffectKind, get_effects

from vllm_ir.conversions.analysis.aliases import AliasSets, Place, Storage
from vllm_ir.conversions.analysis.regions import same_window
from vllm_ir.dialects.vllm_ir.function import FuncOp, ReturnOp
from vllm_ir.dialects.vllm_ir.types import BufferType

STORAGES = "vllm_ir.storages"
"""Attribute of a function: all storages, whose they are, and their last version."""
ARGUMENTS = "vllm_ir.places"
"""Attribute of a function: where its tensor and buffer arguments are."""
PLACE = "vllm_ir.place"
"""Attribute of an operation: where its results are, `-` for those that are integers."""
READS = "vllm_ir.reads"
"""Attribute of an operation: what it reads, with the version it sees; of a return, the versions the caller gets."""
WRITES = "vllm_ir.writes"
"""Attribute of an operation: what it writes, with the version it makes."""


@dataclass(frozen=True)
class PrintAliasesPass(ModulePass):
    """Annotate operations with the storages, windows and versions of what they touch."""

    name = "print-aliases"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        """Annotate every function; annotations that it has already are replaced."""
        names = printed_names(op)
        for function in op.body.block.ops:
            if isinstance(function, FuncOp):
                _Annotator(function, names).run()


def printed_names(module: ModuleOp) -> Mapping[SSAValue, str]:
    """The names that values have when the module is printed: `%x_1`."""
    printer = _NamingPrinter()
    printer.print_op(module)
    return printer.names


class _NamingPrinter(Printer):
    def __init__(self) -> None:
        super().__init__(stream=StringIO())
        self.names: dict[SSAValue, str] = {}

    def print_ssa_value(self, value: SSAValue) -> str:
        name = super().print_ssa_value(value)
        self.names[value] = f"%{name}"
        return name


def annotate(op: Operation, name: str, texts: Sequence[str]) -> None:
    """Set an attribute to a list of texts, or remove it if there are none."""
    op.attributes.pop(name, None)
    if texts:
        op.attributes[name] = ArrayAttr([StringAttr(text) for text in texts])


class _Annotator:
    def __init__(self, function: FuncOp, names: Mapping[SSAValue, str]) -> None:
        self.function = function
        self.names = names
        self.aliases = AliasSets(function).run()
        self.versions: dict[Storage, int] = dict.fromkeys(self.aliases.storages, 0)

    def run(self) -> None:
        for op in self.function.block.ops:
            self._visit(op)
        arguments = [self._place(argument) for argument in self._placed(self.function.block.args)]
        annotate(self.function, ARGUMENTS, arguments)
        annotate(self.function, STORAGES, [self._storage(storage) for storage in self.aliases.storages])

    def _visit(self, op: Operation) -> None:
        read, written = self._touched(op, MemoryEffectKind.READ), self._touched(op, MemoryEffectKind.WRITE)
        if isinstance(op, ReturnOp):
            read = [value for value in self._placed(op.operands) if isinstance(value.type, BufferType)]
        reads = [self._versioned(value) for value in read]
        for storage in dict.fromkeys(self.aliases.places[value].storage for value in written):
            self.versions[storage] += 1
        annotate(op, READS, reads)
        annotate(op, WRITES, [self._versioned(value) for value in written])
        places = [self._place(result) if result in self.aliases.places else "-" for result in op.results]
        op.attributes.pop(PLACE, None)
        if len(places) == 1 and places != ["-"]:
            op.attributes[PLACE] = StringAttr(places[0])
        elif len(places) > 1:
            annotate(op, PLACE, places)

    def _touched(self, op: Operation, kind: MemoryEffectKind) -> list[SSAValue]:
        """Operands in memory that an operation reads or writes, in their order."""
        touched = {effect.value for effect in get_effects(op) or () if effect.kind is kind}
        return [operand for operand in dict.fromkeys(self._placed(op.operands)) if operand in touched]

    def _placed(self, values: Sequence[SSAValue]) -> Iterator[SSAValue]:
        return (value for value in values if value in self.aliases.places)

    # Texts

    def _versioned(self, value: SSAValue) -> str:
        place = self.aliases.places[value]
        return f"{self._place(value)} version {self.versions[place.storage]}"

    def _place(self, value: SSAValue) -> str:
        place = self.aliases.places[value]
        root = self.aliases.places[place.storage.root].window
        name = self.names[place.storage.root]
        if place.window is not None and root is not None and same_window(place.window, root):
            return name
        return f"{name}[{_window(place)}]"

    def _storage(self, storage: Storage) -> str:
        kind = "argument" if storage.is_argument else "constant" if storage.is_constant else "new"
        flags = [name for name, holds in (("mutated", storage.mutated), ("donated", storage.donated)) if holds]
        facts = ", ".join([kind, *flags, f"version {self.versions[storage]}"])
        return f"{self.names[storage.root]}: {facts}"


def _window(place: Place) -> str:
    if place.window is not None:
        return _fields(place.window)
    return " in ".join(["?", *map(_fields, reversed(place.within))])


def _fields(window: BufferType) -> str:
    """What the type of a window says between its angle brackets, without the quotes around expressions."""
    text = StringIO()
    window.print_parameters(Printer(stream=text))
    return text.getvalue()[1:-1].replace('"', "")


__all__ = ["PrintAliasesPass", "annotate", "printed_names"]
