"""Priorities that depend on the size of a dimension."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.frontends.ops import enable_torch_wrap, register_op, unregister

RANGES = ir.SizeRanges([((1, 4), ["few"]), ((5, None), ["many"])])


@pytest.fixture(scope="module")
def ranged() -> Iterator[ir.IrOp]:
    """An op whose two implementations leave a mark."""

    @register_op(name="size_ranges_mark")
    def mark(x: Tensor, weight: Tensor | None = None) -> Tensor:
        return x * 1

    @mark.register_impl("few")
    def few(x: Tensor, weight: Tensor | None = None) -> Tensor:
        return x + 10

    @mark.register_impl("many")
    def many(x: Tensor, weight: Tensor | None = None) -> Tensor:
        return x + 100

    yield mark
    unregister(mark)


def first(tensor: Tensor) -> float:
    return tensor.flatten()[0].item()


def test_eager_calls_follow_the_size(ranged: ir.IrOp) -> None:
    with ranged.set_priority(RANGES):
        assert [first(ranged(torch.zeros(size, 2))) for size in (1, 4, 5, 900, 4)] == [10, 10, 100, 100, 10]
        assert first(ranged(torch.zeros(0, 2).new_zeros(0, 2).sum(0, keepdim=True))) == 10
        with enable_torch_wrap(False):
            assert [first(ranged(torch.zeros(size, 2))) for size in (4, 5)] == [10, 100]
    assert first(ranged(torch.zeros(5, 2))) == 0


def test_sizes_without_a_range_get_the_platforms_order(ranged: ir.IrOp) -> None:
    with ranged.set_priority(ir.SizeRanges([((2, 3), ["few"])])):
        assert [first(ranged(torch.zeros(size, 2))) for size in (1, 2, 3, 4)] == [0, 10, 10, 0]
        assert ranged.get_priority() == ["few", "native"]


@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_there_is_one_graph_for_each_range(ranged: ir.IrOp, backend: str) -> None:
    options: dict[str, Any] = {"ir_op_priority": {"size_ranges_mark": RANGES}}

    def program(x: Tensor) -> Tensor:
        return ranged(x + x) * 1

    compiled = torch.compile(program, backend=backend, options=options, dynamic=True)
    before = len(ir.compile_reports())
    with torch.no_grad():
        got = [first(compiled(torch.zeros(size, 2))) for size in (3, 2, 4, 7, 300, 5, 3)]
    assert got == [10, 10, 10, 100, 100, 100, 10]
    assert len(ir.compile_reports()) - before == 2


def test_unwrapped_calls_in_a_compiled_program(ranged: ir.IrOp) -> None:
    with torch.no_grad(), enable_torch_wrap(False), ranged.set_priority(RANGES):
        compiled = torch.compile(lambda x: ranged(x) * 1, backend="vllm_ir_eager", dynamic=True)
        assert [first(compiled(torch.zeros(size, 2))) for size in (3, 7, 4)] == [10, 100, 10]


def test_a_module_alone_does_not_know_its_sizes() -> None:
    wide, narrow = (f'tensor<?x{n}xf32, #vllm_ir.layout<sizes = ["s0", {n}]>>' for n in (16, 8))
    module = ir.parse(
        f"vllm_ir.func functional @f(%x: {wide}) -> {narrow} {{\n"
        f"  %y = vllm_ir.silu_and_mul %x : {wide} -> {narrow}\n"
        f"  vllm_ir.return %y : {narrow}\n}}"
    )
    ranges = ir.SizeRanges([((1, 4), ["native"])])
    with ir.ops.silu_and_mul.set_priority(ranges), pytest.raises(PassFailedException, match="size that is not known"):
        ir.run_passes(module, "lower")


def test_the_parameter_and_dimension_can_be_named(ranged: ir.IrOp) -> None:
    columns = ir.SizeRanges([((None, 2), ["few"]), ((3, None), ["many"])], of="x", dim=-1)
    with ir.IrOpPriorityConfig(size_ranges_mark=columns).apply():
        assert [first(ranged(torch.zeros(5, size))) for size in (2, 3)] == [10, 100]
    weights = ir.SizeRanges([((None, None), ["few"])], of="weight")
    with ranged.set_priority(weights), pytest.raises(RuntimeError, match="'weight', dimension 0, but it is None"):
        ranged(torch.zeros(2, 2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ir.SizeRanges([]), "at least one"),
        (lambda: ir.SizeRanges([((1, 4), ["a"]), ((4, 9), ["b"])]), r"1\.\.4: \['a'\] and 4\.\.9: \['b'\] overlap"),
        (lambda: ir.SizeRanges([((1, None), ["a"]), ((4, 9), ["b"])]), "overlap"),
        (lambda: ir.SizeRanges([((5, 4), ["a"])]), r"5\.\.4 has no size in it"),
    ],
)
def test_ranges_that_do_not_fit(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_range(ranged: ir.IrOp) -> None:
    with pytest.raises(TypeError, match="expected"):
        ir.SizeRanges([(1, ["a"])])  # type: ignore[list-item]  # what is tested
    with pytest.raises(ValueError, match=r"no implementation by 'fwe'.*did you mean 'few'"):
        ranged.set_priority(ir.SizeRanges([((1, 2), ["fwe"])]))
    with pytest.raises(ValueError, match=r"size ranges of 'y', which is no tensor of it; there are \['x', 'weight'\]"):
        ranged.set_priority(ir.SizeRanges([((1, 2), ["few"])], of="y"))
