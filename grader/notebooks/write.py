"""Write notebooks in the form of the course. Nothing else is loaded for it."""

from __future__ import annotations

import json
from typing import Any

METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
}
"""The metadata of every notebook of the course: no version of anybody's Python in it."""


def render(notebook: dict[str, Any]) -> str:
    """Return a notebook as JupyterLab would save it, with the course's own metadata.

    >>> print(render({"cells": [], "nbformat": 4, "nbformat_minor": 5}).splitlines()[1])
     "cells": [],
    """
    cells = [
        {**cell, "source": cell["source"].splitlines(keepends=True)} for cell in notebook["cells"]
    ]
    whole = {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1, sort_keys=True) + "\n"
