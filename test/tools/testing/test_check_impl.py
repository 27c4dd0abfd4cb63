"""The kit finds wrong kernels of every kind, and passes right ones."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.frontends.ops import ops, register_op
from vllm_ir.tools.testing import ConformanceError, check_impl


@register_op(allow_inplace=True, activations=["x", "x_state"], reuses=["x", "x_state"])
def kit_op(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> tuple[Tensor, Tensor]:
    if x.shape != x_state.shape:
        raise ValueError(f"x_state must have the shape of x, got {list(x_state.shape)}")
    return x * by + x.sum(-1, keepdim=True) * weight, x_state - x


@kit_op.register_input_generator
def inputs(num_tokens: int = 8, hidden_size: int = 16, dtype: torch.dtype = torch.float32) -> tuple[object, ...]:
    x, state = (torch.randn(num_tokens, hidden_size).to(dtype) for _ in range(2))
    return x, state, torch.randn(hidden_size).to(dtype)


Result = tuple[Tensor, Tensor]


def right(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    return x * by + x.sum(-1, keepdim=True) * weight, x_state - x


def in_place(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    x_state.sub_(x)
    x.copy_(x * by + x.sum(-1, keepdim=True) * weight)
    return x, x_state


def wrong_values(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return first * (1 + 2**-6), second


def last_column(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    if x.shape[-1] % 2:
        second[..., -1] = 0
    return first, second


def no_nan(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return first.nan_to_num(), second


def wrong_shape(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return first, second.flatten()


def wrong_dtype(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return first.float(), second


def wrong_strides(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return first.t().contiguous().t(), second


def raises_on_none(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    if not x.numel():
        raise RuntimeError("empty grid")
    return right(x, x_state, weight, by)


def assumes_dense(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    return right(x.as_strided(x.shape, (x.shape[-1], 1)), x_state, weight, by)


def writes_input(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    result = right(x, x_state, weight, by)
    x_state.zero_()
    return result


def writes_weight(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    result = in_place(x, x_state, weight, by)
    weight.zero_()
    return result


def writes_gaps(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    result = in_place(x, x_state, weight, by)
    if x.dim() == 2 and x.stride(0) > x.shape[1] and x.shape[0] > 1:
        x.as_strided(x.shape[:1], x.stride()[:1], x.storage_offset() + x.shape[1])[:-1] = 7
    return result


def swapped_memory(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return x_state.copy_(first), x.copy_(second)


def by_batch(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    first, second = right(x, x_state, weight, by)
    return first * (1 + 2**-22 * (len(x) % 2)), second


def row_by_row(x: Tensor, x_state: Tensor, weight: Tensor, by: float = 2.0) -> Result:
    rows = [right(x[i : i + 1], x_state[i : i + 1], weight, by) for i in range(len(x))]
    if not rows:
        return right(x, x_state, weight, by)
    first, second = (torch.cat(parts) for parts in zip(*rows, strict=True))
    like = right(x, x_state, weight, by)
    return torch.empty_like(like[0]).copy_(first), torch.empty_like(like[1]).copy_(second)


def look_at_rows(x: Tensor, x_state: Tensor, weight: Tensor, by: float) -> bool:
    return x.shape[0] != 3


def look_at_data(x: Tensor, x_state: Tensor, weight: Tensor, by: float) -> bool:
    return bool((x == x).all())


def take_all(x: Tensor, x_state: Tensor, weight: Tensor, by: float) -> bool:
    return True


def take_none(x: Tensor, x_state: Tensor, weight: Tensor, by: float) -> bool:
    return False


WRONG: dict[str, tuple[Callable[..., Result], dict[str, object], str]] = {
    "values": (wrong_values, {}, "result 0 differs in"),
    "odd sizes": (last_column, {}, "result 1 differs in"),
    "not a number": (no_nan, {}, "not a number: result 0 differs in"),
    "shape": (wrong_shape, {}, r"result 1 has shape \[\d+\], the native definition gives \[\d+, \d+\]"),
    "dtype": (wrong_dtype, {}, "result 0 has dtype torch.float32, the native definition gives torch.bfloat16"),
    "strides": (wrong_strides, {}, "result 0 has strides"),
    "no rows": (raises_on_none, {}, "num_tokens=0, .*: raised RuntimeError: empty grid"),
    "strided rows": (assumes_dense, {}, "gaps between rows: result 0 differs in"),
    "writes an activation": (writes_input, {}, "writes 'x_state', which is an activation that is not in inplace="),
    "writes one too many": (in_place, {"inplace": ["x"]}, "writes 'x_state', which is an activation that is not in"),
    "writes a weight": (writes_weight, {"inplace": True}, "writes 'weight', which is no activation"),
    "writes gaps": (writes_gaps, {"inplace": True}, "writes memory beside 'x', in gaps between its elements"),
    "other memory": (
        swapped_memory,
        {"inplace": True},
        "is in the memory of 'x_state'; the op declares that it may",
    ),
    "batch": (by_batch, {"batch_invariant": True}, "batch_invariant: rows 0 to 0 of result 0 have other bits without"),
    "predicate on rows": (right, {"supports_args": look_at_rows}, "depends on a size that is not known"),
    "predicate on data": (right, {"supports_args": look_at_data}, "supports_args of provider 'planted' .* raised"),
    "takes nothing": (right, {"supports_args": take_none}, "takes none of the generated arguments"),
}


@pytest.fixture
def planted():
    def plant(fn: Callable[..., Result], options: dict[str, object]) -> None:
        kit_op.register_impl("planted", **options)(fn)

    yield plant
    kit_op.remove_impl("planted")


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_kernels_are_found(planted, kind: str) -> None:
    fn, options, message = WRONG[kind]
    planted(fn, options)
    with pytest.raises(ConformanceError, match=f"kit_op: provider 'planted' .* is wrong:\n(.*\n)*.*{message}"):
        check_impl(kit_op, "planted", most=100)


@pytest.mark.parametrize(
    ("fn", "options"),
    [
        (right, {}),
        (row_by_row, {"batch_invariant": True}),
        (right, {"supports_args": take_all}),
        (in_place, {"inplace": True}),
        (in_place, {"inplace": ["x", "x_state"], "supports_args": take_all}),
    ],
)
def test_right_kernels_pass(planted, fn: Callable[..., Result], options: dict[str, object]) -> None:
    planted(fn, options)
    found = check_impl(kit_op, "planted")
    assert len(found.accepted) > 50
    assert not found.refused
    assert not found.invalid


def test_a_predicate_that_takes_what_the_native_definition_refuses(planted) -> None:
    planted(right, {"supports_args": take_all})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kit_op.inputs, "fn", lambda: (torch.ones(2, 3), torch.ones(3), torch.ones(3)))
        with pytest.raises(ConformanceError, match="takes arguments that the native definition refuses: x_state must"):
            check_impl(kit_op, "planted")


def test_a_fake_that_tells_something_else() -> None:
    @register_op
    def kit_faked(x: Tensor) -> Tensor:
        return x.t()

    kit_faked.register_input_generator(lambda: (torch.ones(2, 3),))
    kit_faked.register_fake(lambda x: x.new_empty(x.shape))
    with pytest.raises(ConformanceError, match=r"result 0 has shape \[3, 2\], the fake implementation says \[2, 3\]"):
        check_impl(kit_faked, "native")


def test_what_cannot_be_checked() -> None:
    @register_op
    def kit_no_inputs(x: Tensor) -> Tensor:
        raise ValueError("x is never right")

    with pytest.raises(RuntimeError, match="No input generator registered"):
        check_impl(kit_no_inputs, "native")
    with pytest.raises(KeyError):
        check_impl(kit_op, "absent")
    kit_op.register_impl("elsewhere", supported=False)(right)
    with pytest.raises(RuntimeError, match="provider 'elsewhere' is not supported in this process"):
        check_impl(kit_op, "elsewhere")
    kit_op.remove_impl("elsewhere")
    kit_no_inputs.register_input_generator(lambda: (torch.ones(2),))
    with pytest.raises(RuntimeError, match="the native definition refuses all generated arguments"):
        check_impl(kit_no_inputs, "native")


def test_it_is_public() -> None:
    assert ir.testing.check_impl is check_impl
    assert ops.rms_norm.has_input_generator
