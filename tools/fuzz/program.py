"""The model of a program: what is generated, shrunk, and rendered as a file that runs by itself."""

from __future__ import annotations

import linecache
import re
import sys
import types
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

Runnable: TypeAlias = Callable[..., object]
_MODULE = "vllm_ir_fuzz_program"
_OPERAND = re.compile(r"\{(\d+)\}")


@dataclass(frozen=True)
class Memory:
    """A storage: `count` elements of `dtype` (as it is named in torch), filled with small numbers by `seed`."""

    dtype: str
    count: int
    seed: int

    def render(self) -> str:
        """The expression that makes it."""
        return f"numbers({self.count}, torch.{self.dtype}, {self.seed})"


@dataclass(frozen=True)
class Window:
    """A tensor that is given to the program: a strided window onto a storage, in elements of its own dtype.

    With `same_as`, it is the very tensor of another window, by position, and nothing else of this one counts.
    """

    storage: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    same_as: int | None = None


@dataclass(frozen=True)
class Call:
    """What one call of the program is given: storages, and the windows onto them."""

    storages: tuple[Memory, ...]
    windows: tuple[Window, ...]


@dataclass(frozen=True)
class Statement:
    """`results = template`, where the template names its operands by position: `{0}.add_({1})`."""

    results: tuple[str, ...]
    template: str
    operands: tuple[str, ...]
    writes: tuple[int, ...] = ()
    """Operands, by position, whose memory is written."""
    donates: tuple[int, ...] = ()
    """Operands, by position, that nobody may use afterwards."""
    elementwise: bool = False
    """Whether a written operand may also be read, as the same window."""
    moves: bool = False
    """Whether values are moved without looking at them: views, copies."""
    sums: bool = False
    """Whether values are added in an order that is not defined."""
    unpack: bool = False
    """Whether the result is a sequence, of which there are as many as results."""

    def expression(self) -> str:
        """The right-hand side."""
        return _OPERAND.sub(lambda match: self.operands[int(match[1])], self.template)

    def line(self, used: Container[str] | None = None) -> str:
        """The statement as a line of Python; results that are not `used`, if that is given, get no name."""
        names = [name if used is None or name in used or "." in name else "_" for name in self.results]
        if not any(name != "_" for name in names):
            # A call needs no name; of other expressions, one that is thrown away looks like a mistake.
            plain = not names or self.template.endswith(")")
            return self.expression() if plain else f"_ = {self.expression()}"
        comma = "," if self.unpack and len(names) == 1 else ""
        return f"{', '.join(names)}{comma} = {self.expression()}"


