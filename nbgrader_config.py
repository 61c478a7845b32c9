load_subconfig("grader/nbgrader_config.py")  # noqa: F821
