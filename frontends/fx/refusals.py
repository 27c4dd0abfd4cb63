"""What only eager's kernels know about a call: whether they take its element types, and how they lay out the results.

Fake tensors know the rules of promotion, but not which types a kernel takes (`softmax` of integers, `round` of bools),
and for some operators (`copysign`) they give other strides than the kernels. So each kind of call runs once on a few
plain numbers.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.torch_internals import SYMBOLIC_TYPES, hint, storage_id
from vllm_ir.frontends.fx.torch_objects import is_overload

_MAX_BYTES = 1 << 18
"""Operands of one call that are larger are not tried out: it would take time that compiling does not have."""

_ABOUT_TYPES = re.compile(r"\bd?types?\b|\bscalar type|\bbool\b|\b[Ii]ntegers?\b")
"""What refusals of an element type say; others may be about values, which are not those of the program."""

_MODULES = ("torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "_operator")
_FILLS = (0, 1)

Strides = tuple[int, ...]


@dataclass(frozen=True)
class _Window:
    """A tensor on the CPU, without its contents."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def span(self) -> int:
        """Elements from the first to the last."""
        if 0 in self.sizes:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides, strict=True))

    @property
    def layout(self) -> list[int]:
        """The strides that lead somewhere: not those of dimensions of size 1, nor any in an empty tensor."""
        steps = [stride for size, stride in zip(self.sizes, self.strides, strict=True) if size != 1]
        return [] if 0 in self.sizes else steps

    def filled(self, fill: int) -> torch.Tensor:
        """A tensor like this, full of one number."""
        return torch.full((self.span,), fill).to(self.dtype).as_strided(self.sizes, self.strides)


@dataclass(frozen=True)
class _Slice:
    """A slice of constants; Python's own cannot be hashed."""

    start: int | None
    stop: int | None
    step: int | None


@dataclass(frozen=True)
class _Call:
    """What a call node does, as far as element types matter."""

    op: str
    target: str | Callable[..., object]
    leaves: tuple[object, ...]
    structure: pytree.TreeSpec


class EagerCalls:
    """The different calls of a graph, noted while it is traced, to be tried out afterwards."""

    def __init__(self) -> None:
        self._calls: dict[_Call, list[fx.Node]] = {}
        self._results: dict[_Call, list[_Window] | None] = {}
        self._views: set[_Call] = set()

    def note(self, node: fx.Node, args: object, kwargs: object) -> Callable[[object], None] | None:
        """Note a call on fakes; returns what has to be told its result.

        None if only the operator itself can say something about the call, or if it takes large tensors.
        """
        if not _is_eager(node) or torch.is_autocast_enabled("cpu"):
            return None
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if not _are_fakes(leaves):
            return None
        constants = [_constant(leaf) for leaf in leaves]
        windows = [constant for constant in constants if isinstance(constant, _Window)]
        if not windows or _UNKNOWN in constants:
            return None
        if sum(window.span * window.dtype.itemsize for window in windows) > _MAX_BYTES:
            return None
        target = cast("str | Callable[..., object]", node.target)
        call = _Call(node.op, target, tuple(constants), structure)
        self._calls.setdefault(call, []).append(node)

        def tell_result(result: object) -> None:
            results = pytree.tree_leaves(result)
            if _are_fakes(results):
                self._results[call] = _windows(result)
                if _share_memory(leaves, results):
                    self._views.add(call)

        return tell_result

    def check(self) -> dict[fx.Node, list[Strides]]:
        """The strides of eager's results, for nodes where the fakes have others.

        Raises `FxImportError` for the first call that eager refuses whatever its operands hold.
        """
        other: dict[fx.Node, list[Strides]] = {}
        with _undisturbed():
            for call, nodes in self._calls.items():
                outcomes = [_run(call, _FILLS[0])]
                if isinstance(outcomes[0], _Refusal):
                    outcomes.append(_run(call, _FILLS[1]))
                if all(isinstance(outcome, _Refusal) for outcome in outcomes):
                    first = cast(_Refusal, outcomes[0])
                    raise FxImportError(
                        f"eager refuses it: {first.reason}", node=nodes[0].name, location=user_location(nodes[0])
                    )
                traced, real = self._results.get(call), outcomes[-1]
                if traced is None or not isinstance(real, list):
                    continue
                for node in nodes:
                    # Those of views that nobody sees are not worth a second trace.
                    everywhere = call not in self._views or any(user.op == "output" for user in node.users)
                    if _differ_in_strides(traced, real, everywhere=everywhere):
                        other[node] = [window.strides for window in real]
        return other


