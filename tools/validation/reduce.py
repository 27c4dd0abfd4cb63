"""Making a module that shows a fault as small as possible.

Outputs are dropped, then operations in ever smaller groups: what others need of them becomes an argument. Each step is
kept if the module is still valid and still shows the fault.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import cast

from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    TensorType,
    i64,
)
from xdsl.dialects.func import FuncOp as StandardFunction
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator
from xdsl.utils.exceptions import DiagnosticException

from vllm_ir.backends.fx.export import main_function
from vllm_ir.backends.interpreter.interpret import is_stablehlo
from vllm_ir.dialects.torch.arguments import TupleAttr
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.contract import ALIASES, OUTPUT_VIEW
from vllm_ir.dialects.vllm_ir.function import ORIGINAL_OUTPUT_COUNT, FuncOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.values import operand_reference

Fault = Callable[[ModuleOp], bool]
"""Whether a module, which is not changed, shows the fault."""


_FEW = 16
"""Operations that are tried one by one."""


class _Impossible(Exception):
    """A step that does not lead to a module."""


def reduce_module(module: ModuleOp, shows: Fault, seconds: float = 60.0) -> ModuleOp:
    """A module as small as steps of `seconds` lead to, for which `shows` is true as it is for `module`."""
    search = _Search(module.clone(), shows, time.monotonic() + seconds)
    while search.sweep():
        pass
    return search.best


class _Search:
    def __init__(self, best: ModuleOp, shows: Fault, deadline: float) -> None:
        self.best = best
        self._shows = shows
        self._deadline = deadline

    def sweep(self) -> bool:
        """Try all kinds of steps; whether one of them was kept."""
        kept = self._first_wrong_value()
        kept |= self._outputs()
        kept |= self._operations()
        kept |= self._functions()
        kept |= self._arguments()
        return kept and time.monotonic() < self._deadline

    def _try(self, step: Callable[[ModuleOp], None]) -> bool:
        if time.monotonic() >= self._deadline:
            return False
        candidate = self.best.clone()
        try:
            step(candidate)
            if _size(candidate) >= _size(self.best):
                return False
            candidate.verify()
            if not self._shows(candidate):
                return False
        except (_Impossible, DiagnosticException, ValueError):
            return False
        self.best = candidate
        return True

    def _first_wrong_value(self) -> bool:
        """Return the results of one operation, and end there: the first for which that shows the fault, if any."""
        low, high, kept = 0, len(_body(self.best)), False
        while low < high:
            middle = (low + high) // 2
            if self._try(lambda module, end=middle: _end_behind(module, end)):
                high, kept = middle, True
            else:
                low = middle + 1
        # Not every value behind a wrong one is wrong, so that halving may miss the first one.
        few = range(min(len(_body(self.best)) - 1, _FEW))
        return any(self._try(lambda module, end=end: _end_behind(module, end)) for end in few) or kept

    def _outputs(self) -> bool:
        kept = False
        for index in reversed(range(len(_terminator(self.best).operands))):
            kept |= self._try(lambda module, index=index: _drop_output(module, index))
        return kept

    def _operations(self) -> bool:
        kept = False
        size = max(len(_body(self.best)) // 2, 1)
        while True:
            end = len(_body(self.best))
            while end > 0:
                start = max(end - size, 0)
                kept |= self._try(lambda module, start=start, end=end: _drop_operations(module, start, end))
                end = min(start, len(_body(self.best)))
            if size == 1:
                return kept
            size //= 2

    def _functions(self) -> bool:
        main = _entry(self.best)
        others = [op for op in self.best.body.block.ops if op is not main]
        kept = False
        for index in reversed(range(len(others))):
            kept |= self._try(lambda module, index=index: _drop_function(module, index))
        return kept

    def _arguments(self) -> bool:
        kept = False
        for index in reversed(range(len(_block(self.best).args))):
            kept |= self._try(lambda module, index=index: _drop_argument(module, index))
        return kept


def _size(module: ModuleOp) -> tuple[int, int, int]:
    """What gets smaller: operations, then outputs, then arguments."""
    return sum(1 for _ in module.walk()), len(_terminator(module).operands), len(_block(module).args)


def _entry(module: ModuleOp) -> FuncOp | StandardFunction:
    if not is_stablehlo(module):
        return main_function(module)
    from vllm_ir.backends.stablehlo.aliases import entry_function  # needs what not everyone has installed

    return entry_function(module)


def _block(module: ModuleOp) -> Block:
    return _entry(module).body.block


def _body(module: ModuleOp) -> list[Operation]:
    """The operations in front of the terminator."""
    return [op for op in _block(module).ops if not op.has_trait(IsTerminator)]


def _terminator(module: ModuleOp) -> Operation:
    last = _block(module).last_op
    if last is None:
        raise _Impossible
    return last


def _update_type(function: FuncOp | StandardFunction) -> None:
    block = function.body.block
    operands = block.last_op.operands if block.last_op is not None else ()
    function.properties["function_type"] = FunctionType.from_lists(
        [argument.type for argument in block.args], [operand.type for operand in operands]
    )


def _entries(function: Operation, name: str, count: int) -> list[DictionaryAttr]:
    given = function.properties.get(name)
    return list(cast(ArrayAttr[DictionaryAttr], given).data) if given is not None else [DictionaryAttr({})] * count


def _set_entries(function: Operation, name: str, entries: Sequence[DictionaryAttr]) -> None:
    function.properties.pop(name, None)
    if any(entry.data for entry in entries):
        function.properties[name] = ArrayAttr(entries)


def _return(module: ModuleOp, values: Sequence[SSAValue], results: Sequence[DictionaryAttr], count: int) -> None:
    """Return `values` as a flat tuple, with what `results` says of them; `count` are the program's own outputs."""
    function, terminator = _entry(module), _terminator(module)
    if isinstance(function, FuncOp):
        terminator.properties["structure"] = TupleAttr(ArrayAttr([operand_reference(i) for i in range(len(values))]))
        if function.original_output_count is not None:
            function.attributes[ORIGINAL_OUTPUT_COUNT] = IntegerAttr(count, i64)
    terminator.operands = values
    _set_entries(function, "res_attrs", results)
    _update_type(function)


