"""Programs that failed once, each a file of its own that says on which paths."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from vllm_ir.tools.files import write_whole
from vllm_ir.tools.fuzz.program import Loaded, load


def store(folder: Path, name: str, source: str) -> Path:
    """Write a case, formatted where ruff is installed; returns its file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')[:80]}.py"
    write_whole(file, _formatted(source).encode())
    return file


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--line-length", "120", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 and done.stdout else source


def read(file: Path) -> Loaded:
    """A stored case."""
    return load(file.read_text(), str(file))
