"""A fuzzer of IR text: whatever a file says, the compiler answers with a result or with one documented error."""
