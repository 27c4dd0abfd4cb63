"""The patterns of a set of fusions, indexed by the operation at their root and traced when a program may have them.

What a pattern consists of is known before it is traced: of our own fusions from a file (`catalog/index.json`, which
`python -m vllm_ir.tools.fusion_index` writes), of others from tracing them once in a process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from hashlib import sha256
from inspect import getfile
from pathlib import Path
from typing import cast

import torch
from xdsl.ir import Operation, OpResult, SSAValue

from vllm_ir.conversions.fusion.fusion import Fusion
from vllm_ir.conversions.fusion.matcher import Matcher
from vllm_ir.conversions.fusion.ordering import ordered
from vllm_ir.conversions.fusion.pattern import Key, Variant, key_of
from vllm_ir.conversions.trace import Decompositions, inductor_decompositions
from vllm_ir.dialects.vllm_ir.function import ReturnOp
from vllm_ir.frontends.fx.types import is_shaped

INDEX = Path(__file__).parent / "catalog" / "index.json"


@dataclass(frozen=True)
class Sketch:
    """What is known of a variant of a fusion before it is traced."""

    fusion: Fusion
    example: int
    """The number of the example that it comes from."""
    root: Key
    feeding: frozenset[Key]
    """What `feeding_keys` says of the root."""
    looked_for: frozenset[Key]
    """Keys of the operations of `before`."""
    made: frozenset[Key]
    """Keys of the operations of `after`."""
    size: int
    """How many operations `before` has."""

    @cached_property
    def new(self) -> frozenset[Key]:
        """What `after` has and `before` has not."""
        return self.made - self.looked_for


class Library:
    """Variants of fusions, in the order in which they are tried."""

    def __init__(self, fusions: tuple[Fusion, ...], decompose: bool) -> None:
        self.decompose = decompose
        self.sketches = ordered([sketch for fusion in fusions for sketch in _sketches(fusion, decompose)])
        self.roots = {sketch.root for sketch in self.sketches}
        self._matchers: dict[Sketch, Matcher] = {}

    def matcher(self, sketch: Sketch) -> Matcher:
        """What finds a variant; it is traced when this is asked for the first time."""
        if (found := self._matchers.get(sketch)) is None:
            arguments = list(sketch.fusion.examples())[sketch.example]
            found = self._matchers[sketch] = Matcher(Variant(sketch.fusion, arguments, _table(self.decompose)))
        return found


@lru_cache(maxsize=16)
def library_of(fusions: tuple[Fusion, ...], decompose: bool) -> Library:
    """The library of some fusions.

    Raises:
        ValueError: a fusion is none: its `before` or `after` cannot be traced on its examples, or is no pattern.
    """
    return Library(fusions, decompose)


def traced_sketches(fusion: Fusion, decompose: bool) -> list[Sketch]:
    """The variants of a fusion that match different programs, found by tracing all of its examples.

    Raises:
        ValueError: as for `library_of`.
    """
    found: dict[object, Sketch] = {}
    for number, arguments in enumerate(fusion.examples()):
        variant = Variant(fusion, arguments, _table(decompose))
        structure = variant.structure()
        if structure not in found:
            after = variant.example_of_after()
            keys = [node.key for node in variant.nodes]
            root = variant.nodes[variant.root]
            found[structure] = Sketch(
                fusion,
                number,
                root.key,
                _asked_of_root(root.op),
                frozenset(keys),
                frozenset(key_of(op) for op in after.operations),
                len(keys),
            )
    if not found:
        raise ValueError(f"fusion {fusion.name!r} has no examples")
    return list(found.values())


def feeding_keys(op: Operation) -> frozenset[Key]:
    """Keys of the operations whose results an operation takes, sizes aside; where it is not alone, it says so too."""
    return _feeding_keys(op, lambda value: not value.has_one_use())


def _asked_of_root(root: Operation) -> frozenset[Key]:
    """What `feeding_keys` says at least of an operation that matches a pattern's root.

    A result that `before` returns has the pattern's other users; whether anything else uses it is open.
    """
    return _feeding_keys(root, lambda value: sum(not isinstance(use.operation, ReturnOp) for use in value.uses) > 1)


def _feeding_keys(op: Operation, is_shared: Callable[[SSAValue], bool]) -> frozenset[Key]:
    values = [value for value in op.operands if type(value) is OpResult and is_shaped(value.type)]
    shared = [f"{key_of(value.op)} for several" for value in values if is_shared(value)]
    return frozenset([*(key_of(value.op) for value in values), *shared])


def index_key(fusion: Fusion, decompose: bool) -> str:
    """Under which the index keeps a fusion."""
    return f"{fusion.name}{' of decomposed operators' if decompose else ''}"


def source_hash(fusion: Fusion) -> str:
    """A hash of the files that declare a fusion, and of PyTorch's version, whatever devices it was built for."""
    functions = (fusion.before, fusion.after, fusion.examples)
    files = {getfile(function) for function in functions}
    release = torch.__version__.partition("+")[0]
    return sha256(release.encode() + b"".join(_hash_of(name) for name in sorted(files))).hexdigest()[:16]


@cache
def _hash_of(file: str) -> bytes:
    # Lines may end in other ways in another checkout.
    return sha256(Path(file).read_text(encoding="utf-8").encode()).digest()


@cache
def _sketches(fusion: Fusion, decompose: bool) -> list[Sketch]:
    known = _index().get(index_key(fusion, decompose))
    if known is None or known["source"] != source_hash(fusion):
        return traced_sketches(fusion, decompose)
    return [
        Sketch(fusion, example, root, frozenset(feeding), frozenset(looked_for), frozenset(made), size)
        for example, root, feeding, looked_for, made, size in cast(
            "list[tuple[int, str, list[str], list[str], list[str], int]]", known["variants"]
        )
    ]


@cache
def _index() -> Mapping[str, Mapping[str, object]]:
    if not INDEX.exists():
        return {}
    return cast("dict[str, dict[str, object]]", json.loads(INDEX.read_text(encoding="utf-8")))


@cache
def _table(decompose: bool) -> Decompositions | None:
    return inductor_decompositions() if decompose else None
