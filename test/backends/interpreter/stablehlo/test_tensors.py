"""Modules run on tensors: what is returned, what is written, and device kernels by their simulators."""

import base64

import numpy as np
import pytest
import torch
from torch import Tensor
from xdsl.dialects.builtin import StringAttr
from xdsl.utils.exceptions import InterpretationError

import vllm_ir as ir
from vllm_ir.backends.interpreter.stablehlo.interpret import interpret_stablehlo
from vllm_ir.backends.interpreter.stablehlo.tensors import to_numpy, to_tensor
from vllm_ir.tools.text import parse

PASSES = "alias-outputs,functionalize,convert-to-stablehlo,narrow-updates"
DTYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32),
    *(torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
]


def converted(program, *inputs: Tensor):
    return ir.run_passes(ir.import_callable(program, *inputs), PASSES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_tensors_become_arrays_and_come_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.arange(6)[: int(np.prod(shape))].reshape(shape) + 1).to(torch.float32).to(dtype)
    array = to_numpy(tensor)
    assert array.shape == shape
    if dtype != torch.bool:
        np.testing.assert_array_equal(array.astype(np.complex128), to_numpy(tensor.to(torch.complex128)))
    back = to_tensor(array)
    assert (back.dtype, back.shape) == (dtype, tensor.shape)
    assert (
        back.numel() == 0
        or back.reshape(-1).view(torch.uint8).tolist() == tensor.reshape(-1).view(torch.uint8).tolist()
    )


def test_views_that_are_not_yet_computed() -> None:
    value = torch.tensor([[1 + 2j, 3 - 1j], [0, 5j]])
    for view in (value.t(), value.conj(), value.conj().imag, value[:, 1], torch.ones(2, requires_grad=True)):
        np.testing.assert_array_equal(to_numpy(view), view.detach().resolve_conj().resolve_neg().numpy())


