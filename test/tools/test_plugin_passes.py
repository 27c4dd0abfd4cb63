"""Passes of other distributions: found by name, and refused by name where they are faulty."""

from pathlib import Path

import pytest

from vllm_ir.tools.pipelines import build_passes, expand, relies_on_effects
from vllm_ir.tools.plugin_passes import plugin_passes

UNIVERSE = """
from dataclasses import dataclass
from xdsl.passes import ModulePass
from xdsl.universe import Universe

@dataclass(frozen=True)
class PlantedPass(ModulePass):
    name = "planted"
    count: int = 0
    def apply(self, ctx, op):
        pass

UNIVERSE = Universe(all_passes={"planted": lambda: PlantedPass})
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts modules with an entry point each where `pip install` would."""
    plugin_passes.cache_clear()

    def add(module: str, source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[xdsl.universe]\n{module} = {module}:UNIVERSE\n")

    monkeypatch.syspath_prepend(str(tmp_path))
    yield add
    plugin_passes.cache_clear()


def test_a_pass_is_known_with_its_options(install):
    install("planted_right", UNIVERSE)
    assert [str(entry) for entry in expand("cse,planted{count=2}")] == ["cse", "planted{count=2}"]
    (entry,) = build_passes("planted{count=2}")
    assert entry.count == 2
    assert relies_on_effects("planted")
    with pytest.raises(ValueError, match=r"unknown pass 'plantd', did you mean 'planted'\?"):
        expand("plantd")


@pytest.mark.parametrize(
    ("module", "source", "message"),
    [
        ("planted_raises", "1 / 0", r"\(planted_raises:UNIVERSE\) raised ZeroDivisionError: .*; repair or uninstall"),
        ("planted_other", "UNIVERSE = 1", r"\(planted_other:UNIVERSE\) must be an xdsl.universe.Universe, is 1"),
        (
            "planted_misnamed",
            UNIVERSE.replace('{"planted"', '{"plant"'),
            r"pass 'plant' of .* goes by the name 'planted'",
        ),
    ],
)
def test_a_faulty_universe_is_named(install, module: str, source: str, message: str):
    install(module, source)
    with pytest.raises(RuntimeError, match=message):
        build_passes("plant")
    assert build_passes("cse")  # what needs none of it is not disturbed


def test_a_name_that_two_universes_have(install):
    install("planted_one", UNIVERSE)
    install("planted_two", UNIVERSE)
    with pytest.raises(
        RuntimeError, match=r"pass 'planted' is there twice: .*planted_(one|two).*planted_(one|two).*; uninstall one"
    ):
        expand("planted")
