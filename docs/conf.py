"""How Sphinx builds the documentation: ``make docs``. Warnings are errors, and nothing is loaded from outside."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

from hushquery._version import __version__  # noqa: E402  # of this folder's source, whatever is installed

project = "hushquery"
author = "the hushquery authors"
project_copyright = "the hushquery authors, Apache-2.0"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "contents",
    "repository",
    "signatures",
]
exclude_patterns = ["_build"]

smartquotes = False  # quotes stay as they are typed

# ---- Markdown --------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # a link may name the heading it means, as on a code host
html_math_renderer = "repository"  # formulas are plain text: no MathJax, which would come from outside

# ---- reference from docstrings ---------------------------------------------------------------------------------------

nitpicky = True
# Names of other packages: looking them up would need the network.
nitpick_ignore_regex = [
    ("py:.*", r"(?!hushquery\b)[a-z_]\w*\..*"),
    # A type variable, and a validator that Pydantic's annotations show.
    ("py:.*", r"hushquery\.(publish\.tables\.Row|task\.model\._exact)"),
]
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# ---- pages -----------------------------------------------------------------------------------------------------------

html_theme = "furo"
html_title = f"hushquery {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_last_updated_fmt = ""
highlight_language = "none"  # a block that names no language is a drawing, or output
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options: dict[str, list[str]] = {"top_of_page_buttons": []}
# The copied text is what is typed: no prompt, no output.
copybutton_prompt_text = r"^\$ |^> |^>>> |^\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True
copybutton_line_continuation_character = "\\"
