"""Pages as files: one template, the style and the script of all pages in it, written whole or not at all.

The report of a run and that of a comparison call it. Every name that comes from outside is escaped by Jinja2.
"""

import base64
import hashlib
import os
from os import PathLike
from pathlib import Path
from typing import Any

from s4q.core.version import __version__
from s4q.report.drawing import MISSING

_FOLDER = Path(__file__).parent
_MADE_BY = '<meta name="generator" content="s4q">'  # stands in both templates


def rendered(template: str, **values: Any) -> str:
    """A template of this folder, filled in.

    Args:
        template: Its name.
        values: What it needs, by name. Only what this package made itself may be passed to `markup` in the template.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise ImportError(MISSING) from None
    script = (_FOLDER / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(
        **values,
        version=__version__,
        style=Markup((_FOLDER / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        script_digest=Markup(digest),
        markup=Markup,
    )


def is_page(path: Path) -> bool:
    """Is this file a page that s4q wrote?

    Args:
        path: A file that exists.
    """
    with path.open("rb") as file:
        return _MADE_BY.encode() in file.read(2000)


def write_page(path: str | PathLike[str], text: str) -> Path:
    """Write a page to one file, which replaces the one that was there.

    A link stays a link: the file it points to is replaced. What is no regular file, such as a pipe, is written into.

    Args:
        path: The file to write, such as "report.html".
        text: The page.

    Returns:
        The path of the file.
    """
    place = Path(path)
    if place.is_dir() or not place.parent.is_dir():
        raise ValueError(f"{place} cannot be written: it must be a file in a folder that exists; choose another place")
    is_device = place.exists() and not place.is_file()  # a pipe, or /dev/stdout
    # A reader that has the old page open must never see half of the new one.
    target = place if is_device else place.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if is_device:
            place.write_bytes(text.encode())
        else:
            draft.write_bytes(text.encode())
            draft.replace(target)
    except OSError as error:
        if not is_device:
            draft.unlink(missing_ok=True)
        raise ValueError(f"{place} cannot be written: {error}; choose another place or make room") from None
    return place
