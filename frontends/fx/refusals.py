"""What only eager's kernels know about a call: whether they take its element types, and how they lay out the results.

Fake tensors know the rules of promotion, but not which types a kernel takes (`softmax` of integers, `round` of bools),
and for some operators (`copysign`) they give other strides than the kernels. So each kind of call runs once on a few
plain numbers, where it is traced: all that is traced behind it sees the strides of eager.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from vllm_ir.frontends.fx.eager_state import eager_switches, undisturbed, user_modes_active
from vllm_ir.frontends.fx.errors import FxImportError, error_summary
from vllm_ir.frontends.fx.locations import user_location
from vllm_ir.frontends.fx.torch_internals import has_symbolic_metadata, hint, storage_id
from vllm_ir.frontends.fx.torch_objects import is_overload

_MAX_BYTES = 1 << 18
"""Operands of one call that are larger are not tried out: it would take time that compiling does not have."""

_ABOUT_TYPES = re.compile(r"\bd?types?\b|\bscalar type|\bbool\b|\b[Ii]ntegers?\b")
"""What refusals of an element type say; others may be about values, which are not those of the program."""

_MODULES = ("torch", "torch.functional", "torch.nn.functional", "torch._C._nn", "_operator")
_FILLS = (0, 1)

Strides: TypeAlias = tuple[int, ...]


class EagerCalls:
    """Compares the calls of one trace with eager."""

    def __init__(self) -> None:
        """For a trace that begins now."""
        # A mode may do something else each time; what it did for this trace holds for this trace.
        self._outcome = functools.cache(_try_out) if user_modes_active() else _outcome

    def key(self, node: fx.Node, args: Sequence[object], kwargs: Mapping[str, object]) -> CallKey | None:
        """What a call on fakes does; to be asked before it runs, because it may change the metadata of its arguments.

        None if only the operator itself can say something about the call.
        """
        if not _is_eager(node) or torch.is_autocast_enabled("cpu"):
            return None
        return self.key_of(cast("str | Callable[..., object]", node.target), args, kwargs)

    def key_of(
        self, target: str | Callable[..., object], args: Sequence[object], kwargs: Mapping[str, object]
    ) -> CallKey | None:
        """The same for a function of PyTorch's own that is called outside of a graph."""
        try:
            forms = _forms(args)
            named = tuple([(name, _form(value)) for name, value in kwargs.items()]) if kwargs else ()
        except _UnknownError:
            return None
        return CallKey(target, forms, named, eager_switches())

    def strides(self, node: fx.Node, key: CallKey, arguments: object, result: object) -> Sequence[Strides] | None:
        """The strides of eager's results where the fakes in `result` have others, and those matter; else None.

        Raises `FxImportError` if eager refuses the call whatever its operands hold.
        """
        try:
            return self.strides_of(key, arguments, result, seen=any(user.op == "output" for user in node.users))
        except FxImportError as error:
            raise FxImportError(error.reason, node=node.name, location=user_location(node)) from error

    def strides_of(self, key: CallKey, arguments: object, result: object, *, seen: bool) -> Sequence[Strides] | None:
        """The same for a call outside of a graph; `seen` tells whether the caller of the program gets the result."""
        outcome = self._outcome(key)
        if outcome is None:
            return None
        if isinstance(outcome, _Refusal):
            raise FxImportError(f"eager refuses it: {outcome.reason}")
        if type(result) is FakeTensor and len(outcome) == 1 and not has_symbolic_metadata(result):
            (window,) = outcome
            if result.stride() == window.strides and result.size() == window.sizes:
                return None
        leaves = pytree.tree_leaves(result)
        traced = _windows(leaves) if _are_fakes(leaves) else None
        if traced is None:
            return None
        # Strides of views that lead nowhere stay as they are traced, unless the caller sees them.
        everywhere = seen or not _share_memory(arguments, leaves)
        differ = _differ_in_strides(traced, outcome, everywhere=everywhere)
        return [window.strides for window in outcome] if differ else None


class CallKey(NamedTuple):
    """What a call does, as far as element types and layouts matter."""

    target: str | Callable[..., object]
    args: tuple[object, ...]
    kwargs: tuple[tuple[str, object], ...]
    switches: tuple[object, ...]


