"""Make what is handed out from its sources, by ``python -m grader build`` and ``release``.

``labs`` fills a notebook in solutions/ from the library, ``place_starters`` puts the starters where
nbgrader would put its stub, ``lessons`` runs the lessons, ``release`` packs the archive.
"""
