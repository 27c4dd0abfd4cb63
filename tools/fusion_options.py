"""The options of `torch.compile` that say which fusions apply, as a pass of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

from vllm_ir.conversions.fusion import Fusion, Numerics
from vllm_ir.conversions.fusion.pattern import SIMPLIFYING

FUSION_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "fusions": "True for all that are supported, or a list of names and Fusion objects; none by default",
        "numerics": "'exact', 'reordered' or 'changed': how fusions may change results; 'changed' by default",
        "require_fusions": "{fusion: how often it has to be applied in each graph}",
        "explain_fusions": "True to keep in the report why groups of operations that came close were not fused",
    }
)


@dataclass(frozen=True)
class FusionOptions:
    """Which fusions a compilation applies."""

    names: tuple[str, ...] = ()
    """Names; all that are supported if there are none."""
    added: tuple[Fusion, ...] = ()
    """Fusions that hold for this compilation alone."""
    numerics: str = "changed"
    required: Mapping[str, int] = field(default_factory=lambda: {})
    explain: bool = False

    def as_passes(self, *, decompose: bool) -> list[str]:
        """The pass `fuse` with these options, and what simplifies programs for it, as text.

        `decompose` is for a graph of Inductor's operators.
        """
        options = {
            "only": ",".join(self.names),
            "numerics": self.numerics,
            "require": ",".join(f'"{name}:{count}"' for name, count in self.required.items()),
            "explain": "true" if self.explain else "",
            "decompose": "true" if decompose else "",
        }
        fuse = f"fuse{{{' '.join(f'{name}={value}' for name, value in options.items() if value)}}}"
        return [*(entry.name for entry in SIMPLIFYING), fuse]


def fusion_options(given: Mapping[str, object]) -> FusionOptions | None:
    """Read the options; None if no fusion is asked for.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: there is no such class of numerics, or options about fusions are given without any.
    """
    names, added = _fusions(given.get("fusions", False))
    if names is None:
        if others := [name for name in given if name != "fusions" and given[name]]:
            raise ValueError(f"option {others[0]} is about fusions; option fusions names them, or is True for all")
        return None
    numerics = given.get("numerics", "changed")
    if not isinstance(numerics, str) or numerics.upper() not in Numerics.__members__:
        raise ValueError(f"option numerics must be {FUSION_OPTIONS['numerics']}, got {numerics!r}")
    return FusionOptions(names, added, numerics, _required(given.get("require_fusions", {})), _explain(given))


def _fusions(value: object) -> tuple[tuple[str, ...] | None, tuple[Fusion, ...]]:
    if isinstance(value, bool):
        return (() if value else None), ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise TypeError(f"option fusions must be {FUSION_OPTIONS['fusions']}, got {value!r}")
    items = cast("Sequence[object]", value)
    names: list[str] = []
    for item in items:
        if not isinstance(item, str | Fusion):
            raise TypeError(f"option fusions must be {FUSION_OPTIONS['fusions']}, got {item!r} in the list")
        names.append(item.name if isinstance(item, Fusion) else item)
    return (tuple(names) if names else None), tuple(item for item in items if isinstance(item, Fusion))


def _required(value: object) -> Mapping[str, int]:
    if not isinstance(value, Mapping):
        raise TypeError(f"option require_fusions must be {FUSION_OPTIONS['require_fusions']}, got {value!r}")
    for name, times in cast("Mapping[object, object]", value).items():
        if not isinstance(name, str) or not isinstance(times, int) or isinstance(times, bool) or times < 0:
            raise TypeError(
                f"option require_fusions must be {FUSION_OPTIONS['require_fusions']}, got {name!r}: {times!r}"
            )
    return cast("Mapping[str, int]", value)


def _explain(given: Mapping[str, object]) -> bool:
    value = given.get("explain_fusions", False)
    if not isinstance(value, bool):
        raise TypeError(f"option explain_fusions must be {FUSION_OPTIONS['explain_fusions']}, got {value!r}")
    return value
