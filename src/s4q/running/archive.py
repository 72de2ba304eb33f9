"""Archive: one file of arrays and a manifest, written whole or not at all, and checked in full when it is read.

The layout is that of an .npz file: a zip of .npy members, stored without compression. There is one member for each
dtype, with the numbers of all arrays one after the other, because a zip of thousands of small members is slow.
`manifest.json` names the arrays in that order, with dtype and shape. The zip comment holds the SHA-256 of all bytes
before it, so that one flipped bit anywhere is noticed. Nothing in the file is ever executed, and no size in it is used
before it is compared with the size of the file. `checkpoint.py` calls it, and `deployed_policy.py`.
"""

import difflib
import glob
import hashlib
import io
import json
import os
import secrets
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import IO, Any, final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

MANIFEST = "manifest.json"
_DIGEST = 64  # characters of a SHA-256
_MEMBERS = {"<f8": "float64.npy", "<i8": "int64.npy", "|b1": "bool.npy"}  # by dtype
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same state gives the same bytes
_READERS = {"checkpoint": "s4q.Agent.load (or s4q.load)", "policy": "s4q.Policy.load"}  # by the kind of a file
_UNREADABLE = (NotImplementedError, EOFError, RecursionError)
_STALE = 3600.0  # seconds after which what a killed writer left behind is removed


@final
class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written. The message says which file, why, and what to do."""


def previous_of(path: Path) -> Path:
    """The place of the file before the newest one; it lies beside the file itself, not beside a link to it."""
    real = target_of(path)
    return real.parent / f"{real.name}.previous"


def target_of(path: Path) -> Path:
    """The file that a path, or a symbolic link, stands for. The path itself where it is no link."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def refusal(path: Path, cause: str, what: str = "checkpoint") -> CheckpointError:
    """The error about a file that cannot be read, with the cure."""
    previous = previous_of(path)
    anew = "start again" if what == "checkpoint" else "save it again"
    cure = f"there is no previous file; {anew}"
    if previous.exists():
        cure = f"the previous good file is {previous}"
    elif not path.exists() and (meant := similar_names(path)):
        cure = f"did you mean {' or '.join(meant)}?"
    return CheckpointError(f"{path} is not a {what} that can be read: {cause}; {cure}")


def similar_names(path: Path) -> list[str]:
    """Files in the same folder whose names are like this one, the most alike first."""
    if not path.parent.is_dir():
        return []
    names = [file.name for file in path.parent.iterdir() if file.is_file() and file.name != path.name]
    ours = [name for name in names if not name.endswith((".previous", ".partial", ".lock"))]
    return difflib.get_close_matches(path.name, ours, n=2, cutoff=0.7)


def require_place(path: Path) -> None:
    """Refuse a place that is a folder, a device or a pipe, or that lies in a folder that does not exist."""
    if path.exists() and not path.is_file():
        raise CheckpointError(f"{path} is no plain file; choose the name of a file")
    if not path.name or not path.parent.is_dir():
        raise CheckpointError(f"{path} cannot be written: there is no folder {path.parent}; make it first")


