"""Read and write notebooks, executing nothing.

``cells`` turns a cell's text into Python and chooses the statements that a function needs,
``lab`` recognises which lab a file is, ``write`` writes notebooks in the course's own form.
"""
