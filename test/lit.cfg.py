"""lit configuration: runs ``vllm-ir-opt`` and ``filecheck`` of the environment that lit itself is installed in."""

import os
import sys
from pathlib import Path

import lit.formats

TEST_ROOT = Path(__file__).resolve().parent
TOOLS = Path(sys.executable).parent

config.name = "vllm_ir"
config.test_format = lit.formats.ShTest(execute_external=False)
# `.lit` is for tests whose input is not IR, such as a Python file given to vllm-ir-opt.
config.suffixes = [".mlir", ".lit"]
config.test_source_root = str(TEST_ROOT)
config.test_exec_root = str(TEST_ROOT.parent / "build" / "lit")

config.environment["PATH"] = os.pathsep.join([str(TOOLS), os.environ.get("PATH", os.defpath)])
# One thread per test: lit already runs one test per core.
config.environment["OMP_NUM_THREADS"] = "1"
config.environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
# lit passes on almost nothing of the environment. What a test compiles needs a home and, where set, the user's choices.
for variable in ("HOME", "USER", "LOGNAME", "CC", "CXX", "LD_LIBRARY_PATH", "TORCHINDUCTOR_CACHE_DIR"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]

config.substitutions.append(("%python", f'"{sys.executable}"'))
config.substitutions.append(("%root", str(TEST_ROOT.parent)))

missing = [tool for tool in ("vllm-ir-opt", "filecheck") if not (TOOLS / tool).exists()]
if missing:
    lit_config.fatal(f"{', '.join(missing)} not found in {TOOLS}: install the project there first (make venv)")
