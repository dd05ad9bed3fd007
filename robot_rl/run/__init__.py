"""A run from beginning to end. Only this package, benchmarks and command line see an Experiment."""
