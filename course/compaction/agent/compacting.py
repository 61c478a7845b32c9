"""How a session compacts: by whose function, what is hidden, and what a person is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compaction.agent.checklist import without_old_checklists
from compaction.agent.functions import Parts
from compaction.compactor import compact_history, mask_secrets
from compaction.compactor.masking import HIDDEN, Mask, masked
from compaction.engine import Aim, Pass
from compaction.messages import Message
from compaction.probes import Probe
from compaction.summary import Compaction, Summarizer, extract

SHOWN_VALUES = 6
"""How many values of the index the line after a pass names."""

_SHOWN_CHARACTERS = 40
_BEFORE_HIDDEN = re.compile(r"[\w.:/+=\"'-]{0,40}" + re.escape(HIDDEN))


@dataclass
class Compacting:
    """The compactions of a session.

    ``summarize`` asks the model. Without ``masks`` secrets go into summaries as they are.
    ``note`` is told in a line what is not as usual.
    """

    parts: Parts
    summarize: Summarizer
    note: Callable[[str], object]
    masks: bool = True
    _hidden: dict[str, None] = field(default_factory=dict)  # the places, in the order met
    _values: list[str] = field(default_factory=list)

    def run(
        self,
        messages: list[Message],
        probes: Sequence[Probe],
        aim: Aim,
        must_help: bool = False,
    ) -> Compaction:
        """Compact with summaries by the model, for what the pass is for.

        Where the pass ``must_help``, since the alternative is a refused request, do what can be
        done without the model: copy sentences, then keep fewer groups.
        """
        self._hidden.clear()
        # An open item of an old checklist must not come back as unfinished work.
        shorter = without_old_checklists(messages)
        done = self._nearest(shorter, self.summarize, 3, probes, aim)
        if done.abandoned is not None and must_help:
            for keep_recent in (3, 1):
                copied = self._nearest(shorter, extract, keep_recent, probes, aim)
                if copied.abandoned is None:
                    self.note(f"{done.abandoned}; sentences were copied from the history")
                    done = copied
                    break
        self._values = [value for stretch in done.stretches for value in stretch.kept]
        return done

    def _nearest(
        self,
        messages: list[Message],
        summarize: Summarizer,
        keep_recent: int,
        probes: Sequence[Probe],
        aim: Aim,
    ) -> Compaction:
        """Compact to the target, or as far as it goes where the target is only wished for."""
        done = self._once(messages, summarize, keep_recent, probes, aim)
        if aim.is_out_of_reach(done) and not aim.must_reach:
            return self._once(messages, summarize, keep_recent, probes, aim.without_target)
        return done

    def _once(
        self,
        messages: list[Message],
        summarize: Summarizer,
        keep_recent: int,
        probes: Sequence[Probe],
        aim: Aim,
    ) -> Compaction:
        parts, mask = self.parts, self._mask if self.masks else None
        if parts.compact is None:
            return compact_history(
                messages,
                summarize,
                target_tokens=aim.target_tokens,
                min_gain=aim.min_gain,
                mask=mask,
                keep_recent=keep_recent,
                group=parts.group_messages,
                meter=parts.counter,
                probes=probes,
            )
        # A learner's own has the parameters of day 5; the engine judges what it reached.
        return parts.compact(
            messages,
            _blindfolded(summarize, mask) if mask else summarize,
            keep_recent=keep_recent,
            group=parts.group_messages,
            meter=parts.counter,
            probes=probes,
        )

    def _mask(self, text: str) -> str:
        hidden = mask_secrets(text)
        if hidden != text:
            self._hidden |= dict.fromkeys(_BEFORE_HIDDEN.findall(hidden))
        return hidden

    def line(self, passed: Pass) -> str:
        """Return what a person is told of the pass that was just made."""
        line = passed.line
        if passed.abandoned is None:
            if passed.carried:
                line += f"; carried word for word: {_named([p.fact for p in passed.carried])}"
            if self._values:
                line += f"; values kept: {_named(self._values)}"
            if self._hidden:
                line += f"; hidden from the summaries: {_named(list(self._hidden))}"
        return line


def _blindfolded(summarize: Summarizer, mask: Mask) -> Summarizer:
    def ask(messages: list[Message]) -> str:
        return summarize([masked(message, mask) for message in messages])

    return ask


def _named(texts: Sequence[str]) -> str:
    """Name a few texts and count the rest.

    >>> _named(["a", "b", "a"]), _named([str(n) for n in range(9)])
    ('a, b', '0, 1, 2, 3, 4, 5 and 3 more')
    """
    different = list(dict.fromkeys(" ".join(text.split()) for text in texts))
    shown = [
        text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 3] + "..."
        for text in different[:SHOWN_VALUES]
    ]
    rest = len(different) - len(shown)
    return ", ".join(shown) + (f" and {rest} more" if rest else "")
