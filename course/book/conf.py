"""How the web book is made: ``make book`` runs Sphinx on this folder's settings.

The sources are the lessons, labs and guides where they lie, so that every link between them is the
one that is read in the repository. Outputs are the committed ones: nothing is executed.
"""

from typing import Any

import compaction

project = "Context compaction, by hand"
author = "the authors of the course"
project_copyright = "the authors: code MIT, texts and pictures CC BY 4.0"
release = compaction.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
]
root_doc = "course/book/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "course/*.ipynb",
    "course/README.md",
    "course/book/*.md",
    "course/compaction/data/README.md",
    "grader/README.md",
    "labs/*/*.ipynb",
]
# "Start here" works in a learner's folder only; the others are no text of ours.
exclude_patterns = ["course/start_here.ipynb", ".*", "build", "dist", "workbook"]

# Read as committed; nothing is fetched, neither to build a page nor to read it.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# A cell for %%agent holds a request in plain words, which is no Python.
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"

html_theme = "furo"
html_title = project
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["static"]
html_css_files = ["book.css"]


def setup(app: Any) -> None:
    """Leave out of the reference what a package has only imported from elsewhere."""

    def skip(app: Any, kind: str, name: str, member: Any, is_skipped: bool, options: Any) -> bool:
        return is_skipped or not getattr(member, "__module__", "compaction").startswith(
            "compaction"
        )

    app.connect("autodoc-skip-member", skip)
