"""Map the top-level source folders onto the single import package ``vllm_ir``.

``api/`` is ``vllm_ir`` itself and every other folder is a sub-package of it. The packages are discovered, so that a
new folder with an ``__init__.py`` ships without an edit here; everything else about the project is in
``pyproject.toml``.
"""

from setuptools import find_packages, setup

ROOT = "vllm_ir"
FOLDERS = ("dialects", "frontends", "conversions", "backends", "tools")

package_dir = {ROOT: "api"} | {f"{ROOT}.{folder}": folder for folder in FOLDERS}
packages = [
    package if not inner else f"{package}.{inner}"
    for package, folder in package_dir.items()
    for inner in ("", *find_packages(folder))
]

setup(
    packages=packages,
    package_dir=package_dir,
    package_data={
        ROOT: ["py.typed"],
        f"{ROOT}.backends.kernels.cpu": ["csrc/*.cpp", "csrc/*.h"],
        f"{ROOT}.conversions.fusion.catalog": ["*.json"],
    },
)