def write(path: Path, manifest: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Replace the file at once: a reader sees the old or the new one, even after a crash. The old one is kept.

    A symbolic link stays one, and a file keeps its mode.
    """
    path = target_of(path)
    require_place(path)
    described = {name: {"dtype": array.dtype.str, "shape": array.shape} for name, array in arrays.items()}
    text = json.dumps({**manifest, "arrays": described}, allow_nan=False)
    with _replacing(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = b"0" * _DIGEST  # filled in below, once the bytes before it are known
            archive.writestr(zipfile.ZipInfo(MANIFEST, _EPOCH), text)
            for dtype, member in _MEMBERS.items():
                numbers = [array.ravel() for array in arrays.values() if array.dtype.str == dtype]
                archive.writestr(zipfile.ZipInfo(member, _EPOCH), _npy(np.concatenate([np.zeros(0, dtype), *numbers])))
        file.seek(-_DIGEST, os.SEEK_END)
        end = file.tell()
        digest = _digest(file, end)
        file.seek(end)
        file.write(digest.encode())


def _npy(numbers: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    npy.write_array_header_1_0(buffer, npy.header_data_from_array_1_0(numbers))
    buffer.write(numbers.tobytes())
    return buffer.getvalue()


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when all is well."""
    partial = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("xb+") as file:
            yield file
            with suppress(FileNotFoundError):
                os.chmod(partial, stat.S_IMODE(path.stat().st_mode))
            file.flush()
            os.fsync(file.fileno())
        _keep_previous(path)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    _sync_directory(path.parent)
    _sweep(path)


def _keep_previous(path: Path) -> None:
    """Give a good file the name `.previous` too. Where hard links exist, `path` never goes missing."""
    if not _is_whole(path):  # a broken one must not take the place of a good one
        return
    link = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        os.link(path, link)
    except OSError:
        os.replace(path, previous_of(path))
        return
    os.replace(link, previous_of(path))
    link.unlink(missing_ok=True)  # rename leaves both names when they are the same file already


def _is_whole(path: Path) -> bool:
    """True if there is a file whose bytes match the digest at its end."""
    if not path.exists():
        return False
    with path.open("rb") as file:
        size = max(os.fstat(file.fileno()).st_size - _DIGEST, 0)
        digest = _digest(file, size)
        return file.read() == digest.encode()


def _sync_directory(directory: Path) -> None:
    with suppress(OSError):  # some systems cannot open a directory
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sweep(path: Path) -> None:
    """Remove old files that killed writers left behind."""
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.partial"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE:
                left.unlink()


def read(
    path: Path, schema: int, needs: str, what: str = "checkpoint"
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest and the arrays. CheckpointError for anything but a whole file that `write` could have made.

    Args:
        path: The file.
        schema: The version of the layout that is understood.
        needs: The key of the manifest that says which version of the library wrote it.
        what: "checkpoint" (default) or "policy": the kind of file that is wanted.
    """
    if path.exists() and not path.is_file():  # opening a pipe would wait for ever
        raise refusal(path, "it is a folder, a device or a pipe", what)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            size = os.fstat(file.fileno()).st_size
            _check_members(archive, size)
            manifest = _read_manifest(archive)
            _require_format(manifest, what)
            _require_schema(manifest, schema, needs)
            if archive.comment.decode("ascii", "replace") != _digest(file, size - _DIGEST):
                raise ValueError("its bytes do not match their SHA-256: it was damaged or cut short")
            numbers = {dtype: _parsed(name, archive.read(name), dtype) for dtype, name in _MEMBERS.items()}
            return manifest, _cut(manifest.get("arrays"), numbers)
    except FileNotFoundError:
        raise refusal(path, "it does not exist", what) from None
    except (OSError, ValueError, ArithmeticError, MemoryError, zipfile.BadZipFile, *_UNREADABLE) as error:
        raise refusal(path, str(error) or type(error).__name__, what) from None


def _check_members(archive: zipfile.ZipFile, size: int) -> None:
    """Refused unless the members are those that `write` makes, all plain, and fit into the file."""
    infos, allowed = archive.infolist(), (MANIFEST, *_MEMBERS.values())
    names = [info.filename for info in infos]
    for info in infos:
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.file_size != info.compress_size:
            raise ValueError(f"its member {info.filename} is compressed or encrypted, so its size cannot be trusted")
    if sum(info.file_size for info in infos) > size:
        raise ValueError("its members claim to be larger than the file")
    for name in allowed:
        if name not in names:
            raise ValueError(f"it has no {name}")
    for name in names:
        if name not in allowed:
            raise ValueError(f"it has a member called {name[:60]!r}, a name that is not allowed")
    if len(set(names)) < len(names):
        raise ValueError("two of its members have the same name")


def _read_manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    manifest = json.loads(archive.read(MANIFEST))
    if not isinstance(manifest, dict):
        raise ValueError(f"its {MANIFEST} is not an object")
    return manifest


def _require_format(manifest: Mapping[str, Any], what: str) -> None:
    """Refuse a file of the other kind, which is as good as this one."""
    found = manifest.get("format")
    for other, reader in _READERS.items():
        if other != what and found == f"s4q {other}":
            raise ValueError(f"it is a {other}; {reader} reads it")


def _require_schema(manifest: Mapping[str, Any], schema: int, needs: str) -> None:
    found = manifest.get("schema")
    if type(found) is not int or found < 1:
        raise ValueError(f"its schema is {found!r}, which is not a version")
    if found < schema:
        wrote = str(manifest.get(needs))[:40]
        raise ValueError(f"it has schema {found}, written by {needs} {wrote}, and this one reads {schema}: begin anew")
    if found > schema:
        wrote = str(manifest.get(needs))[:40]
        raise ValueError(f"it has schema {found} and this s4q reads up to {schema}: install {needs} {wrote} or newer")


def _parsed(name: str, data: bytes, dtype: str) -> NDArray[Any]:
    """The numbers in the bytes of a .npy member."""
    stream = io.BytesIO(data)
    if npy.read_magic(stream) != (1, 0):
        raise ValueError(f"{name} is not in version 1.0 of the .npy format")
    shape, _, found = npy.read_array_header_1_0(stream)
    start = stream.tell()
    if found.str != dtype:
        raise ValueError(f"{name} has dtype {found.str}; only {dtype} is read there, never Python objects")
    if len(shape) != 1 or len(data) - start != shape[0] * found.itemsize:
        raise ValueError(f"{name} claims shape {shape} but holds {len(data) - start} bytes")
    if dtype == "|b1" and max(data[start:], default=0) > 1:
        raise ValueError(f"{name} holds a bool that is neither 0 nor 1")
    return np.frombuffer(data, found, offset=start)


def _cut(described: Any, numbers: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays that the manifest describes, each from the numbers after those of the one before."""
    if not isinstance(described, dict):
        raise ValueError(f"its {MANIFEST} names no arrays")
    arrays: dict[str, NDArray[Any]] = {}
    used = dict.fromkeys(numbers, 0)
    for name, entry in described.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape"} or entry["dtype"] not in _MEMBERS:
            raise ValueError(f"{name} must have a shape and a dtype; only float64, int64 and bool are read")
        dtype, shape = entry["dtype"], entry["shape"]
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"{name} must have a shape of whole numbers; got {str(shape)[:60]}")
        start, used[dtype] = used[dtype], used[dtype] + prod(shape)  # numbers of any size: no overflow
        if used[dtype] > len(numbers[dtype]):
            raise ValueError(
                f"{name} claims shape {tuple(shape)} but only {len(numbers[dtype]) - start} numbers are left"
            )
        arrays[name] = numbers[dtype][start : used[dtype]].reshape(shape).copy()
    for dtype, count in used.items():
        if count < len(numbers[dtype]):
            raise ValueError(f"{_MEMBERS[dtype]} holds {len(numbers[dtype]) - count} numbers of no array")
    return arrays


def _digest(file: IO[bytes], size: int) -> str:
    """SHA-256 of the first `size` bytes."""
    digest, left = hashlib.sha256(), size
    file.seek(0)
    while left > 0:
        block = file.read(min(left, 1 << 20))
        if not block:
            break
        digest.update(block)
        left -= len(block)
    return digest.hexdigest()
