"""Sphinx settings: `make docs` builds the pages of this folder as a site, and a warning is an error."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sphinx.util.typing import stringify_annotation

from s4q import __version__

project, author, copyright = "s4q", "The s4q developers", "2026, The s4q developers"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["notebooks/*.py"]
html_theme = "furo"
html_title = f"s4q {__version__}"
html_copy_source = html_show_sourcelink = False
html_static_path, html_css_files = ["_static"], ["wide.css"]
html_theme_options = {"navigation_with_keys": True}

myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks are committed with their outputs; `make notebooks` runs them
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100
napoleon_numpy_docstring = False
napoleon_use_ivar = True
default_role = "code"

# How signatures name what numpy spells out.
_SHORT = {
    stringify_annotation(ArrayLike, "smart"): "ArrayLike",
    **{stringify_annotation(NDArray[kind], "smart"): "Array" for kind in (np.float64, np.int64, np.bool_, bool, Any)},
}
_ANNOTATED = re.compile(r"~[\w.]*Annotated\[")
_PROMPTS = (">>> ", "... ")


def as_restructured_text(_app: Any, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with `code`; Sphinx reads another language, in which |x|, Q* and x_ mean something."""
    example = False
    for number, line in enumerate(lines):
        example = line.lstrip().startswith(_PROMPTS) or (example and bool(line.strip()))
        if not example:
            lines[number] = _escaped(line)


def _escaped(line: str) -> str:
    parts = line.split("`")
    if len(parts) % 2 == 0:  # `code` that goes on in the next line: leave it to the reader of warnings
        return line
    for number, part in enumerate(parts):
        parts[number] = f"``{part}``" if number % 2 else re.sub(r"([*|]|(?<=\w)_(?!\w))", r"\\\1", part)
    return "".join(parts)


def short_signature(
    _app: Any, _what: str, _name: str, _thing: Any, _options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    """A signature that a reader can take in: no spelled-out arrays, nothing that only checkpoints read."""
    return _shortened(signature), _shortened(returned)


def _shortened(text: str | None) -> str | None:
    if text is None:
        return None
    for long, short in _SHORT.items():
        text = text.replace(long, short)
    while found := _ANNOTATED.search(text):
        depth, first, end = 1, None, found.end()
        while depth:
            depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(text[end], 0)
            if text[end] == "," and depth == 1 and first is None:
                first = end
            end += 1
        text = text[: found.start()] + text[found.end() : first] + text[end:]
    return text


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", short_signature)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # before napoleon, at 500
