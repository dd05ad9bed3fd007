"""A run from beginning to end: the only room (with the command line) that sees an Experiment."""
