"""The key under which Inductor keeps a compiled graph: it changes with all that has a meaning, and with nothing else.

The key is read where Inductor makes it, and the compilation ends there.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch
import xdsl
from torch import Tensor
from torch._inductor.codecache import FxGraphCache

import vllm_ir as ir

PROGRAM = '''
def program(x, a, b):
    """Writes to `a`."""
    a.add_(1, alpha=2)
    # The caller does not need `x` any more.
    y = op.maybe_inplace(x, 3.0)
    return y.sin(), b.sum(dim=0)
'''
KERNELS = '''
def helper(x, factor):
    """A docstring."""
    return x * factor
def other(x):
    return x - 1
def predicate(x, factor):
    return x.dim() == 1
def kernel(x: Tensor, factor: float) -> Tensor:
    # A comment.
    return helper(x, factor) + 0.5
'''
Edit = tuple[str, str]
NO_EDIT = ("", "")


class _Known(Exception):
    """The key is known."""


def native(x: Tensor, factor: float) -> Tensor:
    """The op that the program calls."""
    return x * factor + 0.5


def kernels_from(text: str) -> ModuleType:
    module = ModuleType("cache_key_kernels")
    vars(module)["Tensor"] = Tensor
    sys.modules[module.__name__] = module  # where annotations are looked up
    exec(compile(text, "cache_key_kernels.py", "exec"), vars(module))
    return module


def arguments(dtype: torch.dtype = torch.float32, size: int = 4, distance: int | None = 2) -> tuple[Tensor, ...]:
    """Three tensors; `distance` elements apart, the last two share memory."""
    base = torch.zeros(20, dtype=dtype)
    a = base[:size]
    return torch.ones(size, dtype=dtype), a, torch.zeros_like(a) if distance is None else base[distance:][:size]


@pytest.fixture(scope="module")
def op() -> Iterator[ir.IrOp]:
    made = ir.register_op(name="cache_key_op", allow_inplace=True, batch_invariant=True)(native)
    yield made
    torch._dynamo.reset()
    ir.unregister(made)


@pytest.fixture
def key(op: ir.IrOp, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    found: list[str] = []
    original = FxGraphCache.prepare_key

    def prepare(*args: object, **kwargs: object) -> object:
        known, _ = original(*args, **kwargs)  # pyright: ignore[reportArgumentType]  # handed through
        assert known is not None, "Inductor does not keep the graph"
        found.append(known[0])
        raise _Known

    monkeypatch.setattr(FxGraphCache, "prepare_key", staticmethod(prepare))

    def of(
        program: Edit = NO_EDIT,
        kernels: Edit = NO_EDIT,
        given: tuple[Tensor, ...] | None = None,
        priority: tuple[str, ...] = ("first",),
        options: Mapping[str, object] | None = None,
    ) -> str:
        for text, (old, _) in ((PROGRAM, program), (KERNELS, kernels)):
            assert not old or text.count(old) == 1, old
        made = kernels_from(KERNELS.replace(*kernels) if kernels[0] else KERNELS)
        for provider in ("first", "second"):
            op.register_impl(provider, supports_args=made.predicate, batch_invariant=True)(made.kernel)
        scope: dict[str, object] = {"op": op}
        exec(compile(PROGRAM.replace(*program) if program[0] else PROGRAM, "program.py", "exec"), scope)
        torch._dynamo.reset()
        given_options = {"ir_op_priority": {"cache_key_op": [*priority]}, **(options or {})}
        compiled = torch.compile(scope["program"], backend="vllm_ir", options=given_options)  # pyright: ignore[reportArgumentType, reportUnknownVariableType, reportCallIssue]  # made from text
        try:
            with torch.no_grad(), pytest.raises(Exception, match="_Known") as ended:
                compiled(*(arguments() if given is None else given))
        finally:
            for provider in ("first", "second"):
                op.remove_impl(provider)
        assert found, f"Inductor was not asked: {ended.value}"
        return found.pop()

    yield of
    torch._dynamo.reset()


@pytest.fixture(scope="module")
def known() -> dict[str, str]:
    return {}


@pytest.fixture
def before(key: Callable[..., str], known: dict[str, str]) -> str:
    """The key without any change; made once."""
    if not known:
        known["key"] = key()
    return known["key"]


SEMANTIC: dict[str, dict[str, object]] = {
    "an operand": {"program": ("y.sin()", "a.sin()")},
    "an operator": {"program": ("y.sin()", "y.cos()")},
    "an attribute": {"program": ("alpha=2", "alpha=3")},
    "an attribute of the op": {"program": ("3.0", "4.0")},
    "what is donated": {"program": ("op.maybe_inplace", "op")},
    "what is returned": {"program": ("y.sin(), b", "b, y.sin()")},
    "a dtype": {"given": arguments(dtype=torch.float64)},
    "a size": {"given": arguments(size=5)},
    "no shared memory": {"given": arguments(distance=None)},
    "memory that is shared otherwise": {"given": arguments(distance=1)},
    "a helper, with the same trace": {"kernels": ("x * factor", "x.mul(factor)")},
    "a helper": {"kernels": ("x * factor", "x / factor")},
    "the kernel": {"kernels": ("+ 0.5", "- 0.5")},
    "the predicate": {"kernels": ("x.dim() == 1", "x.dim() < 3")},
    "the provider": {"priority": ("second",)},
    "a provider behind the one that is chosen": {"priority": ("first", "second")},
    "the pipeline": {"options": {"passes": "functionalize,lower"}},
    "an option of Inductor": {"options": {"max_fusion_size": 3}},
    "batch invariance": {"options": {"batch_invariant": True}},
}
MEANINGLESS: dict[str, dict[str, object]] = {
    "nothing": {},
    "a name": {"program": ("y = op.maybe_inplace(x, 3.0)\n    return y", "z = op.maybe_inplace(x, 3.0)\n    return z")},
    "a place": {"program": ("    a.add_", "\n\n\n    a.add_")},
    "a comment of the program": {"program": ("# The caller does", "# Whoever calls does")},
    "a docstring of the program": {"program": ("Writes to", "Adds to")},
    "a comment": {"kernels": ("# A comment.", "# Another comment.\n")},
    "a docstring": {"kernels": ("A docstring.", "Another one.")},
    "another function": {"kernels": ("x - 1", "x - 2")},
    "formatting": {"kernels": ("x * factor", "(x *\n            factor)")},
}


@pytest.mark.parametrize("changes", SEMANTIC.values(), ids=SEMANTIC)
def test_what_means_something_changes_it(key: Callable[..., str], before: str, changes: dict[str, object]) -> None:
    assert key(**changes) != before


@pytest.mark.parametrize("changes", MEANINGLESS.values(), ids=MEANINGLESS)
def test_what_means_nothing_does_not(key: Callable[..., str], before: str, changes: dict[str, object]) -> None:
    assert key(**changes) == before


@pytest.mark.parametrize("package", [torch, xdsl], ids=lambda package: package.__name__)
def test_versions_change_it(
    key: Callable[..., str], before: str, package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package, "__version__", "2.13.9")
    assert key() != before


def test_our_own_sources_change_it(key: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    for number, text in enumerate(("a = 1", "a = 2", "a = 1")):
        folder = tmp_path / str(number) / "conversions"
        folder.mkdir(parents=True)
        (folder / "made_up.py").write_text(text)
        monkeypatch.setattr("vllm_ir.tools.cache_key._FOLDERS", (folder,))
        keys.append(key())
    assert keys[0] == keys[2] != keys[1]
