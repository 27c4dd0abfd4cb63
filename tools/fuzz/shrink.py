"""Making a failing program smaller, as long as it fails in the same way."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from vllm_ir.tools.fuzz.program import Branch, Call, Memory, Program, Statement, Window
from vllm_ir.tools.fuzz.simulate import RejectedError, check

StillFails = Callable[[Program], bool]


def shrink(program: Program, still_fails: StillFails, seconds: float) -> Program:
    """The smallest program found in some `seconds` for which `still_fails` holds; each is one that eager runs."""
    deadline = time.monotonic() + seconds
    improved = True
    while improved:
        improved = False
        for smaller in _smaller(program):
            if time.monotonic() > deadline:
                return program
            if _is_sound(smaller) and still_fails(smaller):
                program, improved = smaller, True
                break
    return program


def _is_sound(program: Program) -> bool:
    try:
        check(program)
    except RejectedError:
        return False
    return True


def _smaller(program: Program) -> Iterator[Program]:
    """Simpler programs, those first that leave out most."""
    for call in range(len(program.calls)):
        if len(program.calls) > 1:
            yield _without_call(program, call)
    yield from _fewer_statements(program)
    if program.returns:
        yield replace(program, returns="")
        for part in _parts(program.returns):
            yield replace(program, returns=part)
    yield from _fewer_arguments(program)
    yield from _simpler_statements(program)
    yield from _simpler_inputs(program)
    if program.dynamic:
        yield replace(program, dynamic=False)
    if program.providers:
        yield replace(program, providers={})


def _without_call(program: Program, call: int) -> Program:
    return replace(program, calls=(*program.calls[:call], *program.calls[call + 1 :]))


def _fewer_statements(program: Program) -> Iterator[Program]:
    body = program.body
    width = len(body) // 2
    while width >= 1:
        for start in range(len(body) - width, -1, -width):
            left_out = body[start : start + width]
            rest = (*body[:start], *body[start + width :])
            yield replace(program, body=rest)
            if width == 1:
                yield from _with_stand_ins(replace(program, body=rest), left_out[0])
        width //= 2


def _with_stand_ins(program: Program, statement: Statement) -> Iterator[Program]:
    """Use an operand where the result of a statement that is left out was used."""
    for operand in dict.fromkeys(statement.operands):
        names = dict.fromkeys(statement.results, operand)
        if names:
            yield _renamed(program, names)


def _renamed(program: Program, names: dict[str, str]) -> Program:
    def new(name: str) -> str:
        return names.get(name, name)

    body = tuple(replace(s, operands=tuple(map(new, s.operands))) for s in program.body)
    returns = re.sub(r"\bv\d+\b", lambda match: new(match[0]), program.returns)
    return replace(program, body=body, returns=returns)


def _parts(returns: str) -> list[str]:
    """Single values of what is returned."""
    parts = re.findall(r"(?:self\.)?\b[a-z]\d*\b(?:\.view_as\([^)]*\)| \* 1)?", returns)
    return [part for part in dict.fromkeys(parts) if part != returns]


def _fewer_arguments(program: Program) -> Iterator[Program]:
    used = program.returns + " ".join(name for s in program.body for name in s.operands)
    skip = len(program.buffers)
    for position, name in enumerate((*program.buffers, *program.arguments)):
        if re.search(rf"(?<!\w){re.escape(name)}\b", used):
            continue
        calls = tuple(call for call in (_without_window(call, position) for call in program.calls) if call is not None)
        if len(calls) < len(program.calls):
            continue
        if position < skip:
            yield replace(program, calls=calls, buffers=tuple(b for b in program.buffers if b != name))
        elif len(program.arguments) > 1:
            yield replace(program, calls=calls, arguments=tuple(a for a in program.arguments if a != name))


def _without_window(call: Call, position: int) -> Call | None:
    if any(window.same_as == position for window in call.windows):
        return None
    windows = [window for i, window in enumerate(call.windows) if i != position]
    moved = tuple(
        replace(w, same_as=w.same_as - 1) if w.same_as is not None and w.same_as > position else w for w in windows
    )
    return replace(call, windows=moved)


def _simpler_statements(program: Program) -> Iterator[Program]:
    for number, statement in enumerate(program.body):
        for simpler in _simpler(statement):
            yield replace(program, body=(*program.body[:number], simpler, *program.body[number + 1 :]))
    for number, branch in enumerate(program.branches):
        for i in range(1, len(branch.body)):
            shorter = Branch(branch.name, branch.parameters, (*branch.body[:i], *branch.body[i + 1 :]), branch.results)
            yield replace(program, branches=(*program.branches[:number], shorter, *program.branches[number + 1 :]))


def _simpler(statement: Statement) -> Iterator[Statement]:
    if statement.writes and statement.results and not statement.unpack:
        yield replace(statement, results=())
    if len(statement.writes) == 1 and len(statement.operands) > 1 and statement.template != "{0}.copy_({1})":
        copied = replace(statement, template="{0}.copy_({1})", operands=statement.operands[:2], writes=(0,), sums=False)
        if statement.writes == (0,) and not statement.donates and not statement.results:
            yield copied
    if len(statement.writes) == 1 and statement.template not in ("{0}.add_(1)", "{0}.copy_({1})"):
        written = statement.operands[statement.writes[0]]
        yield Statement((), "{0}.add_(1)", (written,), writes=(0,), elementwise=True)


def _simpler_inputs(program: Program) -> Iterator[Program]:
    """Dense windows, of storages of their own, of a common dtype."""
    count = len(program.calls[0].windows)
    for position in range(count):
        for simplify in (_apart, _dense, _as_float):
            calls = tuple(simplify(call, position) for call in program.calls)
            if calls != program.calls:
                yield replace(program, calls=calls)


def _put(call: Call, position: int, window: Window, storages: tuple[Memory, ...]) -> Call:
    return Call(storages, (*call.windows[:position], window, *call.windows[position + 1 :]))


def _apart(call: Call, position: int) -> Call:
    window = call.windows[position]
    source = window if window.same_as is None else call.windows[window.same_as]
    shared = [w for i, w in enumerate(call.windows) if i != position and w.storage == source.storage]
    if window.same_as is None and not shared:
        return call
    memory = call.storages[source.storage]
    alone = replace(source, storage=len(call.storages), same_as=None, dtype=memory.dtype)
    return _put(call, position, alone, (*call.storages, memory))


def _dense(call: Call, position: int) -> Call:
    window = call.windows[position]
    if window.same_as is not None:
        return call
    steps: list[int] = []
    step = 1
    for size in reversed(window.shape):
        steps.insert(0, step)
        step *= max(size, 1)
    dense = replace(window, strides=tuple(steps), offset=0)
    storages = list(call.storages)
    if sum(w.storage == window.storage and w.same_as is None for w in call.windows) == 1:
        storages[window.storage] = replace(storages[window.storage], count=step)
    result = _put(call, position, dense, tuple(storages))
    return result if result != call else call


def _as_float(call: Call, position: int) -> Call:
    window = call.windows[position]
    alone = sum(w.storage == window.storage for w in call.windows) == 1
    if window.same_as is not None or window.dtype == "float32" or not alone:
        return call
    storages = list(call.storages)
    storages[window.storage] = replace(storages[window.storage], dtype="float32")
    return _put(call, position, replace(window, dtype="float32"), tuple(storages))
