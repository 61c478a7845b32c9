"""The end of the course, under the name that notebooks import: ``grader.learner.assemble``."""

from grader.learner.assemble import Assembly, SessionRun, assemble, labs_beside, run_session

__all__ = ["Assembly", "SessionRun", "assemble", "labs_beside", "run_session"]
