"""Arguments that an implementation is tried on: generated ones, and others made of them.

Sizes and dtypes vary through the options of the op's input generator (`num_tokens`, `hidden_size`, `dtype`, where it
has them); layouts and contents vary by laying the generated tensors out in other ways and planting values in them.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from vllm_ir.frontends.ops import IrOp

NUM_TOKENS = (0, 1, 3, 17)
HIDDEN_SIZES = (128, 1, 33, 96)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_SIZES = {"num_tokens": NUM_TOKENS, "hidden_size": HIDDEN_SIZES}


@dataclass(frozen=True)
class Case:
    """Arguments by position, with defaults filled in."""

    name: str
    args: tuple[object, ...]

    def copies(self) -> list[object]:
        """The arguments in memory of their own, laid out like these, gaps included."""
        return [copied(arg) if isinstance(arg, Tensor) else arg for arg in self.args]


def copied(tensor: Tensor) -> Tensor:
    """A tensor in a storage of its own with the same bytes, offset and strides."""
    storage = tensor.untyped_storage()
    whole = torch.empty(0, dtype=torch.uint8).set_(storage).clone()
    return (
        torch.empty(0, dtype=tensor.dtype)
        .set_(whole.untyped_storage())
        .as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    )


def cases(op: IrOp, seed: int, dtypes: Sequence[torch.dtype] = DTYPES) -> Iterator[Case]:
    """The cases of an op, the same ones for the same seed; `dtypes` counts where the generator has that option."""
    for options, varied in _options(op, dtypes):
        text = ", ".join(f"{name}={value}" for name, value in options.items()) or "defaults"
        generated = _generated(op, options, seed)
        if generated is not None:
            yield Case(text, generated)
            if varied:
                yield from _variants(op, text, generated)


def _generated(op: IrOp, options: Mapping[str, object], seed: int) -> tuple[object, ...] | None:
    """Arguments; None where the generator has none of such sizes."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        return tuple(op.complete(op.generate_inputs(**options)))
    except (RuntimeError, ValueError):
        return None
    finally:
        torch.set_rng_state(state)


def _options(op: IrOp, given: Sequence[torch.dtype]) -> Iterator[tuple[Mapping[str, object], bool]]:
    """Options of the generator, and whether to vary what it makes: each dtype once, and each size for each dtype."""
    assert op.inputs.fn is not None
    parameters = inspect.signature(op.inputs.fn).parameters
    dtypes: Sequence[object] = given if "dtype" in parameters else (None,)
    sizes = {name: values for name, values in _SIZES.items() if name in parameters}
    for dtype in dtypes:
        of_dtype: dict[str, object] = {} if dtype is None else {"dtype": dtype}
        yield of_dtype, True
        for values in product(*sizes.values()):
            if values:
                yield {**of_dtype, **dict(zip(sizes, values, strict=True))}, False


def _variants(op: IrOp, text: str, args: tuple[object, ...]) -> Iterator[Case]:
    for name, lay_out in LAYOUTS.items():
        yield Case(
            f"{text}, {name}",
            tuple(lay_out(arg) if isinstance(arg, Tensor) and arg.dim() >= 2 else arg for arg in args),
        )
    for name, value in EDGE_VALUES.items():
        planted = [_with_value(arg, value) if index in _planted(op, args) else arg for index, arg in enumerate(args)]
        yield Case(f"{text}, {name}", tuple(planted))


def _planted(op: IrOp, args: Sequence[object]) -> Sequence[int]:
    """The arguments that get unusual values: activations, or else the first floating tensor.

    What others hold may count in one implementation and not in another, as what a mask hides.
    """
    floating = [index for index, arg in enumerate(args) if _is_floating(arg)]
    return [index for index in op.activation_indices if index in floating] or floating[:1]


def _is_floating(arg: object) -> bool:
    return isinstance(arg, Tensor) and arg.is_floating_point() and arg.dim() >= 2


def _with_gaps(tensor: Tensor) -> Tensor:
    """Rows with unused elements behind them."""
    wide = tensor.new_zeros((*tensor.shape[:-1], tensor.shape[-1] + 3))
    return wide[..., : tensor.shape[-1]].copy_(tensor)


def _transposed(tensor: Tensor) -> Tensor:
    """The last two dimensions the other way round in memory."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _shifted(tensor: Tensor) -> Tensor:
    """One element into its storage, so that it is aligned to nothing wider."""
    room = tensor.new_zeros(tensor.numel() + 1)
    return room[1:].view(tensor.shape).copy_(tensor)


Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Layout] = {"gaps between rows": _with_gaps, "columns first": _transposed, "shifted": _shifted}
EDGE_VALUES: dict[str, Callable[[torch.finfo], float]] = {
    "infinite": lambda _: float("inf"),
    "negative infinite": lambda _: float("-inf"),
    "not a number": lambda _: float("nan"),
    "zero": lambda _: 0.0,
    "negative zero": lambda _: -0.0,
    "large": lambda info: min(info.max, 1e4),
    "tiny": lambda info: info.tiny,
}


def _with_value(arg: object, value: Callable[[torch.finfo], float]) -> object:
    """The tensor with a value in the middle of its second row, and all over its last one."""
    assert isinstance(arg, Tensor)
    changed = arg.clone()
    number = value(torch.finfo(arg.dtype))
    rows = changed.view(-1, changed.shape[-1])
    if rows.numel():
        rows[min(1, len(rows) - 1), rows.shape[-1] // 2] = number
    if len(rows) > 2:
        rows[-1] = number
    return changed
