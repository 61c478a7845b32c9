"""Day 5, as it is handed out: a summary is used as soon as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from compaction.budget import Counter
from compaction.calibration import meter
from compaction.grouping import Group, group_messages, segments
from compaction.messages import Message
from compaction.probes import Probe
from compaction.summary import Compaction, Summarizer, extract, replace_stretches


def compact(
    messages: list[Message],
    summarize: Summarizer = extract,
    *,
    keep_recent: int = 3,
    group: Callable[..., list[Group]] = group_messages,
    min_segment_tokens: int = 100,
    meter: Counter = meter,
    probes: Iterable[Probe] | None = None,
) -> Compaction:
    """Replace each compressible stretch by one summary."""
    before = meter.count(messages)
    stretches = [
        (start, end)
        for start, end in segments(messages, group(messages, keep_recent))
        if meter.count(messages[start:end]) >= min_segment_tokens
    ]
    # The prompt asks for four headings, so that is what comes back. No need to look.
    summaries = [summarize(messages[start:end]) for start, end in stretches]
    result = replace_stretches(messages, stretches, summaries)
    return Compaction(result, before, meter.count(result), summaries, None, [])
