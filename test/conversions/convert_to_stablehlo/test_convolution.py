"""Convolutions against eager. Elements are small integers, so that all sums are exact in every type."""

import pytest
import torch
from torch.nn import functional


def numbers(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randint(-3, 4, sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_plain(xla) -> None:
    """One to three dimensions, with groups, strides, dilations, padding, bias, and without a batch."""

    def program(x1, w1, x2, w2, depthwise, x3, w3, bias) -> object:
        return (
            *(functional.conv1d(x1, w1), functional.conv1d(x1, w1, bias, stride=2, padding=2, dilation=2)),
            *(functional.conv2d(x2, w2), functional.conv2d(x2, w2, bias, stride=(2, 1), padding=(1, 2))),
            *(functional.conv2d(x2, w2, padding="same", dilation=(1, 2)), functional.conv2d(x2[0], w2, bias)),
            *(functional.conv2d(x2, depthwise, groups=4, padding=1), functional.conv2d(x2, w2[:, :2], bias, groups=2)),
            *(functional.conv3d(x3, w3), functional.conv3d(x3, w3, bias[:2], stride=2, padding=1)),
            *(functional.conv2d(x2[:0], w2), functional.conv1d(x1, w1, padding=1)[:, 1:]),
        )

    xla.compare(
        program,
        *(numbers(2, 4, 9), numbers(6, 4, 3, seed=1), numbers(2, 4, 7, 8, seed=2), numbers(6, 4, 3, 3, seed=3)),
        *(numbers(4, 1, 3, 3, seed=4), numbers(1, 2, 4, 5, 4, seed=5), numbers(2, 2, 2, 3, 2, seed=6), numbers(6)),
    )


def test_transposed(xla) -> None:
    def program(x1, w1, x2, w2, x3, w3, bias) -> object:
        return (
            *(functional.conv_transpose1d(x1, w1), functional.conv_transpose1d(x1, w1, bias, stride=2, padding=1)),
            functional.conv_transpose1d(x1, w1, stride=3, output_padding=2, dilation=2, padding=3),
            functional.conv_transpose2d(x2, w2, bias, stride=(2, 3), padding=(1, 0), output_padding=(1, 0)),
            functional.conv_transpose2d(x2, w2[:, :2], stride=2, groups=2, dilation=(1, 2)),
            functional.conv_transpose3d(x3, w3, stride=2, padding=1),
        )

    xla.compare(
        program,
        *(numbers(2, 4, 5), numbers(4, 6, 3, seed=1), numbers(2, 4, 3, 4, seed=2), numbers(4, 6, 3, 2, seed=3)),
        *(numbers(1, 2, 4, 5, 4, seed=5), numbers(2, 2, 2, 3, 2, seed=6), numbers(6)),
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_types(dtype: torch.dtype, xla) -> None:
    x, w, bias = numbers(1, 3, 6, 6, dtype=dtype), numbers(4, 3, 3, 3, dtype=dtype, seed=1), numbers(4, dtype=dtype)
    xla.compare(lambda x, w, bias: functional.conv2d(x, w, bias, padding=1), x, w, bias)


def test_rounding(xla) -> None:
    """Real numbers: products are added in another order, 27 of them with rounding errors of half a unit each."""
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(2, 3, 8, 8, generator=generator), torch.randn(4, 3, 3, 3, generator=generator)
    xla.compare(lambda x, w: functional.conv2d(x, w), x, w, rtol=0.0, atol=27 * 2**-24 * 40)


def test_gradients(xla) -> None:
    """The convolutions of the backward graph, with groups, strides, dilations and padding; and transposed ones."""

    def program(*xs: torch.Tensor) -> object:
        x, w, g, z, h = xs
        return (
            backward(g, x, w, [4], [2, 1], [1, 1], [1, 2], False, [0, 0], 2, [True, True, True]),
            backward(h, z, w, [4], [2, 3], [1, 0], [1, 2], True, [1, 0], 2, [True, True, True]),
        )

    backward = torch.ops.aten.convolution_backward
    x, w, z = numbers(2, 4, 7, 8), numbers(4, 2, 3, 3, seed=1), numbers(2, 4, 3, 4, seed=4)
    g = torch.conv2d(x, w, None, [2, 1], [1, 1], [1, 2], 2)
    h = functional.conv_transpose2d(z, w, None, [2, 3], [1, 0], [1, 0], 2, [1, 2])
    xla.compare(program, x, w, g, z, h)


def test_gradients_that_are_asked_for(xla) -> None:
    """A layer whose operand needs no gradient."""
    x, w = numbers(2, 3, 6, 6), numbers(4, 3, 3, 3, seed=1)
    g = torch.conv2d(x, w)
    xla.compare(
        lambda g, x, w: torch.ops.aten.convolution_backward(
            *(g, x, w, [4], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])
        )[1],
        *(g, x, w),
    )
