"""Fresh fake tensors for the inputs of a graph, as they are at entry.

A graph that mutates must be traced with fakes of its own: Dynamo's `example_value` metas carry the metadata that
its own tracing left behind (`x.t_()` transposed them), and a second trace would see what the first one did. The fakes
built here keep dtype, device, symbolic sizes, and which inputs share a storage, at which offsets.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConverter, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.torch_internals import (
    SYMBOLIC_TYPES,
    alias_of_fake,
    ambient_fake_mode,
    dynamo_context,
    expression,
    fake_from_dynamo,
    fakes_on_new_storage,
    has_symbolic_metadata,
    hint,
    shape_env_of,
    storage_id,
)
from vllm_ir.frontends.ops.memory import may_overlap

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)


@dataclass(frozen=True)
class InputSource:
    """What is known about one input of a graph: its name, the caller's example and the graph's own meta.

    Both may be tensors (real or fake), numbers, symbolic numbers or other constants; `meta` is None where the graph
    has none. `has_example` tells an example `None` from no example.
    """

    name: str
    example: object
    has_example: bool
    meta: object
    meta_may_be_final: bool = False
    """Whether `meta` may show the metadata at exit, as Dynamo's `example_value` does."""

    @property
    def tensor(self) -> torch.Tensor | None:
        """The tensor that tells the storage: the example if there is one, else the meta."""
        value = self.example if self.has_example else self.meta
        return value if isinstance(value, torch.Tensor) else None


def select_fake_mode(sources: Sequence[InputSource]) -> FakeTensorMode:
    """The mode to trace in: that of the enclosing compilation, of the fakes given, or a new one.

    Dynamo replaces its mode between its own tracing and the backend's, with the same `ShapeEnv`; the new one, in the
    `TracingContext`, is preferred because everything downstream uses it.
    """
    own = next(_modes(s.example for s in sources), None) or next(_modes(s.meta for s in sources), None)
    ambient = ambient_fake_mode()
    if ambient is not None and (own is None or own.shape_env is ambient.shape_env):
        return ambient
    return own or FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True)


def fresh_fakes(mode: FakeTensorMode, sources: Sequence[InputSource]) -> list[object]:
    """One fresh fake, symbolic number or constant per source, with the metadata at entry and shared storages kept.

    Raises `FxImportError` for tensors that are not plain strided ones, naming the input.
    """
    fakes: list[object] = [None if s.tensor is not None else _constant(mode, s) for s in sources]
    groups: dict[int, list[int]] = {}
    for i, source in enumerate(sources):
        if (tensor := source.tensor) is not None:
            _check_supported(source.name, tensor)
            groups.setdefault(storage_id(tensor), []).append(i)
    for members in groups.values():
        for part in _overlapping_parts(sources, members):
            # A converter of our own: the mode's memo holds fakes that earlier traces have mutated.
            built = _group_fakes(mode, [sources[i] for i in part], FakeTensorConverter())
            for i, fake in zip(part, built, strict=True):
                fakes[i] = fake
    return fakes


def _overlapping_parts(sources: Sequence[InputSource], members: Sequence[int]) -> list[list[int]]:
    """Inputs in one storage, apart where they have no byte in common and where their sizes are symbolic.

    Windows of symbolic sizes onto one storage cannot be compared. Those of known sizes stay together: their place in
    the storage tells what `as_strided` reaches.
    """
    examples = [sources[i].example for i in members]
    real = [t for t in examples if isinstance(t, torch.Tensor) and not isinstance(t, FakeTensor)]
    dynamic = any(is_symbolic(sources[i].meta) for i in members)
    if not dynamic or len(real) < len(members) or any(tensor.is_meta for tensor in real):
        return [list(members)]
    parts: list[list[int]] = []
    for i, tensor in zip(members, real, strict=True):
        touching = [part for part in parts if any(may_overlap(tensor, real[members.index(other)]) for other in part)]
        parts = [part for part in parts if part not in touching]
        parts.append(sorted([i, *(other for part in touching for other in part)]))
    return parts


def entry_metadata_known(mode: FakeTensorMode, source: InputSource) -> bool:
    """Whether the fake of `source` is certain to have had the metadata at entry."""
    if not source.meta_may_be_final or isinstance(source.example, FakeTensor):
        return True
    if not isinstance(source.example, torch.Tensor):
        return False
    return not is_symbolic(source.meta) or dynamo_context(mode, source.example) is not None


