"""`ir.interpret_ranks`: a module on all ranks of a simulated group."""

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import InterpretationError

import vllm_ir as ir

RANKS = 4


def text(call: str, results: str, rows: int = 4) -> str:
    """A module with one functional collective on `%x`."""
    return f"""
    vllm_ir.func @main(%x: tensor<{rows}xf32>) -> tensor<{results}xf32> {{
      %sent = torch.call @_c10d_functional.{call} : (tensor<{rows}xf32>) -> tensor<{results}xf32>
      %y = torch.call @_c10d_functional.wait_tensor.default(%sent) external
        : (tensor<{results}xf32>) -> tensor<{results}xf32>
      vllm_ir.return %y : tensor<{results}xf32>
    }}
    """


def inputs() -> list[Tensor]:
    return [torch.arange(4.0) + 10 * rank for rank in range(RANKS)]


def run(call: str, results: str, groups: dict[str, list[list[int]]] | None = None) -> list[list[float]]:
    found = ir.interpret_ranks(ir.parse(text(call, results)), [[value] for value in inputs()], groups)
    return [value.tolist() for value in found if isinstance(value, Tensor)]


@pytest.mark.parametrize(
    ("how", "expected"),
    [("sum", [60.0, 64.0, 68.0, 72.0]), ("max", [30.0, 31.0, 32.0, 33.0]), ("avg", [15.0, 16.0, 17.0, 18.0])],
)
def test_all_reduce(how: str, expected: list[float]) -> None:
    assert run(f'all_reduce.default(%x, "{how}", "world")', "4") == [expected] * RANKS


def test_all_gather() -> None:
    together = torch.cat(inputs()).tolist()
    assert run('all_gather_into_tensor.default(%x, 4, "world")', "16") == [together] * RANKS


def test_reduce_scatter() -> None:
    assert run('reduce_scatter_tensor.default(%x, "sum", 4, "world")', "1") == [[60.0], [64.0], [68.0], [72.0]]


def test_all_to_all() -> None:
    found = run('all_to_all_single.default(%x, [1, 1, 1, 1], [1, 1, 1, 1], "world")', "4")
    assert found == torch.stack(inputs()).t().tolist()


def test_broadcast() -> None:
    assert run('broadcast.default(%x, 2, "world")', "4") == [[20.0, 21.0, 22.0, 23.0]] * RANKS


def test_groups_are_apart() -> None:
    found = run('all_reduce.default(%x, "sum", "pairs")', "4", {"pairs": [[0, 1], [2, 3]]})
    assert found == [[10.0, 12.0, 14.0, 16.0]] * 2 + [[50.0, 52.0, 54.0, 56.0]] * 2


def test_error_on_one_rank_ends_all() -> None:
    module = ir.parse(text('all_reduce.default(%x, "sum", "world")', "4"))
    ranks = [[value] for value in inputs()]
    ranks[2] = [torch.ones(5)]
    with pytest.raises(ValueError, match=r"is float32\[5\]"):
        ir.interpret_ranks(module, ranks)


def test_unknown_reduction() -> None:
    with pytest.raises(InterpretationError, match=r"all_reduce.default: reduction 'premul' is not simulated"):
        run('all_reduce.default(%x, "premul", "world")', "4")
