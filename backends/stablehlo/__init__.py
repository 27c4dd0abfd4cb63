"""StableHLO outside this project: jaxlib's module, portable and HLO serialisation, and execution on XLA's CPU client.

Takes modules of `func.func` and StableHLO operations, whatever passes made them.
"""
