"""Running a program in eager mode and through the IR, and comparing everything that its caller can see."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from vllm_ir.backends.fx.export import export_fx, export_split
from vllm_ir.conversions.functionalize import FunctionalizePass
from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.frontends.fx.importer import import_callable, import_fx
from vllm_ir.tools.text import parse

Program = Callable[..., object]
Inputs = Callable[[], Sequence[object]]

EMPTY = "no memory"
SEED = 1234


def memory(storage: torch.UntypedStorage) -> bytes:
    """All bytes of a storage, also those between and around the windows onto it."""
    return bytes(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().tobytes())


def contents(tensor: Tensor) -> bytes:
    """The elements in row-major order, bit by bit: NaN equals itself, and 0.0 differs from -0.0."""
    values = tensor.detach().resolve_conj().resolve_neg()
    # Not `contiguous`, which leaves the strides of dimensions of size 1 as they are.
    dense = torch.empty(values.shape, dtype=values.dtype).copy_(values).reshape(-1)
    return bytes(dense.view(torch.uint8).numpy().tobytes())


def strides(tensor: Tensor) -> list[int]:
    """Strides where they matter: not of dimensions of size 1, nor of tensors without elements."""
    if tensor.numel() == 0:
        return []
    return [step if size != 1 else 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)]


def tensors_in(values: object) -> list[Tensor]:
    """All tensors in nested containers."""
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


@dataclass
class Storages:
    """Storages by where they lie; results of the program get numbers in order of appearance."""

    arguments: dict[int, str]
    fresh: dict[int, tuple[str, int]] = field(default_factory=dict)

    def label(self, tensor: Tensor) -> tuple[str, int]:
        """Whose storage a tensor is in, and at which byte it starts (in new storages: behind the first one seen)."""
        storage = tensor.untyped_storage()
        if storage.nbytes() == 0:
            return EMPTY, 0
        if tensor.numel() == 0:  # has no address
            return self.arguments.get(storage.data_ptr(), "new memory"), 0
        if (known := self.arguments.get(storage.data_ptr())) is not None:
            return known, tensor.data_ptr() - storage.data_ptr()
        name, start = self.fresh.setdefault(storage.data_ptr(), (f"new memory {len(self.fresh)}", tensor.data_ptr()))
        return name, tensor.data_ptr() - start


@dataclass
class Observation:
    """What a caller can see of one run of a program."""

    structure: str
    results: list[object]
    result_memory: list[object]
    same_objects: list[object]
    arguments: list[object]
    memory: list[bytes]
    random_state: bytes

    def compare(self, other: Observation, what: str) -> None:
        """Fail, naming the first difference to what eager mode shows."""
        for entry in fields(self):
            mine, theirs = getattr(self, entry.name), getattr(other, entry.name)
            assert mine == theirs, f"{what}: {entry.name} differ\n  eager: {mine}\n  here:  {theirs}"


def _describe(value: object) -> object:
    if not isinstance(value, Tensor):
        return (type(value).__name__, repr(value))
    flags = (value.is_conj(), value.is_neg(), str(value.device))
    return (value.dtype, tuple(value.shape), strides(value), flags, contents(value))


def observe(program: Program, arguments: Sequence[object], state: Sequence[Tensor] = ()) -> Observation:
    """Run `program`; `state` are tensors that it knows beside its arguments (buffers of a module)."""
    inputs = tensors_in([*arguments, *state])
    held = [tensor.untyped_storage() for tensor in inputs]
    known: dict[int, torch.UntypedStorage] = {}
    for storage in held:
        known.setdefault(storage.data_ptr(), storage)
    storages = Storages({address: f"memory {number}" for number, address in enumerate(known) if address})
    torch.manual_seed(SEED)
    with torch.no_grad():
        result = program(*arguments)
    random_state = bytes(torch.get_rng_state().numpy().tobytes())
    leaves, spec = pytree.tree_flatten(result)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    return Observation(
        structure=str(spec),
        results=[_describe(leaf) for leaf in leaves],
        result_memory=[storages.label(tensor) for tensor in tensors],
        same_objects=[next((i for i, x in enumerate(inputs) if x is tensor), None) for tensor in tensors],
        arguments=[
            (tensor.dtype, tuple(tensor.shape), strides(tensor), tensor.storage_offset() * tensor.element_size())
            for tensor in inputs
        ],
        memory=[memory(storage) for storage in known.values()],
        random_state=random_state,
    )


def functionalized(module: ModuleOp) -> ModuleOp:
    """The module at tensor level, verified before and behind the pass."""
    module.verify()
    FunctionalizePass().apply(Context(), module)
    module.verify()
    return module


def _flat(graph: Program) -> Program:
    return lambda *arguments: graph(*pytree.tree_leaves(arguments))


def _split(module: ModuleOp, arguments: Sequence[object]) -> Program:
    """The pure graph followed by what is done with its results; fails if the pure graph changes its arguments."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from vllm_ir.backends.fx.export import main_function
    from vllm_ir.backends.fx.metas import example_arguments

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    split = export_split(module, example_arguments(main_function(module), mode), mode)

    def run(*arguments: object) -> object:
        flat = pytree.tree_leaves(arguments)
        before = [memory(tensor.untyped_storage()) for tensor in tensors_in(flat)]
        outputs = split.core(*flat)
        after = [memory(tensor.untyped_storage()) for tensor in tensors_in(flat)]
        assert before == after, "the pure graph changes its arguments"
        if split.epilogue is None:
            return outputs
        return split.epilogue(*(flat[index] for index in split.epilogue_arguments), *outputs)

    return run


