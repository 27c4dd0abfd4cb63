"""A second process with a warm cache traces nothing and builds no kernel; a kernel that has changed is traced again."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = '''
import json, sys, torch, vllm_ir as ir
from torch import Tensor

def native(x: Tensor, by: float) -> Tensor:
    return x * by
op = ir.register_op(name="warm_start_op", allow_inplace=True)(native)
def helper(x: Tensor, by: float) -> Tensor:
    return x * by
@op.register_impl("mine")
def kernel(x: Tensor, by: float) -> Tensor:
    return helper(x, by)

def program(x, weight, cache):
    cache[1].add_(x[0])
    y = ir.ops.rms_norm(x, weight, 1e-5)
    return op(y, 0.5)

def run():
    """What happened, and the bits of the results."""
    torch._dynamo.reset()
    options = {"ir_op_priority": {"warm_start_op": ["mine"], "rms_norm": ["native"]}}
    compiled = torch.compile(program, backend="vllm_ir", options=options, dynamic=True, fullgraph=True)
    x = torch.linspace(-1, 1, 3 * 8).reshape(3, 8)
    cache = torch.zeros(2, 8)
    with torch.no_grad():
        result = compiled(x, torch.ones(8), cache)
    report = ir.compile_reports()[-1]
    bits = [value.hex() for tensor in (result, cache) for value in tensor.flatten().tolist()]
    return [report.traced, report.traces_loaded, report.from_cache, bits]

found = [run()]
if "changed" in sys.argv:
    helper.__code__ = (lambda x, by: x * (by + 1.0)).__code__
    found.append(run())
print(json.dumps(found))
'''


def start(directory: Path, *arguments: str) -> list[list[object]]:
    file = directory / "program.py"
    file.write_text(PROGRAM)
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(directory / "cache")}
    run = subprocess.run(
        [sys.executable, str(file), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def built(directory: Path) -> dict[str, int]:
    """Libraries that were compiled, and when."""
    return {str(file): file.stat().st_mtime_ns for file in directory.rglob("*.so")}


def test_a_second_process_traces_nothing_and_builds_nothing(tmp_path: Path) -> None:
    (cold,) = start(tmp_path)
    assert cold[:3] == [2, 0, False]
    kernels = built(tmp_path)
    assert kernels
    warm, changed = start(tmp_path, "changed")
    assert warm == [0, 2, True, cold[3]]
    assert built(tmp_path).items() >= kernels.items()
    assert changed[:3] == [1, 1, False], "the implementation that has changed is traced, the other one is read"
    assert changed[3] != cold[3]
