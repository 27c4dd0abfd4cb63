"""Device kernels in programs: whoever reads an operand behind a kernel sees what the kernel wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch
from torch import Tensor

import vllm_ir as ir

Check = Callable[..., None]
Made = Sequence[object]


def _write_rows(cache: Tensor, rows: Tensor, at: Tensor) -> Tensor:
    for row, slot in zip(rows, at.tolist(), strict=True):  # data is needed to run it
        cache[slot] = row
    return cache


def _write_pair(rows: Tensor, keys: Tensor, scale: float, values: Tensor, by: int) -> tuple[Tensor, Tensor, Tensor]:
    old = values.sum(0)
    keys[: rows.shape[0]].copy_(rows * scale)
    values.add_(by)
    return values, old, keys


def _add_all(out: Tensor, others: Sequence[Tensor], sizes: Sequence[int]) -> Tensor:
    for other, size in zip(others, sizes, strict=True):
        out[:size].add_(other[:size])
    return out


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[: x.shape[0] // 2] * 1, x.sum()


write_rows = ir.device_kernel("program_write_rows", {0: 0}, _write_rows)
write_pair = ir.device_kernel("program_write_pair", {1: 2, 3: 0}, _write_pair)
add_all = ir.device_kernel("program_add_all", {0: 0}, _add_all)
halves = ir.device_kernel("program_halves", {}, _halves)


def _inputs() -> Made:
    return (
        torch.arange(64.0).reshape(2, 8, 4),
        torch.arange(100.0, 108.0).reshape(2, 4),
        torch.tensor([5, 1]),
    )


def _readers(kv: Tensor, x: Tensor, at: Tensor) -> object:
    before, row = kv.sum(), kv[0, 5]
    new = write_rows[2](kv[0], x, at)
    return before, row, row * 2, kv[0, 1] + 1, new.sum(), new, kv.view(16, 4)[5] - 1


def _several_writes(kv: Tensor, x: Tensor, at: Tensor) -> object:
    write_rows[2](kv[1], x, at)
    kv[1, 5].mul_(3)
    write_rows[2, 2](kv.view(16, 4), kv[1, :2] + x, at + 8)
    kv[:, 1] += 1
    return write_rows[1](kv[0], x * 2, at)[1].clone()


def _mixed(kv: Tensor, x: Tensor, at: Tensor) -> object:
    values, old, keys = write_pair[4](x, kv[0], 0.5, kv[1], 3)
    return old + values[0], keys[:2], x + kv[0, 1]


def _transposed(kv: Tensor, x: Tensor, at: Tensor) -> object:
    write_rows[1](kv.transpose(0, 1)[:, 1], x, at)
    write_rows[1](kv[:, ::2, 1:3].flatten(0, 1), x[:, :2], at)  # a copy: flatten cannot view it
    return kv[1] * 2


def _reads_its_own_memory(kv: Tensor, x: Tensor, at: Tensor) -> object:
    write_rows[1](kv[0], kv[1, :2], at)  # reads one layer, writes the other
    return kv.sum((0, 1))


def _lists(kv: Tensor, x: Tensor, at: Tensor) -> object:
    add_all[1](kv[0], [x, kv[1], x * 2], (2, 4, 1))
    return kv[0]


def _in_between(kv: Tensor, x: Tensor, at: Tensor) -> object:
    part, total = halves[1](kv)
    kv.zero_()
    write_rows[1](part[0], x, at)
    return part, total, kv + 1


PROGRAMS = [
    _readers,
    _several_writes,
    _mixed,
    _transposed,
    _reads_its_own_memory,
    _lists,
    _in_between,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__.strip("_"))
class TestPrograms:
    def test_through_the_ir(self, check: Check, program: Callable[..., object]):
        check(program, _inputs, text=True)

    def test_from_dynamo(self, check: Check, program: Callable[..., object]):
        check(program, _inputs, dynamo=True)

    @pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
    def test_compiled(self, program: Callable[..., object], backend: str):
        expected, given = _inputs(), _inputs()
        with torch.no_grad():
            wanted = program(*expected)
            found = torch.compile(program, backend=backend, fullgraph=True)(*given)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
        torch.testing.assert_close(given, expected, rtol=0, atol=0)


def test_dynamic_sizes_and_grids():
    def program(cache: Tensor, x: Tensor) -> Tensor:
        return write_pair[x.shape[0], 2](x, cache[0], 0.5, cache[1], x.shape[0])[1]

    compiled = torch.compile(program, backend="vllm_ir_eager", fullgraph=True, dynamic=True)
    for rows in (2, 3, 5):
        expected, given = torch.ones(2, 8, 4), torch.ones(2, 8, 4)
        x = torch.arange(4.0 * rows).reshape(rows, 4)
        with torch.no_grad():
            assert torch.equal(compiled(given, x), program(expected, x))
        assert torch.equal(given, expected)


def test_a_kernel_that_reads_a_part_of_what_it_writes_is_refused(harness: ModuleType):
    def program(kv: Tensor, at: Tensor) -> None:
        write_rows[1](kv, kv[6:], at)

    harness.refused(program, lambda: (torch.zeros(8, 4), torch.tensor([5, 1])), match="overlaps the operand")


def test_kernels_of_another_compiler():
    # The operators are ordinary custom operators, so that they are right without this product, too.
    expected, given = _inputs(), _inputs()
    with torch.no_grad():
        wanted = _several_writes(*expected)
        found = torch.compile(_several_writes, backend="aot_eager", fullgraph=True)(*given)
    torch.testing.assert_close((found, given), (wanted, expected), rtol=0, atol=0)


def test_errors_of_the_declaration_reach_the_user():
    wrong = ir.device_kernel("program_wrong", {0: 0}, lambda x: x + 1)
    with pytest.raises(Exception, match=r"'program_wrong' \(.*:\d+\): output 0 is not operand 0") as error:
        torch.compile(lambda x: wrong[1](x), backend="vllm_ir_eager", fullgraph=True)(torch.zeros(2))
    assert error.value is not None


def test_locations_are_the_users():
    def program(cache: Tensor, x: Tensor, at: Tensor) -> None:
        write_rows[1](cache, x, at)

    module = ir.import_callable(program, torch.zeros(8, 4), *_inputs()[1:])
    (call,) = [op for op in module.walk() if op.name == "torch.call"]
    line = program.__code__.co_firstlineno + 1
    assert f"test_device_kernels.py:{line}" in _place(call)
    graphs = []
    torch.compile(program, backend=lambda gm, inputs: graphs.append((gm, inputs)) or gm, fullgraph=True)(
        torch.zeros(8, 4), *_inputs()[1:]
    )
    (call,) = [op for op in ir.import_fx(*graphs[0]).walk() if op.name == "torch.call"]
    assert f"test_device_kernels.py:{line}" in _place(call)


def _place(op: object) -> str:
    from vllm_ir.conversions.errors import location_text

    return location_text(op)
