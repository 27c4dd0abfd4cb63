"""A block of a model on two and four real ranks over gloo, with its sums scattered, against the model alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import vllm_ir as ir
from vllm_ir.frontends.ops import ops

HIDDEN, INNER, LAYERS = 16, 32, 1
Reduce = Callable[[Tensor], Tensor]

PASSES = {
    "padded": "functionalize,sequence-parallel{pad=true require=3},lower,eliminate-clones",
    "in parts": "functionalize,sequence-parallel{require=3},async-tp{require=5},lower,eliminate-clones",
}
ROWS = {"padded": 7, "in parts": 16}
CASES = [("vllm_ir_eager", "padded"), ("vllm_ir", "in parts")]
TOLERANCE = 1e-4
"""Sums of 32 products of numbers around 1 in float32, in another order, through three norms."""


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) / shape[-1] ** 0.5


def _block(reduce: Reduce, rank: int, ranks: int) -> Callable[[Tensor], Tensor]:
    """Layers of attention, reduced to its projections, and of a gated MLP, whose weights the ranks share."""

    def columns(seed: int, inner: int) -> Tensor:
        return _drawn(seed, HIDDEN, inner).chunk(ranks, 1)[rank].contiguous()

    def rows(seed: int, inner: int) -> Tensor:
        return _drawn(seed, inner, HIDDEN).chunk(ranks, 0)[rank].contiguous()

    norms = [_drawn(100 + number, HIDDEN) + 1 for number in range(2 * LAYERS + 1)]
    layers = [
        (columns(10 * n, INNER), rows(10 * n + 1, INNER), columns(10 * n + 2, INNER), rows(10 * n + 3, INNER))
        for n in range(LAYERS)
    ]
    embedding = rows(200, INNER)

    def block(x: Tensor) -> Tensor:
        residual = reduce(x.chunk(ranks, 1)[rank] @ embedding)
        x = ops.rms_norm(residual, norms[0], 1e-5)
        for number, (up, down, gate, out) in enumerate(layers):
            x = reduce(torch.tanh(x @ up) @ down)
            x, residual = ops.fused_add_rms_norm.maybe_inplace(x, residual, norms[2 * number + 1], 1e-5)
            x = reduce(torch.nn.functional.silu(x @ gate) @ out)
            x, residual = ops.fused_add_rms_norm.maybe_inplace(x, residual, norms[2 * number + 2], 1e-5)
        return x

    return block


def _found(rank: int, ranks: int, group: str) -> Iterator[tuple[str, object]]:
    block = _block(lambda x: ops.all_reduce(x, group), rank, ranks)
    alone = _block(lambda x: x, 0, 1)
    for backend, name in CASES:
        torch._dynamo.reset()
        ir.clear_compile_reports()
        x = _drawn(1, ROWS[name], INNER)
        y = torch.compile(block, backend=backend, fullgraph=True, options={"passes": PASSES[name]})(x)
        (report,) = ir.compile_reports()
        before, after = report.collectives["collective_bytes"]
        yield (
            f"{backend} {name}",
            {
                "error": float((y - alone(x)).abs().max()),
                "sums": len(report.collectives["sharded_sums"]),
                "parts": len(report.collectives.get("split_products", [])),
                "more bytes": float(after) - float(before),
            },
        )
    if ranks == 2:
        yield from _fused(block, alone)
    narrow = _drawn(3, 2, 4).to(torch.float8_e4m3fn)
    whole = ops.all_gather(narrow, 0, ranks, group)
    yield "bytes", torch.equal(whole.float(), narrow.float().repeat(ranks, 1)) and str(whole.dtype)
    if ranks == 2:
        torch._dynamo.reset()
        ir.clear_compile_reports()
        compiled = torch.compile(block, backend="vllm_ir_eager", fullgraph=True, options={"passes": PASSES["padded"]})
        given = [_drawn(count, count, INNER) for count in (9, 14)]
        torch._dynamo.mark_dynamic(given[0], 0)
        yield "dynamic", max(float((compiled(x) - alone(x)).abs().max()) for x in given)
        yield "graphs", len(ir.compile_reports())


def _fused(block: Callable[[Tensor], Tensor], alone: Callable[[Tensor], Tensor]) -> Iterator[tuple[str, object]]:
    """Sums and norms in one op each, and what becomes of these where sums are scattered."""
    x = _drawn(1, 16, INNER)
    fused = {"fusions": ["add_rms_norm", "all_reduce_rms_norm"], "require_fusions": {"all_reduce_rms_norm": 2}}
    for name, passes in (("fused", "functionalize,lower,eliminate-clones"), ("fused and scattered", PASSES["padded"])):
        torch._dynamo.reset()
        ir.clear_compile_reports()
        options = {"passes": passes, **fused}
        y = torch.compile(block, backend="vllm_ir_eager", fullgraph=True, options=options)(x)
        (report,) = ir.compile_reports()
        selected = report.selected_impls
        counts = [
            sum(len(selected.get(op, {})) for op in ops if op.startswith(start)) for start in ("all_reduce_", "rms")
        ]
        yield name, {"error": float((y - alone(x)).abs().max()), "ops": counts}


def _on_rank(rank: int, ranks: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    with torch.no_grad():
        found = dict(_found(rank, ranks, dist.group.WORLD.group_name))
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=[2, 4], ids="{} ranks".format)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    """What the ranks found, each in a process of its own."""
    folder, count = tmp_path_factory.mktemp("ranks"), int(request.param)
    code = (
        "import importlib.util, sys; import torch, torch.multiprocessing as mp\n"
        f"spec = importlib.util.spec_from_file_location('sequence_ranks', {__file__!r})\n"
        "module = sys.modules['sequence_ranks'] = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "torch.set_num_threads(1)\n"
        f"mp.start_processes(module._on_rank, ({count}, {str(folder)!r},), {count}, start_method='fork')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(count)]


@pytest.mark.parametrize(("backend", "name"), CASES)
def test_the_model_alone(ranks: list[dict[str, dict[str, float]]], backend: str, name: str) -> None:
    for case in (found[f"{backend} {name}"] for found in ranks):
        assert case["error"] < TOLERANCE
        assert case["sums"] == 2 * LAYERS + 1
        assert case["parts"] == (5 if name == "in parts" else 0)
        assert case["more bytes"] <= 0 or name == "padded"


def test_fused_sums(ranks: list[dict[str, dict[str, object]]]) -> None:
    for found in ranks if len(ranks) == 2 else ():
        # The first norm is of the residual, which is used again.
        for name, expected in (("fused", [2, 1]), ("fused and scattered", [0, 1])):
            assert found[name]["ops"] == expected
            assert cast("float", found[name]["error"]) < TOLERANCE


def test_dynamic_numbers_of_rows(ranks: list[dict[str, float]]) -> None:
    assert all(found["dynamic"] < TOLERANCE and found["graphs"] == 1 for found in ranks if len(ranks) == 2)


def test_floats_of_eight_bits(ranks: list[dict[str, object]]) -> None:
    assert [found["bytes"] for found in ranks] == ["torch.float8_e4m3fn"] * len(ranks)
