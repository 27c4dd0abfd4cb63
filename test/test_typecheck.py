"""The type check sees every source folder, once, under its import name."""

import shutil
from pathlib import Path

import pytest

from vllm_ir.tools.typecheck import check, link_package

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("api", "dialects", "frontends", "conversions", "backends", "tools")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small project with this project's configuration and an empty package in every source folder."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    return tmp_path


def test_an_error_in_each_folder_is_found_at_its_source_path(checkout: Path):
    paths = [f"{folder}/{name}" for folder in FOLDERS for name in ("__init__.py", "module.py", "inner/deep.py")]
    for path in paths:
        (checkout / path).parent.mkdir(exist_ok=True)
        (checkout / path).write_text('x: int = "text"\n')
    for folder in FOLDERS:
        (checkout / folder / "inner" / "__init__.py").touch()
    status, report = check(checkout)
    assert status == 1
    expected = {f"{path}:1:10" for path in paths}
    assert {line.split(" - ")[0].strip() for line in report.splitlines() if " - error: " in line} == expected


def test_a_class_has_one_name_wherever_it_is_used(checkout: Path):
    (checkout / "dialects" / "a.py").write_text(
        "from vllm_ir.dialects.b import use\n\n\nclass A: ...\n\n\nuse(A())\n",
    )
    (checkout / "dialects" / "b.py").write_text(
        "from vllm_ir.dialects import a\n\n\ndef use(value: 'a.A') -> None:\n    print(value)\n",
    )
    status, report = check(checkout)
    assert (status, report) == (0, "0 errors, 0 warnings, 0 informations\n")


def test_a_folder_that_is_not_there_is_a_failure(checkout: Path):
    configuration = checkout / "pyproject.toml"
    text = configuration.read_text(encoding="utf-8")
    configuration.write_text(text.replace("build/typing/vllm_ir/tools", "build/typing/vllm_ir/tolos"))
    status, report = check(checkout)
    assert status == 1
    assert "vllm_ir/tolos" in report or "api/tolos" in report


def test_links_follow_the_sources(checkout: Path):
    package = link_package(checkout)
    (checkout / "api" / "new.py").touch()
    assert not (package / "new.py").exists()
    link_package(checkout)
    assert (package / "new.py").resolve() == checkout / "api" / "new.py"
    (checkout / "api" / "new.py").unlink()
    link_package(checkout)
    assert sorted(link.name for link in package.iterdir()) == sorted(["__init__.py", *FOLDERS[1:]])
