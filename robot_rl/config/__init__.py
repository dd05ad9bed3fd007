"""From YAML and command-line words to checked dataclasses; and where a run came from."""
