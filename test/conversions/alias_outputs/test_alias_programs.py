"""Alias facts and pure functions against eager, for programs that write, view and return what they are given."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.frontends.fx.types import known_dtype

_LIBRARY = torch.library.Library("alias_programs_test", "DEF")
_LIBRARY.define("accumulate(Tensor(a!) x, Tensor y) -> ()")
_LIBRARY.impl("accumulate", lambda x, y: (x.add_(y), None)[1], "CompositeExplicitAutograd")
torch.library.register_fake("alias_programs_test::accumulate", lambda x, y: None, lib=_LIBRARY)

accumulate = torch.ops.alias_programs_test.accumulate
Inputs = Callable[[], Sequence[object]]


def numbers(*shape: int) -> Tensor:
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def square() -> tuple[Tensor]:
    return (numbers(4, 4),)


def pair() -> tuple[Tensor, Tensor]:
    return numbers(4, 4), numbers(4, 4) * 10


def row() -> tuple[Tensor, Tensor]:
    return numbers(4, 4), numbers(4) * 10


def windows(first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], *shape: int) -> Inputs:
    """Two windows onto one storage."""

    def make() -> tuple[Tensor, Tensor]:
        base = numbers(*shape)
        return first(base), second(base)

    return make


def place(tensor: Tensor) -> tuple[object, ...]:
    return tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype


def again(inputs: Sequence[object]) -> list[object]:
    """Copies that share storage as the inputs do."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies: list[object] = []
    for value in inputs:
        if isinstance(value, Tensor):
            storage = value.untyped_storage()
            known = storages.setdefault(storage.data_ptr(), storage.clone())
            value = torch.empty(0, dtype=value.dtype).set_(known, value.storage_offset(), value.shape, value.stride())
        copies.append(value)
    return copies


def same(one: object, other: object) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other


class Eager:
    """What eager shows of a program: outputs, inputs afterwards, and which is which."""

    def __init__(self, program: Callable[..., object], inputs: Sequence[object]) -> None:
        self.inputs = again(inputs)
        tensors = {i: t for i, t in enumerate(self.inputs) if isinstance(t, Tensor)}
        before = {i: (t.clone(), t._version) for i, t in tensors.items()}
        self.outputs = tree_leaves(program(*self.inputs))
        self.io_map: dict[int, int] = {}
        for position, output in enumerate(self.outputs):
            found = [i for i, t in tensors.items() if isinstance(output, Tensor) and place(output) == place(t)]
            free = [i for i in found if i not in self.io_map.values()]
            if free:
                self.io_map[position] = free[0]
        changed = [i for i, t in tensors.items() if t._version != before[i][1] or not torch.equal(t, before[i][0])]
        for index in [i for i in changed if i not in self.io_map.values()]:
            self.io_map[max([len(self.outputs) - 1, *self.io_map]) + 1] = index

    def is_view(self, position: int) -> bool:
        """Whether an output is memory of an input."""
        output = self.outputs[position]
        keys = [t.untyped_storage().data_ptr() for t in self.inputs if isinstance(t, Tensor)]
        return isinstance(output, Tensor) and output.untyped_storage().data_ptr() in keys


def marked(program: Callable[..., object], inputs: Sequence[object]) -> ModuleOp:
    return ir.run_passes(ir.import_callable(program, *again(inputs)), "alias-outputs", verify_each=True)


def main(module: ModuleOp) -> FuncOp:
    function = module.body.block.first_op
    assert isinstance(function, FuncOp)
    return function


def functional(module: ModuleOp) -> fx.GraphModule:
    graph = ir.export_fx(ir.run_passes(module, "functionalize", verify_each=True))
    text = str(module)
    assert str(ir.parse(text)) == text
    for node in graph.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        assert schema is None or not schema.is_mutable, node.format_node()
    return graph


def rebuilt(view: DictionaryAttr, inputs: Sequence[object]) -> Tensor:
    """The window that an `output_view` describes."""

    def values(field: str) -> list[int]:
        return [entry.value.data for entry in view.data[field].data]

    number, offset = view.data["input"], view.data["offset"]
    assert isinstance(number, IntegerAttr)
    assert isinstance(offset, IntegerAttr)
    source = inputs[number.value.data]
    assert isinstance(source, Tensor)
    window = torch.empty(0, dtype=known_dtype(view.data["dtype"]))
    return window.set_(source.untyped_storage(), offset.value.data, values("shape"), values("strides"))


