"""The tensors that a graph or module holds as attributes, and running it with fakes in their place."""

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import fx, nn

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.torch_internals import registered_tensors

_Container = dict[object, object] | list[object]


@dataclass(frozen=True)
class _Slot:
    """A place that holds a tensor: `container[key]`, under the qualified name `name`."""

    container: _Container
    key: object
    name: str
    tensor: torch.Tensor

    def put(self, tensor: torch.Tensor) -> None:
        cast("dict[object, object]", self.container)[self.key] = tensor


@dataclass
class ModuleTensors:
    """The distinct tensors held by a module, in order, each under the first name found for it."""

    names: list[str] = field(default_factory=lambda: [])
    tensors: list[torch.Tensor] = field(default_factory=lambda: [])
    _positions: dict[int, int] = field(default_factory=lambda: {})
    _modules: dict[str, nn.Module] = field(default_factory=lambda: {})

    def add(self, name: str, tensor: torch.Tensor) -> None:
        """Registers `tensor` under `name`, unless it is known already, by this name or another."""
        if id(tensor) not in self._positions:
            self._positions[id(tensor)] = len(self.tensors)
            self.names.append(name)
            self.tensors.append(tensor)

    def add_module(self, prefix: str, module: nn.Module) -> None:
        """Registers all tensors of `module` and its submodules: parameters, buffers, plain attributes, and tensors in
        lists and dictionaries among the attributes."""
        for path, submodule in cast("Iterator[tuple[str, nn.Module]]", module.named_modules(prefix=prefix)):
            self._modules[path] = submodule
            for slot in _slots_of(path, submodule):
                self.add(slot.name, slot.tensor)

    def position(self, tensor: torch.Tensor) -> int | None:
        """Where `tensor` is in `tensors`, by identity."""
        return self._positions.get(id(tensor))

    @contextlib.contextmanager
    def replaced(self, values: Sequence[torch.Tensor]) -> Generator[None]:
        """Runs with `values[i]` wherever a module holds `tensors[i]`; afterwards the modules are as they were.

        Raises `FxImportError` if a module was given a new tensor meanwhile: the graph could not say so.
        """
        slots = [slot for path, module in self._modules.items() for slot in _slots_of(path, module)]
        containers = [c for module in self._modules.values() for c in (module.__dict__, *registered_tensors(module))]
        before = [dict(container) for container in containers]
        try:
            for slot in slots:
                slot.put(values[self._positions[id(slot.tensor)]])
            yield
            self._check_nothing_assigned({slot.name: values[self._positions[id(slot.tensor)]] for slot in slots})
        finally:
            for slot in slots:
                slot.put(slot.tensor)
            for container, contents in zip(containers, before, strict=True):
                container.clear()
                container.update(contents)

    def _check_nothing_assigned(self, given: Mapping[str, torch.Tensor]) -> None:
        """Each attribute still holds what it was given; another attribute's tensor would be new to it too."""
        for path, module in self._modules.items():
            for slot in _slots_of(path, module):
                if slot.tensor is not given.get(slot.name):
                    raise FxImportError(
                        f"the module assigns a new tensor to its attribute `{slot.name}`; mutate a buffer in place, or "
                        "return the tensor"
                    )


def graph_tensors(gm: fx.GraphModule) -> ModuleTensors:
    """The tensors that the graph of `gm` reads: `get_attr` targets, and all tensors of the modules it calls."""
    found = ModuleTensors()
    for node in gm.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            target = cast(str, node.target)
            value = fetch_attribute(gm, target)
            if isinstance(value, torch.Tensor):
                found.add(target, value)
            elif isinstance(value, nn.Module):
                found.add_module(target, value)
    return found


def fetch_attribute(root: nn.Module, target: str) -> object:
    """`root.a.b.c` for the target `"a.b.c"`, where names may also be keys of lists and dictionaries.

    Raises `FxImportError` if there is no such attribute.
    """
    value: object = root
    for name in target.split("."):
        value = _member(value, name)
        if value is None:
            raise FxImportError(f"the graph refers to the attribute `{target}`, which its module does not have")
    return value


def _member(value: object, name: str) -> object:
    if isinstance(value, dict):
        return cast("dict[object, object]", value).get(name)
    if isinstance(value, list):
        items = cast("list[object]", value)
        return items[int(name)] if name.isdecimal() and int(name) < len(items) else None
    return getattr(value, name, None)


def _slots_of(path: str, module: nn.Module) -> Iterator[_Slot]:
    prefix = f"{path}." if path else ""
    for registered in registered_tensors(module):
        yield from _slots_in(prefix, cast("dict[object, object]", registered), nested=False)
    attributes = cast("dict[object, object]", module.__dict__)
    yield from _slots_in(prefix, attributes, nested=not isinstance(module, fx.GraphModule))


def _slots_in(prefix: str, container: _Container, *, nested: bool) -> Iterator[_Slot]:
    items = container.items() if isinstance(container, dict) else enumerate(container)
    for key, value in list(items):
        if key in ("_parameters", "_buffers", "_modules"):
            continue
        name = f"{prefix}{key}"
        if isinstance(value, torch.Tensor):
            yield _Slot(container, key, name, value)
        elif nested and type(value) in (list, dict):
            yield from _slots_in(f"{name}.", cast("list[object]", value), nested=True)
