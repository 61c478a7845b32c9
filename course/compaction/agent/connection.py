"""The way to a model: the ``openai`` client and, offline, the scripted gateway behind it.

Both take about a second to load. So they come up in a thread of their own while the person reads
the first lines and types, and whoever needs the client first waits for what is left.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from compaction.engine import ReplyError
from compaction.history import HistoryError
from compaction.messages import Message
from compaction.summary import SummaryError

if TYPE_CHECKING:
    from compaction.gateway import Gateway, Reply

OFFLINE_MODEL = "scripted"
NO_KEY = "unused"
"""What is sent as the key to a gateway that needs none."""

_SHORTEST_KEY = 8

TIMEOUT_S = 120.0
"""How long a gateway may be silent before a request counts as failed."""

_CONNECT_S = 10.0  # a server that is there takes the call at once


class Connection:
    """A client for a model, made in the background.

    ``open_client()`` returns the client; ``close`` ends what it brought up. With ``asks_window``
    the gateway's list of models is read for the model's context window. The key stays inside the
    client: nothing here prints or keeps it.
    """

    def __init__(
        self,
        model: str,
        open_client: Callable[[], Any],
        *,
        offline: bool = False,
        base_url: str | None = None,
        secrets: tuple[str, ...] = (),
        on_close: Callable[[], object] | None = None,
        asks_window: bool = False,
    ) -> None:
        self.asks_window = asks_window
        self.model = model
        self.offline = offline
        self.base_url = base_url
        self.secrets = secrets
        self._open_client = open_client
        self._on_close = on_close
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._window: int | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Begin to load; returns at once."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._load, name="connection", daemon=True)
            self._thread.start()

    @property
    def client(self) -> Any:
        """The ``openai`` client; waits for it, and raises what making it raised."""
        self.start()
        assert self._thread is not None
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._client

    @property
    def window(self) -> int | None:
        """The model's window (tokens) as the gateway's list of models tells it; waits for it."""
        self.start()
        assert self._thread is not None
        self._thread.join()
        return self._window

    def close(self) -> None:
        """Close the client and, offline, stop the gateway; safe to call twice."""
        if self._thread is not None:
            self._thread.join()
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._on_close is not None:
            self._on_close()

    def _load(self) -> None:
        try:
            self._client = self._open_client()
            if self.asks_window:
                self._window = window_of(self._client, self.model)
        except BaseException as error:  # whoever asks for the client is told
            self._error = error


def connect(
    model: str,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout_s: float = TIMEOUT_S,
    asks_window: bool = False,
) -> Connection:
    """Return a connection to a real gateway; without a URL it is the one of ``openai`` itself.

    A gateway given by its URL may need no key; then ``api_key`` is left out. One that is silent
    for ``timeout_s`` has failed.

    >>> connect("a-model", "http://user:word@127.0.0.1:8080/v1", "sk-secret").base_url
    'http://127.0.0.1:8080/v1'
    """

    def open_client() -> Any:
        import openai

        key = api_key or (NO_KEY if base_url else None)
        client = openai.OpenAI(
            base_url=base_url,
            api_key=key,
            max_retries=0,  # asking again is the agent's affair: it says so, and can be stopped
            timeout=openai.Timeout(timeout_s, connect=min(timeout_s, _CONNECT_S)),
        )
        _load_first_request(client)
        return client

    # A short word such as "none" is no key, and must not be struck out of every text.
    given = (api_key, _password(base_url))
    secrets = tuple(secret for secret in given if secret and len(secret) >= _SHORTEST_KEY)
    shown = without_secrets(base_url) if base_url else None
    return Connection(model, open_client, base_url=shown, secrets=secrets, asks_window=asks_window)


def connect_offline(reply: Reply, *, chunk_delay_s: float = 0.0) -> Connection:
    """Return a connection to a scripted gateway of its own, in this process, over real HTTP.

    ``reply`` answers every turn; summary requests get extracts. Nothing leaves the machine.
    """
    from compaction.gateway import Gateway

    gateway = Gateway(after_script=reply, chunk_delay_s=chunk_delay_s, models=(OFFLINE_MODEL,))
    return connect_to(gateway)


def connect_to(gateway: Gateway, model: str = OFFLINE_MODEL) -> Connection:
    """Return a connection to a gateway of this process; it is started if it does not run yet.

    Closing the connection stops the gateway.
    """

    def open_client() -> Any:
        import openai

        if not gateway.running:
            gateway.start()
        client = openai.OpenAI(
            base_url=gateway.base_url,
            api_key=NO_KEY,
            max_retries=0,
            # No proxy that the environment names may see what stays on this machine, and plain
            # HTTP on loopback needs no certificates, which take a moment to load.
            http_client=openai.DefaultHttpxClient(trust_env=False, verify=False),
        )
        _load_first_request(client)
        return client

    return Connection(model, open_client, offline=True, on_close=gateway.stop)


def _load_first_request(client: Any) -> None:
    """Load now what the first request would load, such as the summariser of the gateway."""
    assert client.chat.completions
    import compaction.gateway
    import compaction.summary  # noqa: F401


def without_secrets(base_url: str) -> str:
    """Return a URL without user name, password, query and fragment.

    >>> without_secrets("https://me:word@gateway.example/v1?key=word")
    'https://gateway.example/v1'
    """
    parts = urlsplit(base_url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _password(base_url: str | None) -> str | None:
    return urlsplit(base_url).password if base_url else None


# --- the model's window ---------------------------------------------------------------------

_WINDOW_FIELDS = (
    *("max_model_len", "context_length", "context_window", "loaded_context_length"),
    *("max_context_length", "n_ctx", "input_token_limit", "inputTokenLimit"),
)
"""Where lists of models tell the window: vLLM and SGLang, OpenRouter and Together, Groq, LM Studio
(as loaded, then at most), Mistral, llama.cpp (in ``meta``), Gemini."""

_MODELS_TIMEOUT_S = 5.0
_PLAUSIBLE_WINDOW = range(512, 10**9)


def window_of(client: Any, model: str) -> int | None:
    """Return the window of a model in tokens, where the gateway's list of models tells it.

    Most lists tell none, and some gateways have no list: nothing that goes wrong here matters.
    """
    try:
        listed = client.with_options(timeout=_MODELS_TIMEOUT_S).models.list().data
        entries = [entry.model_dump() for entry in listed]
    except Exception:
        return None
    return next((named_window(e) for e in entries if e.get("id") == model), None)


def named_window(entry: Mapping[str, Any]) -> int | None:
    """Return the window that an entry of a list of models tells.

    >>> named_window({"id": "m", "max_model_len": 32768})
    32768
    >>> named_window({"id": "m", "meta": {"n_ctx": 4096, "n_ctx_train": 131072}})
    4096
    """
    inner = [value for value in entry.values() if isinstance(value, Mapping)]
    for fields in (entry, *inner):
        for name in _WINDOW_FIELDS:
            window = fields.get(name)
            if type(window) is int and window in _PLAUSIBLE_WINDOW:
                return window
    return None


# --- another model --------------------------------------------------------------------------

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal")
_CALL_FIELDS = ("id", "type", "function", "custom")
_THOUGHTS = ("thinking", "redacted_thinking", "reasoning")


def without_foreign_fields(messages: Sequence[Message]) -> list[Message]:
    """Return the history as any model reads it: without what its own model alone can read.

    That are thoughts (``reasoning_content``, parts of type "thinking"), signatures, and whatever
    else a gateway adds to the messages and calls of Chat Completions.

    >>> without_foreign_fields([{"role": "assistant", "content": "4", "reasoning_content": "2+2"}])
    [{'role': 'assistant', 'content': '4'}]
    """
    return [_common(message) for message in messages]


def _common(message: Message) -> Message:
    common = {name: message[name] for name in _FIELDS if name in message}
    if isinstance(common.get("content"), list):
        common["content"] = [
            part
            for part in common["content"]
            if not (isinstance(part, dict) and part.get("type") in _THOUGHTS)
        ] or None
    if isinstance(common.get("tool_calls"), list):
        common["tool_calls"] = [
            {name: call[name] for name in _CALL_FIELDS if name in call}
            for call in common["tool_calls"]
        ]
    elif message.get("role") == "assistant" and common.get("content") is None:
        common["content"] = ""  # what has no calls must have a text
    return common


# --- what went wrong, in one line -----------------------------------------------------------

_LONGEST_REASON = 240


def explain(error: BaseException) -> str:
    """Say in one line what a failed request means for a person.

    >>> explain(ReplyError("the stream\\n ended"))
    'the stream ended'
    >>> explain(ValueError("no number"))
    'ValueError: no number'
    """
    if isinstance(error, ReplyError | SummaryError | HistoryError):
        return _one_line(str(error))
    # Only when openai is loaded can the error be one of its own.
    openai: Any = sys.modules.get("openai")
    if openai is None or not isinstance(error, openai.OpenAIError):
        return _one_line(f"{_place(error)}{type(error).__name__}: {error}")
    if isinstance(error, openai.APITimeoutError):
        return "the gateway took too long to answer (--timeout sets how long it may)"
    if isinstance(error, openai.APIStatusError):
        what = _STATUS.get(error.status_code, "the gateway failed")
        return f"{what} (status {error.status_code}: {_one_line(_said(error))})"
    if isinstance(error, openai.APIConnectionError):
        # The cause names the fault: refused, reset, or broken off in mid-reply.
        cause = error.__cause__ or error.__context__
        detail = f": {_one_line(str(cause))}" if cause is not None and str(cause) else ""
        return f"the connection to the gateway failed{detail}"
    return _one_line(str(error))


_STATUS = {
    400: "the gateway refused the request",
    401: "the gateway does not accept the key",
    403: "the gateway does not accept the key",
    404: "the gateway does not know this model or address",
    413: "the request is too large for the gateway",
    422: "the gateway refused the request",
    429: "the gateway is busy",
}


def _place(error: BaseException) -> str:
    """Name the cell of a learner's notebook that the error comes from, if it does."""
    place, traceback = "", error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if ".ipynb" in filename:
            place = f"{filename}, line {traceback.tb_lineno}: "
        traceback = traceback.tb_next
    return place


def _said(error: Any) -> str:
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    text = str(message or error.message)
    # Between a gateway and its users stand proxies, and these send pages.
    title = re.search(r"<title[^>]*>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
    if re.search(r"<(?:!doctype|html|head|body)\b", text, re.IGNORECASE):
        return f"a web page{': ' + title[1] if title else ''}"
    return text


def _one_line(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _LONGEST_REASON else folded[: _LONGEST_REASON - 3] + "..."
