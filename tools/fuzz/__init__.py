"""Random programs that write memory, compared with eager on every path through the compiler; see docs/fuzzing.md."""
