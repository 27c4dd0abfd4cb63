"""A process that runs programs: requests come in as lines of JSON, what came of each program goes out as one.

A crash or a hang of a program takes only the worker with it, and the line that announces a program tells which it was.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO, cast

from vllm_ir.tools.fuzz.mutants.mutant import plant
from vllm_ir.tools.fuzz.mutants.table import MUTANTS
from vllm_ir.tools.fuzz.settings import Settings

_COLLECT_EVERY = 20
"""Programs between collections of garbage; what is compiled is full of cycles."""


def main(arguments: Sequence[str]) -> None:
    """Serve requests until there are none."""
    settings = _settings(arguments[0])
    answers = _own_output()
    if settings.mutant:
        plant(MUTANTS[settings.mutant])
    # Behind the planting of a bug, which happens while modules are imported.
    import torch

    from vllm_ir.tools.fuzz.run import run_program

    torch.set_num_threads(1)
    known: set[tuple[str, str]] = set()
    for line in sys.stdin:
        start, stop = cast("tuple[int, int]", json.loads(line))
        for index in range(start, stop):
            _say(answers, {"begin": index})
            outcome = run_program(settings, index, known)
            _say(answers, asdict(outcome))
            if index % _COLLECT_EVERY == 0:
                gc.collect()
        _say(answers, {"done": start})


def _settings(text: str) -> Settings:
    values = cast("dict[str, object]", json.loads(text))
    values["paths"] = tuple(cast("list[str]", values["paths"]))
    return Settings(**values)  # type: ignore[arg-type]  # as `asdict` has written them


def _own_output() -> TextIO:
    """Standard output for answers alone; what else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, message: object) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
