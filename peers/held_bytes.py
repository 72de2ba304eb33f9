"""What an object holds in memory: all that can be reached from it, arrays and tensors by the size of their data."""

import gc
import logging
import sys
import types
from typing import Any

import numpy as np

_SHARED = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.CodeType,
    logging.Logger,
)


def held_bytes(thing: Any) -> int:
    """Bytes of an object and of everything that it refers to, each once. Classes, modules and functions do not count.

    Args:
        thing: The object.

    >>> held_bytes([np.zeros(1000)]) // 1000
    8
    """
    seen: set[int] = set()
    buffers: set[int] = set()
    waiting, total = [thing], 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one, 0)
        if isinstance(one, np.ndarray):
            if one.base is not None:  # a view: its data belongs to another array
                waiting.append(one.base)
        elif type(one).__module__.startswith("torch") and hasattr(one, "untyped_storage"):  # a tensor
            storage = one.untyped_storage()
            if storage.data_ptr() not in buffers:
                buffers.add(storage.data_ptr())
                total += storage.nbytes()
        waiting.extend(gc.get_referents(one))
    return total
