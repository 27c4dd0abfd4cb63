"""From IR to something that runs: Inductor, StableHLO, the interpreter and kernels."""
