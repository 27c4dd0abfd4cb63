"""Declaring kernels and calling them in eager mode: what runs, what comes back, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from xdsl.utils.exceptions import VerifyException

import vllm_ir as ir
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.ops.device_kernels.operators import kernel_of, signature_of
from vllm_ir.frontends.ops.device_kernels.signature import Signature


def _write(cache: Tensor, row: Tensor, at: int = 1, scale: float = 1.0) -> Tensor:
    cache[at] = row * scale
    return cache


def _returns(value: Callable[..., object]) -> Callable[..., object]:
    return lambda cache, *others: value(cache, *others)


write = ir.device_kernel("eager write", {0: 0}, _write)


def test_eager_runs_the_simulator_and_gives_the_operand_back():
    cache, row = torch.zeros(3, 4), torch.ones(4)
    before = cache._version
    result = write[2, 3](cache, row, 2)
    assert result is cache
    assert cache[2].tolist() == [1.0] * 4
    assert cache[:2].sum() == 0
    assert cache._version > before  # autograd and comparisons of versions see the write


def test_eager_runs_the_simulator_once():
    calls: list[Tensor] = []

    def count(x: Tensor) -> Tensor:
        calls.append(x)
        return x + 1

    x = torch.zeros(2)
    ir.device_kernel("counted", {}, count)[1](x)
    assert [call is x for call in calls] == [True]


def test_operands_by_name_take_the_places_of_the_simulators_parameters():
    cache = torch.zeros(3, 2)
    write[1](cache, scale=3.0, row=torch.ones(2))
    assert cache.tolist() == [[0, 0], [3, 3], [0, 0]]
    with pytest.raises(TypeError, match="operand 'row' is missing"):
        write[1](cache, scale=3.0)
    with pytest.raises(TypeError, match=r"no parameters for \['nope', 'scale'\]"):
        write[1](cache, torch.ones(2), 1, 1.0, scale=3.0, nope=1)


def test_outputs_keep_the_simulators_structure_and_order():
    def mixed(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b.add_(1)
        return a * 2, b, a + b

    kernel = ir.device_kernel("mixed", {1: 1}, mixed)
    a, b = torch.ones(2), torch.zeros(2)
    first, second, third = kernel[1](a, b)
    assert (first.tolist(), second is b, third.tolist()) == ([2, 2], True, [2, 2])
    (one,) = ir.device_kernel("a tuple of one", {0: 0}, lambda x: (x.add_(1),))[1](a)
    assert one is a
    assert ir.device_kernel("no grid", {}, lambda x: x + 1)(a).tolist() == [3, 3]


@pytest.mark.parametrize(
    ("aliases", "simulator", "reason"),
    [
        ({0: 0}, lambda c, x: c + x, "output 0 is not operand 0, as operand_output_aliases says"),
        ({0: 0}, lambda c, x: c.add_(x)[:2], "output 0 is not operand 0"),
        ({0: 0}, lambda c, x: None, "must return a tensor or a tuple of tensors, got NoneType"),
        ({0: 0}, lambda c, x: (c.add_(x), 3), "got Tensor, int"),
        ({0: 0}, lambda c, x: (), "got nothing"),
        ({0: 1}, lambda c, x: c.add_(x), "returns 1 output, but operand_output_aliases names output 1"),
        ({}, lambda c, x: c, r"output 0 is in the memory of operand 0; if it is that operand.*\{0: \.\.\.\}"),
        ({}, lambda c, x: x[0], "output 0 is in the memory of operand 1"),
        ({}, lambda c, x: (y := c + x, y), "output 1 is in the memory of output 0; return a copy"),
        ({}, lambda c, x: c.add_(x) * 2, "writes operand 0, which operand_output_aliases does not name"),
        ({1: 0}, lambda c, x: (c.add_(1), x.add_(1))[1], "writes operand 0"),
        ({2: 0}, lambda c, x: c, "names operand 2, which is not a tensor; operands count from 0.*here are 2"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_what_the_simulator_does_is_compared_with_what_was_declared(aliases, simulator, reason: str, traced: bool):
    kernel = ir.device_kernel("claims", aliases, simulator)

    def program(c: Tensor, x: Tensor) -> object:
        return kernel[1](c, x)

    with pytest.raises(ValueError, match=rf"device kernel 'claims' \(.*test_device_kernels.py:\d+\): .*{reason}") as e:
        (make_fx(program) if traced else program)(torch.zeros(3), torch.ones(3))
    assert "\n" not in str(e.value)


def test_operands_that_no_kernel_takes():
    with pytest.raises(TypeError, match="operand 1 is a object; operands are tensors, numbers"):
        write[1](torch.zeros(3, 2), object())
    with pytest.raises(TypeError, match=r"a grid is made of integers, got 2\.0"):
        write[2.0](torch.zeros(3, 2), torch.ones(2))


@pytest.mark.parametrize(
    ("arguments", "error", "reason"),
    [
        (("", {}, _write), ValueError, "the name must not be empty"),
        ((3, {}, _write), TypeError, "the name must be a string, got 3"),
        (("k", {}, None), TypeError, "'k': simulator must be callable, got None"),
        (("k", [0], _write), TypeError, r"must map operands to outputs, got \[0\]"),
        (("k", {-1: 0}, _write), TypeError, "takes numbers of operands and outputs, got -1"),
        (("k", {0: True}, _write), TypeError, "got True"),
        (("k", {0: 0, 1: 0}, _write), ValueError, "output 0 cannot be operand 0 and operand 1"),
        (("k", {0: 0}, _write, {"f": _write}), TypeError, "JSON cannot hold backend_config"),
    ],
)
def test_malformed_declarations(arguments: tuple[object, ...], error: type[Exception], reason: str):
    with pytest.raises(error, match=reason):
        ir.device_kernel(*arguments)


def test_kernels_of_one_name_stay_apart():
    one = ir.device_kernel("same-name", {}, lambda x: x + 1)
    two = ir.device_kernel("same-name", {}, lambda x: x + 2)
    assert (one.name, two.name) == ("same-name", "same-name")
    assert (one.key, two.key) == ("same_name", "same_name_2")
    graph = make_fx(lambda x: (one[1](x), two[1](x)))(torch.zeros(1))
    assert [value.item() for value in graph(torch.zeros(1))] == [1, 2]
    assert ir.device_kernel("lambda", {}, lambda x: x + 1).key == "kernel_lambda"


def test_traced_calls_are_operators_that_write():
    graph = make_fx(lambda c, x: write[2](c, x, 0, 0.5))(torch.zeros(3, 2), torch.ones(2))
    (node,) = [n for n in graph.graph.nodes if n.op == "call_function"]
    schema = node.target._schema
    assert str(schema) == (
        "device_kernel::eager_write_ttif_0(Tensor(a0!) operand_0, Tensor operand_1, SymInt operand_2, float operand_3, "
        "*, SymInt[] grid, str? backend_config=None) -> ()"
    )
    assert kernel_of(node.target) is write
    assert signature_of(node.target) == Signature("eager_write", "ttif", 0)
    assert kernel_of(torch.ops.aten.add.Tensor) is None
    cache = torch.zeros(3, 2)
    graph(cache, torch.ones(2))
    assert cache[0].tolist() == [0.5, 0.5]


@pytest.mark.parametrize("count", [0, 1, 2])
def test_signatures_are_read_from_their_names(count: int):
    signature = Signature("a_b_2", "tTnbifsdFBI", count)
    assert Signature.parse(signature.name) == signature
    assert Signature.parse("nothing") is None


def test_every_kind_of_operand_is_traced():
    seen: list[object] = []

    def kernel(x: Tensor, *others: object) -> Tensor:
        seen[:] = others
        return x + 1

    others = (3, True, 2.5, "mode", None, torch.bfloat16, [1, 2], [0.5, 1], [True], [])
    graph = make_fx(lambda x: ir.device_kernel("kinds", {}, kernel)[1](x, *others, [x, x]))(torch.ones(2))
    (node,) = [n for n in graph.graph.nodes if n.op == "call_function"]
    assert signature_of(node.target) == Signature("kinds", "tibfsndIFBIT", 1)
    graph(torch.zeros(2))
    assert [*seen[:-1]] == [*others]


def test_a_simulator_that_needs_data_is_traced_if_all_outputs_are_operands():
    def rows(cache: Tensor, row: Tensor, at: Tensor) -> Tensor:
        for slot in at.tolist():
            cache[slot] = row
        return cache

    kernel = ir.device_kernel("needs data", {0: 0}, rows)
    graph = make_fx(lambda c, r, at: kernel[1](c, r, at), tracing_mode="fake")(
        torch.zeros(3, 2), torch.ones(2), torch.tensor([0])
    )
    cache = torch.zeros(3, 2)
    graph(cache, torch.ones(2), torch.tensor([2, 1]))
    assert cache.sum(1).tolist() == [0, 2, 2]


def test_new_outputs_of_a_simulator_that_needs_data_come_from_fake():
    def count(x: Tensor) -> Tensor:
        return torch.full((2,), float(x.sum().item()))

    with pytest.raises(ValueError, match=r"the simulator does not run on tensors without data: .*give fake="):
        make_fx(lambda x: ir.device_kernel("blind", {}, count)[1](x))(torch.ones(3))
    kernel = ir.device_kernel("told", {}, count, fake=lambda x: x.new_empty(2))
    graph = make_fx(lambda x: kernel[1](x) + 1)(torch.ones(3))
    assert graph(torch.ones(5)).tolist() == [6, 6]


def test_an_operator_checks_what_the_trace_assumed():
    def grows(x: Tensor, at: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        x.add_(at.sum().item())
        return (x, x + 1)

    kernel = ir.device_kernel("grows", {0: 0}, grows)
    graph = make_fx(lambda x, at: kernel[1](x, at), tracing_mode="fake")(torch.zeros(2), torch.ones(1))
    with pytest.raises(ValueError, match="returns 2 outputs here, 1 when it was traced"):
        graph(torch.zeros(2), torch.ones(1))


def test_gradients_are_those_of_the_simulator_in_eager_and_refused_in_a_trace():
    row = torch.ones(2, requires_grad=True)
    cache = torch.zeros(3, 2)
    write[1](cache, row, 0, 2.0)
    cache.sum().backward()
    assert row.grad is not None
    assert row.grad.tolist() == [2, 2]
    with pytest.raises(ValueError, match=r"'eager write' .* has no gradient; call it under torch.no_grad\(\)"):
        make_fx(lambda c, x: write[1](c, x))(torch.zeros(3, 2), row)
    double = ir.device_kernel("double", {}, lambda x: x * 2)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        make_fx(lambda x: double[1](x))(row)(row).sum().backward()


def test_operators_are_found_by_name_in_a_process_that_has_not_called_them(tmp_path: Path):
    declaration = "import vllm_ir as ir\nk = ir.device_kernel('from text', {0: 0}, lambda x: x.add_(1))\n"
    text = (
        "vllm_ir.func @main(%x: !vllm_ir.buffer<2xf32> {vllm_ir.mutated}) -> () {\n"
        "  torch.call @device_kernel.from_text_t_0.default(%x, grid = [2], backend_config = none) "
        "reads(%x) writes(%x) : (!vllm_ir.buffer<2xf32>) -> ()\n  vllm_ir.return ()\n}\n"
    )
    (tmp_path / "module.mlir").write_text(text)
    code = (
        f"{declaration}import torch\n"
        f"m = ir.run_passes(ir.parse(open({str(tmp_path / 'module.mlir')!r}).read()), 'functionalize')\n"
        "x = torch.zeros(2)\nir.export_fx(m)(x)\nprint(x.tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[1.0, 1.0]", done.stderr
    with pytest.raises(VerifyException, match=r"operator @device_kernel\.from_text_t_0.default is not registered"):
        resolve("device_kernel.from_text_t_0.default")


def test_errors_name_the_kernel_once():
    with pytest.raises(ValueError, match="device kernel") as error:
        ir.device_kernel("once", {0: 0}, lambda x: x + 1)[1](torch.zeros(1))
    assert len(re.findall("device kernel", str(error.value))) == 1
