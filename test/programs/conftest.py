"""What these tests share, as fixtures: folders of tests are not packages, so that files cannot import each other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def _load(name: str) -> ModuleType:
    full = f"vllm_ir_programs_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[full] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[full])
    return sys.modules[full]


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """`harness.py`: running programs and comparing what their callers can see."""
    return _load("harness")


@pytest.fixture(scope="session")
def samples() -> ModuleType:
    """`operator_samples.py`: arguments for operators."""
    return _load("operator_samples")


@pytest.fixture(scope="session")
def sweep() -> ModuleType:
    """`operator_sweep.py`: what becomes of one call of an operator."""
    return _load("operator_sweep")


@pytest.fixture(scope="session")
def check(harness: ModuleType) -> object:
    """Compares a program in eager mode and through the IR; see `harness.check`."""
    return harness.check


@pytest.fixture(scope="session")
def refused(harness: ModuleType) -> object:
    """Checks that a program is refused with one clear line; see `harness.refused`."""
    return harness.refused
