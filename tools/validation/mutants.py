"""`python -m vllm_ir.tools.validation.mutants MODEL.py:NAME ...`: does validation see bugs planted in our passes?

Each bug of the fuzzer's table that is in a pass is planted in a process of its own, which validates the pipelines on
each model. A bug that changes no module is of no account for these models; every other one has to be reported.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import cast

from xdsl.utils.exceptions import DiagnosticException

from vllm_ir.tools.fuzz.mutants.mutant import plant
from vllm_ir.tools.fuzz.mutants.table import MUTANTS

PIPELINES = (
    "functionalize,lower,eliminate-clones",
    "alias-outputs,functionalize,convert-to-stablehlo,narrow-updates",
)
_PASSES = "vllm_ir.conversions."


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant each bug; 1 if validation misses one that changes a module."""
    parser = argparse.ArgumentParser(prog="python -m vllm_ir.tools.validation.mutants")
    parser.add_argument("models", nargs="+", metavar="MODEL.py:NAME")
    parser.add_argument("--only", nargs="*", metavar="MUTANT", help="some of them; by default all that are in a pass")
    parser.add_argument("--child", metavar="MUTANT", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child is not None:
        print(json.dumps(_findings(options.child, options.models)))
        return 0
    names = options.only or [name for name, mutant in MUTANTS.items() if mutant.module.startswith(_PASSES)]
    unchanged = _in_child("", options.models)
    missed = 0
    for name in names:
        verdict = _judged(_in_child(name, options.models), unchanged)
        missed += verdict == "MISSED"
        print(f"{name}: {verdict}", flush=True)
    print(f"{missed} missed")
    return 1 if missed else 0


def _in_child(mutant: str, models: Sequence[str]) -> Mapping[str, str]:
    command = [sys.executable, "-m", "vllm_ir.tools.validation.mutants", "--child", mutant, *models]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        return {"": f"caught: {run.stderr.strip().splitlines()[-1]}"}
    return cast("dict[str, str]", json.loads(run.stdout.splitlines()[-1]))


def _judged(found: Mapping[str, str], unchanged: Mapping[str, str]) -> str:
    caught = [f"{where}: {what}" if where else what for where, what in found.items() if what.startswith("caught")]
    if caught:
        return caught[0]
    return "changes no module" if found == unchanged else "MISSED"


def _findings(mutant: str, models: Sequence[str]) -> dict[str, str]:
    """For each model and pipeline, how the bug was caught, or the hash of the modules behind each pass."""
    if mutant:
        plant(MUTANTS[mutant])
    from vllm_ir.tools.inputs import import_python
    from vllm_ir.tools.pipelines import run_passes
    from vllm_ir.tools.validation.validate import compare

    found: dict[str, str] = {}
    for model in models:
        path, _, name = model.rpartition(":")
        imported = import_python(path, name)
        for pipeline in PIPELINES:
            module, texts = imported.clone(), hashlib.sha256()
            where = f"{model} {pipeline}"
            for entry in pipeline.split(","):
                before = module.clone()
                try:
                    run_passes(module, entry)
                    module.verify()
                except (DiagnosticException, ValueError, KeyError, IndexError) as error:
                    found[where] = f"caught: {entry} stops: {' '.join(str(error).split())[:200]}"
                    break
                verdict = compare(entry, before, module)
                texts.update(str(module).encode())
                if verdict.status == "failed":
                    found[where] = f"caught: {verdict}"
                    return found
            else:
                found[where] = texts.hexdigest()
    return found


if __name__ == "__main__":
    sys.exit(main())
