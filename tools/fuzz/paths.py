"""The ways through the compiler that a program is run on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn
from torch.utils import _pytree as pytree
from xdsl.dialects.builtin import ModuleOp

from vllm_ir.backends.fx.export import export_fx
from vllm_ir.backends.interpreter.interpret import interpret
from vllm_ir.frontends.fx.importer import import_callable
from vllm_ir.frontends.ops import NATIVE, ops
from vllm_ir.tools.fuzz.program import Loaded, Runnable, state_of
from vllm_ir.tools.fuzz.torch_internals import compile_program, reset_dynamo
from vllm_ir.tools.pipelines import run_passes
from vllm_ir.tools.reports import clear_compile_reports
from vllm_ir.tools.text import reread

PASSES = ("functionalize", "lower", "eliminate-clones")


Prepare = Callable[[Loaded, Runnable], Runnable]


def _compiled(backend: str) -> Prepare:
    def prepare(loaded: Loaded, program: Runnable) -> Runnable:
        options = {"ir_op_priority": {op: [*names, NATIVE] for op, names in loaded.providers.items()}}
        return compile_program(program, backend, options, dynamic=loaded.dynamic)

    return prepare


@contextmanager
def _priorities(providers: Mapping[str, Sequence[str]]) -> Generator[None]:
    with ExitStack() as stack:
        for op, names in providers.items():
            stack.enter_context(ops[op].set_priority([*names, NATIVE]))
        yield


def _per_arrangement(build: Callable[[Runnable, Sequence[object]], Runnable]) -> Prepare:
    """Build what runs a program for each way in which its arguments lie in memory, when they come for the first time.

    What is built takes flat arguments.
    """

    def prepare(loaded: Loaded, program: Runnable) -> Runnable:
        built: dict[object, Runnable] = {}

        def run(*arguments: object) -> object:
            key = _arrangement([*arguments, *state_of(program).values()])
            if key not in built:
                with _priorities(loaded.providers):
                    built[key] = build(program, arguments)
            return built[key](*pytree.tree_leaves(arguments))

        return run

    return prepare


def _arrangement(values: Sequence[object]) -> object:
    """All that an artifact for static sizes depends on."""
    storages: dict[int, int] = {}
    facts: list[object] = []
    for value in values:
        if isinstance(value, Tensor):
            storage = storages.setdefault(value.untyped_storage().data_ptr(), len(storages))
            facts.append((storage, value.dtype, value.shape, value.stride(), value.storage_offset()))
            facts.append(value.untyped_storage().nbytes())
        else:
            facts.append(value)
    return tuple(facts)


def _graph(program: Runnable, arguments: Sequence[object]) -> Runnable:
    """Import, all passes, export."""
    module = run_passes(import_callable(program, *arguments), ",".join(PASSES))
    return export_fx(module, like=_module(program))


def _functional_graph(program: Runnable, arguments: Sequence[object]) -> Runnable:
    """The same without the last pass: what remains to be written is written by what is exported."""
    module = run_passes(import_callable(program, *arguments), ",".join(PASSES[:-1]))
    return export_fx(module, like=_module(program))


def _graph_through_text(program: Runnable, arguments: Sequence[object]) -> Runnable:
    """Import, each pass, and export, with the module printed and parsed in between."""
    module = reread(import_callable(program, *arguments))
    for name in PASSES:
        module = reread(run_passes(module, name, verify_each=True))
    return export_fx(module, like=_module(program))


class _Levels:
    """The modules of one program, as imported and behind each pass; a level is made from the one in front of it."""

    def __init__(self) -> None:
        self._program: Loaded | None = None
        self._modules: dict[object, ModuleOp] = {}

    def prepare(self, passes: int) -> Prepare:
        """Interpret the module behind so many passes."""

        def prepare(loaded: Loaded, program: Runnable) -> Runnable:
            if self._program is not loaded:
                self._program, self._modules = loaded, {}

            def build(program: Runnable, arguments: Sequence[object]) -> Runnable:
                module = self._module(program, arguments, passes)
                return functools.partial(interpret, module, like=_module(program))

            return _per_arrangement(build)(loaded, program)

        return prepare

    def _module(self, program: Runnable, arguments: Sequence[object], passes: int) -> ModuleOp:
        key = passes, _arrangement([*arguments, *state_of(program).values()])
        if key not in self._modules:
            self._modules[key] = (
                run_passes(self._module(program, arguments, passes - 1).clone(), PASSES[passes - 1])
                if passes
                else import_callable(program, *arguments)
            )
        return self._modules[key]


_levels = _Levels()


def _module(program: Runnable) -> nn.Module | None:
    return program if isinstance(program, nn.Module) else None


PATHS: dict[str, Sequence[Prepare]] = {
    "vllm_ir_eager": [_compiled("vllm_ir_eager")],
    "vllm_ir": [_compiled("vllm_ir")],
    "vllm_ir_xla": [_compiled("vllm_ir_xla")],
    "graph": [_per_arrangement(_graph), _per_arrangement(_functional_graph)],
    "text": [_per_arrangement(_graph_through_text)],
    "interpreter": [_levels.prepare(count) for count in range(len(PASSES) + 1)],
}
"""How each path makes a program callable, by name; in several ways, one after the other, to interpret each level."""


PURE_PATHS = ("vllm_ir_xla",)
"""Paths through pure functions, whose results are separate values even where they share new memory in eager mode."""

INDUCTOR_PATHS = ("vllm_ir",)
"""Paths through Inductor, which drops copies of parts: their results may be in more memory than in eager mode."""


def forget() -> None:
    """Give up all that was compiled, so that memory stays flat over many programs."""
    reset_dynamo()
    clear_compile_reports()
