"""Device kernels as custom calls with aliases, read back by jaxlib."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir


def _write(cache: Tensor, rows: Tensor, at: int = 0) -> Tensor:
    cache[at : at + rows.shape[0]] = rows
    return cache


def _mixed(rows: Tensor, keys: Tensor, scale: float, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    old = values.sum(0)
    keys[: rows.shape[0]] = rows * scale
    values.add_(1)
    return values, old, keys


write = ir.device_kernel("hlo_write", {0: 0}, _write)
mixed = ir.device_kernel("hlo_mixed", {1: 2, 3: 0}, _mixed, {"has_collectives": True})
join = ir.device_kernel("hlo_join", {}, lambda parts, dim: torch.cat(list(parts), dim))

KV, X = torch.zeros(2, 6, 4), torch.ones(2, 4)


def text(program: Callable[..., object], *inputs: Tensor) -> str:
    """The StableHLO of a program, as jaxlib prints it once it has verified it."""
    return ir.export_stablehlo(ir.import_callable(program, *inputs)).text


def configs(text: str) -> list[object]:
    return [json.loads(base64.b64decode(found)) for found in re.findall(r'backend_config = "([^"]*)"', text)]


def aliases(text: str) -> list[list[tuple[str, int]]]:
    """(output, operand) pairs of each custom call."""
    pattern = r"output_tuple_indices = \[(\d*)\], operand_index = (\d+), operand_tuple_indices = \[\]"
    calls = [line for line in text.splitlines() if "custom_call" in line]
    return [[(output, int(operand)) for output, operand in re.findall(pattern, line)] for line in calls]


def test_one_output_is_the_operand():
    def program(kv: Tensor, x: Tensor) -> Tensor:
        write[2, 3](kv[1], x, 1)
        return kv[1, 0] + 1

    found = text(program, KV, X)
    assert "@AwsNeuronCustomNativeKernel(%" in found
    assert aliases(found) == [[("", 0)]]
    assert configs(found) == [{"func": "hlo_write", "grid": [2, 3], "has_collectives": False, "constants": {"2": 1}}]
    assert re.search(r"%arg0: tensor<2x6x4xf32> \{tf.aliasing_output = 1 : i32\}", found)
    assert "has_collectives =" not in found


def test_outputs_in_the_kernels_order_and_operands_without_constants():
    def program(kv: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        values, old, keys = mixed[4](x, kv[0], 0.5, kv[1])
        return old + values[0], keys * 2

    found = text(program, KV, X)
    # Operand 3 is the third tensor: the constant is in the configuration.
    assert sorted(aliases(found)[0]) == [("0", 2), ("2", 1)]
    assert configs(found)[0]["constants"] == {"2": 0.5}
    (line,) = [line for line in found.splitlines() if "custom_call" in line]
    assert line.endswith(
        "(tensor<2x4xf32>, tensor<6x4xf32>, tensor<6x4xf32>) -> (tensor<6x4xf32>, tensor<4xf32>, tensor<6x4xf32>)"
    )
    assert 'mhlo.frontend_attributes = {has_collectives = "1"}' in line
    number = re.search(r"%(\w+):3 = stablehlo.custom_call", line)
    assert number is not None
    assert f"%{number[1]}#1" in found  # the new output
    # The new value of each operand goes to the layer that it is of, in which order however they were written.
    updates = re.findall(r"dynamic_update_slice|stablehlo.reshape %\w+#\d", found)
    assert {f"stablehlo.reshape %{number[1]}#{output}" for output in (0, 2)} <= set(updates)


def test_lists_of_tensors_and_no_alias():
    found = text(lambda kv, x: join[1]([x, kv[0], x], 0), KV, X)
    assert aliases(found) == [[]]
    assert "(tensor<2x4xf32>, tensor<6x4xf32>, tensor<2x4xf32>) -> tensor<10x4xf32>" in found
    assert configs(found)[0]["constants"] == {"1": 0}


def test_later_readers_see_the_latest_write():
    def program(kv: Tensor, x: Tensor) -> Tensor:
        before = kv.sum()
        write[1](kv, x)
        write[1](kv, x * 2, 2)
        return before + kv.sum()

    lines = [line.strip() for line in text(program, KV[0], X).splitlines()]
    first, second = (line for line in lines if "custom_call" in line)
    before, after = (line for line in lines if "stablehlo.reduce(" in line)
    written, latest = (line.split(" = ")[0] for line in (first, second))
    assert f"@AwsNeuronCustomNativeKernel({written}," in second
    assert "reduce(%arg0 " in before
    assert f"reduce({latest} " in after
    assert any(line.startswith("return") and line.split(" : ")[0].endswith(f", {latest}") for line in lines)


def test_hlo_has_the_aliases_and_the_configuration():
    from jaxlib import _hlo

    def program(kv: Tensor, x: Tensor) -> Tensor:
        values, old, _ = mixed[4](x, kv[0], 0.5, kv[1])
        write[1](kv[0], x)
        return old + values[0]

    proto = ir.export_stablehlo(ir.import_callable(program, KV, X)).to_hlo_proto()
    found = _hlo.HloModule.from_serialized_hlo_module_proto(proto).to_string()
    (first, second) = [line for line in found.splitlines() if "custom-call(" in line]
    assert "output_to_operand_aliasing={{0}: (2, {}), {2}: (1, {})}" in first
    assert 'frontend_attributes={has_collectives="1"}' in first
    assert "output_to_operand_aliasing={{}: (0, {})}" in second
    assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in second


def test_a_configuration_that_a_pass_has_filled_is_kept():
    filled = base64.b64encode(b'{"func": "other", "has_collectives": 1}').decode()
    module = ir.import_callable(lambda kv, x: write[1](kv, x), KV[0], X)
    given = str(module).replace("backend_config = none", f'backend_config = "{filled}"')
    found = ir.export_stablehlo(ir.parse(given)).text
    assert configs(found) == [{"func": "other", "has_collectives": 1}]
    assert 'has_collectives = "1"' in found
    broken = ir.parse(str(module).replace("backend_config = none", 'backend_config = "nonsense!"'))
    with pytest.raises(PassFailedException, match=r"hlo_write_tt_0.default: .* 'nonsense!' is not base64 of JSON"):
        ir.export_stablehlo(broken)


def test_one_tensor_as_two_written_operands_is_refused():
    def both(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a.add_(1), b.add_(1)

    twice = ir.device_kernel("hlo_twice", {0: 0, 1: 1}, both)
    with pytest.raises(
        PassFailedException, match=r"test_device_kernels.py:\d+: .* two operands that it writes are one"
    ):
        text(lambda x: twice[1](x, x)[0] + 1, X)