def _drop_output(module: ModuleOp, index: int) -> None:
    """Return one value less."""
    function, operands = _entry(module), list(_terminator(module).operands)
    results = _entries(function, "res_attrs", len(operands))
    del operands[index], results[index]
    count = (function.original_output_count if isinstance(function, FuncOp) else None) or 0
    _return(module, operands, results, min(count - (index < count), len(operands)))


def _end_behind(module: ModuleOp, index: int) -> None:
    """Return what the operation at `index` gives, and erase all that follow."""
    body = _body(module)
    values = [result for result in body[index].results if isinstance(result.type, TensorType)]
    if not values:
        raise _Impossible
    _return(module, values, [], len(values))
    for op in reversed(body[index + 1 :]):
        op.detach()
        op.erase()


def _drop_operations(module: ModuleOp, start: int, end: int) -> None:
    """Erase operations of the body; what others use of them becomes an argument, or the buffer that it is."""
    function = _entry(module)
    chosen = _body(module)[start:end]
    for op in reversed(chosen):
        for index, result in enumerate(op.results):
            users = [use for use in result.uses if use.operation not in chosen]
            if users:
                result.replace_all_uses_with(_stand_in(function, op, index, result))
        op.detach()
    for op in chosen:
        op.drop_all_references()
    _update_type(function)


def _stand_in(function: FuncOp | StandardFunction, op: Operation, index: int, result: SSAValue) -> SSAValue:
    if isinstance(result.type, BufferType):
        source = op.return_indices[index] if isinstance(op, CallOp) else -1
        if source == -1 or op.operands[source].type != result.type:
            raise _Impossible
        return op.operands[source]
    block = function.body.block
    entries = _entries(function, "arg_attrs", len(block.args))
    argument = block.insert_arg(result.type, len(block.args))
    argument.name_hint = result.name_hint
    _set_entries(function, "arg_attrs", [*entries, DictionaryAttr({})])
    return argument


def _drop_function(module: ModuleOp, index: int) -> None:
    main = _entry(module)
    [op for op in module.body.block.ops if op is not main][index].detach()


def _drop_argument(module: ModuleOp, index: int) -> None:
    """Take an argument away that nothing uses; results that are windows onto later ones count them anew."""
    function = _entry(module)
    block = function.body.block
    if block.args[index].uses:
        raise _Impossible
    entries = _entries(function, "arg_attrs", len(block.args))
    del entries[index]
    block.erase_arg(block.args[index])
    _set_entries(function, "arg_attrs", entries)
    results = _entries(function, "res_attrs", len(_terminator(module).operands))
    _set_entries(function, "res_attrs", [DictionaryAttr(_renumbered(entry.data, index)) for entry in results])
    _update_type(function)


def _renumbered(given: object, dropped: int) -> dict[str, Attribute]:
    found = dict(cast("dict[str, Attribute]", given))

    def number(attribute: Attribute) -> IntegerAttr:
        value = cast(IntegerAttr, attribute).value.data
        if value == dropped:
            raise _Impossible
        return IntegerAttr(value - (value > dropped), i64)

    if ALIASES in found:
        found[ALIASES] = number(found[ALIASES])
    if OUTPUT_VIEW in found:
        view = dict(cast(DictionaryAttr, found[OUTPUT_VIEW]).data)
        found[OUTPUT_VIEW] = DictionaryAttr({**view, "input": number(view["input"])})
    return found
