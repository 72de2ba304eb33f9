"""Checkpoints that are changed on purpose, all their checksums made right again."""

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import s4q

Members = dict[str, bytes]
Edit = Callable[[dict[str, Any], Members], None]


def refused(path: Path, says: str) -> None:
    """Within a second of CPU time, by an error that names the file, the cause and the cure."""
    before = time.process_time()
    with pytest.raises(s4q.CheckpointError, match=says) as caught:
        s4q.load(path)
    assert time.process_time() - before < 1.0
    assert str(path) in str(caught.value)
    assert "previous" in str(caught.value)


def sealed(members: Members, compression: int = zipfile.ZIP_STORED) -> bytes:
    """A zip whose comment is the right digest: whoever doctors a file can do that too."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.comment = b"0" * 64
        for name, data in members.items():
            archive.writestr(name, data)
    body = buffer.getvalue()[:-64]
    return body + hashlib.sha256(body).hexdigest().encode()


def opened(path: Path) -> tuple[dict[str, Any], Members]:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    return json.loads(members.pop("manifest.json")), members


def doctored(good: Path, tmp_path: Path, edit: Edit) -> Path:
    """A copy with an edit, all checksums made right again."""
    manifest, members = opened(good)
    edit(manifest, members)
    path = tmp_path / "doctored.s4q"
    path.write_bytes(sealed({"manifest.json": json.dumps(manifest).encode(), **members}))
    (tmp_path / "doctored.s4q.previous").write_bytes(good.read_bytes())
    return path
