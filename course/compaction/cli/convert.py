"""``convert``: write another program's session as Chat Completions."""

from __future__ import annotations

import argparse
import sys

from compaction.cli.options import file_name, named, opened, problem_lines
from compaction.cli.output import Output
from compaction.console import OK, counted

_FORMS = """\
Read, and told apart by their content: Chat Completions, Anthropic Messages, Responses items and
Gemini contents (bodies of requests or their lists alone), the sessions of Claude Code, Codex,
opencode (opencode export) and pi, SWE-agent's trajectories, LangChain's messages, those of
Vercel's AI SDK, ShareGPT, and JSON lists or lines of such conversations. A session that its own
program compacted gives its last context."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = f"{parser.description}\n\n{_FORMS}"
    parser.add_argument("history", metavar="FILE", help='the session; "-" reads standard input')
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=file_name,
        default="-",
        help='where the messages go (default: "-", standard output)',
    )


def run(options: argparse.Namespace) -> int:
    """Write each conversation as Chat Completions, and say what was read."""
    from compaction.messages import problems

    source = opened(options)
    with Output(options.out, options.history, source) as output:
        report_to = sys.stderr if options.out == "-" else sys.stdout
        for name, conversation in named(source):
            messages = conversation.messages
            output.add(conversation, messages)
            print(
                f"{name}: {conversation.program}, {counted(len(messages), 'message')}",
                *problem_lines(problems(messages)),
                sep="\n",
                file=report_to,
            )
        output.keep()
    if options.out != "-":
        print(f"wrote {options.out}")
    return OK
