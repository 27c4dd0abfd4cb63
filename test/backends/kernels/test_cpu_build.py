"""When the kernels are built, where they are kept, and what happens where they cannot be."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_ir.backends.kernels.cpu import build

COUNTING_COMPILER = """#!/bin/sh
case "$*" in *kernels.cpp*) echo compiled >> {log};; esac
exec {compiler} "$@"
"""
RUN = """
import torch, vllm_ir.backends.kernels
from vllm_ir.frontends.ops import ops
with ops.rms_norm.set_priority(["cpu"]):
    x = torch.ones(2, 8)
    assert ops.rms_norm.dispatch(x, None, 1e-5).provider == "cpu"
    assert torch.equal(ops.rms_norm(x, None, 0.0), x)
"""


def start(code: str, cache: Path, **environment: str) -> subprocess.Popen[str]:
    """Python in a fresh process, with an extension cache of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"TORCH_EXTENSIONS_DIR": str(cache)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, cache: Path, **environment: str) -> None:
    process = start(code, cache, **environment)
    _, error = process.communicate()
    assert process.returncode == 0, error


def test_nothing_is_built_before_a_kernel_runs(tmp_path: Path):
    run(
        """
import torch, vllm_ir as ir
import vllm_ir.backends.kernels
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
with ir.KernelConfig(ir_op_priority={"rms_norm": ["cpu"]}).apply():
    module = ir.run_passes(ir.import_callable(lambda x: ir.ops.rms_norm(x, None, 1e-5), torch.ones(2, 8)))
assert "@vllm_ir_cpu.rms_norm" in str(module), module
assert str(ir.parse(str(module))) == str(module)
ir.export_fx(module)
with FakeTensorMode() as mode:
    make_fx(torch.ops.vllm_ir_cpu.silu_and_mul)(torch.ones(2, 8))
""".replace("torch.ones(2, 8)))\n", 'torch.ones(2, 8)), "functionalize,lower")\n'),
        tmp_path,
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_processes_build_once_and_outlive_a_killed_one(tmp_path: Path):
    log, compiler, cache = tmp_path / "log", tmp_path / "c++", tmp_path / "cache"
    compiler.write_text(COUNTING_COMPILER.format(log=log, compiler=shutil.which("c++")))
    compiler.chmod(0o755)
    killed = start(RUN, cache, CXX=str(compiler))
    while not log.exists() and killed.poll() is None:
        time.sleep(0.05)
    assert killed.poll() is None, killed.communicate()
    killed.kill()
    killed.communicate()
    assert list(cache.glob("*/lock")), "the builder's lock file has another name by now"
    log.unlink()
    processes = [start(RUN, cache, CXX=str(compiler)) for _ in range(2)]
    errors = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    run(RUN, cache, CXX=str(compiler))
    assert log.read_text().split() == ["compiled"]
    # What is built needs no tools any more.
    run(RUN, cache, CXX="no-such-compiler", PATH="")


@pytest.mark.parametrize(
    ("environment", "reason"), [({"CXX": "no-such-compiler"}, "no C++ compiler: 'no-such-compiler'")]
)
def test_without_a_compiler_the_provider_is_not_supported(tmp_path: Path, environment: dict[str, str], reason: str):
    run(
        f"""
import torch
from vllm_ir.backends.kernels import cpu
from vllm_ir.frontends.ops import ops
assert {reason!r} in cpu.unsupported_reason(), cpu.unsupported_reason()
assert ops.rms_norm.supported_providers() == ["native"]
impl, rejected = ops.rms_norm.select([torch.ones(2, 8), None, 1e-5], ["cpu"])
assert impl.provider == "native" and rejected == [("cpu", "not supported in this process")]
try:
    torch.ops.vllm_ir_cpu.rms_norm(torch.ones(2, 8), None, 1e-5)
except RuntimeError as error:
    assert {reason!r} in str(error) and "\\n" not in str(error), error
else:
    raise AssertionError("the kernel ran")
""",
        tmp_path,
        **environment,
    )


def test_ninja_is_found_beside_python_and_missed_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(build.sysconfig, "get_path", lambda name: str(tmp_path))
    assert build._ninja_directory() is None
    ninja = tmp_path / "ninja"
    ninja.write_text("#!/bin/sh\n")
    ninja.chmod(0o755)
    assert build._ninja_directory() == str(tmp_path)
    with build._ninja_on_path():
        assert shutil.which("ninja") == str(ninja)
    assert os.environ["PATH"] == "/nowhere"


@pytest.mark.parametrize("program", ["exit 1", "echo 'kernels.cpp:1:1: error: no such header' >&2; exit 1"])
def test_a_failed_build_is_one_line_that_names_the_log(tmp_path: Path, program: str):
    compiler, cache = tmp_path / "g++", tmp_path / "cache"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *kernels.cpp*) {program};; esac\nexec {shutil.which("c++")} "$@"\n')
    compiler.chmod(0o755)
    process = start(
        "import torch, vllm_ir.backends.kernels as k; torch.ops.vllm_ir_cpu.silu_and_mul(torch.ones(2))",
        cache,
        CXX=str(compiler),
    )
    last = process.communicate()[1].strip().splitlines()[-1]
    assert last.startswith("RuntimeError: vllm_ir: the kernels of provider 'cpu' do not compile: "), last
    assert ("no such header" in last) == ("no such header" in program)
    (log,) = cache.glob("*/build.log")
    assert str(log) in last
    assert log.read_text()


def test_the_cache_key_covers_sources_flags_and_torch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    keys = {build.library_path.__wrapped__()}
    monkeypatch.setattr(build, "compiler_flags", lambda: ["-O0"])
    keys.add(build.library_path.__wrapped__())
    monkeypatch.setattr(build.torch, "__version__", "0.0")
    keys.add(build.library_path.__wrapped__())
    shutil.copytree(build._SOURCES, tmp_path / "csrc")
    copies = tuple(tmp_path / "csrc" / file.name for file in build.KERNEL_FILES)
    monkeypatch.setattr(build, "KERNEL_FILES", copies)
    assert build.library_path.__wrapped__() in keys
    with (tmp_path / "csrc" / "rows.h").open("a") as file:
        file.write("\n")
    keys.add(build.library_path.__wrapped__())
    assert len(keys) == 4
