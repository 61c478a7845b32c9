"""nbgrader's settings for learners: which course this is, and where the exchange lies."""

import os

c = get_config()  # type: ignore[name-defined]  # noqa: F821

c.CourseDirectory.course_id = "context-compaction"
c.Exchange.root = os.environ.get("COURSE_EXCHANGE", "/srv/nbgrader/exchange")
