"""Other programs' histories: one module a form, each a pure function from data to messages.

``traits`` looks at the data once, ``recognise`` asks each form whether it is its own, ``building``
puts the messages together. ``refused`` names the files that only look like histories.

To add a form: a module with ``NAME``, ``matches(traits)`` and ``read(data)`` whose docstring shows
the shape, its name in ``recognise.MODULES``, and a case in the tests.
"""
