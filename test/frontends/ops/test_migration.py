"""Layers with one method per platform as ops, and their switches as priorities."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from vllm_ir.frontends.ops import IrOp, RegistrationError, ops, unregister
from vllm_ir.frontends.ops.migration import LayerMethod, priorities_of_custom_ops, register_layer_op
from vllm_ir.frontends.ops.torch_internals import find_overload
from vllm_ir.frontends.platforms import CpuPlatform, CudaPlatform, NeuronPlatform, Platform, RocmPlatform, XpuPlatform
from vllm_ir.tools.providers import kernels

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "migration-from-custom-ops.md"
RAN: list[str] = []

assert kernels  # registers the provider cpu


# An operator that had two overloads cannot be defined again in one process, torch would crash: names of ops in place
# are used once.
@pytest.fixture(autouse=True)
def no_new_ops() -> Iterator[None]:
    before = set(IrOp.registry)
    RAN.clear()
    yield
    for name in set(IrOp.registry) - before:
        unregister(IrOp.registry[name])


class Base(nn.Module):
    """Stands for a framework's base class: these methods are no layer's own."""

    def dispatch_forward(self) -> None: ...

    def forward_native(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward_cuda(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward_hip(self, x: Tensor) -> Tensor:
        return self.forward_cuda(x)


class Shift(Base):
    bias = 1.0

    def __init__(self) -> None:
        super().__init__()
        raise RuntimeError("ops make no layers")

    def twice(self) -> Tensor:
        return self.by * 2

    def forward_native(self, x: Tensor) -> Tensor:
        RAN.append("native")
        return x + self.twice() + self.bias

    @staticmethod
    def forward_cpu(x: Tensor) -> Tensor:
        RAN.append("cpu")
        return x.add_(3)


class ShiftAgain(Shift):
    def forward_cuda(self, x: Tensor) -> Tensor:
        return super().forward_native(x)


def shift(method: LayerMethod, x: Tensor, by: Tensor, again: bool = False) -> Tensor:
    """Adds something."""
    result = method(by=by)(x)
    return method(by=by)(result) if again else result


def test_methods_become_implementations() -> None:
    op = register_layer_op(Shift, name="migrated_inplace", allow_inplace=True, inplace={"cpu": True})(shift)
    assert op is ops.migrated_inplace
    assert str(op) == "IrOp('migrated_inplace'): Adds something."
    assert str(op.schema) == "vllm_ir::migrated_inplace(Tensor x, Tensor by, bool again=False) -> Tensor"
    assert list(op.impls) == ["native", "cpu"]
    assert op.impls["native"].location == f"{__file__}:{shift.__code__.co_firstlineno}"
    assert op.impls["cpu"].location == f"{__file__}:{Shift.forward_cpu.__code__.co_firstlineno}"
    x, by = torch.zeros(3), torch.ones(3)
    assert op(x, by).tolist() == [3.0] * 3
    with op.set_priority(["cpu"]):
        assert op(x, by, again=True).tolist() == [6.0] * 3
        assert x.tolist() == [0.0] * 3
        assert op.maybe_inplace(x, by).data_ptr() == x.data_ptr()
    assert RAN == ["native", "cpu", "cpu", "cpu"]
    with pytest.raises(AttributeError, match="has no attribute 'by'"):
        register_layer_op(Shift, name="migrated_other")(forgetful)(x)


def forgetful(method: LayerMethod, x: Tensor) -> Tensor:
    return method()(x)


def test_gradients_are_those_of_the_native_method() -> None:
    op = register_layer_op(Shift, name="migrated_shift")(shift)
    by = torch.ones(3, requires_grad=True)
    op(torch.zeros(3), by).sum().backward()
    assert by.grad is not None
    assert by.grad.tolist() == [2.0] * 3


def test_methods_of_parent_layers_count() -> None:
    op = register_layer_op(ShiftAgain, name="migrated_shift")(shift)
    assert set(op.impls) == {"native", "cpu", "cuda"}
    assert [provider for provider in op.impls if op.impls[provider].supported] == ["native", "cpu"]
    assert op.impls["cuda"].impl_fn(torch.zeros(1), torch.ones(1)).tolist() == [3.0]


def test_uuids_change_with_the_method_and_the_adapter() -> None:
    def uuid(layer: type, adapter: object = shift) -> str:
        op = register_layer_op(layer, name="migrated_shift")(adapter)
        try:
            return op.impls["cpu"].uuid()
        finally:
            unregister(op)

    def other(method: LayerMethod, x: Tensor, by: Tensor, again: bool = False) -> Tensor:
        return method(by=by * 2)(x)

    changed = type("Shift", (Shift,), {"forward_cpu": staticmethod(lambda x: x - 3)})
    same = type("Shift", (Shift,), {"forward_cpu": Shift.__dict__["forward_cpu"]})
    assert uuid(Shift) == uuid(Shift)
    assert len({uuid(same), uuid(changed), uuid(same, other)}) == 3


class Vendor(Platform):
    name = "vendor"


@pytest.mark.parametrize(
    ("platform", "methods", "supported"),
    [
        (CpuPlatform(), ("cpu", "cuda", "hip"), "cpu"),
        (CpuPlatform(), ("cuda", "hip"), None),
        (CudaPlatform(), ("cpu", "cuda", "hip"), "cuda"),
        (RocmPlatform(), ("cpu", "cuda", "hip"), "hip"),
        (RocmPlatform(), ("cpu", "cuda"), "cuda"),
        (XpuPlatform(), ("cuda", "xpu"), "xpu"),
        (NeuronPlatform(), ("cuda", "oot"), None),
        (Vendor(), ("cuda", "oot"), "oot"),
        (Vendor(), ("vendor", "oot"), "vendor"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_method_that_the_layer_would_call_is_supported(
    monkeypatch: pytest.MonkeyPatch, platform: Platform, methods: tuple[str, ...], supported: str | None
) -> None:
    monkeypatch.setattr("vllm_ir.frontends.ops.migration.detect", lambda: platform)
    layer = type("Layer", (), {f"forward_{name}": lambda self, x: x + 1 for name in ("native", *methods)})
    op = register_layer_op(layer, name="migrated_layer")(forgetful)
    assert set(op.supported_providers()) == {"native", supported} - {None}
    # What is switched on asks that method, and no other one that is supported.
    enabled = dict(priorities_of_custom_ops(["all"], platform=platform).priorities)["migrated_layer"]
    assert [p for p in enabled if op.impls[p].supported] == [p for p in (supported, "native") if p is not None]


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        (
            type("None_", (Base,), {"forward_cpu": shift}),
            {},
            r"has no method for 'native' of its own, only for \['cpu'\]",
        ),
        ({"cpu": shift}, {}, "has no method for 'native'"),
        (Shift, {"inplace": {"cuda": True}}, r"inplace names \['cuda'\], which are not among \['cpu', 'native'\]"),
        (Shift, {"inplace": {"native": True}}, r"inplace names \['native'\]"),
        (Shift, {"supports_args": {"hip": len}}, r"supports_args names \['hip'\]"),
        (Shift, {"inplace": {"cpu": True}}, "cannot be in place: the op was registered without allow_inplace=True"),
        (
            Shift,
            {"supports_args": {"cpu": lambda x: True}},
            "the number of parameters is 1, the native definition has 3",
        ),
    ],
)
def test_layers_that_are_refused(layer: type, options: dict[str, object], message: str) -> None:
    with pytest.raises(RegistrationError, match=message):
        register_layer_op(layer, name="migrated_shift", **options)(shift)
    assert "migrated_shift" not in ops
    assert find_overload("vllm_ir", "migrated_shift", "default") is None


def test_an_adapter_with_an_annotation_missing_is_named() -> None:
    def adapter(method: LayerMethod, x) -> Tensor:
        return method()(x)

    place = re.escape(f"({__file__}:{adapter.__code__.co_firstlineno})")
    with pytest.raises(RegistrationError, match=f"vllm_ir.adapter {place}: Parameter x must have a type annotation"):
        register_layer_op(Shift)(adapter)


def test_predicates_by_provider() -> None:
    takes = {"cpu": lambda x, by, again: x.dim() == 2}
    op = register_layer_op(Shift, name="migrated_predicates", allow_inplace=True, supports_args=takes)(shift)
    with op.set_priority(["cpu", "native"]):
        op(torch.zeros(3), torch.zeros(3))
        op(torch.zeros(3, 3), torch.zeros(3))
    assert RAN == ["native", "cpu"]


def order(custom_ops: list[str], op: str, **options: object) -> tuple[str, ...]:
    return dict(priorities_of_custom_ops(custom_ops, **options).priorities)[op]


def test_switches_become_priorities() -> None:
    on, off = ("cpu", "native"), ("native",)
    for switches, norm, gate in (
        (["all"], on, on),
        (["none"], off, off),
        (["none", "+rms_norm"], on, off),
        (["all", "-rms_norm"], off, on),
        (["all", "+rms_norm"], on, on),
        ([], on, on),
        (["-rms_norm"], off, on),
    ):
        assert (order(switches, "rms_norm"), order(switches, "silu_and_mul")) == (norm, gate), switches
    assert order([], "rms_norm", using_inductor=True) == off
    assert order(["+rms_norm"], "rms_norm", using_inductor=True) == on
    assert order(["all"], "rms_norm", using_inductor=True) == on
    assert order(["all"], "reduce_scatter") == off  # has no kernel
    assert set(dict(priorities_of_custom_ops(["none"]).priorities)) == set(ops)
    with priorities_of_custom_ops(["none", "+rms_norm"]).apply():
        assert ops.rms_norm.get_priority()[0] == "cpu"
        assert ops.silu_and_mul.get_priority() == ["native"]


def test_the_platforms_kernels_come_first() -> None:
    class Kernels(CpuPlatform):
        def kernel_providers(self) -> tuple[str, ...]:
            return ("absent", "fast")

    methods = dict.fromkeys(("native", "cpu", "other", "fast"), lambda self, x: x * 1)
    register_layer_op(methods, name="migrated_layer")(forgetful)
    assert order(["all"], "migrated_layer", platform=Kernels()) == ("fast", "cpu", "native")


def test_layers_of_other_names() -> None:
    layers = {"norm": ["rms_norm", "fused_add_rms_norm"], "rms_norm": [], "quant_fp8": []}
    found = dict(priorities_of_custom_ops(["none", "+norm", "+quant_fp8", "-rms_norm"], layers=layers).priorities)
    assert found["rms_norm"] == found["fused_add_rms_norm"] == ("cpu", "native")
    assert found["silu_and_mul"] == ("native",)


@pytest.mark.parametrize(
    ("switches", "layers", "message"),
    [
        (["all", "none"], {}, "custom_ops has both 'all' and 'none'; leave one out"),
        (["all", "+rms_norm", "-rms_norm"], {}, "custom_ops switches 'rms_norm' both on and off; leave one out"),
        (
            ["none", "+rms_norn"],
            {},
            r"'\+rms_norn' names the layer 'rms_norn', which is unknown; did you mean 'rms_norm'",
        ),
        (["none", "+zzz"], {}, "'zzz', which is unknown; there are all_gather, all_reduce, "),
        (["rms_norm"], {}, "'rms_norm' is no switch; write 'all', 'none', '\\+layer' or '-layer'"),
        ([""], {}, "'' is no switch"),
        (
            ["none"],
            {"norm": ["rms_nrom"]},
            "layer 'norm' became the op 'rms_nrom', which is unknown; did you mean 'rms",
        ),
        (["+a"], {"a": ["rms_norm"], "b": ["silu_and_mul"], "c": []}, None),
        (
            ["none", "+a"],
            {"a": ["rms_norm"], "b": ["rms_norm"]},
            "vllm_ir.rms_norm belongs to layers that are switched",
        ),
        (["none", "+fused_add_rms_norm"], {"n": ["fused_add_rms_norm"]}, "did you mean"),
    ],
)
def test_switches_that_are_refused(switches: list[str], layers: dict[str, list[str]], message: str | None) -> None:
    if message is None:
        priorities_of_custom_ops(switches, layers=layers)
        return
    with pytest.raises(ValueError, match=message):
        priorities_of_custom_ops(switches, layers=layers)


def test_a_string_of_switches_is_refused() -> None:
    with pytest.raises(TypeError, match="custom_ops must be a list of switches, got the string 'all'"):
        priorities_of_custom_ops("all")


def test_the_guide_runs() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    blocks = [
        (match.start(1), match[1]) for match in re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]
    assert len(blocks) >= 5
    # Where the blocks are in the page, so that a failure names its line.
    lines = "".join(
        "\n" * (text.count("\n", 0, start) - before) + code for start, code, before in _placed(text, blocks)
    )
    exec(compile(lines, str(GUIDE), "exec"), {"__name__": "guide"})


def _placed(text: str, blocks: list[tuple[int, str]]) -> Iterator[tuple[int, str, int]]:
    """Each block with the number of lines that come before it in what is compiled."""
    before = 0
    for start, code in blocks:
        yield start, code, before
        before = text.count("\n", 0, start) + code.count("\n")