class _Window(NamedTuple):
    """A tensor on the CPU, without its contents."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: Strides

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


class _Typed(NamedTuple):
    """A container, or a number that equals numbers of other types: what makes it, and of what."""

    make: Callable[..., object]
    content: object


class _UnknownError(Exception):
    """An argument that cannot be compared and made again."""


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


# Arguments as keys.


def _forms(values: Iterable[object]) -> tuple[object, ...]:
    return tuple([_form(value) for value in values])


def _form(value: object) -> object:
    """An argument as something that can be compared and made again. Raises `_UnknownError` if it cannot."""
    kind = type(value)
    if kind is FakeTensor:
        return _window(cast(FakeTensor, value))
    if kind is int or value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float | complex):
        return _Typed(kind, value)
    if isinstance(value, list):
        return _Typed(list, _forms(cast("list[object]", value)))
    if isinstance(value, tuple):
        return _Typed(getattr(kind, "_make", kind), _forms(cast("tuple[object, ...]", value)))
    if isinstance(value, dict):
        return _Typed(dict, tuple([(key, _form(item)) for key, item in cast("dict[str, object]", value).items()]))
    if isinstance(value, slice):
        whole = cast("slice[object, object, object]", value)
        return _Typed(slice, _forms((whole.start, whole.stop, whole.step)))
    if isinstance(value, torch.SymInt):
        return _known(hint(value))
    if isinstance(value, torch.dtype | torch.device | torch.layout | torch.memory_format | type(...)):
        return value
    raise _UnknownError


def _known(number: int | None) -> int:
    if number is None:
        raise _UnknownError
    return number


def _window(tensor: torch.Tensor) -> _Window:
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_conj() or tensor.is_neg():
        raise _UnknownError
    if not has_symbolic_metadata(tensor):
        return _Window(tensor.dtype, tensor.size(), tensor.stride())
    sizes = tuple(_known(hint(size)) for size in tensor.size())
    return _Window(tensor.dtype, sizes, tuple(_known(hint(stride)) for stride in tensor.stride()))


def _made(form: object, fill: int) -> object:
    """The argument that a form describes, with tensors full of `fill`."""
    if isinstance(form, _Window):
        return form.filled(fill)
    if not isinstance(form, _Typed):
        return form
    if form.make is dict:
        return {key: _made(item, fill) for key, item in cast("tuple[tuple[str, object], ...]", form.content)}
    content = form.content
    if not isinstance(content, tuple):
        return content
    items = [_made(item, fill) for item in cast("tuple[object, ...]", content)]
    return slice(*items) if form.make is slice else form.make(items)


def _windows_in(form: object) -> Iterator[_Window]:
    if isinstance(form, _Window):
        yield form
    elif isinstance(form, tuple):
        for item in cast("tuple[object, ...]", form):
            yield from _windows_in(item)


# Calls of eager.


@dataclass(frozen=True)
class _Refusal:
    """What eager says about the element types when it refuses a call."""

    reason: str


_Outcome: TypeAlias = "tuple[_Window, ...] | _Refusal | None"


def _try_out(key: CallKey) -> _Outcome:
    """What eager does with a call: its results, or a refusal; None if it is not known."""
    windows = list(_windows_in((key.args, key.kwargs)))
    if not windows or sum(window.span * window.dtype.itemsize for window in windows) > _MAX_BYTES:
        return None
    with undisturbed():
        outcome = _run(key, _FILLS[0])
        if not isinstance(outcome, _Refusal):
            return outcome
        second = _run(key, _FILLS[1])
        return outcome if isinstance(second, _Refusal) else second


# Kernels do not change, so what one has done holds for all compilations of the process.
_outcome = functools.lru_cache(maxsize=16384)(_try_out)


def _run(key: CallKey, fill: int) -> _Outcome:
    """The results of a call on tensors full of `fill`; None if it fails for another reason or they are not tensors."""
    args = [_made(form, fill) for form in key.args]
    kwargs = {name: _made(form, fill) for name, form in key.kwargs}
    try:
        if isinstance(key.target, str):
            result = cast("Callable[..., object]", getattr(args[0], key.target))(*args[1:], **kwargs)
        else:
            result = key.target(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError, AssertionError) as error:
        about_types = isinstance(error, NotImplementedError) or _ABOUT_TYPES.search(str(error))
        return _Refusal(error_summary(error)) if about_types else None
    return _windows(pytree.tree_leaves(result))


def _windows(leaves: Sequence[object]) -> tuple[_Window, ...] | None:
    """The windows of all results; None if some are no tensors of known sizes."""
    if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        return None
    try:
        return tuple([_window(leaf) for leaf in cast("Sequence[torch.Tensor]", leaves)])
    except _UnknownError:
        return None


# Comparison.


def _differ_in_strides(traced: Sequence[_Window], real: Sequence[_Window], *, everywhere: bool) -> bool:
    """Whether windows of the same sizes are laid out differently; `everywhere` minds strides that lead nowhere, too."""
    if [window.sizes for window in traced] != [window.sizes for window in real]:
        return False
    pairs = zip(traced, real, strict=True)
    return any(a.strides != b.strides if everywhere else a.layout != b.layout for a, b in pairs)


def _are_fakes(leaves: Sequence[object]) -> bool:
    """Whether all tensors are fakes, and none is what a transform (`vmap`) makes of one."""
    return all(isinstance(leaf, FakeTensor) for leaf in leaves if isinstance(leaf, torch.Tensor))


def _share_memory(arguments: object, results: Sequence[object]) -> bool:
    groups = (pytree.tree_leaves(arguments), results)
    ids = [{storage_id(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)} for leaves in groups]
    return not ids[0].isdisjoint(ids[1])
