"""`async-tp` on ranks that are threads: products in parts are the products, and nothing is waited for too early."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

from test.conversions.sequence_parallel.ranks import GROUP, compiled, count, notes, on_ranks
from vllm_ir.conversions.collectives import collective_bytes
from vllm_ir.conversions.row_products import _ROWS
from vllm_ir.frontends.distributed.group_places import Place
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.ops import ops

functional = torch.ops._c10d_functional


def given(ranks: int, own: int) -> list[list[Tensor]]:
    """Small integers, so that no order of additions changes a bit: each rank's rows, and matrices of its own."""

    def drawn(seed: int, *shape: int) -> Tensor:
        return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float()

    return [[drawn(r, own, 6), drawn(10 + r, 6, 5), drawn(20 + r, 5, 7), drawn(30 + r, 6, 3)] for r in range(ranks)]


def mlp(ranks: int) -> Callable[..., tuple[Tensor, ...]]:
    def program(x: Tensor, up: Tensor, down: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        whole = ops.all_gather(x, 0, ranks, GROUP)
        # What the second product is made of comes behind the first.
        return ops.reduce_scatter((whole @ up) @ down, 0, ranks, GROUP), whole @ (other * 2)

    return program


@pytest.mark.parametrize(("ranks", "own"), [(2, 4), (3, 3)])
def test_products_in_parts(ranks: int, own: int) -> None:
    inputs = given(ranks, own)
    (before, *_), expected = on_ranks(mlp(ranks), inputs, "")
    (after, *_), results = on_ranks(mlp(ranks), inputs, "async-tp{require=2}")
    assert [[t.tolist() for t in result] for result in results] == [[t.tolist() for t in one] for one in expected]
    # Two products behind the gather and one in front of the sum, each in as many parts as there are ranks.
    assert count(after, "@aten.mm.default") == 3 * ranks
    assert collective_bytes(after) == collective_bytes(before)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


def narrow(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn)


def with_bias(x: Tensor, up: Tensor, down: Tensor, bias: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """A bias that is the same for all rows, one with a row for each, and one in each rank's part of a sum."""
    whole = ops.all_gather(x, 0, 2, GROUP)
    product = torch.addmm(bias, whole, up, beta=2)
    return ops.reduce_scatter(torch.addmm(bias[:7], product, down), 0, 2, GROUP), torch.addmm(rows, whole, up)


def scaled(x: Tensor, up: Tensor, down: Tensor, scale: Tensor, other: Tensor) -> tuple[Tensor, ...]:
    """Scales of whole tensors."""
    whole = ops.all_gather(narrow(x), 0, 2, GROUP)
    product = torch._scaled_mm(whole, narrow(up.t()).t(), scale, other, out_dtype=torch.float32)
    product = torch._scaled_mm(narrow(product), narrow(down.t()).t(), other, scale, out_dtype=torch.float32)
    return (ops.reduce_scatter(product, 0, 2, GROUP),)


def scaled_rows(x: Tensor, up: Tensor, down: Tensor, scales: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
    """A scale for each row of the left side, gathered as the rows are, and for each column of the right side."""
    whole, scale = ops.all_gather(narrow(x), 0, 2, GROUP), ops.all_gather(scales, 0, 2, GROUP)
    weight = narrow(up.t()).t()
    product = torch._scaled_mm(whole, weight, scale, columns, out_dtype=torch.float32)
    product = torch._scaled_mm(
        narrow(product), narrow(down.t()).t(), scale, columns[:, :16].contiguous(), out_dtype=torch.float32
    )
    return (ops.reduce_scatter(product, 0, 2, GROUP),)


FORMS: dict[Callable[..., tuple[Tensor, ...]], tuple[str, int, Callable[[int], list[Tensor]]]] = {
    with_bias: ("addmm", 3, lambda r: [drawn(r, 4, 6), drawn(9, 6, 7), drawn(r, 7, 7), drawn(r, 7), drawn(5, 8, 7)]),
    scaled: (
        "_scaled_mm",
        2,
        lambda r: [drawn(r, 4, 16), drawn(9, 16, 32).sign(), drawn(r, 32, 16), torch.tensor(2.0), torch.tensor(0.5)],
    ),
    scaled_rows: (
        "_scaled_mm",
        2,
        lambda r: [
            drawn(r, 4, 16),
            drawn(9, 16, 32).sign(),
            drawn(r, 32, 16),
            2 ** drawn(r, 4, 1),
            2 ** drawn(8, 1, 32),
        ],
    ),
}


@pytest.mark.parametrize("program", FORMS, ids=lambda program: program.__name__)
def test_other_products_in_parts(program: Callable[..., tuple[Tensor, ...]]) -> None:
    operator, products, operands = FORMS[program]
    inputs = [operands(rank) for rank in range(2)]
    (before, *_), expected = on_ranks(program, inputs, "")
    (after, *_), results = on_ranks(program, inputs, "async-tp{require=2}")
    assert [[t.tolist() for t in result] for result in results] == [[t.tolist() for t in one] for one in expected]
    assert count(before, f"@aten.{operator}.default") == products
    assert count(after, f"@aten.{operator}.default") == 2 * products
    assert collective_bytes(after) == collective_bytes(before)


def called(name: str, seed: int) -> list[object]:
    """Arguments of an operator that is taken for a product of rows, with as many rows as can be on the left."""
    left, right = drawn(seed, 8, 16), drawn(seed + 1, 16, 16)
    scales = 2 ** drawn(seed + 2, 8, 1), 2 ** drawn(seed + 3, 1, 16)
    return {
        "aten.mm.default": [left, right],
        "aten.addmm.default": [drawn(seed + 2, 8, 16), left, right],
        "aten.linear.default": [left, right, drawn(seed + 2, 16)],
        "aten._scaled_mm.default": [narrow(left), narrow(right.t()).t(), *scales, None, None, torch.float32],
    }[name]


@pytest.mark.parametrize("name", _ROWS)
def test_rows_of_products_are_computed_apart(name: str) -> None:
    function = resolve(name)
    assert callable(function)
    given = called(name, 0)
    whole = function(*given)
    rows = [arg[2:6] if index in _ROWS[name] and isinstance(arg, Tensor) else arg for index, arg in enumerate(given)]
    assert torch.equal(function(*rows), whole[2:6])


def test_all_parts_are_sent_before_one_is_waited_for() -> None:
    module = compiled(mlp(2), given(2, 4)[0], Place(2), "async-tp")
    calls = [line.split("@")[1].split(".")[1] for line in str(module).splitlines() if "torch.call @" in line]
    kept = ("mm", "wait_tensor", "all_gather_into_tensor", "reduce_scatter_tensor")
    assert [call for call in calls if call in kept] == [
        *["all_gather_into_tensor"] * 2,
        *["wait_tensor", "mm", "mm"] * 2,
        *["mm", "reduce_scatter_tensor"] * 2,
        *["wait_tensor"] * 2,
    ]


LEFT: list[tuple[Callable[..., object], str]] = [
    (lambda x, *_: ops.all_gather(x, 0, 2, GROUP), "vllm_ir.return is behind it"),
    (lambda x, up, *_: ops.all_gather(x.t(), 1, 2, GROUP).t() @ up, "not about sums or rows of a matrix"),
    (lambda x, up, *_: ops.all_gather(x, 0, 2, GROUP).relu() @ up, "@aten.relu.default is behind it"),
    (lambda x, up, *_: ops.all_gather(x[:3], 0, 2, GROUP) @ up, "a rank's 3 rows are not known to go into 2"),
    (lambda x, up, *_: ops.all_gather(x, 0, 2, "dp") @ up, "that group 'dp' has more than one rank"),
    (lambda x, up, *_: ops.reduce_scatter((x @ up).relu(), 0, 2, GROUP), "@aten.relu.default is what it scatters"),
    (lambda x, up, *_: ops.reduce_scatter(y := x @ up, 0, 2, GROUP) + y[:2], "%mm is used by others as well"),
    (
        lambda x, up, *_: functional.wait_tensor(functional.reduce_scatter_tensor(x @ up, "max", 2, GROUP)),
        "not about sums or rows of a matrix",
    ),
    (
        lambda x, up, *_: torch.addmm(ops.all_gather(x, 0, 2, GROUP), torch.cat([x, x]), up @ up.t()),
        "@aten.addmm.default is behind it, which is no matrix product of its rows",
    ),
    (
        lambda x, up, *_: (y := ops.all_gather(x, 0, 2, GROUP)) @ up + (y @ ops.all_reduce(x.t() @ x, GROUP))[:, :5],
        "an operand of a product comes behind the first product and cannot be moved",
    ),
    (lambda x, *_: x + 1, "the module has no reduce_scatter and no all_gather"),
]


@pytest.mark.parametrize(("program", "reason"), LEFT, ids=[reason[-30:] for _, reason in LEFT])
def test_what_is_left_has_a_reason(program: Callable[..., object], reason: str) -> None:
    module = compiled(program, given(1, 4)[0], Place(2), "async-tp")
    assert not notes(module, "split_products")
    (note,) = notes(module, "unsplit_products")
    assert reason in note


def test_products_that_are_required() -> None:
    with pytest.raises(PassFailedException, match=r"async-tp: 0 collectives were split, 1 required; the module has no"):
        compiled(lambda x: x + 1, given(1, 4)[0][:1], Place(2), "async-tp{require=1}")
