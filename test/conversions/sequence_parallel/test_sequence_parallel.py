"""`sequence-parallel` on ranks that are threads: results have the bits that they had, and no more bytes are moved."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor
from xdsl.utils.exceptions import PassFailedException

import vllm_ir as ir
from test.conversions.sequence_parallel.ranks import GROUP, compiled, count, notes, on_ranks, same_bits
from vllm_ir.conversions.collectives import collective_bytes
from vllm_ir.frontends.distributed.group_places import Place
from vllm_ir.frontends.ops import ops

WIDTH = 16
functional = torch.ops._c10d_functional
reduced = ops.all_reduce


def torch_reduced(x: Tensor) -> Tensor:
    return functional.wait_tensor(functional.all_reduce(x, "sum", GROUP))


def given(ranks: int, rows: int | tuple[int, ...], dtype: torch.dtype) -> list[list[Tensor]]:
    """For each rank a part of a sum and a matrix of its own, and a residual and a weight that all have."""
    lead = (rows,) if isinstance(rows, int) else rows

    def drawn(seed: int, *shape: int) -> Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

    shared = [drawn(1, *lead, WIDTH), drawn(2, WIDTH)]
    return [[drawn(10 + rank, *lead, WIDTH), drawn(20 + rank, WIDTH, WIDTH), *shared] for rank in range(ranks)]


def layers(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    for _ in range(3):
        x, residual = ops.fused_add_rms_norm.maybe_inplace(torch_reduced(x), residual, weight, 1e-5)
        x = x @ matrix
    return ops.fused_add_rms_norm(reduced(x, GROUP), residual, weight, 1e-5)[0]


def embedded(x: Tensor, matrix: Tensor, _: Tensor, weight: Tensor) -> Tensor:
    residual = reduced(x, GROUP)
    x = ops.rms_norm(residual, weight, 1e-5)
    x, residual = ops.fused_add_rms_norm(reduced(x @ matrix, GROUP), residual, weight, 1e-5)
    return ops.fused_add_rms_norm(reduced(x @ matrix, GROUP), residual, weight, 1e-5)[0] @ matrix


def static(x: Tensor, _: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    scale = weight.float()[:1].abs()
    normed, residual = ops.fused_add_rms_norm(reduced(x, GROUP), residual, weight, 1e-5)
    return ops.static_scaled_fp8_quant(normed, scale), ops.rms_norm_static_int8_quant(
        reduced(x + 1, GROUP), weight, scale, 1e-5
    )


def per_token(x: Tensor, _: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    normed, residual = ops.fused_add_rms_norm(reduced(x, GROUP), residual, weight, 1e-5)
    fused = ops.fused_add_rms_norm_dynamic_per_token_fp8_quant(reduced(x + 1, GROUP), residual, weight, 1e-5)
    return *ops.dynamic_per_token_scaled_int8_quant(normed), *fused[:2]


def pointwise(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    total = torch.nn.functional.silu(reduced(x, GROUP)) * 2
    return (ops.rms_norm(total, weight, 1e-5) + total).to(torch.float64)


def returned(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
    x, first = ops.fused_add_rms_norm(reduced(x, GROUP), residual, weight, 1e-5)
    x, second = ops.fused_add_rms_norm(reduced(x @ matrix, GROUP), first, weight, 1e-5)
    return x, second, first.sum(0)


PROGRAMS: dict[Callable[..., object], tuple[int, int, int]] = {
    layers: (4, 4, 1),
    embedded: (3, 3, 0),
    static: (2, 2, 1),
    per_token: (2, 4, 1),
}
"""How many sums are scattered, values gathered, and operands cut."""


@pytest.mark.parametrize(
    ("ranks", "rows", "dtype"),
    [(2, 4, torch.bfloat16), (4, 5, torch.float32), (3, (2, 3), torch.float32), (2, (1, 3), torch.bfloat16)],
    ids=str,
)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_same_bits(program: Callable[..., object], ranks: int, rows: int | tuple[int, ...], dtype: torch.dtype) -> None:
    inputs = given(ranks, rows, dtype)
    (before, *_), expected = on_ranks(program, inputs, "")
    (after, *_), results = on_ranks(program, inputs, "sequence-parallel{pad=true}")
    assert same_bits(results, expected)
    found = tuple(count(after, text) for text in ("vllm_ir.reduce_scatter", "vllm_ir.all_gather", "aten.select.int"))
    assert found == PROGRAMS[program]
    assert count(after, "all_reduce.default") == count(after, '"vllm_ir.all_reduce"') == 0
    assert len(notes(after, "sharded_sums")) == found[0]
    whole = rows if isinstance(rows, int) else rows[0] * rows[1]
    if whole % ranks == 0:
        assert collective_bytes(after) <= collective_bytes(before)


@pytest.mark.parametrize("passes", ["fuse,sequence-parallel", "sequence-parallel,fuse,check-shards"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_same_bits_around_fusions(program: Callable[..., object], passes: str) -> None:
    ranks, dtype = (2, torch.bfloat16) if program in (layers, static) else (4, torch.float32)
    inputs = given(ranks, 4, dtype)
    (before, *_), expected = on_ranks(program, inputs, "fuse")
    (after, *_), results = on_ranks(program, inputs, passes)
    assert same_bits(results, on_ranks(program, inputs, "")[1])
    assert same_bits(results, expected)
    # A norm goes together with its sum, or with a quantisation for which there is no op with a sum.
    assert count(before, '"vllm_ir.all_reduce_') + count(before, "rms_norm_dynamic_per_token_fp8_quant") > 0
    found = tuple(count(after, text) for text in ("vllm_ir.reduce_scatter", "vllm_ir.all_gather", "aten.select.int"))
    assert found == PROGRAMS[program]
    assert count(after, "vllm_ir.all_reduce") == 0
    # Norms on pieces are fused with what quantises them, in whichever order.
    assert count(after, "vllm_ir.static_scaled_fp8_quant") == 0
    assert collective_bytes(after) <= collective_bytes(before)


def test_fused_sums_that_are_left_stay_fused() -> None:
    """A sum that cannot be scattered stays in its op; those of other regions are scattered."""

    def program(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        small = ops.all_reduce_rms_norm(x[:1], weight, 1e-5, GROUP)
        other = ops.all_reduce_rms_norm(x, weight, 1e-5, "dp")
        gemma = ops.all_reduce_rms_norm(x + 1, weight, 1e-5, GROUP, rounded_last=True)
        return small, other, gemma, *ops.all_reduce_fused_add_rms_norm(x, residual, weight, 1e-5, GROUP)

    (inputs,) = given(1, 4, torch.bfloat16)
    module = compiled(program, inputs, Place(2, 0), "sequence-parallel")
    assert len(notes(module, "sharded_sums")) == 1
    reasons = notes(module, "unsharded_sums")
    assert len(reasons) == 3
    for op, reason in (
        ("all_reduce_rms_norm %all_reduce_rms_norm", "1 rows do not go into 2 equal pieces; pad=true adds rows"),
        ("all_reduce_rms_norm %all_reduce_rms_norm", "does not say how many ranks group 'dp' has"),
        ("all_reduce_fused_add_rms_norm %getitem", "which would have more to be gathered behind it than in front"),
    ):
        assert any(f"vllm_ir.{op}: " in note and reason in note for note in reasons), reasons
    assert count(module, '"vllm_ir.all_reduce_rms_norm"') == 2
    assert count(module, '"vllm_ir.all_reduce_fused_add_rms_norm"') == 1
    assert count(module, '"vllm_ir.all_reduce"') == 0


def test_fused_sums_and_a_limit() -> None:
    inputs = given(2, 4, torch.float32)
    (after, *_), _ = on_ranks(layers, inputs, "fuse,sequence-parallel{limit=0}")
    assert count(after, '"vllm_ir.all_reduce_fused_add_rms_norm"') == 4


def test_bytes_are_those_of_a_ring() -> None:
    inputs = given(4, 8, torch.bfloat16)
    (before, *_), _ = on_ranks(layers, inputs, "")
    (after, *_), _ = on_ranks(layers, inputs, "sequence-parallel")
    assert collective_bytes(before) == collective_bytes(after) == 4 * 2 * Fraction(3, 4) * 8 * WIDTH * 2
    (quantised, *_), _ = on_ranks(per_token, inputs, "sequence-parallel")
    # One byte for each element and a scale of four for each row are gathered, instead of two bytes for each element.
    assert collective_bytes(quantised) == 2 * Fraction(3, 4) * 8 * (2 * WIDTH + WIDTH + 4)
    assert str(quantised.attributes["vllm_ir.collective_bytes"]) == '{before = "768", after = "624"}'


def test_pointwise_operators_of_pieces_alone() -> None:
    inputs = given(2, 4, torch.float32)
    (after, *_), results = on_ranks(pointwise, inputs, "sequence-parallel")
    assert same_bits(results, on_ranks(pointwise, inputs, "")[1])
    # The wider result is computed behind the gather.
    assert (count(after, "vllm_ir.sharded = "), count(after, "vllm_ir.all_gather")) == (5, 1)


def test_a_residual_that_is_needed_whole() -> None:
    inputs = given(2, 4, torch.float32)
    (left, *_), expected = on_ranks(returned, inputs, "sequence-parallel")
    assert count(left, '"vllm_ir.all_reduce"') == 2
    assert all("extra_bytes=true allows it" in note for note in notes(left, "unsharded_sums"))
    (after, *_), results = on_ranks(returned, inputs, "sequence-parallel{extra_bytes=true}")
    assert same_bits(results, expected)
    assert count(after, "vllm_ir.all_gather") == 4
    assert collective_bytes(after) == Fraction(3, 2) * collective_bytes(left)


DYNAMIC = """
builtin.module {
  vllm_ir.func @main(%x: TYPE, %matrix: tensor<16x16xf32>, %residual: TYPE, %weight: tensor<16xf32>) -> TYPE {
    %sum = "vllm_ir.all_reduce"(%x) <{group_name = "tp"}> : (TYPE) -> TYPE
    %y, %r = vllm_ir.fused_add_rms_norm %sum, %residual : TYPE, TYPE weight %weight : tensor<16xf32>
      {epsilon = 1.0e-05 : f64} -> TYPE, TYPE
    vllm_ir.return %y : TYPE
  }
}
"""
SIZED = 'tensor<?x16xf32, #vllm_ir.layout<sizes = ["SIZE", 16]>>'


@pytest.mark.parametrize(("size", "options", "rows"), [("s0", "{pad=true}", 7), ("2*s0", "", 8)], ids=str)
def test_dynamic_sizes(size: str, options: str, rows: int) -> None:
    text = DYNAMIC.replace("TYPE", SIZED.replace("SIZE", size))
    inputs = given(2, rows, torch.float32)
    (after, *_), results = on_ranks(text, inputs, f"sequence-parallel{options}")
    assert same_bits(results, on_ranks(text, inputs, "")[1])
    assert count(after, "aten.constant_pad_nd") == (2 if options else 0)
    symbol = rows // 2 if size == "2*s0" else rows
    assert collective_bytes(after, {"s0": symbol}) == 2 * Fraction(1, 2) * (rows + rows % 2) * WIDTH * 4


REJECTED: list[tuple[Callable[..., object], Place, str, str]] = [
    (layers, Place(3, 0), "", "4 rows do not go into 3 equal pieces; pad=true adds rows"),
    (layers, Place(2, 0), "{min_tokens=5}", "it has 4 rows, option min_tokens is 5"),
    (layers, Place(1, 0), "", "group 'tp' has one rank"),
    (layers, Place(2, 0), '{group="dp"}', "it is over group 'tp', option group is 'dp'"),
    (layers, Place(2), "", "needs the rank's rows of %residual, and the module does not say which rank it is"),
    (lambda x, m, *_: reduced(x, GROUP) @ m, Place(2, 0), "", "is used by @aten.mm.default, which does not go row"),
    (lambda x, *_: reduced(x, GROUP).relu() + 1, Place(2, 0), "", "no op of the registry that goes row by row"),
    (lambda x, m, r, w: ops.rms_norm(reduced(w, GROUP), None, 1e-5), Place(2, 0), "", "has no rows of known size"),
    (lambda x, m, r, w: ops.rms_norm(reduced(x, "no"), w, 1e-5), Place(2, 0), "", "how many ranks group 'no' has"),
    (
        lambda x, m, r, w: ops.rms_norm(functional.wait_tensor(functional.all_reduce(x, "avg", GROUP)), w, 1e-5),
        Place(2, 0),
        "",
        "it reduces by 'avg', not by 'sum'",
    ),
    (
        lambda x, m, r, w: ops.rms_norm(reduced(x, GROUP) * r, w, 1e-5),
        Place(2, 0),
        "",
        "takes %r, which may be another one on each rank",
    ),
    (
        lambda x, m, r, w: ops.rms_norm(reduced(x, GROUP).softmax(0), w, 1e-5),
        Place(2, 0),
        "",
        "is used by @aten._softmax.default, which does not go row by row",
    ),
    (lambda x, m, r, w: ops.rms_norm(x, w, 1e-5), Place(2, 0), "", "the module has no all_reduce"),
]


@pytest.mark.parametrize(("program", "place", "options", "reason"), REJECTED, ids=[case[-1][-40:] for case in REJECTED])
def test_what_is_left_has_a_reason(program: Callable[..., object], place: Place, options: str, reason: str) -> None:
    (inputs,) = given(1, 4, torch.float32)
    module = compiled(program, inputs, place, f"sequence-parallel{options}")
    assert count(module, "vllm_ir.reduce_scatter") == count(module, "vllm_ir.all_gather") == 0
    found = notes(module, "unsharded_sums")
    assert found
    assert any(reason in note for note in found), found


def test_sums_that_are_required() -> None:
    (inputs,) = given(1, 4, torch.float32)
    assert compiled(layers, inputs, Place(2, 0), "sequence-parallel{require=4}")
    with pytest.raises(
        PassFailedException, match=r"0 sums were scattered, 4 required; .*\.py:\d+: .*in 3 equal|3 equal"
    ):
        compiled(layers, inputs, Place(3, 0), "sequence-parallel{require=4}")


def test_a_limited_pass_leaves_the_same_program() -> None:
    def twice(x: Tensor, matrix: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
        return layers(x, matrix, residual, weight) + embedded(x, matrix, residual, weight)

    inputs = given(2, 4, torch.float32)
    expected = on_ranks(twice, inputs, "")[1]
    for limit, sums in ((0, 0), (1, 4)):
        (after, *_), results = on_ranks(twice, inputs, f"sequence-parallel{{limit={limit}}}")
        assert same_bits(results, expected)
        assert count(after, "vllm_ir.reduce_scatter") == len(notes(after, "sharded_sums")) == sums


def test_replica_groups_say_how_many_ranks_there_are() -> None:
    from vllm_ir.frontends.distributed.module_groups import attach_replica_groups

    (inputs,) = given(1, 4, torch.float32)
    module = ir.import_callable(embedded, *inputs)
    attach_replica_groups(module, {GROUP: [[0, 2], [1, 3]]})
    ir.run_passes(module, "functionalize,sequence-parallel{require=3}")
    assert count(module, "world_size = 2") == 6
