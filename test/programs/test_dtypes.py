"""Writes in every dtype: of numbers, of tensors of other dtypes, through views, and through bits."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Check = Callable[..., None]
Refused = Callable[..., str]

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
COMPLEX = [torch.complex64, torch.complex128]
NARROW = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
ALL = [torch.bool, *INTEGERS, *UNSIGNED, *FLOATS, *COMPLEX, *NARROW, torch.complex32]
ARITHMETIC = [*INTEGERS, *FLOATS, *COMPLEX]


def of(dtype: torch.dtype, *shape: int) -> Tensor:
    return (torch.arange(torch.Size(shape).numel()) % 5).reshape(shape).to(torch.float32).to(dtype)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_copies_and_fills(dtype: torch.dtype, check: Check) -> None:
    def program(x: Tensor, y: Tensor, flag: Tensor) -> object:
        x[0].copy_(y[1])
        x[1] = y[2]
        x[2, ::2].fill_(1)
        x[3].zero_()
        x.t()[3].copy_(flag)
        z = y.clone()
        z[0] = x[2]
        return z, y

    check(program, lambda: (of(dtype, 4, 4), of(dtype, 4, 4), torch.tensor([True, False, True, True])), text=True)


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", [torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_copy_casts(target: torch.dtype, source: torch.dtype, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x[:, 1:].copy_(y)
        return x[0].clone()

    check(program, lambda: (of(target, 3, 4), of(source, 3)[:, None]))


@pytest.mark.parametrize("dtype", ARITHMETIC, ids=str)
def test_arithmetic(dtype: torch.dtype, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x.add_(y, alpha=2)
        x[0].mul_(3)
        x[:, 1].sub_(1)
        x.addcmul_(y, y)
        x[1].index_put_((torch.tensor([0, 0, 2]),), y[0, :3], accumulate=True)
        x.masked_fill_(y == 2, 4)
        x.index_add_(0, torch.tensor([1, 1]), y[:2])
        torch.mul(y[:2], 2, out=x[2:4])
        return x * 1

    check(program, lambda: (of(dtype, 4, 4), of(dtype, 4, 4)))


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS], ids=str)
def test_bitwise(dtype: torch.dtype, check: Check) -> None:
    def program(x: Tensor, y: Tensor) -> object:
        x.bitwise_and_(y)
        x[0] |= y[1]
        x[1] ^= True
        x[2].logical_not_()
        return x * 1

    check(program, lambda: (of(dtype, 4, 4), of(dtype, 4, 4).t().contiguous()))


PROMOTIONS: dict[str, tuple[torch.dtype, Callable[[Tensor, Tensor], object]]] = {
    "half plus float": (torch.float16, lambda x, y: x.add_(y)),
    "bfloat16 times double": (torch.bfloat16, lambda x, y: x.mul_(y.double())),
    "integers plus booleans": (torch.int32, lambda x, y: x.add_(y > 1)),
    "int8 plus int64": (torch.int8, lambda x, y: x.add_(y.long())),
    "comparison into floats": (torch.float32, lambda x, y: x.gt_(y)),
    "comparison out= int": (torch.int32, lambda x, y: torch.lt(y, 2, out=x)),
    "double out= float": (torch.float32, lambda x, y: torch.add(y.double(), 1, out=x)),
    "sum into half": (torch.float16, lambda x, y: torch.sum(y, 0, keepdim=True, out=x[:1])),
    "complex plus float": (torch.complex64, lambda x, y: x.add_(y)),
    "float power": (torch.float64, lambda x, y: x.float_power_(2)),
    "where out=": (torch.float64, lambda x, y: torch.where(y > 1, y, y.double(), out=x)),
    "divide integers with rounding": (torch.int64, lambda x, y: x.div_(2, rounding_mode="floor")),
    "clamp integers": (torch.int64, lambda x, y: x.clamp_(1, 2)),
    "pow integers": (torch.int32, lambda x, y: x.pow_(2)),
    "abs of complex out= float": (torch.float32, lambda x, y: torch.abs(torch.complex(y, y), out=x)),
}


@pytest.mark.parametrize("name", PROMOTIONS)
def test_results_keep_the_dtype_of_the_destination(name: str, check: Check) -> None:
    dtype, write = PROMOTIONS[name]

    def program(x: Tensor, y: Tensor) -> object:
        write(x, y)
        return x * 1

    check(program, lambda: (of(dtype, 3, 4), of(torch.float32, 3, 4)))


REFUSED: dict[str, tuple[torch.dtype, Callable[[Tensor, Tensor], object]]] = {
    "integers plus floats": (torch.int64, lambda x, y: x.add_(y)),
    "booleans plus integers": (torch.bool, lambda x, y: x.add_(y.long())),
    "floats plus complex": (torch.float32, lambda x, y: x.add_(torch.complex(y, y))),
    "division of integers": (torch.int64, lambda x, y: x.div_(2)),
    "larger shape": (torch.float32, lambda x, y: x[0].add_(y)),
    "copy_ of a larger shape": (torch.float32, lambda x, y: x[0].copy_(y)),
    "shape that does not fit": (torch.float32, lambda x, y: x[:2].add_(y)),
    "float out= int": (torch.int64, lambda x, y: torch.add(y, 1, out=x)),
    "index out of range": (torch.float32, lambda x, y: x.select(0, 7).zero_()),
    "masked_fill_ with an integer mask": (torch.float32, lambda x, y: x.masked_fill_(y.long(), 1)),
    "dimension out of range": (torch.float32, lambda x, y: x.index_add_(5, torch.tensor([0]), y)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_by_eager(name: str, refused: Refused) -> None:
    dtype, write = REFUSED[name]
    refused(write, lambda: (of(dtype, 3, 4), of(torch.float32, 3, 4)), eager_raises=True)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(torch.float32, torch.int32), (torch.float64, torch.uint8), (torch.bfloat16, torch.int16),
     (torch.float8_e4m3fn, torch.uint8), (torch.complex64, torch.float32), (torch.bool, torch.uint8),
     (torch.uint8, torch.float16), (torch.int8, torch.int64)],
    ids=str,
)  # fmt: skip
def test_writes_as_bits(dtype: torch.dtype, bits: torch.dtype, check: Check) -> None:
    def program(x: Tensor) -> object:
        window = x.view(bits)
        before = window.clone()
        window[1].copy_(before[0])
        x[2].copy_(x[0].clone())
        window[3, :1] = before[1, 1:2] if window.shape[1] > 1 else before[1]
        return before, window.clone(), x.clone()

    check(program, lambda: (of(dtype, 4, 8),))
