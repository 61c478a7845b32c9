"""nbgrader's settings for this course. The file of the same name at the root loads this one."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLASSROOM = ROOT / "grader" / "classroom"
if str(ROOT) not in sys.path:  # nbgrader may have been started anywhere, and grader not installed
    sys.path.insert(0, str(ROOT))

from nbgrader.converters import Autograde, GenerateAssignment  # noqa: E402
from nbgrader.preprocessors import ClearSolutions, Execute  # noqa: E402

from grader.autograde.nbgrader_export import PlainCsvExport  # noqa: E402
from grader.autograde.nbgrader_step import GradeInSandbox  # noqa: E402
from grader.build.place_starters import PlaceStarters  # noqa: E402

c = get_config()  # type: ignore[name-defined]  # noqa: F821

c.CourseDirectory.course_id = "context-compaction"
c.CourseDirectory.root = str(ROOT)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "labs"
c.CourseDirectory.submitted_directory = "grader/classroom/submitted"
c.CourseDirectory.autograded_directory = "grader/classroom/autograded"
c.CourseDirectory.feedback_directory = "grader/classroom/feedback"
c.CourseDirectory.solution_directory = "grader/classroom/solution"
c.CourseDirectory.db_url = f"sqlite:///{CLASSROOM / 'gradebook.db'}"

# The starter function in the place of nbgrader's one stub for everything.
c.GenerateAssignment.preprocessors = [
    PlaceStarters if step is ClearSolutions else step
    for step in GenerateAssignment.preprocessors.default_args[0]
]
# Nothing that a learner wrote runs outside a sandbox: not with nbgrader autograde, and not with
# formgrader's button. Where none works, both refuse.
c.Autograde.autograde_preprocessors = [
    GradeInSandbox if step is Execute else step
    for step in Autograde.autograde_preprocessors.default_args[0]
]
# Grades go where git does not look, and no name in them is a formula.
c.ExportApp.plugin_class = PlainCsvExport
c.ClearSolutions.text_stub = "*Your answer, in your own words: about five sentences.*"

# A check cell that was deleted comes back from the source, instead of waiting for a person.
c.OverwriteCells.add_missing_cells = True
# A warning or a log line on standard error costs no points.
c.IgnorePattern.enabled = True
c.IgnorePattern.pattern = r"(?s)."

# Room for the four lines of a failed check; at 90 characters their ends are cut off.
c.Validator.width = 160

# Kernels of this course run on this machine; without this each says that it is not encrypted.
c.Execute.extra_arguments = ["--IPKernelApp.log_level=ERROR"]
