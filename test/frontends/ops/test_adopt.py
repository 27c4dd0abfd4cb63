"""Another package that defines operators of the namespace: whoever is second adopts, in fresh processes."""

import subprocess
import sys
from pathlib import Path

REGISTRY = '''
"""A registry of the shape of vLLM's, which adopts operators that exist."""
import contextlib
import torch

library = torch.library.Library("vllm_ir", "FRAGMENT")


class IrOp:
    registry = {}

    def __init__(self, name, native, activations, inplace):
        self.name, self.activations, self.priority, self.impls = name, activations, [], {}
        self.impls["native"] = IrOpImpl("native", native)
        second = hasattr(torch.ops.vllm_ir, name)
        self.torch_op = self.overload("default", native, [], second)
        self.maybe_inplace = self.overload("maybe_inplace", native, activations, second) if inplace else None
        IrOp.registry[name] = self
        if second:
            import vllm_ir

            vllm_ir.adopt({name: self})

    def overload(self, overload, native, written, second):
        name = self.name if overload == "default" else f"{self.name}.{overload}"
        if not second:
            library.define(name + torch.library.infer_schema(native, mutates_args=written))
            library.impl(name, self.call, "CompositeExplicitAutograd")
            library._register_fake(name, native)
        return getattr(getattr(torch.ops.vllm_ir, self.name), overload)

    def __call__(self, *args):
        return self.torch_op(*args)

    def call(self, *args):
        return self.impls[(self.priority or ["native"])[0]].impl_fn(*args)

    def get_priority(self):
        return self.priority

    @contextlib.contextmanager
    def set_priority(self, priority):
        before, self.priority = self.priority, priority
        yield
        self.priority = before

    def register_impl(self, provider, supports_args=None, inplace=False):
        def register(fn):
            self.impls[provider] = IrOpImpl(provider, fn, supports_args, inplace)
            return fn

        return register


class IrOpImpl:
    supported = True

    def __init__(self, provider, impl_fn, supports_args=None, inplace=False):
        self.provider, self.impl_fn, self._supports_args, self.inplace = provider, impl_fn, supports_args, inplace
        self.supports_all_args = supports_args is None

    def supports_args(self, *args):
        return self.supports_all_args or self._supports_args(*args)


def register_op(activations=("x",), inplace=False):
    return lambda native: IrOp(native.__name__, native, list(activations), inplace)
'''

OPS = """
from torch import Tensor
from .op import register_op

@register_op(["x", "x_residual"], inplace=True)
def stand_in_add(x: Tensor, x_residual: Tensor, by: float = 2.0) -> tuple[Tensor, Tensor]:
    return x + x_residual * by, x_residual * by

@stand_in_add.register_impl("theirs", supports_args=lambda x, x_residual, by: by != 4.0, inplace=True)
def theirs(x: Tensor, x_residual: Tensor, by: float = 2.0) -> tuple[Tensor, Tensor]:
    RAN.append("theirs")
    return x.add_(x_residual.mul_(by)), x_residual

@register_op()
def rms_norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    raise NotImplementedError

@rms_norm.register_impl("cpu")
def norm_of_a_taken_name(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    raise NotImplementedError

@rms_norm.register_impl("theirs")
def norm(x: Tensor, weight: Tensor | None, epsilon: float, variance_size: int | None = None) -> Tensor:
    RAN.append("norm")
    return x * 3

RAN = []
"""

MORE_KERNELS = """
from torch import Tensor
from .ops import RAN, stand_in_add

@stand_in_add.register_impl("late")
def late(x: Tensor, x_residual: Tensor, by: float = 2.0) -> tuple[Tensor, Tensor]:
    RAN.append("late")
    return x + x_residual * by, x_residual * by
"""

OURS = """
import torch
from torch import Tensor
import vllm_ir as ir
from vllm_ir.frontends.ops import donates, get_op

@ir.register_op(allow_inplace=True)
def stand_in_add(x: Tensor, x_residual: Tensor, by: float = 2.0) -> tuple[Tensor, Tensor]:
    return x + x_residual * by, x_residual * by

@stand_in_add.register_impl("ours")
def ours(x: Tensor, x_residual: Tensor, by: float = 2.0) -> tuple[Tensor, Tensor]:
    ops.RAN.append("ours")
    return x + x_residual * by, x_residual * by
"""

