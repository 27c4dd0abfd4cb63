"""XLA, which the evaluator is compared with, as a fixture: test files are imported one by one, not as a package."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("jaxlib", reason="needs the extra stablehlo")
pytest.importorskip("xdsl_jax", reason="needs the extra stablehlo")

TEST = Path(__file__).parents[3]


def _load(name: str, path: Path) -> ModuleType:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def xla() -> ModuleType:
    """Converts, runs and compares programs."""
    return _load("stablehlo_harness", TEST / "stablehlo_harness.py")


@pytest.fixture(scope="session")
def both() -> ModuleType:
    """Runs a text by the evaluator and by XLA."""
    return _load("vllm_ir_evaluator_harness", Path(__file__).parent / "harness.py")


@pytest.fixture(scope="session")
def modules() -> ModuleType:
    """Makes random modules of slices, updates, gathers and scatters."""
    return _load("vllm_ir_random_modules", TEST / "conversions/narrow_updates/random_modules.py")
