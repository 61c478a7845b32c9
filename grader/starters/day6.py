"""Day 6, as it is handed out: the model's answer decides whether a fact survived."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from compaction.messages import Message, text_of
from compaction.probes import Probe, ProbeReport, fold


def verify(
    probes: Iterable[Probe],
    messages: Sequence[Message],
    ask: Callable[[str, Sequence[Message]], str] | None = None,
) -> ProbeReport:
    """Say which facts survived and which are lost."""
    texts = [fold(text_of(message)) for message in messages]
    report = ProbeReport(kept=[], lost=[], answered=[])
    for probe in probes:
        fact = fold(probe.fact)
        if ask is None:
            known = any(fact in text for text in texts)
        else:
            # What counts is what the model still knows, so ask it and believe the answer.
            known = fact in fold(ask(probe.question, messages))
            if known:
                report.answered.append(probe)
        if known:
            report.kept.append(probe)
        else:
            report.lost.append(probe)
    return report
