"""Read and write notebooks, executing nothing.

``magics`` turns a cell's text into Python, ``cells`` chooses the statements that a function needs,
``lab`` recognises which lab a file is, ``write`` writes notebooks in the course's own form.
"""
