"""Imports go one way: tools -> conversions, backends -> frontends -> dialects; and only dialects load without torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("dialects", "frontends", "conversions", "backends", "tools", "api")

# What each folder may import of the project. `api` stands for the package `vllm_ir` itself.
ALLOWED = {
    "dialects": {"dialects"},
    "frontends": {"frontends", "dialects"},
    "conversions": {"conversions", "frontends", "dialects"},
    "backends": {"backends", "frontends", "dialects"},
    "tools": set(FOLDERS),
    "api": set(FOLDERS),
}
# What the dialects may import beside the standard library; the StableHLO dialect extends the one of xdsl-jax.
DIALECT_LIBRARIES = {"xdsl", "typing_extensions"}
STABLEHLO_LIBRARIES = DIALECT_LIBRARIES | {"xdsl_jax"}


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that ``tree``, a module in ``package``, imports.

    Imports inside functions and under ``TYPE_CHECKING`` count, and so does ``import_module("literal")``.
    """
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                prefix = ".".join([*base, *([module] if module else [])])
                # `from vllm_ir import dialects` names a sub-package, `from vllm_ir import parse` the public API.
                yield from (
                    (node.lineno, f"{prefix}.{alias.name}" if prefix == "vllm_ir" else prefix) for alias in names
                )
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name
            case _:
                pass


def violations(source: str, path: str) -> list[str]:
    """What the file at ``path`` (relative to the repository, such as ``dialects/a/b.py``) must not import."""
    folder, *inner = path.split("/")
    package = ".".join(["vllm_ir", *([folder] if folder != "api" else []), *inner[:-1]])
    found: list[str] = []
    for line, module in imported_modules(ast.parse(source), package):
        top, *rest = module.split(".")
        where = f"{path}:{line}: "
        if top == "vllm_ir":
            target = rest[0] if rest and rest[0] in FOLDERS else "api"
            if target not in ALLOWED[folder]:
                found.append(f"{where}{folder} must not import {module}")
        elif top in FOLDERS:
            found.append(f"{where}import {module} by its package name, vllm_ir.{module}")
        elif folder == "dialects" and top not in sys.stdlib_module_names:
            libraries = STABLEHLO_LIBRARIES if inner[0] == "stablehlo" else DIALECT_LIBRARIES
            if top not in libraries:
                found.append(f"{where}dialects must not import {module}")
    return sorted(set(found))


def source_files() -> list[str]:
    """Every Python file of the source folders, relative to the repository."""
    return [str(file.relative_to(ROOT)) for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]


def run_python(code: str) -> None:
    """Run ``code`` in a fresh interpreter outside the repository; fails the test with its stderr if it fails."""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT.anchor, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_source_file_imports_in_the_allowed_direction():
    files = source_files()
    assert {file.split("/")[0] for file in files} == set(FOLDERS)
    found = [message for file in files for message in violations((ROOT / file).read_text(encoding="utf-8"), file)]
    assert found == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dialects/a.py", "import torch"),
        ("dialects/a.py", "def f():\n    from torch.fx import Node"),
        ("dialects/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
        ("dialects/a.py", "import importlib\nimportlib.import_module('torch')"),
        ("dialects/a.py", "import numpy"),
        ("dialects/vllm_ir/a.py", "from xdsl_jax.dialects import stablehlo"),
        ("dialects/a.py", "from vllm_ir.frontends.fx import types"),
        ("dialects/vllm_ir/a.py", "from ...frontends import fx"),
        ("dialects/a.py", "from .. import frontends"),
        ("dialects/a.py", "import vllm_ir"),
        ("frontends/a.py", "from vllm_ir import parse"),
        ("frontends/a.py", "from vllm_ir.conversions.lower import lower"),
        ("frontends/fx/a.py", "import vllm_ir.backends.interpreter"),
        ("conversions/a.py", "from vllm_ir import backends"),
        ("backends/a.py", "from vllm_ir.conversions.analysis import alias"),
        ("backends/a.py", "import vllm_ir.tools.compile"),
        ("tools/a.py", "from dialects.vllm_ir import types"),
        ("tools/a.py", "import api"),
    ],
)
def test_a_planted_violation_is_found(path: str, source: str):
    assert len(violations(source, path)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("dialects/a.py", "import re\nfrom xdsl.ir import Attribute\nfrom typing_extensions import override"),
        ("dialects/vllm_ir/a.py", "from vllm_ir.dialects.vllm_ir.types import BufferType\nfrom . import types"),
        ("dialects/stablehlo/a.py", "from xdsl_jax.dialects import stablehlo"),
        ("frontends/a.py", "import torch\nfrom vllm_ir.dialects import torch as dialect"),
        ("conversions/a.py", "from vllm_ir.frontends.fx import schema\nimport vllm_ir.dialects"),
        ("backends/a.py", "from vllm_ir.frontends.fx import schema\nfrom ..dialects import vllm_ir"),
        ("tools/a.py", "import vllm_ir\nfrom vllm_ir.backends import inductor\nfrom vllm_ir.conversions import lower"),
        ("api/__init__.py", "from vllm_ir.tools import compile"),
    ],
)
def test_an_allowed_import_is_accepted(path: str, source: str):
    assert violations(source, path) == []


@pytest.mark.parametrize("module", ["vllm_ir", "vllm_ir.dialects.vllm_ir", "vllm_ir.tools.vllm_ir_opt"])
def test_torch_is_loaded_only_when_needed(module: str):
    run_python(f"import sys, {module}; assert 'torch' not in sys.modules, 'torch was loaded'")


def test_every_dialect_module_loads_without_torch():
    files = [file for file in source_files() if file.startswith("dialects/")]
    names = [f"vllm_ir.{file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" for file in files]
    # None in sys.modules makes `import torch` an error, so that the failing module is named in the traceback.
    run_python(f"import importlib, sys; sys.modules['torch'] = None; [importlib.import_module(n) for n in {names!r}]")
