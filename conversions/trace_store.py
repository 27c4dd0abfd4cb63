"""Traced implementations on disk, so that a later process reads what an earlier one has traced.

A file holds the text of one function, behind a digest of it. Its name is a hash of everything that the trace depends
on: the operation, its operands' types and attributes, the implementation with all that it uses, what is known of
symbolic sizes, and what the caller adds (versions, configuration). Files that are damaged, or of another compiler, are
traced anew and written again; a directory that cannot be written costs nothing but the time.

A trace is kept only if the function says all there is to say: no constants, no further functions, no guard or symbol
that tracing has added to the sizes of the graph that is compiled.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from tempfile import NamedTemporaryFile

from torch.fx.experimental.symbolic_shapes import ShapeEnv
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from vllm_ir.conversions.trace import Examples, Traced, as_traced
from vllm_ir.dialects.context import make_context
from vllm_ir.dialects.torch.call import CallOp
from vllm_ir.dialects.vllm_ir.function import FuncOp
from vllm_ir.dialects.vllm_ir.types import is_symbolic
from vllm_ir.frontends.fx.checks import check_module
from vllm_ir.frontends.fx.schemas import resolve
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.frontends.fx.types import is_shaped
from vllm_ir.frontends.ops.sources import source_hash

_logger = logging.getLogger("vllm_ir.traces")


class TraceStore:
    """A directory of traced implementations, and how many were traced and read for one graph.

    `facts` is what all traces depend on and no operation says: versions, configuration. Without a directory, everything
    is traced, and counted.
    """

    def __init__(self, directory: Path | None, facts: Sequence[str] = ()) -> None:
        self.directory = directory
        self.facts = tuple(facts)
        self.traced = 0
        self.loaded = 0

    def get(
        self,
        facts: Callable[[], Sequence[object]],
        types: Sequence[TensorType[Attribute]],
        examples: Examples,
        trace: Callable[[], Traced],
    ) -> Traced:
        """The trace of a callable on operands of these types; from its file, or by `trace`, which raises what it does.

        `facts` says what the callable is, in values whose `repr` is the same in every process.
        """
        env = examples.symbols.env
        directory = self.directory
        if directory is None or (any(map(is_symbolic, types)) and not examples.knows_sizes):
            self.traced += 1
            return trace()
        file = directory / f"{self._key(facts(), types, env)}.mlir"
        found = _load(file, types)
        if found is not None:
            self.loaded += 1
            return found
        before = _size(env)
        traced = trace()
        self.traced += 1
        if traced.complete and _size(env) == before:
            _save(file, traced.function)
        return traced

    @contextmanager
    def in_force(self) -> Generator[None]:
        """Inside the `with` block, `lower` asks this store."""
        token = _STORE.set(self)
        try:
            yield
        finally:
            _STORE.reset(token)

    def _key(self, facts: Sequence[object], types: Sequence[TensorType[Attribute]], env: ShapeEnv) -> str:
        parts: list[object] = [*self.facts, *facts, *map(str, types)]
        if any(map(is_symbolic, types)):
            parts += _known_of_sizes(env)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


_STORE: ContextVar[TraceStore | None] = ContextVar("vllm_ir_trace_store", default=None)


def current_store() -> TraceStore | None:
    """The store that is in force in this context, if there is one."""
    return _STORE.get()


def _known_of_sizes(env: ShapeEnv) -> list[object]:
    """What tracing may find out about symbols without adding a guard."""
    return [
        sorted((str(symbol), str(values)) for symbol, values in env.var_to_range.items()),
        sorted((str(symbol), str(value)) for symbol, value in env.replacements.items()),
        [str(guard.expr) for guard in env.guards],
        [str(check.expr) for checks in env.deferred_runtime_asserts.values() for check in checks],
    ]


def _size(env: ShapeEnv) -> tuple[int, ...]:
    """Grows with every symbol, guard and check."""
    checks = sum(map(len, env.deferred_runtime_asserts.values()))
    return len(env.var_to_range), len(env.guards), len(env.replacements), checks


def _load(file: Path, types: Sequence[TensorType[Attribute]]) -> Traced | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _logger.debug("%s cannot be read: %s", file, error)
        return None
    try:
        digest, _, body = content.partition(b"\n")
        if digest != _digest(body):
            raise ValueError("it is damaged")
        operators, _, text = body.decode().partition("\n")
        function = _parsed(text)
        if operators != _operators(function):
            raise ValueError("an operator that it calls is another one now")
        if not _takes(function, types):
            raise ValueError("it is of other operands")
    except (ParseError, VerifyException, ValueError, LookupError) as error:
        _logger.debug("%s is traced anew: %s", file, error)
        return None
    return as_traced(function)


def _save(file: Path, function: FuncOp) -> None:
    text = _with_aliases(function)
    try:
        if str(_parsed(text)) != str(function):
            raise ValueError("its text is read as another function")
        body = f"{_operators(function)}\n{text}".encode()
        _write_whole(file, _digest(body) + b"\n" + body)
    except (ParseError, VerifyException, ValueError, LookupError, OSError) as error:
        _logger.debug("%s is not written: %s", file, error)


def _with_aliases(function: FuncOp) -> str:
    """The text of a function with a name for each type: reading types takes as long as all the rest."""
    types = {str(kind) for op in function.walk() for kind in op.result_types}
    types.update(str(kind) for kind in function.block.arg_types)
    text, definitions = str(function), ""
    for number, kind in enumerate(sorted(types, key=lambda kind: (-len(kind), kind))):
        text, definitions = text.replace(kind, f"!t{number}"), f"{definitions}!t{number} = {kind}\n"
    return definitions + text


def _digest(body: bytes) -> bytes:
    return b"// " + hashlib.sha256(body).hexdigest().encode()


def _parsed(text: str) -> FuncOp:
    """The function that a text describes, verified, with what it says of operators."""
    module = Parser(make_context(), text).parse_module()
    module.verify()
    check_module(module)
    (function,) = module.body.block.ops
    if not isinstance(function, FuncOp):
        raise ValueError(f"it holds {function.name}")
    return function


def _operators(function: FuncOp) -> str:
    """A hash of the operators that a function calls: schemas, and what Python says they give when traced."""
    targets = [resolve(op.target) for op in function.walk() if isinstance(op, CallOp)]
    return "// " + source_hash(target for target in targets if is_overload(target))


def _takes(function: FuncOp, types: Sequence[TensorType[Attribute]]) -> bool:
    """Whether the arguments have these element types and shapes; those that are written are buffers."""
    given = [(kind.element_type, kind.shape) for kind in function.block.arg_types if is_shaped(kind)]
    return given == [(kind.element_type, kind.shape) for kind in types]


def _write_whole(file: Path, content: bytes) -> None:
    """Write a file so that other processes see all of it or nothing."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile("wb", dir=file.parent, prefix=".", delete=False) as temporary:
        try:
            temporary.write(content)
            temporary.close()
            Path(temporary.name).replace(file)
        except BaseException:
            Path(temporary.name).unlink(missing_ok=True)
            raise