def check(program: Callable[..., object], make: Inputs) -> None:
    inputs = make()
    eager = Eager(program, inputs)
    module = marked(program, inputs)
    function = main(module)
    assert function.io_map == eager.io_map
    assert function.original_output_count == len(eager.outputs)
    views = function.output_views
    assert sorted(views) == [i for i in range(len(eager.outputs)) if eager.is_view(i) and i not in eager.io_map]
    for position, view in views.items():
        assert place(rebuilt(view, eager.inputs)) == place(eager.outputs[position])
    graph = functional(module)
    own = again(inputs)
    outputs = list(graph(*own))
    assert all(map(same, own, again(inputs))), "the functional graph wrote to an input"
    storages = [t.untyped_storage().data_ptr() for t in outputs if isinstance(t, Tensor) and t.numel()]
    assert len(set(storages)) == len(storages), "two outputs are in one memory"
    for position, output in enumerate(outputs):
        if isinstance(output, Tensor):
            itself = [own[eager.io_map[position]]] if position in eager.io_map else []
            others = [t for t in own if isinstance(t, Tensor) and not any(t is one for one in itself)]
            shares = [t.untyped_storage().data_ptr() == output.untyped_storage().data_ptr() for t in others]
            assert not any(shares) or any(output is one for one in itself), "an output is in the memory of an input"
    # In any order: what is put back first must not show in what comes later.
    for position, index in reversed(eager.io_map.items()):
        own[index].copy_(outputs[position])
    assert all(map(same, own, eager.inputs))
    assert all(map(same, outputs, eager.outputs))
    for output, expected in zip(outputs, eager.outputs, strict=False):
        if isinstance(expected, Tensor) and 0 not in expected.stride():
            assert output.stride() == expected.stride()


def nothing(x):
    x.add_(1)
    return ()


def swap(x, y):
    old = x.clone()
    x.copy_(y)
    y.copy_(old)
    return y, x


def unbound(x):
    for number, piece in enumerate(x.unbind(1)):
        piece.add_(number)


def pieces(x):
    first, rest = x.split([1, 3])
    rest.mul_(2)
    first.copy_(rest[:1])
    return rest


def restored(x):
    x.add_(1)
    x.sub_(1)


def old_value(x):
    old = x.clone()
    x.add_(1)
    return old


def transposed(x):
    x.t_()
    x[0].add_(1)
    return x, x.t()


def four_writes(x, y):
    x[0].add_(y)
    x[:, 1].copy_(y)
    x.t()[2].mul_(y)
    x.view(-1)[3:7].copy_(y)
    return y + 1


def both_halves(x, y):
    x.add_(1)
    y.mul_(2)
    return x + y.sum()


