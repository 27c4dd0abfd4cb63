"""Resources that PyTorch operators touch besides the memory of their operands."""

from dataclasses import dataclass

from xdsl.traits import EffectInstance, MemoryEffectKind, Resource


@dataclass(frozen=True)
class RandomState(Resource):
    """The state of the random number generators: drawing reads and advances it."""

    def name(self) -> str:
        """Name in messages."""
        return "<RandomState>"


@dataclass(frozen=True)
class External(Resource):
    """Everything outside the program: assertions, printing, communication."""

    def name(self) -> str:
        """Name in messages."""
        return "<External>"


RANDOM_EFFECTS = frozenset(
    EffectInstance(kind, None, RandomState()) for kind in (MemoryEffectKind.READ, MemoryEffectKind.WRITE)
)
EXTERNAL_EFFECTS = frozenset(
    EffectInstance(kind, None, External()) for kind in (MemoryEffectKind.READ, MemoryEffectKind.WRITE)
)
