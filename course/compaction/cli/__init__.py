"""The command line: measure a history, see its budget, compact it, check what it kept.

``commands`` lists the commands and runs one; ``options`` has the arguments and words that several
share; each command is a module, loaded when it is asked for.
"""

from compaction.cli.commands import main

__all__ = ["main"]