PROGRAMS: dict[str, tuple[Callable[..., object], Inputs]] = {
    # Which output is which input
    "square transposition": (lambda x: x.t(), square),
    "transposed twice": (lambda x: x.t().t(), square),
    "view of the same shape": (lambda x: x.view(4, 4), square),
    "whole slice": (lambda x: x[:], square),
    "slice": (lambda x: x[1:3], square),
    "dtype view": (lambda x: x.view(torch.int32), square),
    "dtype view and back": (lambda x: x.view(torch.int32).view(torch.float32), square),
    "copying reshape": (lambda x: x.t().reshape(4, 4), square),
    "expanded": (lambda x: x.expand(3, 4), lambda: (numbers(1, 4),)),
    "strided": (lambda x: x.as_strided((4,), (5,), 0), square),
    "detached": (lambda x: x.detach(), square),
    "complex as real": (torch.view_as_real, lambda: (torch.complex(numbers(2, 3), numbers(2, 3)),)),
    "returned twice": (lambda x: (x, x), square),
    "returned twice, changed": (lambda x: (x.add_(1), x), square),
    "returned between views": (lambda x: (x[0], x.add_(1), x.t()), square),
    "scalar": (lambda x: x.add_(1), lambda: (torch.tensor(3.0),)),
    "window with an offset": (lambda x: (x.mul_(2), x[1:]), lambda: (numbers(8, 4)[2:6],)),
    "transposed input": (lambda x: x.add_(1).sum(), lambda: (numbers(3, 4).t(),)),
    "input with gaps": (lambda x: x.mul_(2).sum(), lambda: (numbers(8, 8)[::2, 1:5],)),
    # Outputs of all kinds
    "no outputs": (nothing, square),
    "only None": (lambda x: (None, nothing(x), None)[::2], square),
    "numbers among outputs": (lambda x, y: (3, x.add_(1).sum(), None, y.shape[0], y), pair),
    "nested": (lambda x, y: {"a": x * 2, "b": [x.add_(1), (y,)]}, pair),
    "a value twice": (lambda x: (x + 1, (x + 1).view(-1)), square),
    "fresh views": (lambda x: (lambda t: (t, t[0], t.view(-1)))(x + 1), square),
    "a value into two inputs": (lambda x, y: (x.copy_(y[0]).sum(), y.copy_(x[0]).sum()), pair),
    "swap": (swap, pair),
    "old value": (old_value, square),
    # Writes of all kinds
    "four writes": (four_writes, row),
    "unbound": (unbound, square),
    "pieces": (pieces, square),
    "restored": (restored, square),
    "copy of itself": (lambda x: x.copy_(x).sum(), square),
    "no elements written": (lambda x: x[0:0].add_(1), square),
    "empty input": (lambda x: x.add_(1).sum(), lambda: (torch.zeros(0, 4),)),
    "diagonal": (lambda x: x.diagonal().fill_(0.0).sum(), square),
    "by strides": (lambda x, y: x.as_strided((4,), (5,)).add_(y).sum(), row),
    "real part": (lambda x: x.real.zero_().sum(), lambda: (torch.complex(numbers(2, 3), numbers(2, 3)),)),
    "custom operator": (lambda x, y: accumulate(x.t(), y), row),
    "custom operator on one tensor": (lambda x: accumulate(x, x), square),
    "foreach": (lambda x, y: torch._foreach_add_([x, y], 1.0), pair),
    "out": (lambda x, y: torch.add(x, 1, out=y), pair),
    "metadata": (transposed, square),
    "bf16": (lambda x: x.mul_(1.1).sum(), lambda: (numbers(4, 4).bfloat16(),)),
    # Inputs that share memory
    "one tensor given twice": (lambda x, y: (x.add_(1).sum(), y * 2), lambda: (numbers(4),) * 2),
    "given twice, returned": (lambda x, y: (y, x.add_(1)), lambda: (numbers(4),) * 2),
    "row changes with its base": (lambda x, y: x.add_(1).sum(), windows(lambda b: b, lambda b: b[1], 4, 4)),
    "base changes with its row": (lambda x, y: y.add_(1).sum(), windows(lambda b: b, lambda b: b[1], 4, 4)),
    "row of the base is the other": (lambda x, y: x.add_(1)[1], windows(lambda b: b, lambda b: b[1], 4, 4)),
    "row that is not touched": (lambda x, y: x[0].add_(1) + y, windows(lambda b: b, lambda b: b[2], 4, 4)),
    "rows apart": (lambda x, y: x.add_(1) * y, windows(lambda b: b[0], lambda b: b[1], 4, 4)),
    "overlapping halves": (both_halves, windows(lambda b: b[:4], lambda b: b[2:], 6, 4)),
    "rows and columns": (both_halves, windows(lambda b: b[::2], lambda b: b[:, 1:4], 6, 6)),
    "transposed other": (both_halves, windows(lambda b: b, lambda b: b.t(), 4, 4)),
    "other dtype": (
        lambda x, y: (x.add_(1).sum(), y + 1),
        windows(lambda b: b, lambda b: b.view(torch.int32)[1], 4, 4),
    ),
    "overlapping, only returned": (lambda x, y: (y, x), windows(lambda b: b, lambda b: b[1], 4, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_facts_and_values_are_those_of_eager(name: str) -> None:
    check(*PROGRAMS[name])


def test_writes_through_views_are_one_output_and_no_copy_of_the_whole():
    module = marked(four_writes, row())
    assert main(module).io_map == {1: 0}
    targets = [node.target for node in functional(module).graph.nodes if node.op == "call_function"]
    assert torch.ops.aten.clone.default not in targets


def test_a_changed_input_that_is_also_viewed_is_not_copied_as_a_whole():
    def program(x):
        x.add_(1)
        return x[1], x.view(-1)[:3]

    graph = functional(marked(program, square()))
    copies = [node for node in graph.graph.nodes if node.target is torch.ops.aten.clone.default]
    assert sorted(node.meta["val"].numel() for node in copies) == [3, 4]


def test_conjugate_is_no_alias():
    # Same storage, shape and strides, but not what the memory holds: put in its place, it would change it.
    inputs = (torch.complex(numbers(2, 2), numbers(2, 2)),)
    module = marked(lambda x: (x.mul_(2).conj(), x.conj().conj()), inputs)
    assert main(module).io_map == {1: 0}
    assert main(module).output_views == {}
    conjugate, changed = functional(module)(*inputs)
    assert torch.equal(changed, inputs[0] * 2)
    assert torch.equal(conjugate, changed.conj())


def test_donated_inputs_are_no_outputs():
    def program(x, residual, weight):
        residual[0].add_(1)
        return torch.ops.vllm_ir.fused_add_rms_norm.maybe_inplace(x, residual[1:], weight, 1e-5)

    inputs = (numbers(1, 4), numbers(2, 4), numbers(4))
    module = marked(program, inputs)
    assert main(module).io_map == {2: 1}  # what was given away of it is undefined, the rest is not
    outputs = functional(module)(*inputs)
    function = main(module)
    donated = [i for i in range(3) if "vllm_ir.donated" in function.argument_attributes(i)]
    assert donated == [0]
    assert torch.equal(outputs[2][0], inputs[1][0] + 1)


def test_memory_that_is_given_away_in_part_is_not_donated():
    def program(x, residual, weight):
        return torch.ops.vllm_ir.fused_add_rms_norm.maybe_inplace(x, residual[1:], weight, 1e-5)

    inputs = (numbers(1, 4), numbers(2, 4), numbers(4))
    module = marked(program, inputs)
    functional(module)
    function = main(module)
    assert function.io_map == {}
    assert [i for i in range(3) if "vllm_ir.donated" in function.argument_attributes(i)] == [0]


def test_memory_that_no_argument_holds_is_refused():
    def program(x):
        x.as_strided((4,), (1,), 0).add_(1)

    # The first elements of the storage are in front of the window that is given.
    module = marked(program, (numbers(8)[2:6],))
    with pytest.raises(PassFailedException, match="reaches memory that no argument holds all of"):
        ir.run_passes(module, "functionalize")


def test_functional_functions_are_refused():
    module = ir.run_passes(ir.import_callable(lambda x: x.add_(1), numbers(4)), "functionalize")
    with pytest.raises(PassFailedException, match="functional already; run alias-outputs before functionalize"):
        ir.run_passes(module, "alias-outputs")


def test_branches_keep_their_operands():
    def program(x, flag):
        x.add_(1)
        return torch.cond(flag, lambda t: t * 2, lambda t: t + 1, (x,))

    for flag in (True, False):
        inputs = (numbers(4), torch.tensor(flag))
        module = marked(program, inputs)
        functions = [op for op in module.body.block.ops if isinstance(op, FuncOp)]
        assert [function.original_output_count for function in functions] == [1, None, None]
        result, changed = functional(module)(*inputs)
        assert torch.equal(changed, numbers(4) + 1)
        assert torch.equal(result, changed * 2 if flag else changed + 1)


def test_symbolic_sizes():
    compiled: list[FuncOp] = []

    def backend(gm: fx.GraphModule, inputs: list[object]) -> Callable[..., object]:
        module = ir.run_passes(ir.import_fx(gm, inputs), "alias-outputs", verify_each=True)
        graph, function = functional(module), main(module)
        compiled.append(function)

        def run(*arguments: object) -> list[object]:
            outputs = list(graph(*arguments))
            for position, index in function.io_map.items():
                arguments[index].copy_(outputs[position])
            return outputs[: function.original_output_count]

        return run

    def program(x, n):
        x[1:3].add_(1)
        x.view(-1)[n : n + 2].mul_(2)
        return x.t(), x.shape[0] * 2, x.sum()

    torch._dynamo.reset()
    run = torch.compile(program, backend=backend, dynamic=True)
    for rows, columns, start in ((5, 4, 3), (6, 3, 2)):
        x, expected = numbers(rows, columns), numbers(rows, columns)
        assert all(map(same, run(x, start), program(expected, start)))
        assert torch.equal(x, expected)
    assert len(compiled) == 1
    assert list(compiled[0].io_map) == [3]
    assert [value.data for value in compiled[0].output_views[0].data["shape"]] == ["s27", "s77"]
