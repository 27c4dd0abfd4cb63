"""Pooling against eager: extremes and their places are exact, averages of small integers up to one rounding."""

import math

import torch
from torch.nn import functional


def numbers(*sizes: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Small integers, many of them equal."""
    return torch.randint(-8, 8, sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def test_largest(xla) -> None:
    def program(x1: torch.Tensor, x3: torch.Tensor, *xs: torch.Tensor) -> object:
        return [
            (
                *(functional.max_pool2d(x, 2), functional.max_pool2d(x, (3, 2), stride=(2, 1), padding=1)),
                *(functional.max_pool2d(x, 3, dilation=2), functional.max_pool2d(x, 3, 3, 1, ceil_mode=True)),
                *(functional.max_pool2d(x[0], 2), functional.max_pool1d(x[0], 3, 2)),
            )
            for x in xs
        ] + [
            *(functional.max_pool1d(x1, 2, ceil_mode=True), functional.max_pool3d(x3, 2)),
            functional.max_pool2d(x3[0], 2),
        ]

    xla.compare(
        program,
        numbers(2, 3, 7),
        numbers(1, 2, 4, 5, 4),
        *(numbers(2, 3, 7, 8, dtype=d) for d in (torch.float32, torch.bfloat16)),
    )


def test_places_of_the_largest(xla) -> None:
    """The first of equal elements; the last that is no number; never one of the padding."""
    x = numbers(2, 3, 7, 8)
    x[0, 0, 2, 3] = x[0, 0, 3, 3] = x[1, 1, 5, 6] = math.nan
    x[1, 2] = -math.inf

    def program(x: torch.Tensor, x3: torch.Tensor) -> object:
        return (
            functional.max_pool2d(x, 2, return_indices=True),
            functional.max_pool2d(x, (3, 2), (2, 1), 1, return_indices=True, ceil_mode=True),
            functional.max_pool2d(x, 2, 2, 1, dilation=3, return_indices=True),
            functional.max_pool1d(x[0], 3, 2, 1, return_indices=True),
            functional.max_pool3d(x3, 2, return_indices=True),
            functional.adaptive_max_pool2d(x, (3, 5), return_indices=True),
            functional.adaptive_max_pool2d(x, (7, 2))[0],
            functional.adaptive_max_pool1d(x[0], 3, return_indices=True),
        )

    xla.compare(program, x, numbers(1, 2, 4, 5, 4))


def test_averages(xla) -> None:
    """Sums are exact, and divided once; where PyTorch divides by each side of a window, it rounds twice."""

    def program(x1: torch.Tensor, x3: torch.Tensor, *xs: torch.Tensor) -> object:
        return [
            (
                *(functional.avg_pool2d(x, 2), functional.avg_pool2d(x, (3, 2), stride=(2, 1), padding=1)),
                functional.avg_pool2d(x, 3, 3, 1, ceil_mode=True, count_include_pad=False),
                *(functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True), functional.avg_pool2d(x, 3, divisor_override=5)),
                *(functional.adaptive_avg_pool2d(x, (3, 4)), functional.adaptive_avg_pool2d(x, 1)),
                *(functional.adaptive_avg_pool2d(x, (7, 3)), functional.avg_pool2d(x[0], 2)),
            )
            for x in xs
        ] + [
            *(functional.avg_pool1d(x1, 3, 2, 1), functional.adaptive_avg_pool1d(x1, 4)),
            *(functional.avg_pool3d(x3, 2), functional.adaptive_avg_pool3d(x3, (2, 3, 2))),
        ]

    x1, x3 = numbers(2, 3, 7), numbers(1, 2, 4, 5, 4)
    for dtype, epsilon in ((torch.float32, 2**-23), (torch.float64, 2**-52), (torch.bfloat16, 2**-8)):
        xla.compare(
            program,
            x1.to(dtype),
            x3.to(dtype) if epsilon < 2**-20 else x3,
            numbers(2, 3, 7, 8, dtype=dtype),
            rtol=2 * epsilon,
            atol=0.0,
        )


def test_where_elements_were(xla) -> None:
    """Unpooling, and the gradient of pooling with overlapping windows."""

    def program(x: torch.Tensor, g: torch.Tensor) -> object:
        largest, places = functional.max_pool2d(x, 2, return_indices=True)
        overlapping, shared = functional.max_pool2d(x, 3, 1, return_indices=True)
        backward = torch.ops.aten.max_pool2d_with_indices_backward
        return (
            functional.max_unpool2d(largest, places, 2),
            backward(g[:, :, : overlapping.shape[2]], x, [3, 3], [1, 1], [0, 0], [1, 1], False, shared),
        )

    x = numbers(2, 3, 6, 8)
    xla.compare(program, x, numbers(2, 3, 6, 6, seed=1))


def test_upsampling(xla) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> object:
        return (
            functional.interpolate(x, scale_factor=2, mode="nearest"),
            functional.interpolate(x, size=(7, 5), mode="nearest"),
            functional.interpolate(y, size=9, mode="nearest"),
        )

    def smooth(x: torch.Tensor) -> object:
        return [
            functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=corners)
            for corners in (False, True)
        ]

    xla.compare(program, numbers(2, 3, 4, 5), numbers(1, 2, 4))
    xla.compare(smooth, numbers(2, 3, 4, 5), rtol=1e-6, atol=1e-5)
