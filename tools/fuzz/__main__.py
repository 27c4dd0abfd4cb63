"""`python -m vllm_ir.tools.fuzz`."""

import sys

from vllm_ir.tools.fuzz.command_line import main

if __name__ == "__main__":
    sys.exit(main())
