"""The kernel of `fused_moe`: within a derived bound of the native definition and of float64, and planted faults."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

OP = ops.fused_moe
ROUNDOFF = 2.0**-24
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
# tokens, experts, d, i, k
SHAPES = [(1, 1, 1, 1, 1), (7, 4, 6, 5, 2), (3, 8, 33, 17, 3), (0, 4, 8, 8, 2), (5, 4, 8, 8, 0), (4, 0, 8, 8, 2)]
SHAPES += [(64, 4, 64, 48, 2), (6, 3, 100, 70, 5), (300, 5, 160, 24, 2)]


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def arguments(shape: tuple[int, int, int, int, int], dtype: torch.dtype) -> list[Tensor]:
    """Ids of experts that are there and, of some tokens, of some that are not; an expert may be chosen twice."""
    tokens, experts, size, width, k = shape
    x, w13 = random(tokens, size, dtype=dtype), random(experts, 2 * width, size, seed=1) * size**-0.5
    w2, weights = random(experts, size, width, seed=2) * width**-0.5, random(tokens, k, seed=3)
    ids = torch.randint(-1, experts + 1, (tokens, k), generator=torch.Generator().manual_seed(4))
    return [x, w13.to(dtype), w2.to(dtype), weights, ids]


def cases(dtype: torch.dtype) -> Iterator[list[Tensor]]:
    for shape in SHAPES:
        x, w13, w2, weights, ids = arguments(shape, dtype)
        yield [x, w13, w2, weights, ids]
        yield [x, w13, w2, weights.to(dtype), ids.int()]


def exact(args: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The result in float64, and how far one that is computed in float32 and rounded to the dtype may be from it.

    A product of n elements rounds n times, in any order. silu's slope is at most 1.1; silu is off by 5 roundoffs, see
    agreement.py. What is rounded to 16 bits is half a unit farther away, each time: products, silu, gated values, and
    the result. Errors of the second product are those of what goes into it, and its own roundings.
    """
    x, w13, w2, weights, ids = (arg.double() for arg in args)
    dtype, size, width = args[0].dtype, x.shape[1], w2.shape[2]
    step = 0.0 if dtype is torch.float32 else torch.finfo(dtype).eps / 2
    result, error = torch.zeros_like(x), torch.zeros_like(x)
    for token in range(x.shape[0]):
        for weight, expert in zip(weights[token], ids[token].long().tolist(), strict=True):
            if not 0 <= expert < len(w13):
                continue
            gate, up = (w13[expert] @ x[token]).chunk(2)
            both_error = size * ROUNDOFF * (w13[expert].abs() @ x[token].abs())
            gate_error, up_error = (both_error + step * (w13[expert] @ x[token]).abs()).chunk(2)
            activated = F.silu(gate)
            activated_error = 1.1 * gate_error + (5 * ROUNDOFF + step) * activated.abs()
            gated = activated * up
            gated_error = activated_error * up.abs() + activated.abs() * up_error + activated_error * up_error
            gated_error = gated_error + (ROUNDOFF + step) * gated.abs()
            made = w2[expert] @ gated
            made_error = w2[expert].abs() @ (gated_error + width * ROUNDOFF * (gated.abs() + gated_error))
            made_error = made_error + step * (made.abs() + made_error)
            result[token] += weight * made
            error[token] += weight.abs() * (made_error + (ids.shape[1] + 1) * ROUNDOFF * made.abs())
    # Terms of the second order; and numbers so small that float16 keeps less of them.
    return result, error * (1 + 4 * step) + step * result.abs() + torch.finfo(dtype).smallest_normal * step * 4 * (
        1 + width
    )


