# MuJoCo's compiled modules ship without types: every name is Any, so that the rest can be checked.
from typing import Any

def __getattr__(name: str) -> Any: ...
