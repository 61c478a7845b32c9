"""What a learner runs at home: their functions, the checks of them, their copy of the labs.

``in_notebook`` is behind ``grader.check`` and ``grader.score``. ``functions`` executes notebooks
and takes the functions out, ``selftest`` and ``check_notebook`` run the checks on them,
``working_copy`` lays the labs, ``assemble`` builds the engine of day 8.
"""