@dataclass(frozen=True)
class Branch:
    """A function that `torch.cond` may call."""

    name: str
    parameters: tuple[str, ...]
    body: tuple[Statement, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A function of tensors, or a module with buffers, and what it is called with."""

    arguments: tuple[str, ...]
    calls: tuple[Call, ...]
    body: tuple[Statement, ...]
    returns: str
    """An expression, or nothing."""
    branches: tuple[Branch, ...] = ()
    buffers: tuple[str, ...] = ()
    """Names of the buffers of the module, whose windows lead those of the first call; a function if there are none."""
    dynamic: bool = False
    """Whether it is compiled once, for sizes that change between calls."""
    providers: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """The priority lists under which operators of this project are lowered."""

    def used_branches(self) -> tuple[Branch, ...]:
        """The branches that a statement names."""
        text = "\n".join(statement.template for statement in self.body)
        return tuple(branch for branch in self.branches if branch.name in text)


_NUMBERS = '''
def numbers(count, dtype, seed):
    """Small numbers: sums and products of them are exact in every dtype."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)
'''


def render(
    program: Program,
    title: str = "A generated program.",
    paths: Sequence[str] = (),
    undefined: Sequence[Sequence[tuple[int, Window]]] = (),
) -> str:
    """A Python file that defines what `load` reads: the program, its inputs and how it is compiled.

    `paths` are those that it once failed on; `undefined` are windows of arguments, by position, that are given away in
    each call, so that nobody knows what they hold.
    """
    parts = [f'"""{title}"""\n']
    if program.providers or any(
        "torch.ops." in s.template for s in (*program.body, *(s for b in program.branches for s in b.body))
    ):
        parts.append("import torch\n\nimport vllm_ir.tools.fuzz.operators  # noqa: F401 (defines the operators)")
    else:
        parts.append("import torch")
    parts.append(
        f"PATHS = {list(paths)}\n"
        f"CALLS = {len(program.calls)}\nDYNAMIC = {program.dynamic}\n"
        f"PROVIDERS = {_providers(program)}\n"
        f"UNDEFINED = {_undefined(undefined)}\n"
    )
    parts.append(_NUMBERS)
    parts.append(_render_inputs(program))
    parts.extend(_render_branch(branch) for branch in program.used_branches())
    parts.append(_render_module(program) if program.buffers else _render_function(program))
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _providers(program: Program) -> dict[str, list[str]]:
    return {op: list(names) for op, names in program.providers.items()}


def _undefined(windows: Sequence[Sequence[tuple[int, Window]]]) -> dict[int, list[object]]:
    found: dict[int, list[object]] = {}
    for call, entries in enumerate(windows):
        if entries:
            found[call] = [(position, w.dtype, w.shape, w.strides, w.offset) for position, w in entries]
    return found


def _render_inputs(program: Program) -> str:
    skip = len(program.buffers)
    lines = ["def inputs(call):"]
    for number, call in enumerate(program.calls):
        names = [*(f"buffer{i}" for i in range(skip)), *program.arguments]
        last = number == len(program.calls) - 1
        if not last:
            lines.append(f"    if call == {number}:")
        indent = "    " if last else "        "
        lines += [indent + line for line in _window_lines(call, names, range(skip, len(names)))]
        lines.append(f"{indent}return {_tuple(program.arguments)}")
    return "\n".join(lines)


def _window_lines(call: Call, names: Sequence[str], positions: range) -> Iterator[str]:
    windows = [call.windows[i] for i in positions]
    used = sorted({window.storage for window in windows if window.same_as is None})
    for index in used:
        yield f"m{index} = {call.storages[index].render()}"
    for position, window in zip(positions, windows, strict=True):
        if window.same_as is not None:
            yield f"{names[position]} = {names[window.same_as]}"
            continue
        memory = f"m{window.storage}"
        if window.dtype != call.storages[window.storage].dtype:
            memory += f".view(torch.{window.dtype})"
        yield f"{names[position]} = {memory}.as_strided({window.shape}, {window.strides}, {window.offset})"


def _tuple(names: Sequence[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})" if len(names) != 1 else f"({names[0]},)"


def _body(program: Program, indent: str) -> list[str]:
    used = {name for statement in program.body for name in statement.operands}
    used.update(re.findall(r"\bv\d+\b", program.returns))
    lines = [statement.line(used) for statement in program.body]
    lines.append(f"return {program.returns}".rstrip())
    return [indent + line for line in lines]


def _render_branch(branch: Branch) -> str:
    lines = [f"def {branch.name}({', '.join(branch.parameters)}):"]
    lines += [f"    {statement.line()}" for statement in branch.body]
    lines.append(f"    return {_tuple(branch.results)}")
    return "\n".join(lines)


def _render_function(program: Program) -> str:
    lines = [f"def program({', '.join(program.arguments)}):", *_body(program, "    ")]
    return "\n".join(lines) + "\n\n\ndef make():\n    return program"


def _render_module(program: Program) -> str:
    names = [f"buffer{i}" for i in range(len(program.buffers))]
    lines = ["class Program(torch.nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in _window_lines(program.calls[0], names, range(len(names)))]
    lines += [
        f'        self.register_buffer("{name.removeprefix("self.")}", {value})'
        for name, value in zip(program.buffers, names, strict=True)
    ]
    lines += ["", f"    def forward({', '.join(('self', *program.arguments))}):", *_body(program, "        ")]
    return "\n".join(lines) + "\n\n\ndef make():\n    return Program()"


@dataclass(frozen=True)
class Loaded:
    """A program that can be run."""

    source: str
    file: str
    make: Callable[[], Runnable]
    """The program anew: a function, or a module with its initial buffers."""
    inputs: Callable[[int], Sequence[object]]
    """The arguments of a call anew, by number."""
    calls: int
    dynamic: bool
    providers: Mapping[str, Sequence[str]]
    paths: Sequence[str]
    undefined: Mapping[int, Sequence[tuple[int, str, Sequence[int], Sequence[int], int]]]
    """By call, windows that hold nothing in particular in the end: in the storage of which argument, and where."""

    def forget(self) -> None:
        """Give up what Python keeps for tracebacks."""
        linecache.cache.pop(self.file, None)


def load(source: str, file: str) -> Loaded:
    """Run a rendered file; `file` is what tracebacks and the compiler's messages name."""
    module = types.ModuleType(_MODULE)
    # Dynamo looks up the module of a function by its name.
    sys.modules[_MODULE] = module
    namespace = module.__dict__
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), namespace)  # the text is ours

    def get(name: str) -> Any:  # what a rendered file defines is of the types that `Loaded` states
        return namespace[name]

    return Loaded(
        source,
        file,
        make=get("make"),
        inputs=get("inputs"),
        calls=get("CALLS"),
        dynamic=get("DYNAMIC"),
        providers=get("PROVIDERS"),
        paths=get("PATHS"),
        undefined=get("UNDEFINED"),
    )


def state_of(program: Runnable) -> dict[str, Tensor]:
    """The buffers of a module by name; nothing for a function."""
    if not isinstance(program, nn.Module):
        return {}
    # A program may have put anything in the place of a buffer.
    return dict(program.named_buffers(remove_duplicate=False))


def build(call: Call) -> list[Tensor]:
    """The tensors that a call's windows are, those of buffers first."""
    storages: dict[int, Tensor] = {}
    result: list[Tensor] = []
    for window in call.windows:
        if window.same_as is not None:
            result.append(result[window.same_as])
            continue
        memory = storages.get(window.storage)
        if memory is None:
            entry = call.storages[window.storage]
            memory = storages[window.storage] = numbers(entry.count, dtype_named(entry.dtype), entry.seed)
        if window.dtype != call.storages[window.storage].dtype:
            memory = memory.view(dtype_named(window.dtype))
        result.append(memory.as_strided(window.shape, window.strides, window.offset))
    return result


def numbers(count: int, dtype: torch.dtype, seed: int) -> Tensor:
    """What rendered files fill memory with."""
    values = (torch.arange(count) * 7 + seed * 5) % 13 - 4
    return (values > 0) if dtype == torch.bool else values.to(dtype)


def dtype_named(name: str) -> torch.dtype:
    """A dtype by the name that it has in torch."""
    return cast(torch.dtype, getattr(torch, name))


def dtype_name(dtype: torch.dtype) -> str:
    """The name that a dtype has in torch."""
    return str(dtype).removeprefix("torch.")
