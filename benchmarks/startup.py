"""How long it takes until the agent's first prompt, beside what it cannot do without.

    python benchmarks/startup.py [--repeats 5]

Every way is a fresh process; they run in turn, and the best time of each counts. The agent shows
its prompt before it has loaded the `openai` client, and ``--help`` never loads it: the exit code is
1 where that does not hold.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

AGENT = [sys.executable, "-m", "compaction", "agent"]
IMPORT = 'import sys; sys.argv = ["compaction", "agent", "--help"]'
SHOW = "from compaction.cli import main\ntry:\n    main()\nexcept SystemExit:\n    pass"
LOADED = f"{IMPORT}\n{SHOW}\nprint('openai' in sys.modules, file=sys.stderr)"


def seconds(command: list[str]) -> float:
    """Run a command to its end."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def until_the_prompt() -> float:
    """Start the agent in a pseudo-terminal, and wait until it draws its prompt."""
    import pty

    with tempfile.TemporaryDirectory() as home:
        master, slave = pty.openpty()
        environment = {**os.environ, "COMPACTION_HOME": home, "TERM": "xterm"}
        began = time.perf_counter()
        process = subprocess.Popen(
            AGENT, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        shown = b""
        try:
            while b"> " not in shown.rpartition(b"/help lists")[2]:
                shown += os.read(master, 65_536)
            return time.perf_counter() - began
        finally:
            process.kill()
            process.wait()
            os.close(master)


def main() -> int:
    """Print a table of times, and return 1 where help loads the client."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="runs of each way (default: 5)")
    options = parser.parse_args()
    ways: dict[str, Callable[[], float]] = {
        "python -c pass": lambda: seconds([sys.executable, "-c", "pass"]),
        "python -c 'import openai'": lambda: seconds([sys.executable, "-c", "import openai"]),
        "agent --help": lambda: seconds([*AGENT, "--help"]),
    }
    if os.name == "posix":
        ways["agent, to its first prompt"] = until_the_prompt
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(options.repeats):
        for way, run in ways.items():
            times[way].append(run())
    base = min(times["python -c 'import openai'"])
    for way, taken in times.items():
        print(f"  {way:<28} {min(taken):6.2f} s   {min(taken) / base:5.2f} of import openai")
    found = subprocess.run(
        [sys.executable, "-c", LOADED], capture_output=True, text=True, check=True
    )
    loads = found.stderr.split()[-1] != "False"
    print(f"agent --help loads openai: {'yes' if loads else 'no'}")
    return int(loads)


if __name__ == "__main__":
    sys.exit(main())
