"""Programs that graph rewriters of others are known to get wrong, or not to fuse at all.

Each is compiled with all fusions, and a caller has to see what he sees in eager mode: bits, dtypes and shapes, which
result shares memory with which argument, and what is in the arguments afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.tools.operators.observation import observe

Inputs = Callable[[], Sequence[Tensor]]

SIMPLIFIED = "functionalize,eliminate-no-ops,coalesce-splits,forward-scatters,cse,dce,lower,eliminate-clones"
"""With the passes that simplify; they are no part of the default pipeline."""


def fused(
    function: Callable[..., object], inputs: Inputs, numerics: str = "exact", *, dynamic: bool = False, **options: str
) -> dict[str, int]:
    """Compile a program with all fusions, compare it with eager mode, and count what was fused."""
    options = {"fusions": True, "numerics": numerics, **options}
    compiled = torch.compile(function, backend="vllm_ir_eager", fullgraph=True, dynamic=dynamic, options=options)
    got = observe(compiled, inputs())
    report = ir.compile_reports()[-1]
    observe(function, inputs()).compare(got, str(report))
    return {name: len(places) for name, places in report.fusions.items()}


def given(*shapes: Sequence[int], dtype: torch.dtype = torch.bfloat16) -> Inputs:
    """New tensors of these shapes, each time the same."""

    def make() -> Sequence[Tensor]:
        torch.manual_seed(0)
        return [torch.randn(shape).to(dtype) for shape in shapes]

    return make


# Sums and norms


@pytest.mark.parametrize("epsilon", [1e-8, 0.25])
def test_any_epsilon(epsilon: float):
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        return ir.ops.rms_norm(x + residual, weight, epsilon)

    assert fused(program, given((3, 16), (3, 16), (16,), dtype=torch.float32)) == {"add_rms_norm": 1}


def test_two_epsilons_in_one_program():
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        normed = ir.ops.rms_norm(total, weight, 1e-5)
        other = normed + total
        return ir.ops.rms_norm(other, weight, 1e-6), other

    assert fused(program, given((3, 16), (3, 16), (16,), dtype=torch.float32)) == {"add_rms_norm": 2}


@pytest.mark.parametrize("shape", [(16,), (3, 1), (2, 3, 16)])
def test_a_bias_is_no_residual(shape: Sequence[int]):
    """An implementation that counts rows would give results of the shape of the bias."""

    def program(x: Tensor, bias: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + bias
        return ir.ops.rms_norm(total, weight, 1e-6), total

    assert fused(program, given((3, 16), shape, (16,)), "changed") == {}


def test_a_wide_residual_keeps_results_wide():
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual.float()
        return ir.ops.rms_norm(total, weight.float(), 1e-6), total

    assert fused(program, given((3, 16), (3, 16), (16,)), "changed") == {}


def test_a_rounded_sum_is_normalised_as_it_is():
    """The fused op normalises the sum before it is rounded, which is for those who allow it."""

    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        total = x + residual
        return ir.ops.rms_norm(total, weight, 1e-6), total

    inputs = given((64, 64), (64, 64), (64,))
    assert fused(program, inputs) == {}
    options = {"fusions": True}
    normed, total = torch.compile(program, backend="vllm_ir_eager", options=options)(*inputs())
    assert ir.compile_reports()[-1].fusions.keys() == {"add_rms_norm"}
    expected, sums = program(*inputs())
    assert torch.equal(total, sums)
    assert not torch.equal(normed, expected)
    # The sum is off by half a unit in the last of 8 bits at most, the root of the mean of its squares by as much, and
    # the result, of which the product with the weight is rounded too, by a unit on either side.
    assert torch.allclose(normed.double(), expected.double(), rtol=4 * 2.0**-8, atol=0.0)


def test_rows_of_any_number():
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        normed, total = ir.ops.fused_add_rms_norm(x * 2, residual, weight, 1e-6)
        rows = normed.view(-1, 16)
        return (rows * 2).view(x.shape[0], x.shape[1], 16), rows.sum(0), total

    inputs = given((2, 3, 16), (2, 3, 16), (16,), dtype=torch.float32)
    assert fused(program, inputs, "reordered", dynamic=True) == {"rms_norm_reshape": 1}


def test_reshapes_in_a_row_with_symbolic_sizes():
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.view(x.shape[0], -1, 8).view(-1, 16).view(x.shape[0], x.shape[1], 16)
        return rows * 2, x.view(x.shape[1], -1).reshape(-1, 16).sum(0)

    fused(program, given((2, 3, 16)), dynamic=True, passes=SIMPLIFIED)


# Quantisation


def quantised(kind: str, powers: bool) -> Callable[..., tuple[Tensor, ...]]:
    """A program that quantises what a norm or an activation gives."""

    def norm(x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        return ir.ops.per_token_group_fp8_quant(ir.ops.rms_norm(x, None, 1e-6), 8, powers)

    def norm_of_sum(x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        normed, total = ir.ops.fused_add_rms_norm(x, residual, None, 1e-6)
        return *ir.ops.per_token_group_fp8_quant(normed, 8, powers), total

    def silu(x: Tensor, residual: Tensor) -> tuple[Tensor, ...]:
        return ir.ops.per_token_group_fp8_quant(ir.ops.silu_and_mul(x), 8, powers)

    return {"norm": norm, "norm of a sum": norm_of_sum, "silu": silu}[kind]


@pytest.mark.parametrize("kind", ["norm", "norm of a sum", "silu"])
def test_scales_that_are_powers_of_two_stay_so(kind: str):
    inputs = given((3, 32), (3, 32))
    name = "activation_per_token_group_quant" if kind == "silu" else "rms_norm_per_token_group_quant"
    assert fused(quantised(kind, True), inputs) == {name: 1}
    scales = [quantised(kind, powers)(*inputs())[1] for powers in (True, False)]
    assert not torch.equal(*scales)  # else nobody would notice that the flag got lost


@pytest.mark.parametrize("added", [False, True])
def test_a_norm_that_is_used_elsewhere_stays(added: bool):
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        if added:
            normed, total = ir.ops.fused_add_rms_norm(x, residual, weight, 1e-6)
        else:
            normed, total = ir.ops.rms_norm(x, weight, 1e-6), residual * 2
        return *ir.ops.dynamic_per_token_scaled_fp8_quant(normed), total, normed @ weight

    assert fused(program, given((3, 16), (3, 16), (16,)), "changed") == {}


def attend(query: Tensor, key_cache: Tensor, value_cache: Tensor, *, window: int | None = None) -> Tensor:
    places = torch.tensor([[0, 1], [2, 3]]), torch.tensor([5, 6]), torch.tensor([0, 1, 3])
    return ir.ops.paged_attention(query, key_cache, value_cache, *places, 0.25, window)


@pytest.mark.parametrize(("window", "shared"), [(None, False), (3, False), (None, True)])
def test_attention_that_is_used_elsewhere_stays(window: int | None, shared: bool):
    def program(query: Tensor, key_cache: Tensor, value_cache: Tensor) -> tuple[Tensor, ...]:
        heads = attend(query, key_cache, value_cache, window=window)
        quantised = ir.ops.static_scaled_fp8_quant(heads.view(-1, 64), torch.tensor([0.01]))
        return quantised, heads.sum(0) if shared else query.sum(0)

    inputs = given((3, 4, 16), (4, 4, 2, 16), (4, 4, 2, 16))
    assert fused(program, inputs) == ({} if shared else {"attention_static_quant": 1})


# Rotary embedding and caches


def normed(x: Tensor, weight: Tensor) -> Tensor:
    """A norm of each head of as many elements as there are weights."""
    return ir.ops.rms_norm(x.view(x.shape[0], -1, weight.shape[0]), weight, 1e-6).view(x.shape)


def queries_and_keys(qkv: Tensor, weight: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    size = weight.shape[0]
    query, key, value = (qkv * 2).split([4 * size, 2 * size, 2 * size], -1)
    positions = torch.arange(qkv.shape[0])
    return *ir.ops.rotary_embedding(positions, normed(query, weight), normed(key, weight), size, table, True), value


def layers(one: Tensor, one_weight: Tensor, one_table: Tensor, *other: Tensor) -> tuple[Tensor, ...]:
    return *queries_and_keys(one, one_weight, one_table), *queries_and_keys(*other)


def heads_of(size: int, rotated: int | None = None) -> list[tuple[int, ...]]:
    return [(5, 8 * size), (size,), (32, rotated or size)]


def test_heads_of_several_sizes_in_one_program():
    assert fused(layers, given(*heads_of(24), *heads_of(40)))["qk_norm_rope"] == 2


def test_heads_that_are_rotated_in_part():
    fused(queries_and_keys, given(*heads_of(16, rotated=8)))


@torch.library.custom_op("known_faults::rotate", mutates_args=("query", "key"))
def rotate(query: Tensor, key: Tensor, table: Tensor) -> None:
    """Rotary embedding in place, as other engines have it."""
    positions = torch.arange(query.shape[0])
    for x, new in zip((query, key), ir.ops.rotary_embedding(positions, query, key, 16, table, True), strict=True):
        x.copy_(new)


def test_queries_are_read_again_behind_a_rotation_in_place():
    def program(query: Tensor, key: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        rotated, keys = query.clone(), key * 2
        rotate(rotated, keys, table)
        return rotated + query, keys + key

    fused(program, given((5, 64), (5, 32), (32, 16)), passes=SIMPLIFIED)


def test_arguments_are_not_overwritten_by_what_is_given_away():
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        first = x + residual
        normed, total = ir.ops.fused_add_rms_norm.maybe_inplace(first * 1, residual.clone(), weight, 1e-6)
        return *ir.ops.per_token_group_fp8_quant(normed, 8), total, first, residual

    fused(program, given((3, 16), (3, 16), (16,)))


def latent(spelling: Callable[[Tensor], Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    """Latent attention's keys on their way to the cache, which other engines know in one spelling."""

    def program(query: Tensor, key: Tensor, latents: Tensor, cache: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        positions, slots = torch.arange(5), torch.tensor([7, 0, 3, 11, 2])
        rotated, keys = ir.ops.rotary_embedding(positions, query, key.unsqueeze(1), 16, table, True)
        written = ir.ops.concat_and_cache_mla(latents, spelling(keys), cache.clone(), slots)
        return rotated, written

    return program


def copied(keys: Tensor) -> Tensor:
    new = torch.empty_like(keys)
    new[:, :, :8] = keys[..., :8]
    new[:, :, 8:] = keys[..., 8:]
    return new.view(5, 16)


SPELLINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "squeezed": lambda keys: keys.squeeze(1),
    "selected": lambda keys: keys[:, 0],
    "cloned": lambda keys: keys[:, :, :16].clone().squeeze(1),
    "copied": copied,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_keys_of_latent_attention_in_any_spelling(name: str):
    shapes = (5, 4, 16), (5, 16), (5, 24), (3, 4, 40), (32, 16)
    counts = fused(latent(SPELLINGS[name]), given(*shapes))
    assert name != "squeezed" or counts == {"mla_rope_cache": 1}


# Splits and scatters


def scattered(sizes: Sequence[int], dim: int, read_whole: bool) -> Callable[..., object]:
    """Queries and keys rotated where they are, and split again."""

    def program(qkv: Tensor, table: Tensor) -> object:
        query, key, _ = qkv.split([64, 32, 32], -1)
        rotated, keys = ir.ops.rotary_embedding(torch.arange(qkv.shape[0]), query, key, 16, table, True)
        whole = torch.slice_scatter(torch.slice_scatter(qkv, rotated, 1, 0, 64), keys, 1, 64, 96)
        pieces = [piece * 2 for piece in whole.split(sizes, dim)]
        return pieces, whole.sum(-1) if read_whole else qkv.sum(-1)

    return program


@pytest.mark.parametrize(
    ("sizes", "dim", "read_whole"),
    [
        ([64, 32, 32], -1, False),
        ([48, 32, 48], 1, False),
        ([64, 32, 32], -1, True),
        ([2, 3], 0, False),
    ],
)
def test_a_split_behind_scatters(sizes: Sequence[int], dim: int, read_whole: bool):
    fused(scattered(sizes, dim, read_whole), given((5, 128), (32, 16)), passes=SIMPLIFIED)


def test_pieces_with_gaps_between_them():
    def program(x: Tensor) -> tuple[Tensor, ...]:
        rows = x[:2] * 2, x[3:] * 3
        columns = x[:, :8] * 2, x[:, 8:12] * 3, x[:, 13:] * 4
        return *rows, *columns, x[:, :8] + x[:, 8:16]

    fused(program, given((5, 16)), passes=SIMPLIFIED)


@pytest.mark.parametrize("arguments", [(), (1,), (1, 0, 16)])
def test_scatters_with_few_arguments(arguments: tuple[int, ...]):
    def program(x: Tensor, whole: Tensor) -> tuple[Tensor, Tensor]:
        return torch.slice_scatter(x, whole, *arguments) * 2, whole + x

    module = ir.run_passes(ir.import_callable(program, *(inputs := given((5, 16), (5, 16)))()), "functionalize")
    assert "slice_scatter" not in str(ir.run_passes(module, "eliminate-no-ops,dce"))
    fused(program, inputs, passes=SIMPLIFIED)


# Memory that is shared


def views_of_one() -> Sequence[Tensor]:
    [whole] = given((6, 16), dtype=torch.float32)()
    return whole[:3], whole[3:], whole[0]


def overlapping() -> Sequence[Tensor]:
    [whole] = given((6, 16), dtype=torch.float32)()
    return whole[:3], whole[1:4], whole[0]


def twice_the_same() -> Sequence[Tensor]:
    x, weight = given((3, 16), (16,), dtype=torch.float32)()
    return x, x, weight


@pytest.mark.parametrize("inputs", [views_of_one, overlapping, twice_the_same])
def test_arguments_that_share_memory(inputs: Inputs):
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        total = x + residual
        residual.mul_(0.5)
        normed = ir.ops.rms_norm(total, weight, 1e-6)
        return ir.ops.static_scaled_fp8_quant(normed, weight[:1].abs()), total, x + residual

    assert fused(program, inputs) == {"add_rms_norm": 1, "rms_norm_static_quant": 1}


def test_results_that_are_arguments_stay_so():
    def program(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        total = x + residual
        normed = ir.ops.rms_norm(total, weight, 1e-6)
        return x, residual.view(2, -1), normed.view(-1), total, total.view(-1), x[1:]

    assert "add_rms_norm" in fused(program, given((4, 16), (4, 16), (16,), dtype=torch.float32))
