"""Many compilations at once, interrupted ones, and caches that cannot be written."""

import gc
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from xdsl.ir import Operation

import vllm_ir as ir
from vllm_ir.conversions.eliminate_clones import EliminateClonesPass
from vllm_ir.conversions.functionalize import FunctionalizePass
from vllm_ir.conversions.lower import LowerPass
from vllm_ir.tools import compile as compile_backends
from vllm_ir.tools import lowering
from vllm_ir.tools.compile import vllm_ir_eager
from vllm_ir.tools.torch_internals import compile_lock

MiB = 1 << 20


def varied(number: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """A program of its own for each number: views, writes, and a result that aliases an argument."""

    def program(cache: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        row = cache[number % 4]
        row[number % 3 :].add_(x[number % 3 :] * (number + 1))
        y = cache.t() if number % 2 else cache.view(-1, 2)
        for step in range(number % 5):
            x = ir.ops.rms_norm(x, None, 1e-5) + step
        cache[(number + 1) % 4].copy_(x)
        return y, x * 2

    return program


def arguments(number: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    return torch.randn(4, 6, generator=generator), torch.randn(6, generator=generator)


def compile_and_run(number: int) -> bool:
    """Whether the compiled program does what eager mode does."""
    program = varied(number)
    mine, theirs = arguments(number), arguments(number)
    expected = program(*theirs)
    with compile_lock():  # `make_fx` is for one thread at a time
        graph = make_fx(program)(*arguments(number))
    got = vllm_ir_eager(graph, arguments(number))(*mine)
    assert isinstance(got, list | tuple)
    same = all(torch.equal(a, b) for a, b in zip([*got, *mine], [*expected, *theirs], strict=True))
    return same and got[0].data_ptr() == mine[0].data_ptr()


def in_threads(threads: int, count: int) -> None:
    """`count` compilations by each of some threads, all different."""
    with ThreadPoolExecutor(threads) as pool:
        futures = [
            pool.submit(lambda first=first: [n for n in range(first, first + count) if not compile_and_run(n)])
            for first in range(0, threads * count, count)
        ]
        assert [number for future in futures for number in future.result(timeout=3000)] == []
    ir.clear_compile_reports()


def operations() -> int:
    gc.collect()
    return sum(isinstance(thing, Operation) for thing in gc.get_objects())


def resident() -> int:
    """Bytes of memory that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.parametrize(
    ("threads", "count"), [(4, 3), pytest.param(8, 200, marks=pytest.mark.slow)], ids=["some", "8 x 200"]
)
def test_threads_compile_different_graphs(threads: int, count: int) -> None:
    in_threads(threads, count // 4 + 1)  # caches fill, allocators warm up
    in_threads(threads, count // 4 + 1)
    held, memory = operations(), resident()
    in_threads(threads, count)
    assert operations() - held < 200, "operations of compiled modules are kept"
    assert resident() - memory < 100 * MiB


def test_threads_compile_through_dynamo() -> None:
    def run(number: int) -> bool:
        program = varied(number)
        mine, theirs = arguments(number), arguments(number)
        expected = program(*theirs)
        got = torch.compile(program, backend="vllm_ir_eager", fullgraph=True)(*mine)
        return all(torch.equal(a, b) for a, b in zip([*got, *mine], [*expected, *theirs], strict=True))

    with ThreadPoolExecutor(4) as pool:
        # Dynamo compiles one function eight times, for as many values of what it closes over.
        assert all(pool.map(run, range(8), timeout=600))


# Interrupts


STAGES = (
    (lowering, "normalize"),
    (lowering, "import_normalized"),
    (FunctionalizePass, "apply"),
    (LowerPass, "apply"),
    (EliminateClonesPass, "apply"),
    (compile_backends, "export_complete"),
)


@pytest.mark.parametrize(("owner", "name"), STAGES, ids=[f"{owner.__name__}.{name}" for owner, name in STAGES])
def test_an_interrupted_compilation_leaves_the_session_usable(
    owner: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the end of each stage, where the most has been begun."""
    stage = getattr(owner, name)

    def interrupted(*args: object, **kwargs: object) -> object:
        result = stage(*args, **kwargs)
        signal.raise_signal(signal.SIGINT)
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            compile_and_run(9)
    assert gc.isenabled(), "the collector that passes hold is held for ever"
    assert compile_and_run(9)
    # The lock is free: another thread compiles as well.
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(compile_and_run, 7).result(timeout=120)


# Caches

USE = textwrap.dedent(
    """
    import torch, warnings, vllm_ir
    warnings.simplefilter("always")
    def program(cache, x):
        cache[1].add_(x)
        return vllm_ir.ops.rms_norm(cache, None, 1e-5)
    options = {"ir_op_priority": {"rms_norm": ["cpu"]}}
    compiled = torch.compile(program, backend="vllm_ir", options=options, fullgraph=True)
    cache, mine = torch.ones(2, 8), torch.ones(2, 8)
    assert torch.allclose(program(cache, torch.ones(8)), compiled(mine, torch.ones(8)))
    assert torch.equal(cache, mine)
    """
)


def use(**environment: str) -> subprocess.Popen[str]:
    """The program above in a process of its own, for which permissions count, also if this one is root's."""
    drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-dac_override,-dac_read_search"]
    command = [*(drop if os.geteuid() == 0 else []), sys.executable, "-c", USE]
    return subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Path:
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may write anywhere, and there is no setpriv to take that away")
    directory = tmp_path / "read_only"
    directory.mkdir()
    (directory / "dynamo").mkdir()
    directory.chmod(0o555)
    return directory


def test_a_cache_that_cannot_be_written_is_a_warning(read_only: Path) -> None:
    process = use(TORCHINDUCTOR_CACHE_DIR=str(read_only))
    _, error = process.communicate(timeout=600)
    assert process.returncode == 0, error
    assert f"the cache directory {read_only} cannot be written: permission denied; what is compiled goes" in error
    assert [entry.name for entry in read_only.iterdir()] == ["dynamo"]


@pytest.mark.slow
def test_kernels_are_built_elsewhere_if_their_cache_cannot_be_written(read_only: Path) -> None:
    process = use(TORCH_EXTENSIONS_DIR=str(read_only))
    _, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
    assert f"the cache directory {read_only}" in error
    assert "cannot be written: permission denied" in error


@pytest.mark.slow
def test_a_killed_process_leaves_no_broken_cache(tmp_path: Path) -> None:
    """Killed at several moments of a first compilation; each time, the next process finds a cache that works."""
    for seconds in (4, 7, 10, 14):
        process = use(TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
        time.sleep(seconds)
        process.kill()
        process.communicate()
    process = use(TORCHINDUCTOR_CACHE_DIR=str(tmp_path))
    _, error = process.communicate(timeout=900)
    assert process.returncode == 0, error
