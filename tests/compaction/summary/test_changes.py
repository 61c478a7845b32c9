"""What counts as a change: by tool, by shell command, and by how the result ends."""

from __future__ import annotations

import pytest

from compaction.summary.changes import call_results, changes_of, merged
from compaction.summary.outcome import took_place
from compaction.summary.shell import changing_steps
from tests.builders import trip


def history(*calls):
    """Calls as (name, arguments, result); a result of None has not come yet."""
    messages = []
    for number, (name, arguments, result) in enumerate(calls):
        both = trip(f"c{number}", name, arguments, result)
        messages += both if result is not None else both[:1]
    return messages


def changes(*calls):
    return " | ".join(c.text for c in merged(changes_of(list(call_results(history(*calls))))))


@pytest.mark.parametrize(
    ("command", "objects"),
    [
        ("sed -i 's/a/b/' conf/app.toml", ["conf/app.toml"]),
        ("cat > a.cfg <<'EOF'\nx = 1\nEOF", ["a.cfg"]),
        ("echo x | tee -a notes.txt", ["notes.txt"]),
        ("cd app && git commit -qam done && git push origin main", ["origin"]),
        ("kubectl apply -f k8s/web.yaml", ["k8s/web.yaml"]),
        ("pip install httpx==0.28.1", ["httpx==0.28.1"]),
        ("sudo apt-get install -y ripgrep", ["ripgrep"]),
        ("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: src/a.py\n+x\nEOF", ["src/a.py"]),
        ("python - <<'E'\nopen('out.txt', 'w').write('x')\nE", ["out.txt"]),
        ("curl -X POST https://api.example/orders -d '{}'", ["https://api.example/orders"]),
        ("FOO=1 mv a.py b.py", ["a.py", "b.py"]),
    ],
)
def test_a_shell_command_that_changes(command, objects):
    found = [name for step in changing_steps(command) for name in step.objects]
    assert set(objects) <= set(found), found


@pytest.mark.parametrize(
    "command",
    [
        "git status --short",
        "git log --oneline -5",
        "git diff > /dev/null",
        "grep -rn 'rm -rf' . 2>/dev/null | head",
        "sed -n '1,40p' conf/other.toml",
        "cat a.py 2>&1",
        'echo "a > b"',
        "git stash list",
        "git branch",
        "kubectl get pods",
        "kubectl apply --dry-run=client -f a.yaml",
        "pip list",
        "docker ps",
        "python -m pytest -q",
        "curl https://example.org",
    ],
)
def test_a_shell_command_that_only_looks(command):
    assert changing_steps(command) == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("ok", True),
        ("", True),
        ("written", True),
        ("The file a.py has been edited.", True),
        ("Replaced 1 occurrence.", True),
        ('{"reservation_id": "W1", "status": "cancelled"}', True),
        ('{"output": "", "metadata": {"exit_code": 0}}', True),
        ("Successfully replaced text in errors.py.", True),
        ("已写入 a.py", True),
        (None, False),
        ("Error: no such reservation", False),
        ("String to replace was not found in a.py. Nothing was changed.", False),
        ("No replacement was performed, old_str did not appear verbatim.", False),
        ("The user doesn't want to proceed with this tool use. The tool use was rejected", False),
        ("Permission denied: a.py is read-only", False),
        ("Dry run: would change 3 lines", False),
        ("The transaction was rolled back.", False),
        ("0 files changed", False),
        ('{"success": false, "message": "x"}', False),
        ('{"error": "limit reached"}', False),
        ('{"output": "x", "metadata": {"exit_code": 1}}', False),
        ("错误：文件不存在", False),
        ("没有找到要替换的文字", False),
    ],
)
def test_the_outcome_of_a_call(result, expected):
    message = None if result is None else {"role": "tool", "content": result}
    assert took_place(message) is expected


def test_a_refused_push_is_no_change_but_the_commit_before_it_is():
    output = "[main 1a2b3c4] fix\nTo git.example.org:shop.git\n ! [rejected] main -> main\n"
    output += "error: failed to push some refs"
    found = changes(("bash", {"command": "git commit -qam fix; git push origin main"}, output))
    assert "git push" not in found


def test_tests_that_fail_after_an_edit_do_not_undo_it():
    command = "sed -i s/a/b/ calc.py && python -m pytest -q"
    found = changes(("bash", {"command": command}, "1 failed, 3 passed\nexit code: 1"))
    assert "calc.py" in found


def test_views_plans_and_todos_are_no_changes():
    assert not changes(
        ("str_replace_editor", {"command": "view", "path": "a.py"}, "1 x"),
        ("update_plan", {"plan": []}, "Plan updated"),
        ("todo_write", {"todos": []}, "ok"),
        ("search_replacements", {"query": "x"}, "2 found"),
        ("get_update_history", {"id": "7"}, "[]"),
    )


def test_what_is_taken_back_is_no_change():
    edit = ("edit_file", {"path": "a.py", "old": "x", "new": "y"}, "Replaced 1 occurrence.")
    assert not changes(edit, ("bash", {"command": "git checkout -- a.py"}, ""))
    assert not changes(edit, ("undo_edit", {"path": "a.py"}, "Last edit undone successfully"))


def test_repeated_edits_of_one_file_are_one_line():
    edits = [("edit_file", {"path": "a.py", "old": str(n)}, "ok") for n in range(5)]
    assert changes(*edits).count("a.py") == 1
