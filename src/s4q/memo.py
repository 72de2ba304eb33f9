"""Memo: results of a function of an object, remembered by the object's identity."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar, final

Key = TypeVar("Key")
Result = TypeVar("Result")


@final
class Memo(Generic[Key, Result]):
    """Calls the function once per object, for the last `size` objects. Works for objects that cannot be hashed.

    >>> calls = []
    >>> memo = Memo(lambda x: calls.append(x) or len(x), size=8)
    >>> word = ["a", "b"]
    >>> memo(word), memo(word), len(calls)
    (2, 2, 1)
    """

    def __init__(self, function: Callable[[Key], Result], size: int) -> None:
        self._function = function
        self._size = size
        # The object is kept beside its result, so that its id is not given to another one meanwhile.
        self._known: OrderedDict[int, tuple[Key, Result]] = OrderedDict()

    def __call__(self, key: Key) -> Result:
        if id(key) not in self._known:
            self._known[id(key)] = (key, self._function(key))
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        self._known.move_to_end(id(key))
        return self._known[id(key)][1]
