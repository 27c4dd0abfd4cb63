"""The C++ kernels against the native definitions, and against faults that the same checks have to find."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

from vllm_ir.backends.kernels.cpu.providers import PROVIDER
from vllm_ir.frontends.ops import ops

ROOT = Path(__file__).parents[3]
FLOATS = [torch.float32, torch.bfloat16, torch.float16]
NAMES = [
    "rms_norm",
    "fused_add_rms_norm",
    "silu_and_mul",
    "gelu_and_mul",
    "rotary_embedding",
    "static_scaled_fp8_quant",
    "static_scaled_int8_quant",
    "dynamic_per_token_scaled_fp8_quant",
    "dynamic_per_token_scaled_int8_quant",
    "per_token_group_fp8_quant",
    "per_token_group_int8_quant",
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_kernels_agree_with_native_definitions(agreement: ModuleType, name: str, dtype: torch.dtype):
    impl = ops[name].impls[PROVIDER]
    cases = list(agreement.CASES[name](dtype))
    for case in cases:
        assert impl.rejection(ops[name].complete(case.args)) is None
    agreement.check(name, impl.impl_fn, iter(cases))


def faulty_norm(x, weight, epsilon, measured=None, *, fault=""):
    values = x.float()
    part = values[..., :measured] if fault != "mean over all" else values
    mean = part.pow(2).mean(-1, keepdim=True)
    scale = 1 / (mean.sqrt() + epsilon) if fault == "epsilon outside the root" else (mean + epsilon).rsqrt()
    if fault == "no epsilon":
        scale = mean.rsqrt()
    if fault == "approximate root":
        scale = scale * (1 + 2.0**-12)
    if fault == "half precision root":
        scale = scale.half().float()
    normed = values * scale
    if fault != "rounded once":
        normed = normed.to(x.dtype)
    if fault == "rounded down" and x.dtype is torch.bfloat16:
        normed = (values * scale).view(torch.int32).bitwise_and(-65536).view(torch.float32).to(x.dtype)
    if fault == "last element left out" and x.shape[-1] > 32:
        normed[..., -1] = x[..., -1]
    if weight is None:
        return normed.to(x.dtype)
    result = (normed * weight).to(torch.promote_types(x.dtype, weight.dtype))
    return result.to(x.dtype) if fault == "result not promoted" else result


def faulty_fused(x, residual, weight, epsilon, measured=None, *, fault=""):
    total = x.float() + residual.float()
    if fault == "sum rounded before the norm":
        total = total.to(x.dtype).float()
    normed, new = ops.fused_add_rms_norm.native(total, torch.zeros_like(total), None, epsilon, measured)
    normed = normed.to(x.dtype) if weight is None else normed.to(x.dtype) * weight
    return normed, (residual if fault == "residual left" else new.to(x.dtype))


def faulty_silu(x, *, fault=""):
    gate, up = x.chunk(2, -1)
    if fault == "rounded once":
        return (F.silu(gate.float()) * up.float()).to(x.dtype)
    if fault == "halves swapped":
        return F.silu(up) * gate
    if fault == "approximate exp":
        return (gate.float() / (1 + (-gate.float()).exp() * (1 + 2.0**-12))).to(x.dtype) * up
    return (F.gelu(gate) if fault == "gelu" else F.silu(gate)) * up


def faulty_gelu(x, approximate="none", *, fault=""):
    gate, up = x.chunk(2, -1)
    if fault == "rounded once":
        return (F.gelu(gate.float(), approximate=approximate) * up.float()).to(x.dtype)
    if fault == "halves swapped":
        return F.gelu(up, approximate=approximate) * gate
    if fault == "the other form":
        return F.gelu(gate, approximate="none" if approximate == "tanh" else "tanh") * up
    if fault == "silu":
        return F.silu(gate) * up
    if fault == "by sigmoid":
        return gate * (1.702 * gate).sigmoid() * up
    if fault == "approximate erf" and approximate == "none":
        form = 1 + (gate.float() * 2**-0.5).erf() * (1 - 2.0**-18)
        return (gate.float() / 2 * form).to(x.dtype) * up
    return F.gelu(gate, approximate=approximate) * up


def faulty_rotary(positions, query, key, head_size, table, neox, rotary_dim=None, *, fault=""):
    if fault == "sign":
        cos, sin = table.chunk(2, -1)
        table = torch.cat((cos, -sin), -1)
    if fault == "style":
        neox = not neox
    if fault == "position":
        positions = (positions + 1) % table.shape[0]
    if fault == "wide arithmetic":
        results = ops.rotary_embedding.native(positions, query.float(), key.float(), head_size, table, neox, rotary_dim)
        return results[0].to(query.dtype), results[1].to(key.dtype)
    results = ops.rotary_embedding.native(positions, query, key, head_size, table, neox, rotary_dim)
    return (results[0], key) if fault == "key left" else results


FAULTS = [
    *(
        ("rms_norm", faulty_norm, fault)
        for fault in (
            "mean over all",
            "epsilon outside the root",
            "no epsilon",
            "approximate root",
            "half precision root",
            "rounded once",
            "rounded down",
            "last element left out",
            "result not promoted",
        )
    ),
    ("fused_add_rms_norm", faulty_fused, "sum rounded before the norm"),
    ("fused_add_rms_norm", faulty_fused, "residual left"),
    *(("silu_and_mul", faulty_silu, fault) for fault in ("rounded once", "halves swapped", "approximate exp", "gelu")),
    *(
        ("gelu_and_mul", faulty_gelu, fault)
        for fault in ("rounded once", "halves swapped", "the other form", "silu", "by sigmoid", "approximate erf")
    ),
    *(
        ("rotary_embedding", faulty_rotary, fault)
        for fault in ("sign", "style", "position", "wide arithmetic", "key left")
    ),
]


@pytest.mark.parametrize(
    ("name", "implementation", "fault"), FAULTS, ids=lambda part: part if type(part) is str else ""
)
def test_a_planted_fault_is_found(agreement: ModuleType, name: str, implementation: Callable[..., object], fault: str):
    found = 0
    for dtype in FLOATS:
        try:
            agreement.check(name, lambda *args: implementation(*args, fault=fault), agreement.CASES[name](dtype))
        except AssertionError:
            found += 1
    assert found > 0


@pytest.mark.parametrize(
    ("name", "implementation"),
    [
        ("rms_norm", faulty_norm),
        ("fused_add_rms_norm", faulty_fused),
        ("silu_and_mul", faulty_silu),
        ("gelu_and_mul", faulty_gelu),
        ("rotary_embedding", faulty_rotary),
    ],
    ids=lambda part: part if type(part) is str else "",
)
def test_without_a_fault_the_same_implementation_passes(
    agreement: ModuleType, name: str, implementation: Callable[..., object]
):
    for dtype in FLOATS:
        agreement.check(name, implementation, agreement.CASES[name](dtype))


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_on_processors_with_shorter_vectors(capability: str):
    if capability == "avx2" and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this processor has no AVX2")
    # Nothing that runs Inductor: what it caches under one capability it also uses under others, which corrupts memory.
    folder = Path(__file__).parent
    names = ("build", "collectives", "compiled", "serving")
    others = [f"--ignore={folder / name}" for name in ("test_plugins.py", *(f"test_cpu_{name}.py" for name in names))]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *others, str(folder)]
    environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:]
