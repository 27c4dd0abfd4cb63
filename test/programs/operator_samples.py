"""Arguments for operators: recorded from PyTorch's own samples, or guessed until eager mode accepts them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_CALLS_PER_OPERATOR = 4
_LARGEST = 1 << 14


@dataclass
class Call:
    """Arguments of one call, by name; tensors are cloned before each use."""

    arguments: dict[str, object]

    def copy(self) -> dict[str, object]:
        """The arguments with new tensors, each in memory of its own and laid out as before."""
        return pytree.tree_map_only(Tensor, clone_like, self.arguments)


def clone_like(tensor: Tensor) -> Tensor:
    """A copy with the same strides."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    if 0 in tensor.stride() or tensor.layout != torch.strided:
        return tensor.detach().clone()
    return copy.copy_(tensor.detach().resolve_conj().resolve_neg())


def mutable_overloads() -> list[OpOverload]:
    """Every ATen overload that writes an argument, by name."""
    found: dict[str, OpOverload] = {}
    for name in torch._C._dispatch_get_all_op_names():
        namespace, rest = name.split("::")
        packet, _, overload = rest.partition(".")
        if namespace != "aten" or not hasattr(torch.ops.aten, packet):
            continue
        op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
        if isinstance(op, OpOverload) and op._schema.is_mutable:
            found[str(op)] = op
    return [found[name] for name in sorted(found)]


class Recorder(TorchDispatchMode):
    """Keeps the arguments of the first calls of every ATen operator."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: defaultdict[OpOverload, list[Call]] = defaultdict(list)
        self._seen: set[object] = set()

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        kwargs = dict(kwargs or {})
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        plain = all(t.layout == torch.strided and t.numel() <= _LARGEST and not t.is_quantized for t in tensors)
        if func.namespace == "aten" and plain and len(self.calls[func]) < _CALLS_PER_OPERATOR:
            key = (func, str(pytree.tree_map_only(Tensor, lambda t: (t.dtype, t.shape, t.stride()), (args, kwargs))))
            if key not in self._seen:
                self._seen.add(key)
                call = Call(pytree.tree_map_only(Tensor, lambda t: clone_like(t), bound(func, args, kwargs)))
                self.calls[func].append(call)
        return func(*args, **kwargs)


def bound(overload: OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    """Arguments by name, defaults left out."""
    names = [argument.name for argument in overload._schema.arguments]
    return {**dict(zip(names, args, strict=False)), **kwargs}


def record(names: Sequence[str] | None = None) -> Mapping[OpOverload, list[Call]]:
    """Calls made by the samples that PyTorch's tests use, forward and backward; of the operators `names`, or of all."""
    from torch.testing._internal import common_methods_invocations as samples

    databases = [
        samples.op_db,
        samples.foreach_unary_op_db,
        samples.foreach_binary_op_db,
        samples.foreach_pointwise_op_db,
        samples.foreach_reduce_op_db,
        samples.foreach_other_op_db,
    ]
    recorder = Recorder()
    for entry in itertools.chain.from_iterable(databases):
        if names is None or entry.name in names:
            _run_samples(entry, recorder)
    return recorder.calls


def _run_samples(entry: object, recorder: Recorder) -> None:
    dtypes = entry.supported_dtypes("cpu")  # type: ignore[attr-defined]  # an OpInfo
    preferred = [torch.float32, torch.int64, torch.complex64, torch.bool]
    for dtype in [dtype for dtype in preferred if dtype in dtypes][:2]:
        for gradients in (False, True) if dtype == torch.float32 else (False,):
            try:
                torch.manual_seed(0)
                samples = list(itertools.islice(_samples(entry, dtype, gradients), 3))
            except Exception:  # noqa: BLE001  # samples of optional back ends fail in many ways; they are left out
                continue
            for sample in samples:
                _run_sample(entry, sample, gradients, recorder)


def _samples(entry: object, dtype: torch.dtype, gradients: bool) -> Iterator[object]:
    return entry.sample_inputs("cpu", dtype, requires_grad=gradients)  # type: ignore[attr-defined]  # an OpInfo


def _run_sample(entry: object, sample: object, gradients: bool, recorder: Recorder) -> None:
    op, args, kwargs = entry.op, (sample.input, *sample.args), sample.kwargs  # type: ignore[attr-defined]
    try:
        with recorder:
            result = op(*args, **kwargs)
            if not gradients:
                return
            floats = [t for t in pytree.tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
            if floats:
                sum(t.abs().sum() for t in floats).backward()
    except Exception:  # noqa: BLE001  # see above
        return


# Arguments from the schema

_SHAPES = [(3, 4), (4, 4), (2, 3, 4), (2, 3, 6, 6), (2, 2, 4, 4, 4), (5,), ()]


def from_schema(overload: OpOverload) -> Iterator[Call]:
    """Guesses; few of them are accepted by the operator.

    None for operators that are internal to PyTorch: many of those trust their arguments, and corrupt memory.
    """
    name = overload._schema.name.removeprefix("aten::")
    if name.startswith("_") and not name.startswith(("_foreach_", "__")):
        return
    kinds = [(a.name, str(a.type), a.has_default_value()) for a in overload._schema.arguments]
    for shape, dtype in itertools.product(_SHAPES, (torch.float32, torch.int64, torch.bool)):
        torch.manual_seed(len(shape))
        yield Call(
            {
                name: _guess(name, kind, shape, dtype)
                for name, kind, has_default in kinds
                if not has_default or "Tensor" in kind
            }
        )


def _guess(name: str, kind: str, shape: Sequence[int], dtype: torch.dtype) -> object:
    is_index = "index" in name or "indices" in name
    if kind in ("Tensor", "Optional[Tensor]"):
        if "mask" in name:
            return torch.rand(shape) > 0.5
        if is_index:
            return torch.zeros(shape, dtype=torch.int64)
        return _random(shape, dtype)
    if "Tensor" in kind and kind.startswith(("List", "Optional[List")):
        return [_random(shape, dtype) for _ in range(2)]
    numbers = {
        "int": 1,
        "SymInt": 1,
        "float": 0.5,
        "number": 2,
        "Scalar": 2,
        "bool": False,
        "str": "none",
        "Optional[int]": None,
        "Optional[float]": None,
        "Optional[bool]": None,
    }
    if kind in numbers:
        return numbers[kind]
    if kind.startswith("List[int]") or kind.startswith("List[SymInt]"):
        return [2] * max(len(shape) - 2, 1)
    if kind.startswith("List[number]") or kind.startswith("List[float]"):
        return [2.0, 3.0]
    return None


def _random(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    values = torch.rand(shape) * 2 + 0.25
    return values if dtype.is_floating_point else (values * 3).to(dtype)
