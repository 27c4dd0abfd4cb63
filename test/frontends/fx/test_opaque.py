"""Operators that a compiler cannot look into: what they return, and that they leave their operands alone."""

import pytest
import torch
from torch import Tensor

from vllm_ir.frontends.fx.opaque import absent_arguments, opaque_functional

aten = torch.ops.aten
_LIBRARY = torch.library.Library("opaque_test", "DEF")
_LIBRARY.define("push(Tensor(a!)[] xs, Tensor y, *, Tensor(b!)? log=None, int by=1) -> Tensor[]")
_LIBRARY.define("both(Tensor(a!) x, Tensor(b!) y) -> (Tensor(a!), Tensor)")
_LIBRARY.define("mirror(Tensor(a!) x, Tensor y) -> ()")


def _push(xs: list[Tensor], y: Tensor, *, log: Tensor | None = None, by: int = 1) -> list[Tensor]:
    old = [x.clone() for x in xs]
    for x in xs:
        x.add_(y * by)
    if log is not None:
        log.add_(1)
    return old


def _both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    y.mul_(2)
    return x.add_(y), x + y


def _mirror(x: Tensor, y: Tensor) -> None:
    for position in range(x.shape[0]):
        x[position] = y[-1 - position]


for _name, _kernel in (("push", _push), ("both", _both), ("mirror", _mirror)):
    _LIBRARY.impl(_name, _kernel, "CompositeExplicitAutograd")
ops = torch.ops.opaque_test


def numbers(*shape: int) -> Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape)


def test_lists_results_and_defaults():
    functional = opaque_functional(ops.push.default)
    x, y, z, log = numbers(3), numbers(3) * 10, numbers(3), torch.zeros(1)
    old, new, counted = functional([x, y], z, log=log)
    assert [t.tolist() for t in old] == [[1, 2, 3], [10, 20, 30]]
    assert [t.tolist() for t in new] == [[2, 4, 6], [11, 22, 33]]
    assert counted.tolist() == [1]
    assert (x.tolist(), y.tolist(), log.tolist()) == ([1, 2, 3], [10, 20, 30], [0])


def test_absent_arguments_have_no_new_value():
    assert absent_arguments(ops.push.default, {"xs": [], "log": None}) == ("log",)
    _, new = opaque_functional(ops.push.default, ("log",))([numbers(2)], numbers(2), by=2)
    assert new[0].tolist() == [3, 6]


def test_results_that_are_operands_are_left_out():
    functional = opaque_functional(ops.both.default)
    x, y = numbers(2), numbers(2)
    total, new_x, new_y = functional(x, y)
    assert (total.tolist(), new_x.tolist(), new_y.tolist()) == ([5, 10], [3, 6], [2, 4])
    assert (x.tolist(), y.tolist()) == ([1, 2], [1, 2])


def test_equal_operands_are_different_memory_unless_they_are_said_to_be_the_same():
    x = numbers(4)
    assert opaque_functional(ops.mirror.default)(x, x).tolist() == [4, 3, 2, 1]
    shared = opaque_functional(ops.mirror.default, (), (0, 0))
    assert [new.tolist() for new in shared(x, x)] == [[4, 3, 3, 4]]
    assert x.tolist() == [1, 2, 3, 4]


def test_sharing_inside_lists():
    functional = opaque_functional(ops.push.default, ("log",), (0, 1, 0))
    x, y = numbers(2), numbers(2) * 10
    old, new = functional([x, y], x)
    assert [t.tolist() for t in old] == [[1, 2], [10, 20]]
    assert [t.tolist() for t in new] == [[2, 4], [12, 24]]


def test_operators_of_pytorch():
    functional = opaque_functional(aten._foreach_add_.List, (), (0, 1, 1, 0))
    x, y = numbers(2), numbers(2) * 10
    assert [t.tolist() for t in functional([x, y], [y, x])] == [[11, 22], [21, 42]]
    assert x.tolist() == [1, 2]
    assert opaque_functional(aten.addcmul_.default)(x, y, y, value=0.5).tolist() == [51, 202]


def test_operators_that_write_nothing_return_new_memory():
    functional = opaque_functional(aten.reshape.default)
    x = numbers(2, 3)
    result = functional(x, [6])
    assert torch.equal(result, x.view(6))
    assert result.data_ptr() != x.data_ptr()


def test_strides_stay_and_fakes_know_them():
    x = numbers(3, 4).t()
    functional = opaque_functional(aten.relu_.default)
    assert functional(x).stride() == x.stride()
    assert functional(x.to("meta")).stride() == x.stride()


@pytest.mark.parametrize("overload", [aten.uniform_.default, aten.add_.Tensor])
def test_random_operators_stay_random(overload):
    functional = opaque_functional(overload)
    assert (torch.Tag.nondeterministic_seeded in functional.tags) == (overload is aten.uniform_.default)


def test_one_operator_however_it_is_asked_for():
    assert opaque_functional(ops.mirror.default) is opaque_functional(ops.mirror.default, ())
    assert opaque_functional(ops.mirror.default) is opaque_functional(ops.mirror.default, (), ())
