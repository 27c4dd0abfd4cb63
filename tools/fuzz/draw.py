"""What statements are drawn from: a random number generator, and the values that a program has so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from vllm_ir.tools.fuzz.footprint import overlaps_itself
from vllm_ir.tools.fuzz.program import dtype_name
from vllm_ir.tools.fuzz.simulate import Simulation

T = TypeVar("T")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)


class Draw:
    """Draws for one program."""

    def __init__(self, rng: random.Random, simulation: Simulation, names: Sequence[str], dynamic: bool) -> None:
        """Begin with the names of the program's inputs."""
        self.rng = rng
        self.simulation = simulation
        self.names = list(names)
        self.dynamic = dynamic
        self._count = 0

    def fresh(self) -> str:
        """A name that nothing has yet; it may be taken back by not being used."""
        self._count += 1
        return f"v{self._count}"

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.rng.random() < probability

    def one_of(self, choices: Sequence[T]) -> T:
        """One of several things."""
        return self.rng.choice(choices)

    def tensor(self, name: str) -> Tensor | None:
        """What a name stands for in the first call."""
        return self.simulation.environments[0].tensor(name)

    def is_given(self, tensor: Tensor) -> bool:
        """Whether a tensor of the first call is one of the program's inputs, under whatever name."""
        return any(tensor is given for given in self.simulation.environments[0].inputs)

    def in_given_memory(self, tensor: Tensor) -> bool:
        """Whether a tensor of the first call is in the memory of one of the program's inputs."""
        address = tensor.untyped_storage().data_ptr()
        return any(given.untyped_storage().data_ptr() == address for given in self.simulation.environments[0].inputs)

    def pick(self, fits: Callable[[Tensor], bool] | None = None) -> str | None:
        """The name of a tensor that fits, of later ones rather than of earlier ones; None if there is none."""
        tensors = [(name, tensor) for name in self.names if (tensor := self.tensor(name)) is not None]
        found = [name for name, tensor in tensors if fits is None or fits(tensor)]
        if not found:
            return None
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def writable(self) -> str | None:
        """The name of a tensor that may be written."""
        return self.pick(lambda t: not overlaps_itself(t))

    def index(self, size: int) -> int:
        """A position in a dimension, from the front or from the back."""
        position = self.rng.randrange(size)
        return position - size if self.chance(0.3) else position

    def dim(self, tensor: Tensor) -> int:
        """A dimension of a tensor that has some, from the front or from the back."""
        return self.index(tensor.dim())

    def number(self, dtype: torch.dtype) -> str:
        """A literal that a tensor of `dtype` can hold."""
        if dtype == torch.bool:
            return self.one_of(["True", "False"])
        if dtype == torch.uint8:
            return str(self.rng.randrange(6))
        if dtype.is_floating_point and self.chance(0.3):
            return self.one_of(["0.5", "-1.5", "2.0"])
        return str(self.rng.randrange(-3, 6))

    def dtype_of(self, tensor: Tensor) -> str:
        """The dtype as it is written in a program."""
        return f"torch.{dtype_name(tensor.dtype)}"


def broadcasts(source: Tensor, target: Tensor) -> bool:
    """Whether a tensor can be written to another by an elementwise operator."""
    if source.dim() > target.dim():
        return False
    pairs = zip(reversed(source.shape), reversed(target.shape), strict=False)
    return all(a in (b, 1) for a, b in pairs)