def check(implementation, dtype: torch.dtype) -> None:
    """AssertionError where an implementation is too far from float64 or from the native definition."""
    for args in cases(dtype):
        got, (want, error) = implementation(*args), exact(args)
        assert (got.dtype, got.shape, got.is_contiguous()) == (dtype, args[0].shape, True)
        assert bool(((got.double() - want).abs() <= error).all())
        assert bool(((got.double() - OP.native(*args).double()).abs() <= 2 * error).all())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_kernel_is_within_its_bound(dtype: torch.dtype):
    assert all(OP.impls[PROVIDER].rejection(args) is None for args in cases(dtype))
    check(OP.impls[PROVIDER].impl_fn, dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_native_definition_is_within_its_bound(dtype: torch.dtype):
    check(OP.native, dtype)


def test_small_integers_are_exact():
    """silu of numbers this great is the number itself, and every product and sum is an integer that float32 holds."""
    x, w2 = torch.randint(1, 4, (9, 8)).float(), torch.randint(-3, 4, (4, 8, 6)).float()
    w13 = torch.cat((torch.randint(20, 30, (4, 6, 8)), torch.randint(-3, 4, (4, 6, 8))), 1).float()
    weights, ids = torch.randint(-4, 5, (9, 3)).float(), torch.randint(-1, 5, (9, 3))
    assert torch.equal(OP.impls[PROVIDER].impl_fn(x, w13, w2, weights, ids), OP.native(x, w13, w2, weights, ids))


def faulty(x: Tensor, w13: Tensor, w2: Tensor, weights: Tensor, ids: Tensor, *, fault: str = "") -> Tensor:
    result = torch.zeros(x.shape)
    if fault == "weights normalised":
        weights = weights / weights.abs().sum(-1, keepdim=True)
    for token in range(x.shape[0]):
        for place in range(ids.shape[1]):
            expert, weight = int(ids[token, place]), weights[token, place].float()
            if fault == "absent experts brought in" and len(w13) > 0:
                expert = min(max(expert, 0), len(w13) - 1)
            if not 0 <= expert < len(w13) or (fault == "last expert left out" and expert == len(w13) - 1):
                continue
            second = (expert + 1) % len(w13) if fault == "experts swapped in the second product" else expert
            first = (expert + 1) % len(w13) if fault == "experts swapped in the first product" else expert
            gate, up = (w13[first] @ x[token]).chunk(2)
            if fault == "gate and up swapped":
                gate, up = up, gate
            if fault == "gate and up by turns":
                gate, up = (w13[first] @ x[token]).unflatten(0, (-1, 2)).unbind(1)
            activated = F.gelu(gate) if fault == "gelu" else F.silu(gate)
            if fault == "weight of another token":
                weight = weights[token - 1, place].float()
            if fault == "weight of another place":
                weight = weights[token, place - 1].float()
            if fault == "not weighted":
                weight = 1.0
            made = (w2[second] @ (activated * up)).float()
            result[token] = result[token] * (fault != "only the last expert") + weight * made
    return result.to(x.dtype)


FAULTS = [
    "weights normalised",
    "absent experts brought in",
    "last expert left out",
    "experts swapped in the second product",
    "experts swapped in the first product",
    "gate and up swapped",
    "gate and up by turns",
    "gelu",
    "weight of another token",
    "weight of another place",
    "not weighted",
    "only the last expert",
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str, dtype: torch.dtype):
    with pytest.raises(AssertionError):
        check(lambda *args: faulty(*args, fault=fault), dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_without_a_fault_the_same_implementation_passes(dtype: torch.dtype):
    check(faulty, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_arguments_of_any_strides(dtype: torch.dtype):
    x, w13, w2, weights, ids = arguments(SHAPES[6], dtype)
    fn = OP.impls[PROVIDER].impl_fn
    want, error = exact([x, w13, w2, weights, ids])
    wide, across = torch.cat((x, x * torch.nan), 1)[:, : x.shape[1]], x.t().contiguous().t()
    turned = [weight.mT.contiguous().mT for weight in (w13, w2)]
    columns = [part.t().contiguous().t() for part in (weights, ids)]
    for taken, args in ((True, (wide, *turned, *columns)), (False, (across, w13, w2, weights, ids))):
        assert (OP.select(args, [PROVIDER])[0].provider == PROVIDER) == taken
        assert bool(((fn(*args).double() - want).abs() <= error).all())


def test_the_number_of_threads_does_not_matter():
    args = arguments(SHAPES[-1], torch.float32)
    threads = torch.get_num_threads()
    results: list[Tensor] = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            results.append(OP.impls[PROVIDER].impl_fn(*args))
    finally:
        torch.set_num_threads(threads)
    # The products are torch's, which may add up in another order.
    assert bool(((results[0] - results[1]).abs().double() <= 2 * exact(args)[1]).all())


X, W13, W2, WEIGHTS, IDS = arguments(SHAPES[1], torch.float32)
LEFT: list[tuple[str, tuple[Tensor, ...]]] = [
    ("float64", (X.double(), W13.double(), W2.double(), WEIGHTS, IDS)),
    ("weights of another dtype", (X, W13.half(), W2, WEIGHTS, IDS)),
    ("another device", (X, W13, W2.to("meta"), WEIGHTS, IDS)),
    ("another size", (X[:, 1:], W13, W2, WEIGHTS, IDS)),
    ("another width", (X, W13, W2[..., 1:], WEIGHTS, IDS)),
    ("another number of experts", (X, W13, W2[1:], WEIGHTS, IDS)),
    ("int16 ids", (X, W13, W2, WEIGHTS, IDS.short())),
    ("integers as weights", (X, W13, W2, IDS, IDS)),
    ("another number of tokens", (X[1:], W13, W2, WEIGHTS, IDS)),
    ("another number of ids", (X, W13, W2, WEIGHTS, IDS[:, 1:])),
    ("three dimensions", (X[None], W13, W2, WEIGHTS, IDS)),
]


@pytest.mark.parametrize(("what", "args"), LEFT, ids=lambda part: part if type(part) is str else "")
def test_arguments_that_are_left_to_the_native_definition(what: str, args: tuple[Tensor, ...]):
    assert OP.select(args, [PROVIDER])[0].provider == "native"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((X.double(), W13, W2, WEIGHTS, IDS), "x must be float32, bfloat16 or float16.*got Double"),
        ((X, W13.half(), W2, WEIGHTS, IDS), r"must be .*of one dtype; got Float of shape \[7, 6\], Half of shape"),
        ((X, W13, W2[..., 1:], WEIGHTS, IDS), r"w13 \[experts, 2 \* i, d\].*and Float of shape \[4, 6, 4\]"),
        ((X, W13, W2, WEIGHTS[1:], IDS), r"must be \[7, k\]; got Float of shape \[6, 2\] and Long of shape \[7, 2\]"),
    ],
    ids=lambda part: part[:20] if type(part) is str else "",
)
def test_errors_of_the_operator(args: tuple[Tensor, ...], message: str):
    with pytest.raises(RuntimeError, match=rf"vllm_ir_cpu.fused_moe: .*{message}"):
        torch.ops.vllm_ir_cpu.fused_moe(*args)
