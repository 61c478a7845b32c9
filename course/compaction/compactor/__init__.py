"""Compaction for engines and engineers: ``compact`` with a target, a mask, and strict templates.

``plan`` says which stretches get a summary and which share one; ``history_pass`` is
``compact_history``; ``masking`` hides secrets; ``alternate`` makes roles take turns. What a
summary says is chosen in ``compaction.summary``.
"""

from compaction.compactor.history_pass import compact_history as compact_history
from compaction.compactor.masking import mask_secrets as mask_secrets
