"""The prompt of the agent in a terminal: completion, the lines typed before, and the bar below."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from compaction.agent.agent import Agent
from compaction.agent.listener import Stopped
from compaction.agent.slash_commands import COMMANDS

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings

PROMPT = "> "


def typed(agent: Agent, blank_line: Callable[[], object]) -> Iterator[str]:
    """Yield what a person types, a message each; ``blank_line`` is called before each prompt."""
    session = _prompt_session(agent)
    while True:
        suggested = _suggestion(agent)
        blank_line()
        try:
            text = session.prompt(
                placeholder=suggested or "", key_bindings=_enter_takes(suggested)
            ).strip()
        except Stopped:
            raise
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if text:
            yield text


def _enter_takes(suggested: str | None) -> KeyBindings:
    """Let Enter on an empty line type the suggestion and send it."""
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.key_binding.key_processor import KeyPressEvent

    bindings = KeyBindings()
    if suggested:

        def is_empty() -> bool:
            from prompt_toolkit.application import get_app

            return not get_app().current_buffer.text

        @bindings.add("enter", filter=Condition(is_empty))
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(suggested)
            event.current_buffer.validate_and_handle()

    return bindings


def _suggestion(agent: Agent) -> str | None:
    if not agent.demo:
        return None
    from compaction.agent import demo

    return demo.suggestion(agent.history)


def _prompt_session(agent: Agent) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory

    from compaction.agent.store import KEY, typed_lines_file

    paths = PathCompleter(expanduser=True)

    class Commands(Completer):
        def get_completions(self, document: Document, event: Any) -> Iterator[Completion]:
            text = document.text_before_cursor
            name, blank, argument = text.partition(" ")
            if not text.startswith("/"):
                return
            if not blank:
                for known, command in COMMANDS.items():
                    if known.startswith(text):
                        yield Completion(known, -len(text), display_meta=command.about)
            elif name in ("/save", "/load"):
                yield from paths.get_completions(Document(argument, len(argument)), event)

    class TypedLines(FileHistory):
        def store_string(self, string: str) -> None:
            for secret in agent.connection.secrets:
                string = string.replace(secret, KEY)
            super().store_string(string)

    session: PromptSession[str] = PromptSession(
        PROMPT,
        completer=Commands(),
        history=TypedLines(str(typed_lines_file())),
        bottom_toolbar=lambda: _toolbar(agent),
        reserve_space_for_menu=6,
    )

    def start_after_the_prompt_is_drawn(_: object) -> None:
        session.app.after_render -= start_after_the_prompt_is_drawn
        agent.connection.start()

    session.app.after_render += start_after_the_prompt_is_drawn
    return session


def _toolbar(agent: Agent) -> str:
    used = agent.engine.estimate()
    model = "offline" if agent.demo else agent.connection.model
    return (
        f" {model} | {used:,} of {agent.window:,} tokens ({100 * used / agent.window:.0f} %), "
        f"compacts above {100 * agent.threshold:.0f} % | /help"
    )