def test_an_aliased_argument_is_written_and_returned() -> None:
    def program(cache: Tensor, row: Tensor, at: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        old = cache.sum()
        cache.index_copy_(0, at, row)
        return cache, old, cache[1] + 1

    inputs = [torch.arange(12.0).reshape(3, 4), torch.full((1, 4), 9.0), torch.tensor([1])]
    module = converted(program, *inputs)
    base = torch.zeros(3, 8)
    cache = base[:, ::2]  # a window: the tensor is written where it is
    cache.copy_(inputs[0])
    returned, old, row = interpret_stablehlo(module, cache, *inputs[1:])
    assert returned is cache
    assert base[:, ::2].tolist() == [[0, 1, 2, 3], [9, 9, 9, 9], [8, 9, 10, 11]]
    assert base[:, 1::2].abs().sum() == 0
    assert (old.item(), row.tolist()) == (66, [10] * 4)


def test_results_are_those_of_the_runtime() -> None:
    """Appended results are not returned, but written; numbers stand for tensors."""

    def program(cache: Tensor, x: Tensor) -> Tensor:
        cache.add_(x)
        return x * 2

    inputs = [torch.ones(2, 2, dtype=torch.bfloat16), torch.arange(2, dtype=torch.bfloat16)]
    module = converted(program, *inputs)
    ours, theirs = ([value.clone() for value in inputs] for _ in range(2))
    found, expected = interpret_stablehlo(module, *ours), ir.export_stablehlo(module).run(*theirs)
    assert len(found) == len(expected) == 1
    assert torch.equal(found[0], expected[0])
    assert torch.equal(ours[0], theirs[0])
    scalar = parse("func.func public @main(%n: tensor<i64>) -> tensor<i64> {\n  func.return %n : tensor<i64>\n}")
    assert interpret_stablehlo(scalar, 7)[0].item() == 7


def test_results_are_new_tensors() -> None:
    kind = "tensor<3xf32>"
    module = parse(
        f"func.func public @main(%x: {kind}) -> ({kind}, {kind}) {{\n  func.return %x, %x : {kind}, {kind}\n}}"
    )
    x = torch.ones(3)
    first, second = interpret_stablehlo(module, x)
    first.zero_()
    assert (x.tolist(), second.tolist()) == ([1] * 3, [1] * 3)


def test_errors() -> None:
    kind = "tensor<3xf32>"
    module = parse(
        f"func.func public @main(%x: {kind} {{tf.aliasing_output = 0 : i32}}, %y: {kind}) -> {kind} {{\n"
        f"  %z = stablehlo.add %x, %y : {kind}\n  func.return %z : {kind}\n}}"
    )
    x = torch.ones(4)
    with pytest.raises(ValueError, match="inputs 0 and 1 overlap, and the program writes the first"):
        interpret_stablehlo(module, x[:3], x[1:])
    with pytest.raises(ValueError, match="input 1 is of type str; it takes a tensor on cpu"):
        interpret_stablehlo(module, x[:3], "x")
    with pytest.raises(InterpretationError, match=r"argument 1 of type tensor<3xf32> is float32\[4\]"):
        interpret_stablehlo(module, torch.ones(3), x)
    for inputs in ([x[:3]], [x[:3]] * 3):
        with pytest.raises(ValueError, match=f"the program takes 2 inputs, {len(inputs)} were given"):
            interpret_stablehlo(module, *inputs)
    assert x.tolist() == [1] * 4


def test_arguments_that_are_known_to_share_memory_may() -> None:
    def program(whole: Tensor, part: Tensor) -> Tensor:
        part.add_(1)
        return whole * 2

    def inputs() -> list[Tensor]:
        whole = torch.arange(6.0)
        return [whole, whole[2:4]]

    module = converted(program, *inputs())
    ours, theirs = inputs(), inputs()
    assert torch.equal(interpret_stablehlo(module, *ours)[0], program(*theirs))
    assert torch.equal(ours[0], theirs[0])


# Device kernels


def _write(cache: Tensor, rows: Tensor, at: int = 0) -> Tensor:
    cache[at : at + rows.shape[0]] = rows
    return cache


def _mixed(rows: Tensor, keys: Tensor, scale: float, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    old = values.sum(0)
    keys[: rows.shape[0]] = rows * scale
    values.add_(1)
    return values, old, keys


def _add_all(out: Tensor, others: list[Tensor], by: int) -> Tensor:
    for other in others:
        out.add_(other, alpha=by)
    return out


write = ir.device_kernel("reference_write", {0: 0}, _write)
mixed = ir.device_kernel("reference mixed!", {1: 2, 3: 0}, _mixed)
add_all = ir.device_kernel("reference_add_all", {0: 0}, _add_all)
join = ir.device_kernel("reference_join", {}, lambda parts, dim: torch.cat(list(parts), dim))


def one_alias(kv: Tensor, x: Tensor) -> Tensor:
    write[2, 3](kv[1], x, 1)
    return kv[1, 0] + 1


def outputs_in_another_order(kv: Tensor, x: Tensor) -> object:
    values, old, keys = mixed[4](x, kv[0], 0.5, kv[1])
    return old + values[0], keys * 2


def lists(kv: Tensor, x: Tensor) -> object:
    add_all[1](kv[0], [kv[1], kv[1] * 3], 2)
    return join[1]([x, kv[0], x], 0)


@pytest.mark.parametrize("program", [one_alias, outputs_in_another_order, lists])
def test_device_kernels(program) -> None:
    def inputs() -> list[Tensor]:
        return [torch.arange(48.0).reshape(2, 6, 4), torch.full((2, 4), 0.25)]

    module = parse(str(converted(program, *inputs())))  # the text holds all that is needed
    ours, theirs = inputs(), inputs()
    found, expected = interpret_stablehlo(module, *ours), program(*theirs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(ours[0], theirs[0])


def test_kernels_that_cannot_be_run() -> None:
    inputs = [torch.zeros(2, 6, 4), torch.ones(2, 4)]
    module = converted(one_alias, *inputs)
    (call,) = [op for op in module.walk() if op.name == "stablehlo.custom_call"]

    def with_config(config: str):
        call.properties["backend_config"] = StringAttr(base64.b64encode(config.encode()).decode())
        return module

    with pytest.raises(InterpretationError, match=r"test_tensors.py:\d+: .*no device kernel 'unheard' is declared"):
        interpret_stablehlo(with_config('{"func": "unheard"}'), *inputs)
    with pytest.raises(InterpretationError, match=r"device kernel 'reference_write' .* operands in 0 ways"):
        interpret_stablehlo(with_config('{"func": "reference_write", "constants": {"0": 1, "1": 2}}'), *inputs)
    with pytest.raises(InterpretationError, match="'float32', which may be a string or a dtype"):
        interpret_stablehlo(with_config('{"func": "reference_write", "constants": {"2": "float32"}}'), *inputs)
    ir.device_kernel("reference_join", {}, lambda parts, dim: parts[dim] * 1)
    with pytest.raises(InterpretationError, match="2 device kernels are called 'reference_join'"):
        interpret_stablehlo(with_config('{"func": "reference_join"}'), *inputs)
