"""Statements that make views: of views, of arguments, of results."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from vllm_ir.tools.fuzz.draw import FLOATS, Draw
from vllm_ir.tools.fuzz.program import Statement, dtype_name

View = Callable[[Draw, Tensor], str | None]
"""The template of a view of `{0}`, which is the given tensor; None if it has no such view."""


def _select(d: Draw, t: Tensor) -> str | None:
    if t.dim() == 0:
        return None
    dim = d.dim(t)
    if t.shape[dim] == 0:
        return None
    i = d.index(t.shape[dim])
    before = ":, " * (dim % t.dim())
    return d.one_of([f"{{0}}.select({dim}, {i})", f"{{0}}[{before}{i}]"])


def _slice(d: Draw, t: Tensor) -> str | None:
    if t.dim() == 0:
        return None
    dim = d.rng.randrange(t.dim())
    size = t.shape[dim]
    start = d.one_of(["", "", "1", "-2", str(d.rng.randrange(size + 1))])
    stop = d.one_of(["", "", "-1", str(d.rng.randrange(size + 1)), "100"])
    step = d.one_of(["", "", ":2", ":3"])
    if d.dynamic and d.chance(0.2):
        stop = f"{{0}}.shape[{dim}] // 2"
    return f"{{0}}[{':, ' * dim}{start}:{stop}{step}]"


def _two_slices(d: Draw, t: Tensor) -> str | None:
    if t.dim() < 2:
        return None
    parts = [d.one_of([":", "1:", ":-1", "::2", "1::2", ":2"]) for _ in range(t.dim())]
    if d.chance(0.3):
        parts.insert(d.rng.randrange(len(parts)), "None")
    return f"{{0}}[{', '.join(parts)}]"


def _narrow(d: Draw, t: Tensor) -> str | None:
    if t.dim() == 0:
        return None
    dim = d.dim(t)
    start = d.rng.randrange(t.shape[dim] + 1)
    length = d.rng.randrange(t.shape[dim] - start + 1)
    if d.dynamic and d.chance(0.4):
        return f"{{0}}.narrow({dim}, 1, {{0}}.shape[{dim}] - 1)"
    return f"{{0}}.narrow({dim}, {start}, {length})"


def _transpose(d: Draw, t: Tensor) -> str | None:
    if t.dim() < 2:
        return None
    if t.dim() == 2 and d.chance(0.5):
        return d.one_of(["{0}.t()", "{0}.T", "{0}.mT"])
    name = d.one_of(["transpose", "swapaxes", "movedim"])
    return f"{{0}}.{name}({d.dim(t)}, {d.dim(t)})"


def _permute(d: Draw, t: Tensor) -> str | None:
    if t.dim() < 2:
        return None
    order = list(range(t.dim()))
    d.rng.shuffle(order)
    return f"{{0}}.permute({', '.join(map(str, order))})"


def _reshape(d: Draw, t: Tensor) -> str | None:
    name = d.one_of(["view", "reshape", "reshape"])
    if d.dynamic:
        return f"{{0}}.{name}({'-1' if t.dim() == 0 or d.chance(0.5) else '{0}.shape[0], -1'})"
    if t.numel() == 0:
        return f"{{0}}.{name}({', '.join(map(str, t.shape))})" if t.dim() else None
    factors = [n for n in range(1, t.numel() + 1) if t.numel() % n == 0]
    first = d.one_of(factors)
    shape = d.one_of([["-1"], [str(first), "-1"], ["-1", str(first)], [str(first), "1", str(t.numel() // first)]])
    return f"{{0}}.{name}({', '.join(shape)})"


def _flatten(d: Draw, t: Tensor) -> str | None:
    if t.dim() == 0:
        return None
    start = d.rng.randrange(t.dim())
    if not d.dynamic and t.shape[start] % 2 == 0 and t.shape[start] and d.chance(0.5):
        return f"{{0}}.unflatten({start}, (2, {t.shape[start] // 2}))"
    return f"{{0}}.flatten({start}, {d.rng.randrange(start, t.dim())})"


def _unsqueeze(d: Draw, t: Tensor) -> str | None:
    if t.dim() > 4:
        return None
    return d.one_of([f"{{0}}.unsqueeze({d.rng.randrange(-t.dim() - 1, t.dim() + 1)})", "{0}[None]", "{0}[..., None]"])


def _squeeze(d: Draw, t: Tensor) -> str | None:
    return "{0}.squeeze()" if t.dim() == 0 or d.chance(0.4) else f"{{0}}.squeeze({d.dim(t)})"


def _expand(d: Draw, t: Tensor) -> str | None:
    if t.dim() > 3:
        return None
    sizes = [str(3 if size == 1 and d.chance(0.7) else -1) for size in t.shape]
    if not sizes or d.chance(0.5):
        sizes.insert(0, "2")
    return f"{{0}}.expand({', '.join(sizes)})"


def _diagonal(d: Draw, t: Tensor) -> str | None:
    if t.dim() < 2:
        return None
    first, second = d.rng.sample(range(t.dim()), 2)
    return f"{{0}}.diagonal({d.one_of([0, 0, 1, -1])}, {first}, {second})"


def _as_strided(d: Draw, t: Tensor) -> str | None:
    room = t.untyped_storage().nbytes() // t.element_size()
    if d.dynamic or room == 0:
        return None
    if not d.in_given_memory(t) and t.numel() != room:
        return None  # what lies in the gaps of a new tensor is not known
    sizes = [d.rng.randrange(1, 4) for _ in range(d.rng.randrange(1, 3))]
    strides = [d.rng.randrange(1, 5) for _ in sizes]
    if d.chance(0.7) and len(sizes) == 2:
        strides[1] = 1
        strides[0] = sizes[1] + d.rng.randrange(3)
    last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
    if last >= room:
        return None
    offset = d.rng.randrange(room - last)
    if d.chance(0.15):
        return f"{{0}}.as_strided({tuple(sizes)}, {tuple(strides)})"
    return f"{{0}}.as_strided({tuple(sizes)}, {tuple(strides)}, {offset})"


def _piece(d: Draw, t: Tensor) -> str | None:
    if t.dim() == 0:
        return None
    dim = d.dim(t)
    which = d.one_of(["0", "-1"])
    return d.one_of(
        [
            f"{{0}}.split({d.rng.randrange(1, 4)}, {dim})[{which}]",
            f"{{0}}.chunk({d.rng.randrange(1, 4)}, {dim})[{which}]",
            f"{{0}}.unbind({dim})[{which}]",
            f"{{0}}.tensor_split({d.rng.randrange(1, 4)}, {dim})[{which}]",
        ]
    )


def _unfold(d: Draw, t: Tensor) -> str | None:
    if t.dim() == 0 or t.dim() > 3:
        return None
    dim = d.dim(t)
    size = d.rng.randrange(1, 4)
    # Without overlap it can be written.
    step = size if d.chance(0.6) else d.rng.randrange(1, 4)
    return f"{{0}}.unfold({dim}, {size}, {step})"


_BITS = {
    torch.float32: ("int32", "int16", "float16", "bfloat16", "uint8", "float64"),
    torch.float64: ("int64", "float32", "int32"),
    torch.float16: ("int16", "bfloat16", "uint8", "float32"),
    torch.bfloat16: ("int16", "float16", "int32"),
    torch.int64: ("float64", "int32", "uint8"),
    torch.int32: ("float32", "int16", "int64", "uint8"),
    torch.int16: ("float16", "uint8", "int32"),
    torch.uint8: ("int16", "int32"),
    torch.complex64: ("float32", "int64"),
}


def _bits(d: Draw, t: Tensor) -> str | None:
    if t.dtype not in _BITS:
        return None
    return f"{{0}}.view(torch.{d.one_of(_BITS[t.dtype])})"


def _complex(d: Draw, t: Tensor) -> str | None:
    if t.dtype.is_complex:
        return d.one_of(
            ["torch.view_as_real({0})", "{0}.conj()", "{0}.real", "{0}.imag", "torch.view_as_real({0})[..., 1]"]
        )
    if t.dtype == torch.float32 and t.dim() and t.shape[-1] == 2:
        return "torch.view_as_complex({0})"
    return None


def _same(d: Draw, t: Tensor) -> str | None:
    choices = ["{0}.detach()", "{0}[...]", "{0}.view_as({0})", "torch.ops.aten.alias.default({0})", "{0}.contiguous()"]
    if t.dim():
        choices.append("{0}[:]")
    if t.dtype in FLOATS:
        choices.append(f"{{0}}.to(torch.{dtype_name(t.dtype)})")
    return d.one_of(choices)


VIEWS: dict[str, View] = {
    "select": _select,
    "slice": _slice,
    "slices": _two_slices,
    "narrow": _narrow,
    "transpose": _transpose,
    "permute": _permute,
    "reshape": _reshape,
    "flatten": _flatten,
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "expand": _expand,
    "diagonal": _diagonal,
    "as_strided": _as_strided,
    "piece": _piece,
    "unfold": _unfold,
    "bits": _bits,
    "complex": _complex,
    "same": _same,
}


def view(d: Draw) -> Statement | None:
    """A view of a tensor that the program has."""
    name = d.pick()
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None:
        return None
    template = VIEWS[d.one_of(list(VIEWS))](d, tensor)
    if template is None:
        return None
    return Statement((d.fresh(),), template, (name,), moves=True)


def pieces(d: Draw) -> Statement | None:
    """All pieces of a tensor, as names of their own."""
    name = d.pick(lambda t: t.dim() > 0 and any(1 < size < 5 for size in t.shape))
    tensor = None if name is None else d.tensor(name)
    if name is None or tensor is None or d.dynamic:
        return None
    dim = d.one_of([i for i, size in enumerate(tensor.shape) if 1 < size < 5])
    size = tensor.shape[dim]
    width = d.rng.randrange(1, size)
    count, template = d.one_of(
        [
            (size, f"{{0}}.unbind({dim})"),
            (math.ceil(size / width), f"{{0}}.split({width}, {dim})"),
            (2, f"{{0}}.split([{width}, {size - width}], {dim})"),
            (math.ceil(size / math.ceil(size / 2)), f"{{0}}.chunk(2, {dim})"),
        ]
    )
    return Statement(tuple(d.fresh() for _ in range(count)), template, (name,), moves=True, unpack=True)


def changed_metadata(d: Draw) -> Statement | None:
    """A tensor that becomes another view in place."""
    name = d.pick(lambda t: t.dim() > 0)
    tensor = None if name is None else d.tensor(name)
    # Dynamo has no graph for what changes the metadata of an argument; few of these are left in.
    # Nor does it know the new sizes in programs that ask for them, as those of dynamic size do.
    if name is None or tensor is None or d.dynamic or (d.is_given(tensor) and (name.startswith("v") or d.chance(0.9))):
        return None
    templates = ["{0}.unsqueeze_(0)", "{0}.squeeze_(0)", f"{{0}}.transpose_({d.dim(tensor)}, {d.dim(tensor)})"]
    if tensor.dim() == 2:
        templates.append("{0}.t_()")
    return Statement((), d.one_of(templates), (name,), moves=True)
