"""Providers of other projects' kernels, against stand-ins for their libraries: `standins/`."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from vllm_ir.backends.kernels import aiter_kernels, vllm_c, xpu_kernels
from vllm_ir.backends.kernels.external import ExternalLibrary
from vllm_ir.frontends.ops import ops
from vllm_ir.frontends.platforms import CpuPlatform

STANDINS = Path(__file__).with_name("standins")
PLATFORM = """
from vllm_ir.frontends.platforms import Platform

class Standin(Platform):
    name = "standin"
    device_type = {device_type!r}

    @classmethod
    def is_available(cls):
        return True

    def kernel_providers(self):
        return {providers!r}
"""


def install_platform(directory: Path, device_type: str, *providers: str) -> None:
    """What `pip install` leaves of a distribution with a platform that asks providers for a type of device."""
    (directory / "standin_platform.py").write_text(PLATFORM.format(device_type=device_type, providers=providers))
    metadata = directory / "standin_platform-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: standin-platform\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[vllm_ir.platforms]\nstandin = standin_platform:Standin\n")


def run(*command: str, path: tuple[Path, ...], **variables: str) -> None:
    """Run Python with directories in front of its path."""
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, env=environment, cwd=STANDINS.parent
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_calls_and_choice(tmp_path: Path):
    install_platform(tmp_path, "cpu", "vllm_c", "aiter", "xpu_kernels")
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", str(STANDINS / "calls.py"), path=(STANDINS, tmp_path))


ON_ANOTHER_DEVICE = """
import sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from vllm_ir.backends.kernels import aiter_kernels, vllm_c, xpu_kernels
from vllm_ir.tools.providers import ops

mode = FakeTensorMode()

def elsewhere(arg):
    if not isinstance(arg, torch.Tensor):
        return arg
    with mode:
        return torch.empty(arg.shape, dtype=arg.dtype, device="cuda")

assert vllm_c.unsupported_reason() is aiter_kernels.unsupported_reason() is None
found = {(p, name): impl for name in ops for p, impl in ops[name].impls.items() if p not in ("native", "cpu")}
assert len(found) == 18, found
for (provider, name), impl in found.items():
    args = ops[name].generate_inputs()
    assert not impl.supports_args(*args), impl
    assert impl.supported == impl.supports_args(*map(elsewhere, args)) == (provider != "xpu_kernels"), impl
    with ops[name].set_priority([provider, "native"]):
        ops[name](*args)
assert xpu_kernels.unsupported_reason() == "the platform 'standin' does not name 'xpu_kernels' among its providers"
assert not {"vllm", "aiter", "vllm_xpu_kernels"} & set(sys.modules)

# The stand-in is one for an older release, which takes fewer arguments.
for name in ("rotary_embedding", "static_scaled_fp8_quant", "per_token_group_fp8_quant"):
    args = [elsewhere(arg) for arg in ops[name].generate_inputs()]
    with mode:
        results = found["vllm_c", name](*args)
    assert all(result.device.type == "cuda" for result in (results if isinstance(results, tuple) else [results]))
assert "vllm" in sys.modules
"""


def test_tensors_are_theirs_on_their_devices_only(tmp_path: Path):
    install_platform(tmp_path, "cuda", "vllm_c", "aiter")
    run("-c", ON_ANOTHER_DEVICE, path=(STANDINS, tmp_path), STANDIN_IS_OLD="1")


@pytest.mark.parametrize("provider", ["vllm_c", "aiter", "xpu_kernels"])
def test_nothing_is_there_without_the_libraries(provider: str):
    """This process finds none of them."""
    ours = [ops[name] for name in ops if ops[name].native.__module__.startswith("vllm_ir.")]
    assert not [op for op in ours if provider in op.impls]  # ops of other tests have providers of these names
    with pytest.raises(ValueError, match=f"no implementation by '{provider}'; known providers: native, cpu"):
        ops.rms_norm.set_default([provider])
    assert not {"vllm", "aiter", "vllm_xpu_kernels"} & set(sys.modules)
    families = {"vllm_c": vllm_c, "aiter": aiter_kernels, "xpu_kernels": xpu_kernels}
    reason = families[provider].unsupported_reason()
    assert reason is not None
    assert " is not installed, or has none of its modules " in reason


class MineNamed(CpuPlatform):
    def kernel_providers(self) -> Sequence[str]:
        return ("mine",)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ExternalLibrary]:
    """A package, which must not be imported for nothing, with an extension whose source a test writes."""
    (tmp_path / "external_package").mkdir()
    (tmp_path / "external_package/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield ExternalLibrary("mine", "external_package", ("_A", "_B"))
    for name in [name for name in sys.modules if name.startswith("external_package")]:
        del sys.modules[name]


def on_a_platform_that_names_it(library: ExternalLibrary, monkeypatch: pytest.MonkeyPatch) -> ExternalLibrary:
    monkeypatch.setattr("vllm_ir.backends.kernels.external.library.detect", MineNamed)
    return library


def test_a_package_without_its_modules_is_another_one(library: ExternalLibrary):
    assert library.present == ()
    assert library.unsupported_reason == "external_package is not installed, or has none of its modules _A, _B"
    assert "external_package" not in sys.modules


def test_a_module_without_a_spec_is_no_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "external_package", ModuleType("external_package"))
    assert ExternalLibrary("mine", "external_package", ("_A",)).present == ()


def test_a_platform_that_does_not_name_it_does_not_load_it(library: ExternalLibrary, tmp_path: Path):
    (tmp_path / "external_package/_B.py").write_text("1 / 0")
    assert library.present == ("external_package._B",)
    assert "external_package" not in sys.modules
    with pytest.raises(RuntimeError, match="the platform 'cpu' does not name 'mine' among its"):
        library.require("_C", "rms_norm")
    assert "external_package" not in sys.modules


def test_a_broken_library_is_named(library: ExternalLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "external_package/_B.py").write_text("raise OSError('no such symbol')")
    message = (
        "^provider 'mine': import of external_package._B raised OSError: no such symbol; repair external_package, or "
        "leave 'mine' out of the priorities$"
    )
    with pytest.raises(RuntimeError, match=message):
        on_a_platform_that_names_it(library, monkeypatch).require("_C", "rms_norm")


def test_a_missing_operator_is_named(library: ExternalLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "external_package/_B.py").touch()
    message = (
        "^provider 'mine': external_package of an unknown version registers no operator external_kernels::norm; leave "
        "'mine' out of the priorities of this op$"
    )
    with pytest.raises(RuntimeError, match=message):
        on_a_platform_that_names_it(library, monkeypatch).require("external_kernels", "norm")
