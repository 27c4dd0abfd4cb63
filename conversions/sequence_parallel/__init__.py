"""`sequence-parallel`: between collectives, each rank computes its own rows alone."""

from vllm_ir.conversions.sequence_parallel.check_shards import CheckShardsPass, check_shards
from vllm_ir.conversions.sequence_parallel.sequence_parallel import (
    SHARDED_SUMS,
    UNSHARDED_SUMS,
    SequenceParallelPass,
)
from vllm_ir.conversions.sequence_parallel.shards import SHARDED

__all__ = ["SHARDED", "SHARDED_SUMS", "UNSHARDED_SUMS", "CheckShardsPass", "SequenceParallelPass", "check_shards"]
