"""Day 8: compress documents and long histories to an exact budget, and name what does not fit.

Six steps: count and reserve (``packing``), segment into units and classify them (``segmenting``,
by the rooms ``conversation``, ``markdown`` and ``source``), summarise what is compressible
(``template``), reassemble and verify (``compression``).
"""

from compaction.documents.compression import Compressed as Compressed
from compaction.documents.compression import Question as Question
from compaction.documents.compression import assemble as assemble
from compaction.documents.compression import compress as compress
from compaction.documents.compression import faithful as faithful
from compaction.documents.packing import Packing as Packing
from compaction.documents.packing import pack as pack
from compaction.documents.packing import plan_budget as plan_budget
from compaction.documents.segmenting import CHAT_KINDS as CHAT_KINDS
from compaction.documents.segmenting import MARKDOWN_KINDS as MARKDOWN_KINDS
from compaction.documents.segmenting import SOURCE_KINDS as SOURCE_KINDS
from compaction.documents.segmenting import segment as segment
from compaction.documents.source import PYTHON_KINDS as PYTHON_KINDS
from compaction.documents.template import NOT_STATED as NOT_STATED
from compaction.documents.template import TEMPLATE as TEMPLATE
from compaction.documents.template import Summarize as Summarize
from compaction.documents.template import digest as digest
from compaction.documents.template import fill_template as fill_template
from compaction.documents.template import unit_prompt as unit_prompt
from compaction.documents.units import BINDING_KINDS as BINDING_KINDS
from compaction.documents.units import TURN_KINDS as TURN_KINDS
from compaction.documents.units import Unit as Unit
