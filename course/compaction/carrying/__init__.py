"""What a task carries from step to step, and what that costs: a simulator without a model.

A fictional agent works for a water company. It has five tools, 24 tasks and a state of named
fields that it pays for again at every step. Two policies hold the state to the same budget of
``keep`` fields. *summary* drops the oldest fields and leaves one entry that says how many.
*selective* drops first what the remaining steps do not declare.

In the order in which data flows: :mod:`world` (generator, token count, tools, tasks),
:mod:`policy` (what to drop), :mod:`simulator` (one run), :mod:`tables` (the two published
tables), :mod:`many_seeds` (which differences are more than luck).
"""

from compaction.carrying.many_seeds import SPREAD_MEASURES as SPREAD_MEASURES
from compaction.carrying.many_seeds import Interval as Interval
from compaction.carrying.many_seeds import SpreadRow as SpreadRow
from compaction.carrying.many_seeds import difference as difference
from compaction.carrying.many_seeds import mean_interval as mean_interval
from compaction.carrying.many_seeds import spread as spread
from compaction.carrying.many_seeds import spread_dict as spread_dict
from compaction.carrying.many_seeds import spread_table as spread_table
from compaction.carrying.many_seeds import student_t as student_t
from compaction.carrying.policy import POLICIES as POLICIES
from compaction.carrying.policy import FieldChooser as FieldChooser
from compaction.carrying.policy import Policy as Policy
from compaction.carrying.policy import compact_state as compact_state
from compaction.carrying.policy import fields_to_drop as fields_to_drop
from compaction.carrying.policy import needed_fields as needed_fields
from compaction.carrying.policy import oldest_fields as oldest_fields
from compaction.carrying.simulator import CALL_TOKENS as CALL_TOKENS
from compaction.carrying.simulator import EARLIER_CALL_TOKENS as EARLIER_CALL_TOKENS
from compaction.carrying.simulator import MAX_STEPS as MAX_STEPS
from compaction.carrying.simulator import STEP_TOKENS as STEP_TOKENS
from compaction.carrying.simulator import STOP_SHARE as STOP_SHARE
from compaction.carrying.simulator import Outcome as Outcome
from compaction.carrying.simulator import Run as Run
from compaction.carrying.simulator import baseline as baseline
from compaction.carrying.simulator import run_task as run_task
from compaction.carrying.simulator import simulate as simulate
from compaction.carrying.tables import UNCOMPACTED as UNCOMPACTED
from compaction.carrying.tables import SweepRow as SweepRow
from compaction.carrying.tables import sweep as sweep
from compaction.carrying.tables import sweep_dict as sweep_dict
from compaction.carrying.tables import sweep_table as sweep_table
from compaction.carrying.world import BANDS as BANDS
from compaction.carrying.world import CHARGE as CHARGE
from compaction.carrying.world import CONSUMPTION as CONSUMPTION
from compaction.carrying.world import DOCUMENTS as DOCUMENTS
from compaction.carrying.world import FIELD_TOKENS as FIELD_TOKENS
from compaction.carrying.world import KEEPS as KEEPS
from compaction.carrying.world import MISSING_FIELD as MISSING_FIELD
from compaction.carrying.world import NO_SUBSCRIBER as NO_SUBSCRIBER
from compaction.carrying.world import NOT_FOUND as NOT_FOUND
from compaction.carrying.world import PRICE_ABOVE_BANDS as PRICE_ABOVE_BANDS
from compaction.carrying.world import READ_METER as READ_METER
from compaction.carrying.world import REGIONS as REGIONS
from compaction.carrying.world import SEARCH as SEARCH
from compaction.carrying.world import SEED as SEED
from compaction.carrying.world import SUBSCRIBER_TYPES as SUBSCRIBER_TYPES
from compaction.carrying.world import TOOLS as TOOLS
from compaction.carrying.world import WRITE_RECORD as WRITE_RECORD
from compaction.carrying.world import State as State
from compaction.carrying.world import Subscriber as Subscriber
from compaction.carrying.world import Task as Task
from compaction.carrying.world import Tool as Tool
from compaction.carrying.world import consumption as consumption
from compaction.carrying.world import find_document as find_document
from compaction.carrying.world import rng as rng
from compaction.carrying.world import state_tokens as state_tokens
from compaction.carrying.world import subscribers as subscribers
from compaction.carrying.world import tariff as tariff
from compaction.carrying.world import tasks as tasks
from compaction.carrying.world import token_count as token_count
from compaction.carrying.world import tokens_of as tokens_of
from compaction.carrying.world import trace_id as trace_id
