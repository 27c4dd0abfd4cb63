"""Collectives on two real ranks over gloo: eager and compiled, native and in place."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import vllm_ir as ir
from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

RANKS = 2
FLOATS = (torch.float32, torch.bfloat16, torch.float16)
PRIORITIES = {provider: {"all_reduce": [provider]} for provider in ("native", PROVIDER)}


def _of_rank(rank: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randint(-9, 9, (4, 6), generator=torch.Generator().manual_seed(rank)).to(dtype)


def _program(group: str) -> Callable[[Tensor], tuple[Tensor, ...]]:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        given = ops.all_reduce.maybe_inplace(x + 1, group)
        kept = ops.all_reduce(x, group)
        pieces = [ops.reduce_scatter(x, dim, RANKS, group) for dim in (0, 1)]
        return given, kept, *pieces, *(ops.all_gather(x, dim, RANKS, group) for dim in (0, -1))

    return program


def _expected(rank: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    parts = [_of_rank(other, dtype) for other in range(RANKS)]
    total = parts[0] + parts[1]
    pieces = [total.chunk(RANKS, dim)[rank] for dim in (0, 1)]
    return [total + RANKS, total, *pieces, *(torch.cat(parts, dim) for dim in (0, -1))]


def _same(rank: int, got: tuple[Tensor, ...], dtype: torch.dtype = torch.float32) -> bool:
    return all(map(torch.equal, got, _expected(rank, dtype)))


def _compiled(rank: int, group: str) -> Iterator[tuple[str, object]]:
    for provider, priority in PRIORITIES.items():
        for backend in ("vllm_ir_eager", "vllm_ir"):
            torch._dynamo.reset()
            ir.clear_compile_reports()
            options = {"ir_op_priority": priority}
            run = torch.compile(_program(group), backend=backend, fullgraph=True, options=options)
            x = _of_rank(rank)
            yield f"{backend} {provider}", _same(rank, run(x)) and torch.equal(x, _of_rank(rank))
            (report,) = ir.compile_reports()
            yield f"{backend} {provider} chosen", sorted(set(report.selected_impls["all_reduce"].values()))
            yield f"{backend} {provider} copies", [reason for _, _, reason in report.copies if "own" not in reason]


def _in_memory(rank: int, group: str) -> Iterator[tuple[str, object]]:
    """What is written, and what is refused."""
    with ops.all_reduce.set_priority([PROVIDER]):
        for dtype in (*FLOATS, torch.float64, torch.int64):
            x = _of_rank(rank, dtype)
            got = ops.all_reduce.maybe_inplace(x, group)
            same = torch.equal(got, _expected(rank, dtype)[1])
            yield f"in place {dtype}", same and got.data_ptr() == x.data_ptr()
        x = _of_rank(rank)
        got = ops.all_reduce(x, group)
        yield "kept", torch.equal(x, _of_rank(rank)) and torch.equal(got, _expected(rank)[1])
        turned = _of_rank(rank).t()
        yield "turned", ops.all_reduce.dispatch(turned, group).provider
        torch.ops.vllm_ir_cpu.all_reduce_(turned, group)
        yield "turned in place", torch.equal(turned, _expected(rank)[1].t())
        turned = _of_rank(rank).t()
        yield "turned sum", torch.equal(ops.all_reduce(turned, group), _expected(rank)[1].t())
        yield "bool", ops.all_reduce.dispatch(_of_rank(rank, torch.bool), group).provider
        yield "no group", ops.all_reduce.dispatch(x, "nobody").provider
        yield "empty", list(ops.all_reduce(x[:0], group).shape)


def _norms(rank: int, group: str) -> Iterator[tuple[str, object]]:
    """Norms of sums, by the kernels of their parts."""
    kept, native = torch.randn(4, 6), ["native"]
    for dtype in FLOATS:
        x = _of_rank(rank, dtype)
        shared = torch.Generator().manual_seed(7)
        residual, weight = (torch.randn(shape, generator=shared).to(dtype) for shape in ((4, 6), (6,)))
        scale = torch.tensor([0.02])
        for name, args in (
            ("rms_norm", (weight, 1e-6)),
            ("fused_add_rms_norm", (residual, weight, 1e-6)),
            ("rms_norm_static_fp8_quant", (None, scale, 1e-6)),
            ("fused_add_rms_norm_static_fp8_quant", (residual, weight, scale, 1e-6)),
        ):
            op, part = ops[f"all_reduce_{name}"], ops[name]
            with op.set_priority([PROVIDER]), part.set_priority([PROVIDER]), ops.all_reduce.set_priority([PROVIDER]):
                chosen = op.dispatch(x, *args, group).provider
                got, expected = op(x, *args, group), part(ops.all_reduce(x, group), *args)
            with op.set_priority(native), part.set_priority(native):
                by_definition, of_parts = op(x, *args, group), part(ops.all_reduce(x, group), *args)
            same = _same_bits(got, expected) and _same_bits(by_definition, of_parts)
            yield f"{name} {dtype}", chosen == PROVIDER and same and torch.equal(x, _of_rank(rank, dtype))
    with ops.all_reduce_rms_norm.set_priority([PROVIDER]):
        yield "rounded last", ops.all_reduce_rms_norm.dispatch(kept, None, 1e-6, group, None, True).provider
        yield "norm in no group", ops.all_reduce_rms_norm.dispatch(kept, None, 1e-6, "nobody").provider
        given = _of_rank(rank)
        got = ops.all_reduce_rms_norm.maybe_inplace(given, None, 1e-6, group)
        yield "sum in place", torch.equal(given, _expected(rank)[1]) and got.data_ptr() != given.data_ptr()


def _same_bits(one: Tensor | tuple[Tensor, ...], other: Tensor | tuple[Tensor, ...]) -> bool:
    ones, others = ((value,) if isinstance(value, Tensor) else value for value in (one, other))
    return all(
        a.dtype == b.dtype and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        for a, b in zip(ones, others, strict=True)
    )


def _on_rank(rank: int, folder: str) -> None:
    """What each rank does."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    group = dist.group.WORLD.group_name
    found: dict[str, object] = {}
    with torch.no_grad():
        for dtype in FLOATS:
            found[f"eager {dtype}"] = _same(rank, _program(group)(_of_rank(rank, dtype)), dtype)
        found |= _in_memory(rank, group)
        found |= _norms(rank, group)
        found |= _compiled(rank, group)
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What the ranks found, each in a process of its own."""
    folder = tmp_path_factory.mktemp("ranks")
    code = (
        "import importlib.util, sys; import torch, torch.multiprocessing as mp\n"
        f"spec = importlib.util.spec_from_file_location('collective_ranks', {__file__!r})\n"
        "module = sys.modules['collective_ranks'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "torch.set_num_threads(1)\n"
        f"mp.start_processes(module._on_rank, ({str(folder)!r},), {RANKS}, start_method='fork')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_eager(ranks: list[dict[str, object]], dtype: torch.dtype):
    assert [found[f"eager {dtype}"] for found in ranks] == [True] * RANKS


@pytest.mark.parametrize("provider", PRIORITIES)
@pytest.mark.parametrize("backend", ["vllm_ir_eager", "vllm_ir"])
def test_compiled(ranks: list[dict[str, object]], backend: str, provider: str):
    for found in ranks:
        assert found[f"{backend} {provider}"] is True
        assert found[f"{backend} {provider} chosen"] == [provider]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.float64, torch.int64], ids=str)
def test_a_sum_in_the_memory_that_is_given(ranks: list[dict[str, object]], dtype: torch.dtype):
    assert [found[f"in place {dtype}"] for found in ranks] == [True] * RANKS


def test_what_is_kept_and_what_is_left_to_the_native_definition(ranks: list[dict[str, object]]):
    for found in ranks:
        assert found["kept"] is found["turned sum"] is found["turned in place"] is True
        assert found["empty"] == [0, 6]
        assert (found["turned"], found["bool"], found["no group"]) == ("native", "native", "native")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_norms_of_sums_are_their_parts(ranks: list[dict[str, object]], dtype: torch.dtype):
    norms = ("rms_norm", "fused_add_rms_norm", "rms_norm_static_fp8_quant", "fused_add_rms_norm_static_fp8_quant")
    assert [[found[f"{name} {dtype}"] for name in norms] for found in ranks] == [[True] * 4] * RANKS


def test_which_norms_of_sums_are_left_to_the_native_definition(ranks: list[dict[str, object]]):
    for found in ranks:
        assert (found["rounded last"], found["norm in no group"], found["sum in place"]) == ("native", "native", True)


def test_only_what_is_kept_is_copied(ranks: list[dict[str, object]]):
    for found in ranks:
        assert found[f"vllm_ir_eager {PROVIDER} copies"] == ["%l_x_ is the caller's, who did not ask for the write"]


def test_without_a_process_group_the_provider_refuses():
    impl, rejected = ops.all_reduce.select((torch.ones(3), "0"), [PROVIDER])
    assert (impl.provider, rejected) == ("native", [(PROVIDER, "supports_args refused the arguments")])


def test_the_others_have_no_implementation():
    assert all(list(ops[name].impls) == ["native"] for name in ("reduce_scatter", "all_gather"))
