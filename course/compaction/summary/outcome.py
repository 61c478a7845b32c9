"""The outcome of a tool call: whether what it was to do took place, judged by its result."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from compaction.messages import Message, content_of

_FIRST, _LAST = 400, 300  # characters of a result in which a tool says how it ended

# Patterns are texts, compiled by re when they are first needed: that takes longer than all else
# that importing this module does, and most that import it judge no result.
_EXIT_CODE = (
    r"(?i)"
    r"(?:exit(?:ed)?(?:[ _-](?:code|status|with code|with status|with))?|return ?code|status code)"
    r"[\"']?\s*[:=]?\s*(?P<code>-?\d{1,3})\b"
)
_FAILURE = (
    r"(?i)^\W*(?:error|err|failed|failure|fatal|refused|denied|rejected|traceback|exception|cannot"
    r"|can't|could not|couldn't|unable|invalid|aborted|cancell?ed by|skipped|blocked|forbidden"
    r"|unauthorized|timed? ?out|no match|not found|conflict)\b"
    r"|\b(?:was|were|has been|have been|is|are) (?:not|never) (?!only)|\bwasn't\b|\bweren't\b"
    r"|\bdid(?: not|n't)\b|\bhas not\b|\bhave not\b|\bwill not be\b"
    r"|\bnot (?:found|applied|changed|modified|written|saved|sent|run|executed|performed|allowed"
    r"|permitted|booked|made|replaced|created|deleted|available|enough|possible|match)\b"
    r"|\bno (?:changes?|replacements?|match(?:es)?|occurrences?|such|edits?)\b(?! remain)"
    r"|\bnothing (?:was|has been|to|changed|happened|written|done|sent)\b|\bunchanged\b"
    r"|\b(?:0|zero) (?:files?|rows?|lines?|replacements?|occurrences?|changes?|edits?) "
    r"|\broll(?:ed|ing)[ -]?back\b|\breverted\b|\bundone\b"
    r"|\b(?:user|operator|reviewer|permission|policy|hook)\b[^.\n]{0,60}"
    r"\b(?:denie[ds]|rejected|declined|refused|cancell?ed|interrupted|block(?:ed|s)|doesn't want)\b"
    r"|\b(?:was|been|request) (?:denied|rejected|declined|refused|blocked|aborted|skipped|ignored"
    r"|interrupted|cancell?ed)\b"
    r"|\binterrupted by\b|\bpermission denied\b|\bread-only\b|\bdry[ -]?run\b|\bsimulated\b"
    r"|\bwould (?:be|have|change|write|edit)\b|\bpending (?:approval|review|confirmation)\b"
    r"|\bawaiting (?:approval|confirmation)\b|\bfailed\b|\bpreview only\b"
    r"|错误|失败|拒绝|未找到|找不到|没有(?:找到|改|修改|任何|执行|写入|变)|未(?:修改|执行|应用|写入|改动|保存|生效)"
    r"|回滚|已撤销|被取消|已中止|权限不足|无法|不能|不允许|没有变化|无变化|试运行"
)
_SUCCESS = (
    r"(?i)^\W*(?:ok|done|success(?:ful(?:ly)?)?|written|wrote|saved|updated|applied|replaced|created"
    r"|edited|booked|sent|deleted|removed|committed|installed|已|成功|完成)\b"
    r"|\bsuccess(?:fully)?\b|\bhas been (?:edited|updated|created|written|changed|replaced|saved)\b"
    r"|\b(?:replaced|updated|changed) [1-9]\d* |成功|已(?:写入|保存|修改|更新|替换|创建|应用|删除)"
)
_SHELL_FAILURE = (
    r"(?m)^(?:\S+: )?(?:fatal|error|npm ERR!|ERROR):|^Traceback \(most recent|command not found\s*$"
    r"|: (?:No such file|Permission denied|Is a directory|cannot |can't read|not found)"
    r"|^\s*! \[(?:remote )?rejected\]|^error: failed to push|nothing to commit|CONFLICT \("
    r"|^Error from server|would be overwritten|^patch: |FAILED -- saving rejects|hunks? FAILED"
)
_FALSE_FIELDS = frozenset(
    ("success", "ok", "applied", "succeeded", "accepted", "executed", "changed")
)
_TRUE_FIELDS = frozenset(
    ("is_error", "error", "isError", "failed", "dry_run", "rolled_back", "denied", "interrupted")
)
_BAD_STATES = (
    r"(?i)"
    r"^(?:error|fail|refus|reject|denied|declined|not_|not |aborted|invalid|dry|skip|rolled|blocked"
    r"|timeout|timed|conflict|forbidden|unauthorized|no_change|unchanged|pending_approval)"
)


def took_place(result: Message | None, is_shell: bool = False) -> bool:
    """Say whether a call's result tells of success; a call without a result was not run.

    >>> took_place({"role": "tool", "content": "The file a.py has been edited."})
    True
    >>> took_place({"role": "tool", "content": "String was not found. Nothing was changed."})
    False
    >>> took_place(None)
    False
    """
    if result is None or result.get("is_error") or result.get("isError"):
        return False
    text = content_of(result).strip()
    data = _object_in(text)
    if data is not None:
        if _reports_failure(data):
            return False
        text = next((v for k in _TEXTS if isinstance(v := data.get(k), str)), "").strip()
    code = _exit_code(text)
    if code:
        return False
    if is_shell:
        return not re.search(_SHELL_FAILURE, text) and not _was_refused(text)
    head = text[:_FIRST].split("\n\n")[0]
    first = head.split("\n", 1)[0]
    if re.search(_FAILURE, first):
        return False
    if re.search(_SUCCESS, first):
        return True
    return not re.search(_FAILURE, head) or code == 0


_TEXTS = ("output", "message", "result", "content", "stdout", "detail", "text")
_REFUSED = (
    r"(?i)\b(?:rejected|denied|declined|refused|interrupted|not (?:run|executed|allowed|permitted)"
    r"|blocked|cancell?ed|skipped|dry[ -]?run|timed out|aborted|read-only)\b"
    r"|拒绝|未执行|不允许|已取消"
)


def _was_refused(text: str) -> bool:
    """Say whether the program around the shell, not the command, says that it was not run."""
    return bool(re.search(_REFUSED, text[:_FIRST])) and len(text) <= _FIRST


def _exit_code(text: str) -> int | None:
    for part in (text[:_FIRST], text[-_LAST:]):
        match = re.search(_EXIT_CODE, part)
        if match:
            return int(match["code"])
    return None


def _object_in(text: str) -> dict[str, Any] | None:
    if not text.startswith("{"):
        return None
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _reports_failure(data: Mapping[str, Any]) -> bool:
    """Say whether a JSON result's own fields tell of failure."""
    for key, value in data.items():
        if key in _FALSE_FIELDS and value is False:
            return True
        if key in _TRUE_FIELDS and value not in (None, False, "", 0, [], {}):
            return True
        if key in ("exit_code", "exitCode", "returncode", "code") and value not in (
            None,
            0,
            200,
            201,
        ):
            return isinstance(value, int)
        if key in ("status", "state", "outcome") and re.match(_BAD_STATES, str(value)):
            return True
        if key in ("metadata", "meta") and isinstance(value, dict) and _reports_failure(value):
            return True
    return False
