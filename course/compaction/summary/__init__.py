"""Day 5: structured summaries in the place of old stretches.

``format`` is the form of a summary: headings, prompt, reader. ``one_pass`` is ``compact``: every
stretch is replaced, or nothing is touched. ``extractive`` writes a summary without a model, in
this order: ``prose`` reads sentences, ``changes`` tool calls (with ``shell`` for commands and
``outcome`` for results), ``records`` the ``values`` in both; ``gather`` collects what may be said,
``attachments`` the parts other than text, and ``choice`` takes what fits the room.
"""

from compaction.messages import SUMMARY_PREFIX as SUMMARY_PREFIX
from compaction.messages import is_summary as is_summary
from compaction.summary.extractive import MAX_EXTRACT_CHARACTERS as MAX_EXTRACT_CHARACTERS
from compaction.summary.extractive import extract as extract
from compaction.summary.format import HEADINGS as HEADINGS
from compaction.summary.format import HEADINGS_ZH as HEADINGS_ZH
from compaction.summary.format import KEYS as KEYS
from compaction.summary.format import SummaryError as SummaryError
from compaction.summary.format import language_of as language_of
from compaction.summary.format import parse_summary as parse_summary
from compaction.summary.format import render_summary as render_summary
from compaction.summary.format import share_in as share_in
from compaction.summary.format import summary_prompt as summary_prompt
from compaction.summary.format import tidy_summary as tidy_summary
from compaction.summary.one_pass import COMPACTION_NOTICE as COMPACTION_NOTICE
from compaction.summary.one_pass import Compaction as Compaction
from compaction.summary.one_pass import Stretch as Stretch
from compaction.summary.one_pass import Summarizer as Summarizer
from compaction.summary.one_pass import carry_facts as carry_facts
from compaction.summary.one_pass import compact as compact
from compaction.summary.one_pass import replace_stretches as replace_stretches
from compaction.summary.one_pass import with_notice as with_notice
