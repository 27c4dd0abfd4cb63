"""Runs pyright on the package under its import names: ``python -m vllm_ir.tools.typecheck [pyright arguments]``.

The source folders become the package ``vllm_ir`` only when they are installed, and an editable install does that with
an import hook, which pyright does not run. Checking the folders where they lie would also give every class two names
(``dialects.x.C`` and ``vllm_ir.dialects.x.C``) that are not assignable to each other. So the package is laid out as
links under ``build/typing`` and checked there.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDERS = ("dialects", "frontends", "conversions", "backends", "tools")


def link_package(root: Path) -> Path:
    """Lay out the sources of the checkout at ``root`` as ``build/typing/vllm_ir`` and return that path.

    Only what differs is touched, so that checks that run at the same time do not disturb each other.
    """
    package = root / "build" / "typing" / "vllm_ir"
    api = root / "api"
    # Pyright does not search linked folders that it is not pointed at, so the files of `api`, among which the other
    # folders have to lie, are linked one by one.
    wanted = {package / file.relative_to(api): file for file in api.rglob("*") if file.suffix in (".py", ".typed")}
    wanted |= {package / folder: root / folder for folder in FOLDERS}
    for link in package.rglob("*"):
        if link.is_symlink() and link not in wanted:
            link.unlink()
    for link, source in wanted.items():
        target = os.path.relpath(source, link.parent)
        if link.is_symlink() and os.readlink(link) == target:
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    return package


def to_source_paths(text: str, root: Path, package: Path) -> str:
    """Rewrite the paths of linked files in pyright's output to the paths of the files they stand for."""
    for folder in FOLDERS:
        text = text.replace(f"{package / folder}{os.sep}", f"{folder}{os.sep}")
    return text.replace(f"{package}{os.sep}", f"api{os.sep}").replace(f"{root}{os.sep}", "")


def check(root: Path, arguments: Sequence[str] = ()) -> tuple[int, str]:
    """Run pyright, with ``arguments``, on the checkout at ``root``; returns its exit status and its report.

    The status is 1 also where pyright lacks a folder to check, which it takes for success.
    """
    package = link_package(root)
    # The node and the pyright that pip installed, whatever else is on the machine, and no look-up of newer ones.
    environment = os.environ | {"PYRIGHT_PYTHON_GLOBAL_NODE": "0", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *arguments]
    run = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    status = 1 if "does not exist" in run.stderr else run.returncode
    return status, to_source_paths(run.stderr + run.stdout, root, package)


def main(arguments: Sequence[str] = ()) -> int:
    """Check the checkout that this module belongs to, print the report and return the exit status."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "pyproject.toml").is_file():
        print("error: typecheck needs a checkout with an editable install, not an installed wheel", file=sys.stderr)
        return 1
    status, report = check(root, arguments)
    print(report, end="")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
