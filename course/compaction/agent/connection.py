"""The way to a model: the ``openai`` client and, offline, the scripted gateway behind it.

Both take about a second to load. So they come up in a thread of their own while the person reads
the first lines and types, and whoever needs the client first waits for what is left.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from compaction.engine import ReplyError
from compaction.history import HistoryError
from compaction.summary import SummaryError

if TYPE_CHECKING:
    from compaction.gateway import Gateway, Reply

OFFLINE_MODEL = "scripted"
NO_KEY = "unused"
"""What is sent as the key to a gateway that needs none."""

MAX_RETRIES = 2
"""How often a request is tried again that failed for a reason that may pass."""

_SHORTEST_KEY = 8

LONGEST_WAIT_S = 60.0
"""A gateway that asks for a longer wait is told to the person instead."""


class Connection:
    """A client for a model, made in the background.

    ``open_client()`` returns the client; ``close`` ends what it brought up. The key stays inside
    the client: nothing here prints or keeps it.
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
    ) -> None:
        self.model = model
        self.offline = offline
        self.base_url = base_url
        self.secrets = secrets
        self._open_client = open_client
        self._on_close = on_close
        self._thread: threading.Thread | None = None
        self._client: Any = None
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
        except BaseException as error:  # whoever asks for the client is told
            self._error = error


def connect(model: str, base_url: str | None = None, api_key: str | None = None) -> Connection:
    """Return a connection to a real gateway; without a URL it is the one of ``openai`` itself.

    A gateway given by its URL may need no key; then ``api_key`` is left out.

    >>> connect("a-model", "http://user:word@127.0.0.1:8080/v1", "sk-secret").base_url
    'http://127.0.0.1:8080/v1'
    """

    def open_client() -> Any:
        import openai

        key = api_key or (NO_KEY if base_url else None)
        client = openai.OpenAI(base_url=base_url, api_key=key, max_retries=0)
        _load_first_request(client)
        return client

    # A short word such as "none" is no key, and must not be struck out of every text.
    given = (api_key, _password(base_url))
    secrets = tuple(secret for secret in given if secret and len(secret) >= _SHORTEST_KEY)
    shown = without_secrets(base_url) if base_url else None
    return Connection(model, open_client, base_url=shown, secrets=secrets)


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


# --- trying again ---------------------------------------------------------------------------


def retry_wait_s(error: BaseException, attempt: int) -> float | None:
    """Return how long to wait before a failed request is tried again; None when it is of no use.

    A busy gateway (429) says how long in ``Retry-After``; failures of the gateway (5xx) and of the
    connection are waited out for half a second, then one. ``attempt`` counts from 1.

    >>> retry_wait_s(ValueError("no number"), 1) is None
    True
    """
    openai: Any = sys.modules.get("openai")
    if openai is None or attempt > MAX_RETRIES or isinstance(error, openai.APITimeoutError):
        return None
    wait_s = 0.5 * 2 ** (attempt - 1)
    if isinstance(error, openai.APIStatusError):
        if error.status_code != 429 and error.status_code < 500:
            return None
        try:
            wait_s = float(error.response.headers.get("Retry-After", wait_s))
        except ValueError:  # a date: some gateways write one
            return None
        return wait_s if 0 <= wait_s <= LONGEST_WAIT_S else None
    return wait_s if isinstance(error, openai.APIConnectionError) else None


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
        return "the gateway took too long to answer"
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
    return str(message or error.message)


def _one_line(text: str) -> str:
    folded = " ".join(text.split())
    return folded if len(folded) <= _LONGEST_REASON else folded[: _LONGEST_REASON - 3] + "..."
