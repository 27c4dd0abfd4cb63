"""`functionalize`: memory becomes values.

Each storage has a current value. A write through a window makes a new value of the whole storage through the inverse of
the views; a later read of any window sees it. What remains is one read of each argument that is needed, one write of
each argument that changed, at the end, and the views that make up returned aliases.

With alias facts (`alias-outputs`) nothing of this remains: see `pure.py`.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Attribute, BlockArgument, Operation, SSAValue
from xdsl.transforms.dead_code_elimination import is_trivially_dead

from vllm_ir.conversions.donations import drop_invalid_donations
from vllm_ir.conversions.errors import fail
from vllm_ir.conversions.functionalize.calls import functionalize_call, is_layout_sensitive, relayout
from vllm_ir.conversions.functionalize.donation import donate, refuse_donated
from vllm_ir.conversions.functionalize.partial import count_rewrites, leave_in_memory
from vllm_ir.conversions.functionalize.pure import assemble_groups, make_pure, return_values
from vllm_ir.conversions.functionalize.storage import Root, Storages, Window
from vllm_ir.conversions.rewrites import LimitedPass, Rewrites
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import DONATED, MUTATED, ORIGINAL_OUTPUT_COUNT, FuncOp, ReturnOp, root_of
from vllm_ir.dialects.vllm_ir.high_level import donated_indices
from vllm_ir.dialects.vllm_ir.memory import AllocOp, ReadOp, ViewOp, WriteOp
from vllm_ir.dialects.vllm_ir.types import BufferType
from vllm_ir.frontends.fx.build import CallBuilder

_WHAT = "works on values"


@dataclass(frozen=True)
class FunctionalizePass(LimitedPass):
    """Turn reads and writes of memory into SSA values; writes to arguments move to the end.

    With `limit`, that many operations on memory become operations on values, in program order, and what is behind them
    stays at buffer level. The end of a function is the last of its rewrites.
    """

    name = "functionalize"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rewrites = self.start()
        for function in op.body.block.ops:
            if isinstance(function, FuncOp) and function.functional is None and rewrites.has(1):
                _Functionalizer(function, rewrites).run()


class _Functionalizer:
    def __init__(self, function: FuncOp, rewrites: Rewrites) -> None:
        self.function = function
        self.rewrites = rewrites
        self.block = function.block
        self.anchor: Operation = function.terminator
        self.b = CallBuilder(lambda op: self.block.insert_op_before(op, self.anchor))
        self.dead: dict[Operation, None] = {}  # an ordered set
        self.written: dict[SSAValue, Root] = {}
        """Memory that is written at the end, by the arguments that it is written through."""
        self.pure = ORIGINAL_OUTPUT_COUNT in function.attributes
        if self.pure and rewrites.is_limited:
            # What is left at buffer level needs its arguments in memory.
            self.pure = rewrites.has(count_rewrites(function))

    def run(self) -> None:
        ops = list(self.block.ops)
        self.anchor = ops[0]
        self.storages = Storages(self.function, self.b)
        if self.pure:
            assemble_groups(self.function, self.storages, self.b)
        for op in ops:
            self.anchor = op
            self.b.at(op)
            if not self._visit(op):
                leave_in_memory(self.function, self.storages, self.dead, self.b)
                return
        self._erase_dead()
        if any(root.has_gaps for root in self.storages.roots):
            self._erase_unused(set(ops))
        drop_invalid_donations(self.function)
        self.function.properties["functional"] = UnitAttr()
        if self.pure:
            make_pure(self.function, self.storages)
        else:
            self._update_signature()

    def _visit(self, op: Operation) -> bool:
        """Rewrite an operation; False, with nothing done, if it is to stay as it is, and with it all behind it."""
        writes = isinstance(op, CallOp) and op.writes is not None
        if (writes or isinstance(op, ReadOp | WriteOp | ReturnOp)) and not self.rewrites.take(op, _WHAT):
            return False
        match op:
            case AllocOp():
                self.storages.add_alloc(op)
                self.dead[op] = None
            case ViewOp():
                self.storages.add_view(op)
                self.dead[op] = None
            case ReadOp():
                self._read(op)
                self.dead[op] = None
            case WriteOp():
                self.storages.windows[op.buffer].assign(self.b, op.value)
                self.dead[op] = None
            case ReturnOp() if self.pure:
                return_values(self.function, op, self.storages, self.b)
            case ReturnOp():
                self._finish(op)
            case CallOp() if writes:
                functionalize_call(op, self.storages, self.b)
                self.dead[op] = None
            case _:
                return self._read_operands(op)
        return True

    def _value(self, op: Operation, buffer: SSAValue) -> SSAValue:
        window = self.storages.windows[buffer]
        refuse_donated(op, window, buffer)
        return window.value(self.b)

    def _read(self, op: ReadOp) -> None:
        value = self._value(op, op.buffer)
        for use in list(op.result.uses):
            user = use.operation
            exact = isinstance(user, ReturnOp) or is_layout_sensitive(user)
            user.operands[use.index] = relayout(self.b, value, op.buffer) if exact else value

    def _read_operands(self, op: Operation) -> bool:
        """Give an operation that only reads the values that its buffers hold; False if it is not to be rewritten."""
        donated = donated_indices(op)
        sensitive = is_layout_sensitive(op)
        windows: list[tuple[int, Window]] = []
        taken = False
        for index, operand in enumerate(op.operands):
            if isinstance(operand.type, BufferType):
                taken = taken or self.rewrites.take(op, _WHAT)
                if not taken:
                    return False
                value = self._value(op, operand)
                if sensitive:
                    value = relayout(self.b, value, operand)
                if index in donated:
                    windows.append((index, self.storages.windows[operand]))
                op.operands[index] = value
        for index, window in windows:
            donate(op, window, op.operands[index])
        op.properties.pop("reads", None)
        return True

    def _finish(self, returned: ReturnOp) -> None:
        """Write what changed, then return tensors, and windows where the caller can see an alias."""
        shared = self._returned_roots(returned)
        tensors: dict[int, SSAValue] = {}
        for index, operand in enumerate(returned.operands):
            if isinstance(operand.type, BufferType):
                window = self.storages.windows[operand]
                refuse_donated(returned, window, operand)
                if not window.root.is_argument and shared[window.root] == 1:
                    tensors[index] = relayout(self.b, window.value(self.b), operand)
        allocs: dict[Root, SSAValue] = {}
        # All values first: final writes are behind all computation.
        writes = [
            (root, write)
            for root in self.storages.roots
            if root.is_argument and root.changed and not root.given_away
            for write in root.final_writes(self.b)
        ]
        for root, (value, buffer) in writes:
            self._write(root, value, buffer, allocs)
        for index, operand in enumerate(returned.operands):
            if index in tensors:
                returned.operands[index] = tensors[index]
            elif isinstance(operand.type, BufferType):
                returned.operands[index] = self._returned_window(operand, allocs)

    def _write(self, root: Root, value: SSAValue, buffer: SSAValue, allocs: dict[Root, SSAValue]) -> None:
        target = buffer if buffer is root.buffer else self._returned_window(buffer, allocs)
        self.b.add(WriteOp.create(operands=[value, target]))
        self.written |= {root_of(target): root, root_of(root.buffer): root}

    def _returned_roots(self, returned: ReturnOp) -> dict[Root, int]:
        """How many returned windows each root has."""
        counts: dict[Root, int] = {}
        for operand in returned.operands:
            if isinstance(operand.type, BufferType):
                root = self.storages.windows[operand].root
                counts[root] = counts.get(root, 0) + 1
        return counts

    def _returned_window(self, buffer: SSAValue, allocs: dict[Root, SSAValue]) -> SSAValue:
        """The same window, made of views of an argument or of a new storage that holds the final value."""
        while isinstance(owner := buffer.owner, CallOp) and owner.returns is not None:
            buffer = self.storages.aliases[buffer]
        if isinstance(buffer, BlockArgument):
            return buffer
        if isinstance(owner, ViewOp):
            base = self._returned_window(owner.base, allocs)
            if base is owner.base:
                self.dead.pop(owner, None)
                return buffer
            copy = owner.clone()
            copy.operands[0] = base
            self.b.add(copy)
            return next(new for new, old in zip(copy.results, owner.results, strict=True) if old is buffer)
        root = self.storages.windows[buffer].root
        if root not in allocs:
            value = root.current
            if value is None:
                fail(owner if isinstance(owner, Operation) else self.function, "a returned storage has no value")
            allocs[root] = self.b.add(AllocOp.create(operands=[value], result_types=[root.type])).results[0]
        return allocs[root]

    def _erase_dead(self) -> None:
        if self.pure:
            made = (root.buffer.owner for root in self.storages.roots)
            self.dead = {**dict.fromkeys(op for op in made if isinstance(op, ViewOp)), **self.dead}
        for op in reversed(self.dead):
            op.detach()
            op.erase(safe_erase=False)

    def _erase_unused(self, program: Container[Operation]) -> None:
        """Erase values of memory that nobody needs as a whole, unless they are the program's."""
        for op in reversed(list(self.block.ops)):
            if op not in program and is_trivially_dead(op):
                op.detach()
                op.erase()

    def _update_signature(self) -> None:
        """Arguments are mutated only if they are written, donated if they were given away."""
        donated = {root.buffer for root in self.storages.roots if root.given_away}
        written = set(self.written.values())
        attributes: list[dict[str, Attribute]] = []
        for index, argument in enumerate(self.function.block.args):
            entry = self.function.argument_attributes(index)
            window = self.storages.windows.get(argument)
            if window is not None and window.root not in written:
                entry.pop(MUTATED, None)
            if argument in self.written:
                entry[MUTATED] = UnitAttr()
            if window is not None and window.root.buffer in donated:
                entry[DONATED] = UnitAttr()
            attributes.append(entry)
        self.function.set_argument_attributes(attributes)
        self.function.update_type()
