"""Settings of Sphinx for the site; ``python docs/build.py`` builds it."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]  # the checkout's own package is the one that is documented

import cuda_lexer  # noqa: E402
import gallery  # noqa: E402
import generated  # noqa: E402
import paper  # noqa: E402
import plots  # noqa: E402

project = "cudakit"
author = "the authors of cudakit"
release = version = runpy.run_path(str(ROOT / ".ci" / "version.py"))["version"]()

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx_copybutton",
]
exclude_patterns = ["README.md", "library", "made"]  # the latter's tables are included in pages
myst_heading_anchors = 3

autodoc_member_order = "groupwise"
autodoc_typehints = "none"  # the docstrings say what is taken, with shapes, dtypes and units
numpydoc_show_class_members = False
default_role = "code"
nitpicky = True

html_theme = "pydata_sphinx_theme"
html_title = "cudakit"
html_show_sourcelink = False
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
html_context = {"default_mode": "auto"}
html_sidebars = {"*": ["pages"], "index": [], "search": [], "genindex": []}
html_theme_options = {
    "header_links_before_dropdown": 3,
    "navbar_end": ["versions", "theme-switcher"],
    "show_prev_next": False,
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


BARS = re.compile(r"(``.*?``|`.*?`)|\|")


def without_substitutions(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Escape ``|x|`` in a docstring: an absolute value, not a substitution of reStructuredText."""
    lines[:] = [
        line if line.lstrip().startswith((">>>", "...")) else BARS.sub(lambda match: match[1] or r"\|", line)
        for line in lines
    ]


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx reads any page."""
    app.add_lexer("python", cuda_lexer.PythonWithCuda)
    app.connect("config-inited", lambda app, config: generated.write(HERE))
    app.connect("config-inited", lambda app, config: plots.write(HERE))
    app.connect("config-inited", lambda app, config: gallery.write(HERE))
    app.connect("config-inited", lambda app, config: paper.write(HERE))
    app.connect("autodoc-process-docstring", without_substitutions, priority=400)  # before numpydoc
