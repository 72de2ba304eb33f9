"""How a collector travels: pickled, with its environment replaced by what builds one on the worker.

Executors pack on the driver and unpack on each worker. Nothing is read from a file: both ends are one program.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any, final

from s4q.core.messages import Collector

try:  # pickles functions and classes of a script or a notebook by value; gymnasium brings it
    from cloudpickle import Pickler as _Pickler
    from cloudpickle import dumps
except ImportError:
    from pickle import Pickler as _Pickler
    from pickle import dumps

_ENV = "env"


@final
class _EnvAside(_Pickler):  # type: ignore[misc]
    """Pickles a collector and leaves out its environment."""

    def __init__(self, file: io.BytesIO, env: Any) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._env = env

    def persistent_id(self, thing: Any) -> str | None:
        return _ENV if thing is self._env else None


@final
class _WithEnv(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, env: Any) -> None:
        super().__init__(file)
        self._env = env

    def persistent_load(self, name: str) -> Any:
        del name
        return self._env


def pack(collector: Collector, make_env: Callable[[], Any] | None) -> bytes:
    """The collector as bytes. Its environment is made by `make_env` if given, else copied, else made from its id."""
    env = getattr(collector, "env", None)
    if env is None:
        if make_env is not None:
            raise ValueError(f"make_env makes an environment, but {type(collector).__name__} has none; leave it out")
        return _dumped(collector, f"the {type(collector).__name__}")
    builder = _pack_env(env, make_env)
    file = io.BytesIO()
    try:
        _EnvAside(file, env).dump(collector)
    except Exception as error:
        raise _cannot_travel(f"the {type(collector).__name__}", error) from error
    return pickle.dumps((builder, file.getvalue()))


def unpack(packed: bytes) -> Collector:
    """The collector of these bytes, with an environment of its own."""
    found: Any = pickle.loads(packed)
    if not isinstance(found, tuple):
        return found  # type: ignore[no-any-return]
    builder, collector = found
    made = pickle.loads(builder)
    return _WithEnv(io.BytesIO(collector), made()).load()  # type: ignore[no-any-return]


@final
class _Copied:
    """Gives an environment that travelled itself."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def __call__(self) -> Any:
        return self._env


@final
class _Registered:
    """Makes an environment anew from what Gymnasium knows of it: its id, its arguments and its wrappers."""

    def __init__(self, spec: Any) -> None:
        self._spec = spec

    def __call__(self) -> Any:
        import gymnasium

        return gymnasium.make(self._spec)


def _pack_env(env: Any, make_env: Callable[[], Any] | None) -> bytes:
    if make_env is not None:
        return _dumped(make_env, "make_env")
    try:
        # A copy is first choice, because it has whatever was changed after the environment was made.
        return bytes(dumps(_Copied(env)))
    except Exception as error:
        spec = getattr(env, "spec", None)
        if spec is not None and not hasattr(env, "num_envs"):
            try:
                if str(_Registered(spec)()) == str(env):
                    return bytes(dumps(_Registered(spec)))
            except Exception as other:
                error.add_note(f"gymnasium.make(env.spec) does not make it again either: {other}")
        raise ValueError(
            f"workers need an environment of their own, and {env} cannot be pickled ({type(error).__name__}: {error}); "
            "pass make_env=, an importable function that makes one"
        ) from error


def _dumped(thing: Any, name: str) -> bytes:
    try:
        return bytes(dumps(thing))
    except Exception as error:
        raise _cannot_travel(name, error) from error


def _cannot_travel(name: str, error: Exception) -> ValueError:
    return ValueError(
        f"{name} must reach the workers, but cannot be pickled ({type(error).__name__}: {error}); define its functions "
        'and classes in a module that can be imported, or pip install "s4q[gym]", which brings cloudpickle'
    )