CHECKS = """
torch.set_grad_enabled(False)
theirs, mine = ops.stand_in_add, ir.ops.stand_in_add
assert list(mine.impls) == ["native", "theirs", "ours"] or list(mine.impls) == ["native", "ours", "theirs"], mine.impls
assert mine.native is not theirs.impls["native"].impl_fn
assert mine.impls["theirs"].written == ("x", "x_residual")
assert mine.torch_op is theirs.torch_op is torch.ops.vllm_ir.stand_in_add.default
assert mine.maybe_inplace.torch_op is theirs.maybe_inplace
assert get_op(theirs.torch_op) is get_op(theirs.maybe_inplace) is mine and donates(theirs.maybe_inplace)

def same(results, x, residual, by=2.0):
    return torch.equal(results[0], x + residual * by) and torch.equal(results[1], residual * by)

def ran(call, *args):
    ops.RAN.clear()
    x, residual = torch.randn(3, 4), torch.randn(3, 4)
    before = x.clone(), residual.clone()
    assert same(call(x, residual, *args), *before, *args)
    assert torch.equal(x, before[0]) and torch.equal(residual, before[1])
    return list(ops.RAN)

# Eager: the same choice through either op and through torch, and copies of what their kernel writes.
calls = mine, theirs, torch.ops.vllm_ir.stand_in_add
for call in calls:
    assert ran(call) == []
    with mine.set_priority(["theirs", "ours"]):
        assert ran(call) == ["theirs"]
        assert ran(call, 4.0) == ["ours"]  # refused by their supports_args
    with mine.set_priority(["ours"]):
        assert ran(call) == ["ours"]
    with theirs.set_priority(["theirs", "native"]):  # theirs counts where we have none
        assert ran(call) == ["theirs"]
        with mine.set_priority(["ours"]):
            assert ran(call) == ["ours"]
x, residual = torch.ones(2), torch.ones(2)
with mine.set_priority(["theirs"]):
    assert theirs.maybe_inplace(x, residual)[0].data_ptr() == x.data_ptr()
assert x.tolist() == [3.0, 3.0]
with torch.enable_grad():
    x.requires_grad_()
    theirs(x, residual)[0].sum().backward()
assert x.grad.tolist() == [1.0, 1.0]

# Implementations that are registered later.
from other_package import more_kernels
assert mine.supported_providers()[-1] == "late"
with mine.set_priority(["late"]):
    assert ran(theirs) == ["late"]

# Compiled: one graph, lowered by the same priorities.
def program(x, residual):
    y, new = ops.stand_in_add(x, residual)
    return y.relu(), new

def compiled(priority, backend="vllm_ir_eager"):
    torch._dynamo.reset()
    ir.clear_compile_reports()
    x, residual = torch.randn(3, 4), torch.randn(3, 4)
    options = {"ir_op_priority": priority}
    y, new = torch.compile(program, backend=backend, options=options, fullgraph=True)(x, residual)
    assert torch.equal(y, (x + residual * 2).relu()) and torch.equal(new, residual * 2)
    (report,) = ir.compile_reports()
    return list(report.selected_impls["stand_in_add"].values())

assert compiled({}) == ["native"]
assert compiled({"stand_in_add": ["theirs"]}) == ["theirs"]
assert compiled({"stand_in_add": ["ours", "theirs"]}) == ["ours"]
with theirs.set_priority(["late"]):
    assert compiled({}) == ["late"]
"""

NORMS = """
# An op of ours, of which the other package has no maybe_inplace: our definition, our kernels, theirs beside them.
norm, x = ir.ops.rms_norm, torch.randn(3, 4)
assert get_op(ops.rms_norm.torch_op) is norm and donates(norm.maybe_inplace.torch_op)
assert norm.native is not ops.rms_norm.impls["native"].impl_fn
assert list(norm.impls)[0] == "native" and {"cpu", "theirs"} <= set(norm.impls)
assert norm.impls["cpu"].impl_fn is not ops.rms_norm.impls["cpu"].impl_fn
assert torch.equal(ops.rms_norm(x, None, 1e-5), norm.native(x, None, 1e-5))
with norm.set_priority(["theirs"]):
    assert torch.equal(ops.rms_norm(x, None, 1e-5), x * 3) and torch.equal(norm(x, None, 1e-5), x * 3)
"""


REFUSED = """
def refused(register):
    try:
        register()
    except ir.RegistrationError as error:
        return print(error)
    raise SystemExit("not refused")
"""

UNEQUAL = (
    ("x: Tensor, y: float = 1.0", "x: Tensor, y: float = 2.0"),
    ("x: Tensor, y: float = 1.0", "x: Tensor, y: float"),
    ("x: Tensor, y: float = 1.0", "x: Tensor, z: float = 1.0"),
    ("x: Tensor, y: float = 1.0", "x: Tensor, y: int = 1"),
    ("x: Tensor, x_other: Tensor", "x: Tensor, x_other: Tensor | None"),
    ("x: Tensor, x_mine: Tensor", "x: Tensor, x_mine: Tensor"),
)
"""Parameters in the other package, whose only activation is x, and in ours."""


def natives(side: int, before: str = "") -> str:
    """Native definitions of ops with unequal schemas, in the other package (0) or here (1)."""
    return "".join(
        f"{before}\ndef unequal_{i}({p[side]}) -> Tensor:\n    return x * 1\n" for i, p in enumerate(UNEQUAL)
    )


def run(directory: Path, code: str, more_ops: str = "") -> list[str]:
    """Run code in a process of its own, where `other_package` can be imported; gives the lines of its output."""
    package = directory / "other_package"
    package.mkdir()
    files = {"__init__.py": "", "op.py": REGISTRY, "ops.py": OPS + more_ops, "more_kernels.py": MORE_KERNELS}
    for name, text in files.items():
        (package / name).write_text(text)
    script = directory / "script.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Overriding a previously registered kernel" not in done.stderr
    return done.stdout.splitlines()


