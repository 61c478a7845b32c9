"""The commands that begin with a slash."""

from __future__ import annotations

import pytest

from compaction.agent.slash_commands import COMMANDS, CommandError, run_command
from compaction.gateway import Gateway
from tests.compaction.agent.sessions import (
    Start,
)


def test_commands(start: Start) -> None:
    with Gateway(script=["Hello."]) as gateway:
        agent = start(gateway, window=4000)
        table = run_command(agent, "/budget")
        rows = agent.engine.budget()
        assert all(row.path in table for row in rows) and len(rows) == 7
        total = sum(row.tokens for row in rows)
        assert total == agent.engine.estimate()
        assert f"{total:,} of 4,000 tokens" in table
        assert "compacts above 2,800, at the latest at 3,000" in table
        assert "no usage yet" in run_command(agent, "/tokens")
        assert "nothing is pinned" in run_command(agent, "/probes")
        help_text = run_command(agent, "/help")
        assert all(name in help_text for name in COMMANDS)
        assert str(agent.toolbox.folder) in help_text
        with pytest.raises(EOFError):
            run_command(agent, "/exit")
        assert run_command(agent, "/bud") == table


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("/xyz", "there is no command /xyz; /help lists them"),
        ("/comapct 800", "there is no command /comapct; the nearest is /compact, /help lists them"),
        ("/Budget", "the nearest is /budget"),
        ("/etc/hosts is wrong", "there is no command /etc/hosts; /help lists them"),
        ("/compact some", "expected /compact, or /compact N"),
        ("/undo", "there is nothing to undo"),
        ("/", "there is no command /; /help"),
        ("/budget now", "/budget takes nothing after it"),
        ("/save", "expected /save FILE"),
        ("/load", "expected /load FILE"),
        ("/probes all", "expected /probes, or /probes ask"),
    ],
)
def test_commands_that_are_none(start: Start, line: str, reason: str) -> None:
    with Gateway() as gateway, pytest.raises(CommandError) as error:
        run_command(start(gateway), line)
    assert reason in str(error.value)
