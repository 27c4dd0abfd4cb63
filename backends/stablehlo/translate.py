"""Translates xDSL modules of StableHLO into modules of jaxlib, operation by operation.

Printing and parsing text would take some ten times as long. Only types and attributes go through text, each once.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# Unknown: jaxlib's compiled modules bring no complete stubs.

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    ComplexType,
    DenseIntOrFPElementsAttr,
    DictionaryAttr,
    FileLineColLoc,
    LocationAttr,
    ModuleOp,
    NameLoc,
    UnregisteredOp,
    i1,
)
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from vllm_ir.backends.stablehlo.jaxlib_calls import first_line, mlir, mlir_extension, stablehlo
from vllm_ir.dialects.stablehlo import ConstantOp
from vllm_ir.dialects.vllm_ir.types import byte_size

if TYPE_CHECKING:
    from jaxlib.mlir import ir

_PRIVATE = "vllm_ir."
"""Attributes with this prefix are for our own passes and tools."""

_UNREGISTERED = "op_name__"
"""Where xDSL keeps the name of an operation that it does not know."""

_SIGNATURE = ("arg_attrs", "res_attrs")
"""Attributes that hold those of arguments and results."""


@functools.cache
def context() -> ir.Context:
    """The context of all modules of jaxlib that this process makes, with the dialects that it can have in them."""
    module = mlir()
    made = cast("ir.Context", module.Context())
    dialects = stablehlo()
    dialects.register_dialect(made)
    registry = module.DialectRegistry()
    mlir_extension().register_dialects(registry)
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    return made


def to_jaxlib(module: ModuleOp) -> ir.Module:
    """The same module in jaxlib's MLIR, verified there.

    Attributes of ours (`vllm_ir.*`) are left out: they are about memory outside the program.

    Raises:
        VerifyException: jaxlib does not know an operation, or finds the module invalid.
    """
    with context(), mlir().Location.unknown():
        return _Translation().run(module)


def parse_text(text: str | bytes) -> ir.Module:
    """A module from its text or bytecode, verified by jaxlib.

    Raises:
        VerifyException: it does not parse or is not valid.
    """
    try:
        return mlir().Module.parse(text, context())
    except mlir().MLIRError as error:
        raise VerifyException(f"jaxlib cannot read the module: {_diagnostics(error)}") from error


class _Translation:
    """Translates one module; keeps what it has made of each attribute, type and value."""

    def __init__(self) -> None:
        self._ir = mlir()
        self._attributes: dict[Attribute, ir.Attribute] = {}
        self._types: dict[Attribute, ir.Type] = {}
        self._known: dict[int, ir.Attribute | ir.Type] = {}
        self._kept: list[Attribute] = []  # an identity in `_known` must not be used again for another attribute
        self._locations: dict[int, ir.Location] = {}
        self._values: dict[SSAValue, ir.Value[ir.Type]] = {}
        self._unknown: ir.Location = self._ir.Location.unknown()

    def run(self, module: ModuleOp) -> ir.Module:
        result = self._ir.Module.create()
        for name, value in self._named(module.attributes).items():
            result.operation.attributes[name] = value
        point = self._ir.InsertionPoint(result.body)
        for op in module.body.block.ops:
            self._operation(op, point)
        try:
            result.operation.verify()
        except self._ir.MLIRError as error:
            raise VerifyException(f"jaxlib finds the module invalid: {_diagnostics(error)}") from error
        return result

    def _operation(self, op: Operation, point: ir.InsertionPoint) -> None:
        values = self._values
        name = op.op_name.data if isinstance(op, UnregisteredOp) else op.name
        try:
            made = self._complex_constant(op, point) or self._ir.Operation.create(
                name,
                results=[self._type(result.type) for result in op.results],
                operands=[values[operand] for operand in op.operands],
                attributes=self._named(op.properties) | self._named(op.attributes),
                regions=len(op.regions),
                loc=self._location(op.location),
                ip=point,
            )
        except (ValueError, self._ir.MLIRError) as error:
            raise VerifyException(f"{name}: jaxlib cannot make the operation: {_diagnostics(error)}") from error
        for result, value in zip(op.results, made.results, strict=True):
            values[result] = value
        for region, target in zip(op.regions, made.regions, strict=True):
            self._region(region, target)

    def _complex_constant(self, op: Operation, point: ir.InsertionPoint) -> ir.Operation | None:
        """A constant of complex numbers, from text: jaxlib has them, but no Python object for them. None for others."""
        value = op.properties.get("value")
        if not isinstance(op, ConstantOp) or not isinstance(value, DenseIntOrFPElementsAttr):
            return None
        if not isinstance(value.get_element_type(), ComplexType):
            return None
        made = self._ir.Operation.parse(f"{op.name} {value}").operation
        point.insert(made)
        return made

    def _region(self, region: Region, target: ir.Region) -> None:
        for block in region.blocks:
            types = [self._type(argument.type) for argument in block.args]
            made = target.blocks.append(*types, arg_locs=[self._unknown] * len(types))
            self._values.update(zip(block.args, made.arguments, strict=True))
            point = self._ir.InsertionPoint(made)
            for op in block.ops:
                self._operation(op, point)

    def _named(self, attributes: Mapping[str, Attribute]) -> dict[str, ir.Attribute]:
        return {
            name: self._attribute(_without_ours(attribute) if name in _SIGNATURE else attribute)
            for name, attribute in attributes.items()
            if not name.startswith(_PRIVATE) and name != _UNREGISTERED
        }

    def _type(self, type: Attribute) -> ir.Type:
        found = self._known.get(id(type))
        if found is None:
            found = self._types.get(type)
            if found is None:
                found = self._types[type] = self._parsed(self._ir.Type, type)
            self._keep(type, found)
        return cast("ir.Type", found)

    def _attribute(self, attribute: Attribute) -> ir.Attribute:
        found = self._known.get(id(attribute))
        if found is None:
            found = self._attributes.get(attribute)
            if found is None:
                found = self._attributes[attribute] = self._new_attribute(attribute)
            self._keep(attribute, found)
        return cast("ir.Attribute", found)

    def _keep(self, attribute: Attribute, made: ir.Attribute | ir.Type) -> None:
        self._known[id(attribute)] = made
        self._kept.append(attribute)

    def _new_attribute(self, attribute: Attribute) -> ir.Attribute:
        if isinstance(attribute, DenseIntOrFPElementsAttr) and len(attribute.data.data) > 64:
            element = attribute.get_element_type()
            if not isinstance(element, ComplexType):
                return self._dense(attribute, element)
        return self._parsed(self._ir.Attribute, attribute)

    def _dense(self, attribute: DenseIntOrFPElementsAttr, element: Attribute) -> ir.Attribute:
        """A constant with many elements, from their bytes."""
        raw = np.frombuffer(attribute.data.data, dtype=f"u{byte_size(element)}")
        if element == i1:
            raw = (raw != 0).astype(np.uint8)
        if (raw == raw[0]).all():
            raw = raw[:1]
        return self._ir.DenseElementsAttr.get(raw, type=self._type(attribute.type))

    def _parsed(self, kind: Any, attribute: Attribute) -> Any:  # what `kind` is depends on it
        """An attribute or type, from its text."""
        try:
            return kind.parse(str(attribute))
        except self._ir.MLIRError as error:
            raise VerifyException(f"{attribute} means nothing to jaxlib: {_diagnostics(error)}") from error

    def _location(self, location: LocationAttr) -> ir.Location:
        found = self._locations.get(id(location))
        if found is None:
            found = self._locations[id(location)] = self._new_location(location)
            self._kept.append(location)
        return found

    def _new_location(self, location: LocationAttr) -> ir.Location:
        if isinstance(location, NameLoc):
            inner = location.location if isinstance(location.location, LocationAttr) else None
            child = self._unknown if inner is None else self._location(inner)
            return self._ir.Location.name(location.desc.data, child)
        if isinstance(location, FileLineColLoc):
            return self._ir.Location.file(location.filename.data, location.line.data, location.column.data)
        return self._unknown


def _without_ours(entries: Attribute) -> Attribute:
    """Attributes of arguments or results, without those in our name."""
    if not isinstance(entries, ArrayAttr):
        return entries
    kept: list[Attribute] = []
    for entry in cast("ArrayAttr[DictionaryAttr]", entries).data:
        kept.append(DictionaryAttr({k: v for k, v in entry.data.items() if not k.startswith(_PRIVATE)}))
    return ArrayAttr(kept)


def _diagnostics(error: BaseException) -> str:
    """What jaxlib says, as one line: the place and the message of each diagnostic, without printed operations."""
    found: Sequence[object] = getattr(error, "error_diagnostics", ())
    texts = [f"{getattr(entry, 'location', '')}: {getattr(entry, 'message', entry)}" for entry in found]
    return " ".join("; ".join(texts).split()) or first_line(error)