def test_the_other_package_comes_first(tmp_path: Path):
    refusals = natives(1) + REFUSED
    for i in range(len(UNEQUAL)):
        refusals += (
            f"refused(lambda: ir.register_op(allow_inplace=True)(unequal_{i}))\nassert 'unequal_{i}' not in ir.ops\n"
        )
    gone = """
assert torch.equal(ops.unequal_0(torch.ones(2)), torch.ones(2))  # untouched
ir.unregister(mine)
with theirs.set_priority(["theirs"]):
    assert same(theirs(torch.ones(2), torch.ones(2)), torch.ones(2), torch.ones(2))  # runs by itself again
assert ops.RAN[-1] == "theirs" and get_op(theirs.torch_op) is None
"""
    code = "from other_package import ops\n" + OURS + CHECKS + NORMS + refusals + gone
    first, *_, last = lines = run(tmp_path, code, natives(0, "@register_op(inplace=True)"))
    assert len(lines) == len(UNEQUAL)
    assert first.startswith("vllm_ir.unequal_0: another package has defined the overload default with the schema ")
    assert "(Tensor x, float y=1.) -> Tensor (registered at " in first
    assert "other_package/op.py:" in first
    assert "does not match (Tensor x, float y=2.) -> Tensor of the native definition (" in first
    assert "script.py:" in first
    assert "overload maybe_inplace with the schema (Tensor(a0!) x, Tensor x_mine) -> Tensor" in last
    assert "does not match (Tensor(a0!) x, Tensor(a1!) x_mine) -> Tensor" in last


def test_the_other_package_comes_second(tmp_path: Path):
    ours = OURS + natives(1, "@ir.register_op(allow_inplace=True)") + REFUSED
    refusals = "from other_package.op import register_op\n" + natives(0)
    for i in range(len(UNEQUAL)):
        refusals += (
            f"refused(lambda: register_op(inplace=True)(unequal_{i}))\nassert ir.ops.unequal_{i}.foreign is None\n"
        )
    first, *_, last = lines = run(tmp_path, ours + "from other_package import ops\n" + CHECKS + NORMS + refusals)
    assert len(lines) == len(UNEQUAL)
    assert first.startswith("vllm_ir.unequal_0: another registry has the schema (Tensor x, float y=1.) -> Tensor (")
    assert "which does not match (Tensor x, float y=2.) -> Tensor (" in first
    assert first.count("script.py:") == 2
    assert "has the activations ['x'] (" in last
    assert "which do not match ['x', 'x_mine'] (" in last


def test_ops_that_only_the_other_package_has(tmp_path: Path):
    """They become ours with `adopt`; of an operator that no registry shows, the kernels are replaced with a warning."""
    code = """
import logging, sys
from other_package import op, ops
import torch, vllm_ir as ir
from torch import Tensor
from vllm_ir.frontends.ops import get_op
logging.basicConfig(stream=sys.stdout, format="%(message)s")
assert "stand_in_add" not in ir.ops and get_op(ops.stand_in_add.torch_op) is None
registry = op.IrOp.registry
(mine, norm) = ir.adopt(registry)
assert norm is ir.ops.rms_norm and mine is ir.ops.stand_in_add and get_op(ops.stand_in_add.torch_op) is mine
assert mine.activations == ("x", "x_residual") and mine.allow_inplace
before = [op.foreign for op in (mine, norm)]
assert ir.adopt(registry) == [mine, norm] and [op.foreign for op in (mine, norm)] == before  # again: no change
with mine.set_priority(["theirs", "native"]):
    assert ops.stand_in_add(torch.ones(1), torch.ones(1))[0].tolist() == [3.0]
assert ir.adopt(ir.IrOp.registry) == []
for wrong, kind in ({"rms_norm": object()}, TypeError), ({"silu_and_mul": ops.rms_norm}, ir.RegistrationError):
    try:
        ir.adopt(wrong)
    except kind as error:
        print(error)

library = torch.library.Library("vllm_ir", "FRAGMENT")
library.define("for_one_device(Tensor x) -> Tensor")
library.impl("for_one_device", lambda x: x + 1, "CPU")

@ir.register_op
def for_one_device(x: Tensor) -> Tensor:
    return x + 2

assert torch.ops.vllm_ir.for_one_device(torch.zeros(1)).item() == ir.ops.for_one_device(torch.zeros(1)).item() == 2
assert torch.ops.vllm_ir.for_one_device(torch.zeros(3, device="meta")).shape == (3,)
ir.unregister(for_one_device)
assert torch.ops.vllm_ir.for_one_device(torch.zeros(1)).item() == 1
"""
    not_an_op, another, unknown, *_ = run(tmp_path, code)
    assert not_an_op.startswith("vllm_ir.rms_norm: <object object at 0x")
    assert not_an_op.endswith("it needs torch_op, activations, get_priority and impls with a native implementation")
    assert another == (
        "vllm_ir.silu_and_mul: torch_op of the other registry is vllm_ir.rms_norm.default, not "
        "vllm_ir.silu_and_mul.default"
    )
    assert unknown.startswith("vllm_ir.for_one_device: another package has defined this operator, and no registry has")
