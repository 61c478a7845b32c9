"""Grade a class: what was handed in, who by, its grade in a sandbox, nbgrader's gradebook.

A hand-in flows through ``intake`` (whose, which lab, which counts), ``workers`` (processes here,
or a cluster), ``grade_one`` (checks in a sandbox, and the notebook that nbgrader shows),
``gradebook`` (the one writer) and ``records`` (what was graded; the report reads them). ``run``
holds them together, ``command`` is the command line.
"""
