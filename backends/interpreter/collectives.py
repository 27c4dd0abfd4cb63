"""Process groups in one process: of threads, which meet in memory, or of ranks that all have what this one has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from threading import Barrier, BrokenBarrierError, Lock
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.utils.exceptions import InterpretationError

from vllm_ir.backends.interpreter.calls import Call, run_call
from vllm_ir.dialects.messages import operation_text
from vllm_ir.frontends.fx.schemas import op_info
from vllm_ir.frontends.fx.torch_objects import Overload, is_overload
from vllm_ir.frontends.ops.registry import get_op

Result = TypeVar("Result")
Groups = Mapping[str, Sequence[Sequence[int]]]
_NAMESPACES = ("_c10d_functional", "_c10d_functional_autograd")

_REDUCTIONS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "product": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


class _Meeting:
    """Where the ranks of one group exchange what they have."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self.ranks = tuple(ranks)
        self.barrier = Barrier(len(ranks))
        self._given: dict[int, object] = {}

    def exchange(self, rank: int, value: Result) -> list[Result]:
        """What all ranks of the group give, in the order of the group."""
        self._given[rank] = value
        self.barrier.wait()
        everything = [self._given[other] for other in self.ranks]
        self.barrier.wait()
        return cast("list[Result]", everything)


class SimulatedGroup:
    """Runs the ranks of a process group as threads of this process."""

    def __init__(self, size: int, groups: Groups | None = None) -> None:
        """A world of `size` ranks. `groups` gives the ranks of groups by name; a name that is not there is all ranks.

        A group that has several lists of ranks is one communicator for each of them, as with replica groups.
        """
        self.size = size
        self._groups: Groups = groups or {}
        self._meetings: dict[tuple[str, tuple[int, ...]], _Meeting] = {}
        self._lock = Lock()

    def run(self, program: Callable[[int, Callable[[Call], object]], Result]) -> list[Result]:
        """What `program(rank, calls)` gives on each rank; an error of one rank is raised once all have ended."""

        def ranked(rank: int) -> Result:
            try:
                return program(rank, lambda call: self._call(rank, call))
            except BaseException:
                with self._lock:
                    for meeting in self._meetings.values():
                        meeting.barrier.abort()
                raise

        with ThreadPoolExecutor(self.size) as pool:
            futures = [pool.submit(ranked, rank) for rank in range(self.size)]
        errors = [error for future in futures if (error := future.exception()) is not None]
        causes = [error for error in errors if not isinstance(error, BrokenBarrierError)]
        if errors:
            raise (causes or errors)[0]
        return [future.result() for future in futures]

    def _call(self, rank: int, call: Call) -> object:
        target = call.target
        if not is_overload(target) or target.namespace not in _NAMESPACES:
            return run_call(call)
        return _Collective(self, rank, operation_text(call.op), target, call.args, call.kwargs).run()

    def meeting(self, rank: int, name: str) -> _Meeting:
        """The communicator of `rank` in the group `name`."""
        lists = self._groups.get(name, [range(self.size)])
        ranks = next((tuple(ranks) for ranks in lists if rank in ranks), (rank,))
        with self._lock:
            return self._meetings.setdefault((name, ranks), _Meeting(ranks))


class _Mirror(_Meeting):
    """A communicator whose other ranks always have what this one has."""

    def exchange(self, rank: int, value: Result) -> list[Result]:
        return [value for _ in self.ranks]


class MirroredGroup(TorchDispatchMode):
    """In this block, collectives are those of groups of two ranks, the first of which this is, with equal tensors.

    Registered ops run by their native definitions. Nothing is told apart that depends on the rank.
    """

    def __init__(self) -> None:
        super().__init__()  # pyright: ignore[reportUnknownMemberType]  # untyped in torch
        self._world = _MirroredWorld(2)

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        op = get_op(func)
        if op is not None:
            with self:
                return op.native(*op.bound(args, kwargs or {}))
        if not is_overload(func) or func.namespace not in _NAMESPACES:
            return func(*args, **(kwargs or {}))
        return _Collective(self._world, 0, str(func), func, args, kwargs or {}).run()


