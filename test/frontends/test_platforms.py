"""Platforms: which one this is, and what it asks first."""

import os
import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
import torch
from torch import Tensor

import vllm_ir as ir
from vllm_ir.frontends.ops import IrOpPriorityConfig, register_op
from vllm_ir.frontends.ops import priority as priorities
from vllm_ir.frontends.platforms import (
    CpuPlatform,
    CudaPlatform,
    NeuronPlatform,
    Platform,
    RocmPlatform,
    XpuPlatform,
    current,
    detect,
)


@register_op
def platforms_op(x: Tensor) -> Tensor:
    return x + 1


for _provider in ("vllm_c", "aiter", "mine"):
    platforms_op.register_impl(_provider, supports_args=lambda x: x.dim() == 1)(platforms_op.native)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch):
    """Puts another platform in the place of this machine's."""
    return lambda platform: monkeypatch.setattr(priorities, "detect", lambda: platform)


def test_this_machine() -> None:
    assert isinstance(ir.current_platform, CpuPlatform)
    assert ir.current_platform.is_cpu()
    assert not ir.current_platform.is_cuda_alike()
    assert not ir.current_platform.is_out_of_tree()
    assert repr(ir.current_platform) == "<platform cpu>"
    with pytest.raises(AttributeError, match="no attribute 'current_platfrom'"):
        _ = ir.frontends.platforms.current_platfrom


@pytest.mark.parametrize(
    ("platform", "eager"),
    [
        (CpuPlatform(), []),
        (CudaPlatform(), ["vllm_c", "native"]),
        (RocmPlatform(), ["aiter", "vllm_c", "native"]),
        (XpuPlatform(), []),  # nobody has registered xpu_kernels
        (NeuronPlatform(), []),
    ],
    ids=repr,
)
def test_native_first_under_inductor_kernels_first_without(on, platform: Platform, eager: list[str]) -> None:
    on(platform)
    assert platforms_op.get_priority() == eager
    with priorities.using_inductor(True):
        assert platforms_op.get_priority() == []
    with IrOpPriorityConfig(platforms_op=["mine", "vllm_c"]).apply():
        assert platforms_op.get_priority() == ["mine", "vllm_c", *(p for p in eager if p == "aiter"), "native"]
    with priorities.using_inductor(True), IrOpPriorityConfig(platforms_op=["mine"]).apply():
        assert platforms_op.get_priority() == ["mine", "native"]
    with platforms_op.set_priority(["native"]):
        assert platforms_op.get_priority() == ["native"]


def test_kinds() -> None:
    assert CudaPlatform().is_cuda_alike()
    assert RocmPlatform().is_cuda_alike()
    assert RocmPlatform().device_type == "cuda"
    assert XpuPlatform().is_xpu()
    assert NeuronPlatform().is_neuron()
    assert not any(kind.is_available() for kind in (Platform, CudaPlatform, RocmPlatform, XpuPlatform, NeuronPlatform))


class Vendor(Platform):
    name = "vendor"
    available = True

    @classmethod
    def is_available(cls) -> bool:
        return cls.available

    def kernel_providers(self) -> list[str]:
        return ["mine"]


class Other(Vendor):
    name = "other"


class Absent(Vendor):
    available = False


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """What other distributions bring along, as entry points that name something in this file."""

    class Point(EntryPoint):
        def load(self) -> object:
            return {"Vendor": Vendor, "Other": Other, "Absent": Absent, "Tensor": Tensor}[self.name]

    def install(*names: str) -> None:
        points = [Point(name, f"test:{name}", current.GROUP) for name in names]
        monkeypatch.setattr(current, "entry_points", lambda group: points)
        detect.cache_clear()

    yield install
    monkeypatch.undo()
    detect.cache_clear()


def test_a_vendors_platform_comes_first(installed) -> None:
    installed("Absent", "Vendor")
    assert isinstance(detect(), Vendor)
    assert detect().is_out_of_tree()
    assert platforms_op.get_priority() == ["mine", "native"]
    installed("Absent")
    assert isinstance(detect(), CpuPlatform)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["Vendor", "Other"], r"2 platforms are available at once: 'Vendor' \(test:Vendor\), 'Other' \(test:Other\)"),
        (["Tensor"], "entry point 'Tensor' .* must be a subclass of vllm_ir.Platform, is <class"),
        (["Missing"], "entry point 'Missing' .* raised KeyError: 'Missing'; repair or uninstall its package"),
    ],
)
def test_platforms_that_cannot_be(installed, names: list[str], message: str) -> None:
    installed(*names)
    with pytest.raises(RuntimeError, match=message):
        detect()


ENVIRONMENT = """
import torch
import vllm_ir as ir

@ir.ops.silu_and_mul.register_impl("mine")
def mine(x: torch.Tensor) -> torch.Tensor:
    return x[..., ::2] * 0 + 7

with ir.ops.silu_and_mul.set_priority(["native"]):
    assert ir.ops.silu_and_mul(torch.ones(2)).item() != 7
print(ir.ops.silu_and_mul.get_priority(), ir.ops.silu_and_mul(torch.ones(2)).item())
got = torch.compile(lambda x: ir.ops.silu_and_mul(x), backend="vllm_ir_eager")(torch.ones(2))
print(got.item(), ir.compile_reports()[-1].selected_impls)
"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("silu_and_mul=mine", "['mine'] 7.0\n7.0 {'silu_and_mul': {'silu_and_mul_default': 'mine'}}\n"),
        (" silu_and_mul = mine , native ; rms_norm=native;", "['mine'] 7.0\n7.0 {'silu_and_mul'"),
        (
            "silu_and_mul=mien",
            "vllm_ir.silu_and_mul: no implementation by 'mien'; known providers: native, cpu, mi",
        ),
        ("silu_and_mul", "VLLM_IR_OP_PRIORITY: expected 'op=provider,provider;…', got 'silu_and_mul'"),
        ("rms_norm=cpu;rms_norm=native", "VLLM_IR_OP_PRIORITY: op 'rms_norm' is named twice"),
        ("rms_norm=cpu,cpu", "priority names 'cpu' more than once"),
    ],
)
def test_the_environment_names_providers(value: str, expected: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ENVIRONMENT],
        capture_output=True,
        text=True,
        env={**os.environ, priorities.VARIABLE: value},
        check=False,
    )
    assert expected in ran.stdout + ran.stderr, ran.stderr


def test_any_command_line_can_name_providers(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ir.PriorityArgumentParser(prog="tool")
    parser.add_argument("--layers", type=int)
    options = parser.parse_args(
        ["--ir-op-priority.rms_norm=cpu,native", "--layers", "3", "--ir-op-priority.silu_and_mul", "cpu"]
    )
    assert options.layers == 3
    assert options.ir_op_priority == {"rms_norm": ("cpu", "native"), "silu_and_mul": ("cpu",)}
    config = IrOpPriorityConfig(**options.ir_op_priority)
    with config.apply():
        assert ir.ops.silu_and_mul.get_priority() == ["cpu", "native"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--ir-op-priority.rms_norm="])
    assert "write --ir-op-priority.OP=PROVIDER,PROVIDER" in capsys.readouterr().err
    assert "--ir-op-priority.OP PROVIDER,..." in parser.format_help()
    assert torch.is_tensor(ir.ops.silu_and_mul(torch.ones(2)))
