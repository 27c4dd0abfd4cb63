"""Running one program in eager mode and on a path, and what came of it."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.utils.exceptions import PassFailedException

from vllm_ir.frontends.fx.errors import FxImportError
from vllm_ir.tools.fuzz.observe import Seen, difference, observe
from vllm_ir.tools.fuzz.paths import INDUCTOR_PATHS, PATHS, PURE_PATHS, Prepare, forget
from vllm_ir.tools.fuzz.program import Loaded
from vllm_ir.tools.fuzz.refusals import reason
from vllm_ir.tools.fuzz.settings import AGREES, FAILED, REFUSED
from vllm_ir.tools.fuzz.torch_internals import cause, plain_conditions, refused_by_dynamo


@dataclass(frozen=True)
class Verdict:
    """What came of a program on a path."""

    path: str
    outcome: str
    """`AGREES`, `REFUSED` or `FAILED`."""
    kind: str = ""
    """The documented reason of a refusal, or what kind of failure it is; shrinking keeps it."""
    text: str = ""


def expected(loaded: Loaded) -> list[Seen]:
    """What eager mode shows. Raises what the program raises there."""
    with warnings.catch_warnings(), plain_conditions():
        warnings.simplefilter("ignore")
        return observe(loaded, lambda program: program)


def judge(loaded: Loaded, path: str, seen: Sequence[Seen]) -> Verdict:
    """Run a program on a path and compare it with what eager mode has shown."""
    try:
        for prepare in PATHS[path]:
            verdict = _judge_form(loaded, path, prepare, seen)
            if verdict.outcome != AGREES:
                return verdict
    finally:
        forget()
    return Verdict(path, AGREES)


def _judge_form(loaded: Loaded, path: str, prepare: Prepare, seen: Sequence[Seen]) -> Verdict:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            got = observe(loaded, lambda program: prepare(loaded, program))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is reported
        return _judge_error(path, error)
    sizes = path not in INDUCTOR_PATHS and not loaded.dynamic
    differs = difference(seen, got, new_memory=path not in PURE_PATHS, sizes=sizes)
    if differs is None:
        return Verdict(path, AGREES)
    return Verdict(path, FAILED, f"other {differs.fact}", differs.text)


def _judge_error(path: str, error: Exception) -> Verdict:
    inner = cause(error)
    message = str(inner).strip()
    if refused_by_dynamo(inner):
        return Verdict(path, REFUSED, f"Dynamo has no graph: {_first_line(message)}", message)
    if isinstance(inner, FxImportError | PassFailedException):
        known = reason(message)
        if known is None:
            return Verdict(path, FAILED, f"refused for no documented reason: {_general(message)}", message)
        if "\n" in message:
            return Verdict(path, FAILED, "refused in more than one line", message)
        return Verdict(path, REFUSED, known, message)
    where = "".join(traceback.format_exception(inner))
    return Verdict(path, FAILED, f"{type(inner).__name__}: {_general(_first_line(message))}", where)


def _first_line(message: str) -> str:
    return message.splitlines()[0] if message else ""


def _general(message: str) -> str:
    """A message without what belongs to the one program: names, numbers, files."""
    text = re.sub(r"\S*\.py:\d+:?", "", _first_line(message))
    text = re.sub(r"[%`'\"][\w<>\[\], .=-]+[`'\"]?", "_", text)
    return re.sub(r"\d+", "N", text)[:120]
