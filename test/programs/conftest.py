"""The harness of these tests, as fixtures: folders of tests are not packages, so that files cannot import each other."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_NAME = "vllm_ir_program_harness"


def _load() -> ModuleType:
    if _NAME not in sys.modules:
        spec = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name("harness.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[_NAME] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_NAME])
    return sys.modules[_NAME]


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    """`harness.py`."""
    return _load()


@pytest.fixture(scope="session")
def check(harness: ModuleType) -> object:
    """Compares a program in eager mode and through the IR; see `harness.check`."""
    return harness.check


@pytest.fixture(scope="session")
def refused(harness: ModuleType) -> object:
    """Checks that a program is refused with one clear line; see `harness.refused`."""
    return harness.refused
