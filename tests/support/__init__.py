"""What tests and benchmarks share: real servers to compare with, and waiting for conditions."""
