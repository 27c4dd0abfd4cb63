"""A vendor's additions to vllm_ir: an op, kernels, a platform, a fusion and a compiler, all found by entry points."""
