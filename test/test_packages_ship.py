"""The wheel holds every source file under its import name, and what it holds is enough to import the package."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "api": "vllm_ir",
    "dialects": "vllm_ir/dialects",
    "frontends": "vllm_ir/frontends",
    "conversions": "vllm_ir/conversions",
    "backends": "vllm_ir/backends",
    "tools": "vllm_ir/tools",
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built offline from a copy of the sources, so that neither old build output nor the checkout matters."""
    copy = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    output = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    run = subprocess.run(
        [*command, "--wheel-dir", str(output), str(copy)], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert run.returncode == 0, run.stdout + run.stderr
    (built,) = output.glob("*.whl")
    return built


def shipped(wheel: Path) -> set[str]:
    """Names of the files in the wheel, without its metadata."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def test_every_source_file_ships_under_its_import_name(wheel: Path):
    expected = {
        f"{package}/{file.relative_to(ROOT / folder).as_posix()}"
        for folder, package in FOLDERS.items()
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".py", ".cpp", ".h", ".json")
    }
    assert shipped(wheel) == expected | {"vllm_ir/py.typed"}


def test_license_and_readme_ship(wheel: Path):
    metadata = {name.split("/", 1)[1] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" in name}
    assert "licenses/LICENSE" in metadata


def test_entry_points_name_modules_that_ship(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    points = ConfigParser()
    points.optionxform = str
    points.read_string(archive.read(name).decode())
    assert set(points.sections()) == {"console_scripts", "xdsl.universe", "torch_dynamo_backends"}
    modules = {target.split(":")[0] for section in points.sections() for target in points[section].values()}
    files = {f"{module.replace('.', '/')}.py" for module in modules}
    assert files <= shipped(wheel)


def test_the_wheel_alone_is_importable(wheel: Path):
    code = (
        f"import sys; sys.path.insert(0, {str(wheel)!r})\n"
        "import vllm_ir, vllm_ir.dialects.vllm_ir, vllm_ir.tools\n"
        f"assert vllm_ir.dialects.vllm_ir.__file__.startswith({str(wheel)!r}), vllm_ir.dialects.vllm_ir.__file__\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT.anchor, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_all_extra_covers_every_other_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (everything,) = extras.pop("all")
    assert everything == f"vllm_ir[{','.join(extras)}]"