def same_metadata(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two fakes have the same sizes, strides and offset, symbols compared by expression, without guards."""
    if a.dim() != b.dim():
        return False
    mine, other = ([*t.size(), *t.stride(), t.storage_offset()] for t in (a, b))
    return all(expression(x) == expression(y) for x, y in zip(mine, other, strict=True))


def is_symbolic(value: object) -> bool:
    """Whether a fake tensor, or a number, has symbolic parts. Installs no guards."""
    if isinstance(value, torch.Tensor):
        return has_symbolic_metadata(value)
    return isinstance(value, SYMBOLIC_TYPES)


def _modes(values: Iterable[object]) -> Iterator[FakeTensorMode]:
    return (value.fake_mode for value in values if isinstance(value, FakeTensor))


def _constant(mode: FakeTensorMode, source: InputSource) -> object:
    if isinstance(source.meta, SYMBOLIC_TYPES) and not isinstance(source.example, SYMBOLIC_TYPES):
        value: object = source.meta  # the caller's example is only a hint of it
    elif source.has_example:
        value = source.example
    elif source.meta is not None:
        value = source.meta
    else:
        raise FxImportError(
            f"input `{source.name}` has neither an example nor a `val` or `example_value` meta; pass example_inputs"
        )
    if isinstance(value, SYMBOLIC_TYPES) and shape_env_of(value) is not mode.shape_env:
        raise FxImportError(f"input `{source.name}` is {value}, of another ShapeEnv than the tensors' FakeTensorMode")
    return value


def _check_supported(name: str, tensor: torch.Tensor) -> None:
    if type(tensor) not in _PLAIN_TENSORS:
        problem = f"has the tensor subclass {type(tensor).__name__}"
    elif tensor.is_nested:
        problem = "is a nested tensor"
    elif tensor.layout != torch.strided:
        problem = f"has the layout {tensor.layout}"
    elif tensor.is_quantized:
        problem = f"is quantized ({tensor.dtype})"
    elif tensor.is_conj() or tensor.is_neg():
        kind = "conj" if tensor.is_conj() else "neg"
        problem = f"is a lazy {'conjugate' if kind == 'conj' else 'negative'}; pass `x.resolve_{kind}()`"
    else:
        return
    raise FxImportError(f"input `{name}` {problem}; only plain strided tensors are supported")


def _group_fakes(
    mode: FakeTensorMode, group: Sequence[InputSource], converter: FakeTensorConverter
) -> Sequence[FakeTensor]:
    """Fakes of inputs that share one storage."""
    tensors = [cast(torch.Tensor, source.tensor) for source in group]
    if any(
        is_symbolic(s.tensor) or is_symbolic(s.meta) or _may_be_item(t) for s, t in zip(group, tensors, strict=True)
    ):
        contexts = [None if isinstance(t, FakeTensor) else dynamo_context(mode, t) for t in tensors]
        if any(context is not None for context in contexts):
            pairs = zip(tensors, contexts, strict=True)
            return [fake_from_dynamo(mode, converter, t, context) for t, context in pairs]
        templates = [_template(source, tensor) for source, tensor in zip(group, tensors, strict=True)]
        fakes = [template for template in templates if isinstance(template, FakeTensor)]
        if len(fakes) == len(group) and len({storage_id(fake) for fake in fakes}) == 1 and any(map(is_symbolic, fakes)):
            return [alias_of_fake(mode, fake) for fake in fakes]
    else:
        templates = tensors
    windows = [(template, t.dtype, t.device) for template, t in zip(templates, tensors, strict=True)]
    return fakes_on_new_storage(mode, tensors[0].untyped_storage().nbytes(), windows)


def _may_be_item(tensor: torch.Tensor) -> bool:
    # `item()` of a zero-dimensional tensor may be a symbol backed by the input, which only Dynamo's context knows.
    return tensor.dim() == 0 and not isinstance(tensor, FakeTensor)


def _template(source: InputSource, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the metadata at entry: the graph's meta if that has symbols, else the example."""
    meta = source.meta
    if isinstance(tensor, FakeTensor) or not isinstance(meta, FakeTensor) or not is_symbolic(meta):
        return tensor
    hints = [hint(size) for size in (*meta.size(), *meta.stride(), meta.storage_offset())]
    facts = [*tensor.size(), *tensor.stride(), tensor.storage_offset()]
    if len(hints) != len(facts) or any(h is not None and h != f for h, f in zip(hints, facts, strict=True)):
        raise FxImportError(
            f"input `{source.name}` has the meta {tuple(meta.size())} with strides {tuple(meta.stride())}, but the "
            f"example {tuple(tensor.size())} with {tensor.stride()}; normalise the graph inside the backend, where "
            "Dynamo's context is known, or pass fake examples"
        )
    return meta
