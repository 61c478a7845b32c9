"""Run a learner's code where it can do no harm, and check it from outside.

``limits`` says what code may use and what can happen to it, ``library`` copies what a notebook may
import, ``launch`` starts the program in ``inside``, ``worker`` is a process of it, ``submission``
one function of a notebook in such a process, ``sandbox`` where they all live, ``grading`` the
checks.
"""

from grader.sandbox.grading import grade as grade
from grader.sandbox.launch import LEVELS as LEVELS
from grader.sandbox.limits import Absent as Absent
from grader.sandbox.limits import Died as Died
from grader.sandbox.limits import Forbidden as Forbidden
from grader.sandbox.limits import Garbled as Garbled
from grader.sandbox.limits import LaunchError as LaunchError
from grader.sandbox.limits import LearnerError as LearnerError
from grader.sandbox.limits import LearnerFault as LearnerFault
from grader.sandbox.limits import Limits as Limits
from grader.sandbox.limits import OutOfMemory as OutOfMemory
from grader.sandbox.limits import SandboxMissing as SandboxMissing
from grader.sandbox.limits import TimedOut as TimedOut
from grader.sandbox.limits import TooMuchOutput as TooMuchOutput
from grader.sandbox.limits import Unfit as Unfit
from grader.sandbox.sandbox import Sandbox as Sandbox
from grader.sandbox.sandbox import level_of as level_of
from grader.sandbox.submission import Child as Child
from grader.sandbox.submission import Source as Source
