"""IdentityCache: results of a function of an object, remembered by the object's identity."""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar, final

Key = TypeVar("Key")
Result = TypeVar("Result")


@final
class IdentityCache(Generic[Key, Result]):
    """Calls the function once per object, for the last `size` objects. Works for objects that cannot be hashed.

    An object is not kept alive for its result's sake (unless the result holds it, or it takes no weak references):
    policies are large, and memory must not grow with them.

    >>> calls = []
    >>> cache = IdentityCache(lambda x: calls.append(x) or len(x), size=8)
    >>> word = ["a", "b"]
    >>> cache(word), cache(word), len(calls)
    (2, 2, 1)
    """

    def __init__(self, function: Callable[[Key], Result], size: int) -> None:
        self._function = function
        self._size = size
        # The object, or a reference that removes the entry when it dies: its id may then be given to another one.
        self._known: OrderedDict[int, tuple[Any, Result]] = OrderedDict()

    def __call__(self, key: Key) -> Result:
        name = id(key)
        if name not in self._known:
            result = self._function(key)
            self._known[name] = (self._hold(key, name), result)
            if len(self._known) > self._size:
                self._known.popitem(last=False)
        self._known.move_to_end(name)
        return self._known[name][1]

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process starts empty: an identity means nothing there."""
        return {"_function": self._function, "_size": self._size, "_known": OrderedDict()}

    def __len__(self) -> int:
        return len(self._known)

    def keep_only(self, keys: Iterable[Key]) -> None:
        """Forget the results of all other objects."""
        wanted = {id(key) for key in keys}
        for name in [name for name in self._known if name not in wanted]:
            del self._known[name]

    def _hold(self, key: Key, name: int) -> Any:
        known = self._known

        def forget(_: Any) -> None:
            known.pop(name, None)

        try:
            return weakref.ref(key, forget)
        except TypeError:
            return key