def compiled_forms(function: Program, arguments: Sequence[object], text: bool) -> Iterator[tuple[str, Program]]:
    """The program through the chain, exported complete, split, and (with `text`) from its own text."""
    like = function if isinstance(function, nn.Module) else None
    module = import_callable(function, *arguments)
    imported = str(module) if text else ""
    functionalized(module)
    yield "complete graph", _flat(export_fx(module, like=like))
    if like is None:
        yield "split graph", _split(module, arguments)
    if text:
        parsed = parse(imported)
        assert str(parsed) == imported, "the imported module does not print as it was parsed"
        final = str(functionalized(parsed))
        assert final == str(module), "functionalized from text, the module is another one"
        yield "graph from text", _flat(export_fx(parse(final), like=like))


def check(
    function: Program, inputs: Inputs, *, text: bool = False, dynamo: bool = False, dynamic: bool = False
) -> None:
    """Compare the program in eager mode and through import, functionalize and export.

    `inputs` makes the arguments anew for each run. `text` compares the module that is parsed from its own text as well.
    With `dynamo`, the graph is captured by `torch.compile`.
    """

    def run(program: Program, module: nn.Module | None) -> Observation:
        state = [] if module is None else [*module.parameters(), *module.buffers()]
        return observe(program, inputs(), state)

    own = copy.deepcopy(function) if isinstance(function, nn.Module) else function
    expected = run(own, own if isinstance(own, nn.Module) else None)
    if dynamo:
        own = copy.deepcopy(function) if isinstance(function, nn.Module) else function
        compiled = compile_with_dynamo(own, dynamic)
        expected.compare(run(compiled, own if isinstance(own, nn.Module) else None), "through torch.compile")
        return
    own = copy.deepcopy(function) if isinstance(function, nn.Module) else function
    for name, program in compiled_forms(own, inputs(), text):
        if isinstance(own, nn.Module):
            reset = copy.deepcopy(function)
            with torch.no_grad():
                for tensor, initial in zip(
                    [*own.parameters(), *own.buffers()], [*reset.parameters(), *reset.buffers()], strict=True
                ):
                    tensor.copy_(initial)
        expected.compare(run(program, own if isinstance(own, nn.Module) else None), name)


def compile_with_dynamo(function: Program, dynamic: bool = False) -> Program:
    """`torch.compile` with a backend that imports, functionalizes and exports."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[object]) -> fx.GraphModule:
        return export_fx(functionalized(import_fx(gm, example_inputs)), like=gm)

    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)


def refused(function: Program, inputs: Inputs, *, match: str = "", eager_raises: bool | None = None) -> str:
    """Check that a program is refused by one line that names this test file and a line in it; returns the message.

    `eager_raises` says whether eager mode refuses the program as well; None leaves that open.
    """
    if eager_raises is not None:
        raised = False
        try:
            observe(function, inputs())
        except Exception:  # noqa: BLE001  # eager mode raises many kinds of errors
            raised = True
        assert raised == eager_raises, "eager mode raises" if raised else "eager mode accepts the program"
    try:
        graphs = list(compiled_forms(function, inputs(), text=False))
    except (FxImportError, PassFailedException) as error:
        message = str(error)
        assert "\n" not in message, message
        assert re.search(r"test_\w+\.py:\d+", message), f"no file and line: {message}"
        assert re.search(match, message), message
        return message
    raise AssertionError(f"accepted, as {len(graphs)} graphs")