class _MirroredWorld(SimulatedGroup):
    def meeting(self, rank: int, name: str) -> _Meeting:
        return _Mirror(range(self.size))


class _Collective:
    """One call of a functional collective by one rank, with its arguments by name."""

    def __init__(
        self,
        world: SimulatedGroup,
        rank: int,
        text: str,
        target: Overload,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> None:
        """`text`: what errors call it."""
        names = [argument.name for argument in op_info(target).arguments]
        self.world = world
        self.rank = rank
        self.text = text
        self.name = str(target).split(".")[1]
        self.given = dict(zip(names, [*args, *kwargs.values()], strict=True))

    def run(self) -> object:
        """What the rank gets. Forms that end in `_` write their input, coalesced ones take lists."""
        name = self.name
        if name == "wait_tensor":
            return self.given["tensor"]
        base = name.removesuffix("_").removesuffix("_coalesced").removesuffix("_out")
        step = _STEPS.get(base)
        if step is None:
            raise InterpretationError(f"{self.text}: {name} is not simulated")
        meeting = self.world.meeting(self.rank, str(self.given["group_name"]))
        values = next(self.given[key] for key in ("inputs", "input", "self") if key in self.given)
        results = [step(self, meeting, meeting.exchange(self.rank, value.clone())) for value in _tensors(values)]
        if not name.endswith(("_", "_out")):
            return results if isinstance(values, list) else results[0]
        written = self.given.get("out", values)
        for tensor, result in zip(_tensors(written), results, strict=True):
            tensor.copy_(result)
        return written

    def reduced(self, meeting: _Meeting, everything: Sequence[Tensor]) -> Tensor:
        """The values of all ranks as one."""
        how = str(self.given["reduce_op"]).lower()
        if how not in _REDUCTIONS:
            raise InterpretationError(f"{self.text}: reduction {how!r} is not simulated")
        total = reduce(_REDUCTIONS[how], everything)
        return total / len(meeting.ranks) if how == "avg" else total

    def all_reduce(self, meeting: _Meeting, everything: Sequence[Tensor]) -> Tensor:
        """The values of all ranks as one, everywhere."""
        return self.reduced(meeting, everything).clone()

    def all_gather_into_tensor(self, meeting: _Meeting, everything: Sequence[Tensor]) -> Tensor:
        """The values of all ranks one behind the other."""
        return torch.cat([value.reshape(1) if value.dim() == 0 else value for value in everything])

    def reduce_scatter_tensor(self, meeting: _Meeting, everything: Sequence[Tensor]) -> Tensor:
        """The part of the reduced value that is this rank's."""
        total = self.reduced(meeting, everything)
        size = total.shape[0] // len(meeting.ranks)
        return total.narrow(0, size * meeting.ranks.index(self.rank), size).clone()

    def broadcast(self, meeting: _Meeting, everything: Sequence[Tensor]) -> Tensor:
        """The value of the source, which is counted within the group."""
        return everything[cast(int, self.given["src"])].clone()

    def all_to_all_single(self, meeting: _Meeting, everything: Sequence[Tensor]) -> Tensor:
        """The parts that the others have for this rank."""
        # Every rank knows how it splits what it has; what it gets is told by what the others send.
        splits = meeting.exchange(self.rank, cast("list[int]", self.given["input_split_sizes"]))
        place = meeting.ranks.index(self.rank)
        parts = [
            value.narrow(0, sum(sizes[:place]), sizes[place]) for value, sizes in zip(everything, splits, strict=True)
        ]
        return torch.cat(parts)


def _tensors(value: object) -> list[Tensor]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Tensor)]


_STEPS: Mapping[str, Callable[[_Collective, _Meeting, Sequence[Tensor]], Tensor]] = {
    "all_reduce": _Collective.all_reduce,
    "all_gather_into_tensor": _Collective.all_gather_into_tensor,
    "reduce_scatter_tensor": _Collective.reduce_scatter_tensor,
    "broadcast": _Collective.broadcast,
    "all_to_all_single": _Collective.all_to_all_single,
}
