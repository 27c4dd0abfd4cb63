"""Compiled graphs that place windows in storages (`as_strided`) run on arguments that begin where theirs began.

Such a graph says where in a storage a window is, while the IR knows where it is from an argument. Dynamo has no guard
for the offset of a tensor in its storage.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from torch import Tensor, fx

from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import is_overload
from vllm_ir.tools.torch_internals import recompile_limit

Compiled = Callable[..., object]

_logger = logging.getLogger("vllm_ir")


def places_windows(gm: fx.GraphModule) -> bool:
    """Whether a graph of ATen calls, or one that is nested in it, places windows in storages."""
    graphs = [module.graph for module in gm.modules() if isinstance(module, fx.GraphModule)]
    targets = {node.target for graph in graphs for node in graph.nodes if node.op == "call_function"}
    return any(is_overload(target) and op_info(target).places_windows for target in targets)


class PlacedCall:
    """Runs the artifact for the offsets that the arguments have, compiled when they come for the first time.

    A program may call with ever new offsets; beyond Dynamo's limit for recompilations they run uncompiled.
    """

    def __init__(
        self,
        call: Compiled,
        arguments: Sequence[object],
        compile_for: Callable[[Sequence[object]], Compiled],
        uncompiled: Compiled,
    ) -> None:
        """Choose among artifacts.

        Args:
            call: takes all arguments, and was compiled for the offsets of `arguments`.
            arguments: real tensors and numbers.
            compile_for: makes a callable like `call`, for the arguments given.
            uncompiled: the program as it was written.
        """
        self._calls = {_offsets(arguments): call}
        self._compile_for = compile_for
        self._uncompiled = uncompiled
        self._lock = threading.Lock()

    def __call__(self, *arguments: object) -> object:
        """Run the program."""
        offsets = _offsets(arguments)
        call = self._calls.get(offsets)
        if call is None:
            call = self._other(offsets, arguments)
        return call(*arguments)

    def _other(self, offsets: tuple[int, ...], arguments: Sequence[object]) -> Compiled:
        with self._lock:
            if offsets not in self._calls and len(self._calls) < recompile_limit():
                self._calls[offsets] = self._compile_for(arguments)
        if offsets not in self._calls:
            _logger.warning("arguments begin at more than %d offsets: running uncompiled", recompile_limit())
        return self._calls.get(offsets, self._uncompiled)


def _offsets(arguments: Sequence[object]) -> tuple[int, ...]:
    return tuple([int(value.storage_offset()) for value in arguments if isinstance(value, Tensor)])
