"""Orders of elements, against eager: exact, places included where PyTorch says which they are."""

import math

import pytest
import torch
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from vllm_ir.frontends.fx.errors import FxImportError

TIES = [3.0, -0.0, math.nan, 0.0, -math.inf, 3.0, math.nan, 1.5, math.inf, -2.0, 0.0]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.uint8)


def rows(dtype: torch.dtype) -> torch.Tensor:
    """Three rows with equal elements, and with ones that are not numbers if the type has those."""
    numbers = torch.tensor([TIES, TIES[::-1], [float(n % 4) for n in range(11)]])
    return numbers.to(dtype) if dtype.is_floating_point else numbers.nan_to_num(5, 9, 2).abs().to(dtype)


def test_sort(xla) -> None:
    def program(*xs: torch.Tensor) -> object:
        return [
            [torch.sort(x, stable=True, dim=dim, descending=down) for dim in (0, -1) for down in (False, True)]
            for x in xs
        ] + [torch.sort(xs[0], dim=1), torch.argsort(xs[0], stable=True), torch.msort(xs[4])]

    xla.compare(program, *map(rows, DTYPES), rows(torch.int64) > 2)


def test_edges(xla) -> None:
    """Tensors without dimensions, of one element and of none."""

    def program(s: torch.Tensor, one: torch.Tensor, none: torch.Tensor) -> object:
        found = [(x.sort(), x.topk(1, 0), x.kthvalue(1, 0), x.median(0), x.nanmedian(0), x.cummax(0)) for x in (s, one)]
        return found, none.sort(1), none.topk(0, 1), none.topk(0, 0), none.cummin(1)

    xla.compare(program, torch.tensor(2.0), torch.tensor([3]), torch.zeros(2, 0))


def test_topk(xla) -> None:
    """Values are eager's; places are as well where no two elements are equal."""
    generator = torch.Generator().manual_seed(0)
    different = torch.randperm(40, generator=generator).reshape(4, 10)

    def program(*xs: torch.Tensor) -> object:
        return [
            (x.topk(3), x.topk(2, dim=0), x.topk(4, largest=False), x.kthvalue(2), x.kthvalue(3, 0, True)) for x in xs
        ]

    xla.compare(program, *(different.to(dtype) for dtype in DTYPES))
    xla.compare(
        lambda *xs: [(x.topk(5).values, x.topk(5, largest=False).values, x.kthvalue(9).values) for x in xs],
        *map(rows, DTYPES),
    )


def test_median(xla) -> None:
    """Also of rows that are not all numbers; places where they are unique."""

    def program(x: torch.Tensor, *xs: torch.Tensor) -> object:
        whole = [(y.median(), y.nanmedian(), y.median(0)) for y in xs]
        return x.median(1), x.nanmedian(1), x.t().median(0, True), whole

    distinct = torch.tensor([[4.0, math.nan, 1.0, 3.0], [5.0, 1.0, 2.0, 4.0], [math.nan, 7.0, math.nan, 2.0]])
    xla.compare(program, distinct, torch.tensor([5.0, 1.0, math.nan, 2.0]), torch.tensor([4, 1, 3, 2]))


def test_search(xla) -> None:
    def program(edges: torch.Tensor, x: torch.Tensor, many: torch.Tensor, order: torch.Tensor) -> object:
        return (
            *(torch.searchsorted(edges, x, right=right, out_int32=right) for right in (False, True)),
            *(torch.bucketize(x, edges, right=right, out_int32=not right) for right in (False, True)),
            *(torch.searchsorted(many, x, side="right"), torch.searchsorted(edges, 2.5), torch.bucketize(1, edges)),
            torch.searchsorted(many.flip(1), x, sorter=order),
        )

    edges = torch.tensor([-1.0, 0.0, 0.0, 2.5, 7.0])
    x = torch.tensor([[0.0, -3.0, 2.5], [8.0, math.nan, 1.0]])
    order = torch.tensor([[4, 3, 2, 1, 0]] * 2)
    xla.compare(program, edges, x, torch.stack([edges, edges * 2]), order)


def test_histogram(xla) -> None:
    """Edges belong to the next interval, the last one to the last; what is outside is left out."""
    x = torch.tensor([[0.0, 0.25, 1.0, 0.99, -0.1], [0.5, 1.1, 0.75, math.nan, 0.3]])
    xla.compare(lambda x: (torch.histc(x, 4, 0, 1), torch.histc(x * 7, 8, 0, 7)), x)


def test_running_extremes(xla) -> None:
    def program(*xs: torch.Tensor) -> object:
        return [(x.cummax(-1), x.cummin(0)) for x in xs]

    xla.compare(program, *map(rows, (torch.float32, torch.bfloat16, torch.int64)), rows(torch.int64) > 2)


def test_running_logarithms_of_sums(xla) -> None:
    """Additions in another order: a few units in the last place for each doubling."""
    x = torch.tensor([[-math.inf, -math.inf, 1.0, 3.0, -2.0, 50.0], [1.0, 2.0, math.inf, 3.0, math.nan, 4.0]])
    xla.compare(lambda x, y: (x.logcumsumexp(1), y.logcumsumexp(0)), x, x.double(), rtol=2e-6, atol=2e-6)


def test_complex_numbers_have_no_order() -> None:
    with pytest.raises(FxImportError, match="eager refuses it: Sort does not support complex"):
        ir.import_callable(torch.sort, torch.zeros(3, dtype=torch.complex64))
    module = ir.parse(
        "vllm_ir.func functional @main(%x: tensor<3xcomplex<f32>>) -> tensor<3xcomplex<f32>> {\n"
        "  %v, %i = torch.call @aten.sort.default(%x, -1, false) : (tensor<3xcomplex<f32>>) -> "
        "(tensor<3xcomplex<f32>>, tensor<3xi64>)\n"
        "  vllm_ir.return %v : tensor<3xcomplex<f32>>\n}"
    )
    with pytest.raises(PassFailedException, match=r"aten\.sort.*no order"):
        ir.run_passes(module, "convert-to-stablehlo", check=False)
