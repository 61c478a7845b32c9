"""A model gateway that follows a script: real HTTP on loopback, no model, no network.

An agent needs somebody to talk to. This server speaks the Chat Completions protocol, checks
requests as strictly as a real gateway, and takes its replies from a list, so that lessons,
tests and the offline agent show the same thing on every machine::

    with Gateway(script=["Hello."]) as gateway:
        client = openai.OpenAI(base_url=gateway.base_url, api_key="unused")

The order is that of a request: :mod:`usage` (the character rule), :mod:`script` and :mod:`faults`,
:mod:`validate`, :mod:`summaries`, :mod:`replies` (the wire), :mod:`answering`, :mod:`server`; then
:mod:`command`, its command line, and :mod:`client`, which asks a gateway.
"""

from compaction.gateway.answering import SeenRequest
from compaction.gateway.client import join_summaries, summarize_with
from compaction.gateway.command import add_arguments, run, serve
from compaction.gateway.faults import FAULTS, Fault
from compaction.gateway.script import SCRIPT_OVER, Reply, ScriptError, read_script
from compaction.gateway.server import HOST, MODEL, Gateway
from compaction.gateway.summaries import is_summary_request, quoted_messages
from compaction.gateway.usage import (
    TOKENS_PER_CJK,
    TOKENS_PER_MESSAGE,
    TOKENS_PER_OTHER,
    completion_usage,
    scripted_usage,
    scripted_usage_of_chars,
)

__all__ = [
    "FAULTS",
    "HOST",
    "MODEL",
    "SCRIPT_OVER",
    "TOKENS_PER_CJK",
    "TOKENS_PER_MESSAGE",
    "TOKENS_PER_OTHER",
    "Fault",
    "Gateway",
    "Reply",
    "ScriptError",
    "SeenRequest",
    "add_arguments",
    "completion_usage",
    "is_summary_request",
    "join_summaries",
    "quoted_messages",
    "read_script",
    "run",
    "scripted_usage",
    "scripted_usage_of_chars",
    "serve",
    "summarize_with",
]
