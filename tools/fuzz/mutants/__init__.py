"""Bugs planted in our own passes, to see that the fuzzer finds them."""
