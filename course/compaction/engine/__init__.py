"""Day 8: the engine. Two lines watch one number, and one counter measures it.

The order is that of a turn: :mod:`decide` is told numbers and says what to do, :mod:`costs` whether
a compaction pays, :mod:`events` what is reported, :mod:`replies` asks the model, :mod:`tool_calls`
runs what it asked for, :mod:`measuring` counts, :mod:`passes` lets a compactor try and judges it,
:mod:`results` cuts down what is too large, and :mod:`driver` puts them together. What
real gateways need is beside :mod:`replies`: :mod:`streams` joins pieces, :mod:`thoughts` tells
answers from thoughts, :mod:`provenance` which fields a model may see, :mod:`overflow` "too long".
"""

from compaction.engine.costs import BreakEven, Prices, break_even
from compaction.engine.decide import Aim, Decision, Lines, Room, make_room, next_step
from compaction.engine.driver import Engine
from compaction.engine.events import ContextExceeded, Event, Pass, trace
from compaction.engine.overflow import Overflow, read_overflow
from compaction.engine.passes import Compactor
from compaction.engine.replies import CallModel, Reply, ReplyError, Tools, read_reply, reply_with
from compaction.engine.tool_calls import (
    NO_RESULT,
    CallTool,
    call_functions,
    close_calls,
    pending_calls,
)

__all__ = [
    "NO_RESULT",
    "Aim",
    "BreakEven",
    "CallModel",
    "CallTool",
    "Compactor",
    "ContextExceeded",
    "Decision",
    "Engine",
    "Event",
    "Lines",
    "Overflow",
    "Pass",
    "Prices",
    "Reply",
    "ReplyError",
    "Room",
    "Tools",
    "break_even",
    "call_functions",
    "close_calls",
    "make_room",
    "next_step",
    "pending_calls",
    "read_overflow",
    "read_reply",
    "reply_with",
    "trace",
]