_UNKNOWN = object()


def _constant(leaf: object) -> object:
    """A leaf of arguments as something that can be compared and made again; `_UNKNOWN` if it cannot."""
    if isinstance(leaf, torch.Tensor):
        sizes, strides = ([hint(number) for number in numbers] for numbers in (leaf.size(), leaf.stride()))
        known = leaf.layout == torch.strided and leaf.device.type == "cpu" and None not in sizes and None not in strides
        window = _Window(leaf.dtype, cast("tuple[int, ...]", tuple(sizes)), cast("tuple[int, ...]", tuple(strides)))
        return window if known and not leaf.is_conj() and not leaf.is_neg() else _UNKNOWN
    if isinstance(leaf, SYMBOLIC_TYPES):
        number = hint(leaf) if isinstance(leaf, torch.SymInt) else None
        return _UNKNOWN if number is None else number
    if isinstance(leaf, slice):
        whole = cast("slice[object, object, object]", leaf)
        parts = [_constant(part) for part in (whole.start, whole.stop, whole.step)]
        if all(part is None or isinstance(part, int) for part in parts):
            return _Slice(*cast("list[int | None]", parts))
        return _UNKNOWN
    kinds = (int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format, type(...))
    return leaf if leaf is None or isinstance(leaf, kinds) else _UNKNOWN


def _is_eager(node: fx.Node) -> bool:
    """Whether a node calls one of PyTorch's own functions or methods, which may be called once more."""
    if node.op == "call_method":
        return True
    if node.op != "call_function":
        return False
    if is_overload(node.target):
        return node.target.namespace in ("aten", "prims")
    module = getattr(node.target, "__module__", None)
    return module in _MODULES or (module is None and type(node.target) is type(torch.add))


@dataclass(frozen=True)
class _Refusal:
    """What eager says about the element types when it refuses a call."""

    reason: str


def _run(call: _Call, fill: int) -> list[_Window] | _Refusal | None:
    """The results of a call on tensors full of `fill`; None if it fails for another reason or they are not tensors."""
    leaves = [_made(leaf, fill) for leaf in call.leaves]
    args, kwargs = cast("tuple[Sequence[object], dict[str, object]]", pytree.tree_unflatten(leaves, call.structure))
    try:
        if isinstance(call.target, str):
            return _windows(getattr(args[0], call.target)(*args[1:], **kwargs))
        return _windows(call.target(*args, **kwargs))
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError, AssertionError) as error:
        about_types = isinstance(error, NotImplementedError) or _ABOUT_TYPES.search(str(error))
        return _Refusal(error_summary(error)) if about_types else None


def _windows(result: object) -> list[_Window] | None:
    """The windows of all results; None if some are no tensors of known sizes."""
    found = [_constant(leaf) for leaf in pytree.tree_leaves(result)]
    windows = [constant for constant in found if isinstance(constant, _Window)]
    return windows if len(windows) == len(found) else None


def _differ_in_strides(traced: Sequence[_Window], real: Sequence[_Window], *, everywhere: bool) -> bool:
    """Whether windows of the same sizes are laid out differently; `everywhere` minds strides that lead nowhere, too."""
    if [window.sizes for window in traced] != [window.sizes for window in real]:
        return False
    pairs = zip(traced, real, strict=True)
    return any(a.strides != b.strides if everywhere else a.layout != b.layout for a, b in pairs)


def _are_fakes(leaves: Sequence[object]) -> bool:
    """Whether all tensors are fakes, and none is what a transform (`vmap`) makes of one."""
    return all(isinstance(leaf, FakeTensor) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _share_memory(left: Sequence[object], right: Sequence[object]) -> bool:
    ids = [{storage_id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)} for leaves in (left, right)]
    return not ids[0].isdisjoint(ids[1])


def _made(leaf: object, fill: int) -> object:
    if isinstance(leaf, _Window):
        return leaf.filled(fill)
    return slice(leaf.start, leaf.stop, leaf.step) if isinstance(leaf, _Slice) else leaf


@contextmanager
def _undisturbed() -> Generator[None]:
    """Run eager beside a compilation: no fakes, no gradients, no warnings, and random numbers as before."""
    state = torch.get_rng_state()
    try:
        with unset_fake_temporarily(), torch.no_grad(), torch.inference_mode(False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_rng_state(state)
