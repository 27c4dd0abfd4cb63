"""Planting a bug: the source of one module is changed while it is imported, in this process only."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


class MovedError(Exception):
    """The text that a mutant changes is not in its module, or is there more than once."""


@dataclass(frozen=True)
class Mutant:
    """One bug: `old` becomes `new` in the source of `module`; programs on `path` have to show it."""

    name: str
    module: str
    old: str
    new: str
    path: str = "graph"

    def mutate(self, source: str) -> str:
        """The source with the bug. Raises `MovedError`."""
        if source.count(self.old) != 1:
            raise MovedError(f"mutant {self.name}: {self.module} has {self.old!r} {source.count(self.old)} times")
        return source.replace(self.old, self.new)

    def check(self) -> None:
        """See that the bug can be planted. Raises `MovedError`."""
        self.mutate(_source(self.module))


def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MovedError(f"there is no module {module}")
    return Path(spec.origin).read_text()


class _Loader(SourceFileLoader):
    def __init__(self, mutant: Mutant, path: str) -> None:
        super().__init__(mutant.module, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        # Not the cached code, which has no bug, and nothing is put in the cache.
        return compile(self._mutant.mutate(self.get_data(self.path).decode()), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mutant.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.origin is None:
            raise MovedError(f"mutant {self._mutant.name}: there is no module {fullname}")
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=_Loader(self._mutant, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )


def plant(mutant: Mutant) -> None:
    """Plant a bug in this process, before its module is imported. Raises `MovedError`."""
    if mutant.module in sys.modules:
        raise MovedError(f"mutant {mutant.name}: {mutant.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutant))
