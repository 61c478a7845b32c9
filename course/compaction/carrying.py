"""What a task carries from step to step, and what that costs: a simulator without a model.

A fictional agent works for a water company. It has five tools, 24 tasks and a state of named
fields that it pays for again at every step. Two policies hold the state to the same budget of
``keep`` fields. *summary* drops the oldest fields and leaves one entry that says how many.
*selective* drops first what the remaining steps do not declare.

The module reads in the order in which data flows: generator, token count, environment, tools,
tasks, policy, agent, run, and then the tables and the spread over many seeds. The words that are
counted as tokens stay Turkish, since other words would give other counts:

=========  ==================  ==========  ====================
word       meaning             word        meaning
=========  ==================  ==========  ====================
abone      subscriber          anahtar     search key
bolge      region              kod         document code
tip        type                metin       document text
mesken     household           sutun       column to write
isyeri     business            deger       value to write
onceki     previous reading    yazildi     written
simdiki    current reading     sonuc       result so far
m3         cubic metres used   ozet        summary entry
tutar      amount to pay       hata        error
=========  ==================  ==========  ====================
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

SEED = 20260218
"""Seed of the published tables; environment and tasks always use it."""

KEEPS = (6, 5, 4, 3)
"""Budgets of the published tables, in fields."""

U32 = 2**32 - 1

State = dict[str, Any]
"""Field names and values (int, str, bool or None), from the oldest field to the newest."""


# --- Generator: numbers that are the same on every machine --------------------------------------


def rng(seed: int) -> Callable[[], float]:
    """Return a function that draws the next number in [0, 1) of the stream of ``seed``.

    >>> draw = rng(20260218)
    >>> [round(draw(), 4) for _ in range(3)]
    [0.9695, 0.6241, 0.75]

    All arithmetic is on unsigned 32-bit integers, so a seed counts modulo 2**32. The seed is
    mixed twice (neighbouring seeds must not give neighbouring streams), then a linear
    congruential generator steps on (multiplier and increment of Numerical Recipes).
    """
    mixed = seed & U32
    mixed = (mixed ^ mixed >> 16) * 2246822507 & U32
    mixed = (mixed ^ mixed >> 13) * 3266489909 & U32
    state = mixed ^ mixed >> 16

    def draw() -> float:
        nonlocal state
        state = (1664525 * state + 1013904223) & U32
        return state / 2**32

    return draw


def trace_id(text: str) -> int:
    """Return the 32-bit FNV-1a hash of ``text``, taken over its code points.

    >>> trace_id("a")
    3826002220
    """
    value = 2166136261
    for character in text:
        value = (value ^ ord(character)) * 16777619 & U32
    return value


# --- Token count: what a field costs -------------------------------------------------------------

FIELD_TOKENS = 12
"""What a field costs before its value: name, quotes, separators."""


def tokens_of(text: str) -> list[str]:
    """Split ``text`` into tokens: lower-case words in pieces of at most five characters.

    >>> tokens_of("Endeks farki, 100000")
    ['endek', 's', 'farki', ',', '10000', '0']
    """
    words = text.lower().replace(",", " , ").split()
    return [word[start : start + 5] for word in words for start in range(0, len(word), 5)]


@lru_cache(maxsize=4096)
def token_count(text: str) -> int:
    """Return how many tokens ``text`` has.

    >>> token_count("A001"), token_count("subscriber"), token_count("None")
    (1, 2, 1)
    """
    return len(tokens_of(text))


def state_tokens(state: Mapping[str, object]) -> int:
    """Return what it costs to carry ``state`` through one step, in tokens.

    >>> state_tokens({"abone": "A001", "onceki": 123456})
    27
    """
    tokens = FIELD_TOKENS * len(state)
    for value in state.values():
        tokens += token_count(str(value))
    return tokens


# --- Environment: subscribers, tariff, documents -------------------------------------------------

REGIONS = ("dogu", "bati", "kuzey", "guney", "merkez")
SUBSCRIBER_TYPES = ("mesken", "isyeri")
BANDS = ((10, 4), (25, 7), (40, 11))
"""Tariff bands: up to so many cubic metres, at so much for each of them."""
PRICE_ABOVE_BANDS = 16

DOCUMENTS = MappingProxyType(
    {
        "TR01": "tarife basamaklari 10 25 40 metrekup ve ustu",
        "TR02": "isyeri abonesinde birim ucret iki katidir",
        "SY01": "endeks farki tuketimi verir sayac donusu 100000 eklenir",
        "AR01": "ariza kaydi acildiginda saha ekibi iki gun icinde gider",
        "KS01": "planli kesinti duyurusu bir hafta once yayimlanir",
    }
)


@dataclass(frozen=True)
class Subscriber:
    """One customer; readings in cubic metres.

    >>> Subscriber("A001", "dogu", "mesken", previous=100, current=112).used
    12
    """

    name: str
    region: str
    type: str
    previous: int
    current: int

    @property
    def used(self) -> int:
        """Cubic metres used; a meter that went past its end starts again at 0."""
        return consumption(self.previous, self.current)


@lru_cache(maxsize=1)
def subscribers() -> Mapping[str, Subscriber]:
    """Return the 60 subscribers, A001 to A060, by name.

    >>> subscribers()["A001"].region
    'guney'
    """
    found = {}
    for i in range(60):
        draw = rng(SEED + 31 * i)  # draws in this order: previous, region, type, current
        previous = 10000 + int(draw() * 80000)
        region = REGIONS[int(draw() * 5)]
        type_ = SUBSCRIBER_TYPES[int(draw() * 2)]
        current = previous + int(draw() * 70)
        name = f"A{i + 1:03d}"
        found[name] = Subscriber(name, region, type_, previous, current)
    return MappingProxyType(found)


def consumption(previous: int, current: int) -> int:
    """Return the cubic metres between two readings of a meter with five digits.

    >>> consumption(10, 35), consumption(99990, 15)
    (25, 25)
    """
    used = current - previous
    return used + 100000 if used < 0 else used


def tariff(used: int, subscriber_type: str = "mesken") -> int:
    """Return the price of ``used`` cubic metres, each at its band's price; businesses pay double.

    >>> tariff(12), tariff(12, "isyeri"), tariff(50)
    (54, 108, 470)
    """
    price = 0
    lower = 0
    for upper, unit_price in BANDS:
        price += (min(max(used, lower), upper) - lower) * unit_price
        lower = upper
    price += max(used - lower, 0) * PRICE_ABOVE_BANDS
    return price * 2 if subscriber_type == "isyeri" else price


@lru_cache(maxsize=1024)
def find_document(query: str) -> str | None:
    """Return the code of the document that shares most tokens with ``query``; None if none does.

    >>> find_document("sayac donusu"), find_document("hello")
    ('SY01', None)

    Of documents that share equally many, the first is returned.
    """
    wanted = set(tokens_of(query))
    best_code, best_shared = None, 0
    for code, text in DOCUMENTS.items():
        shared = len(wanted & set(tokens_of(text)))
        if shared > best_shared:
            best_code, best_shared = code, shared
    return best_code


# --- Tools: what the agent can call --------------------------------------------------------------

MISSING_FIELD = "eksik alan"
NO_SUBSCRIBER = "abone yok"
NOT_FOUND = "bulunamadi"


def _lacks(fields: State, *required: str) -> bool:
    return any(fields.get(name) in (None, "") for name in required)


def _read_meter(fields: State) -> State:
    subscriber = subscribers().get(str(fields.get("abone")))
    if subscriber is None:
        return {"hata": NO_SUBSCRIBER}
    return {
        "onceki": subscriber.previous,
        "simdiki": subscriber.current,
        "tip": subscriber.type,
        "bolge": subscriber.region,
    }


def _compute_consumption(fields: State) -> State:
    if _lacks(fields, "onceki", "simdiki"):
        return {"hata": MISSING_FIELD}
    return {"m3": consumption(fields["onceki"], fields["simdiki"])}


def _compute_charge(fields: State) -> State:
    if _lacks(fields, "m3"):
        return {"hata": MISSING_FIELD}
    return {"tutar": tariff(fields["m3"], str(fields.get("tip", "mesken")))}


def _search_documents(fields: State) -> State:
    if _lacks(fields, "anahtar"):
        return {"hata": MISSING_FIELD}
    code = find_document(str(fields["anahtar"]))
    if code is None:
        return {"hata": NOT_FOUND}
    return {"kod": code, "metin": DOCUMENTS[code]}


def _write_record(fields: State) -> State:
    if _lacks(fields, "abone", "sutun", "deger"):
        return {"hata": MISSING_FIELD}
    return {"yazildi": True} | {name: fields[name] for name in ("abone", "sutun", "deger")}


@dataclass(frozen=True)
class Tool:
    """A tool: its name, the fields that it declares, and where its answer goes.

    A call passes the declared fields that the state holds, and nothing else. ``result`` names the
    field of the answer that becomes the state's own ``sonuc``, if any.

    >>> tool = TOOLS[2]
    >>> tool.name, tool.declares, tool.call({"m3": 12, "sutun": "bedel"})
    ('tarife', ('m3', 'tip'), {'tutar': 54})
    """

    name: str
    declares: tuple[str, ...]
    run: Callable[[State], State]
    result: str | None = None

    def call(self, state: Mapping[str, object]) -> State:
        """Run the tool on what ``state`` holds of its fields; an error stands under ``hata``."""
        return self.run({name: state[name] for name in self.declares if name in state})


READ_METER = Tool("sayac_oku", ("abone",), _read_meter)
CONSUMPTION = Tool("tuketim", ("onceki", "simdiki"), _compute_consumption, result="m3")
CHARGE = Tool("tarife", ("m3", "tip"), _compute_charge, result="tutar")
SEARCH = Tool("belge_ara", ("anahtar",), _search_documents, result="kod")
WRITE_RECORD = Tool("kayit_yaz", ("abone", "sutun", "deger"), _write_record)

TOOLS = (READ_METER, CONSUMPTION, CHARGE, SEARCH, WRITE_RECORD)


# --- Tasks: what is asked, which tools it takes, what is right ------------------------------------


@dataclass(frozen=True)
class Task:
    """One request: the tools that answer it in order, and the correct answer.

    >>> task = tasks()[4]
    >>> task.name, task.kind, [tool.name for tool in task.sequence], task.answer
    ('G05', 'charge', ['sayac_oku', 'tuketim', 'tarife'], 550)
    """

    name: str
    kind: str
    subscriber: str
    request: str
    sequence: tuple[Tool, ...]
    answer: int | str


# kind: (weight, sequence, request)
_KINDS: dict[str, tuple[float, tuple[Tool, ...], str]] = {
    "charge": (
        0.30,
        (READ_METER, CONSUMPTION, CHARGE),
        "{} abonesinin bu donem bedeli nedir",
    ),
    "consumption": (
        0.22,
        (READ_METER, CONSUMPTION),
        "{} abonesinin bu donem tuketimi kac metrekup",
    ),
    "document": (
        0.20,
        (SEARCH,),
        "sayac donusunde endeks farki nasil hesaplanir",
    ),
    "record": (
        0.28,
        (READ_METER, CONSUMPTION, CHARGE, WRITE_RECORD),
        "{} abonesinin bedelini hesapla ve kayda yaz",
    ),
}


def _choose_kind(drawn: float) -> str:
    upper = 0.0
    for kind, (weight, _, _) in _KINDS.items():
        upper += weight
        if drawn < upper:
            return kind
    return kind  # the weights' sum may round to just under 1


def _correct_answer(kind: str, subscriber: Subscriber) -> int | str:
    if kind == "document":
        return "SY01"
    if kind == "consumption":
        return subscriber.used
    return tariff(subscriber.used, subscriber.type)


@lru_cache(maxsize=1)
def tasks() -> tuple[Task, ...]:
    """Return the 24 tasks, G01 to G24.

    >>> len(tasks())
    24
    """
    found = []
    for i in range(24):
        draw = rng(SEED + 9973 * i)  # draws in this order: subscriber, kind
        subscriber = subscribers()[f"A{1 + int(draw() * 60):03d}"]
        kind = _choose_kind(draw())
        _, sequence, request = _KINDS[kind]
        found.append(
            Task(
                name=f"G{i + 1:02d}",
                kind=kind,
                subscriber=subscriber.name,
                request=request.format(subscriber.name),
                sequence=sequence,
                answer=_correct_answer(kind, subscriber),
            )
        )
    return tuple(found)


# --- Policy: what to drop when the state is over its budget ---------------------------------------

FieldChooser = Callable[[dict[str, object], int, list[str]], list[str]]
"""``(state, keep, needed) -> names of the fields to drop``: the form of a policy of your own."""


@lru_cache(maxsize=64)
def needed_fields(remaining: tuple[Tool, ...]) -> tuple[str, ...]:
    """Return the fields that the ``remaining`` tools declare, and ``sonuc``, each once.

    >>> needed_fields((CHARGE, WRITE_RECORD))
    ('m3', 'tip', 'abone', 'sutun', 'deger', 'sonuc')
    """
    declared = [name for tool in remaining for name in tool.declares]
    return tuple(dict.fromkeys([*declared, "sonuc"]))


def oldest_fields(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Return the fields to drop so that ``keep`` remain: the oldest, whatever they are for.

    >>> oldest_fields({"abone": "A001", "anahtar": "...", "m3": 12}, keep=2, needed=["abone"])
    ['abone']

    ``state`` lists its fields from the oldest to the newest. Same form as :func:`fields_to_drop`;
    ``needed`` is not looked at, and that is what the policy gets wrong.
    """
    surplus = max(0, len(state) - keep)
    return list(state)[:surplus]


def fields_to_drop(state: dict[str, object], keep: int, needed: list[str]) -> list[str]:
    """Return the fields to drop so that ``keep`` remain: first those that no later step needs.

    >>> fields_to_drop({"abone": "A001", "anahtar": "...", "m3": 12}, keep=2, needed=["abone"])
    ['anahtar']

    ``state`` maps field names to values, from the oldest to the newest; ``keep`` is a number of
    fields; ``needed`` names the fields that the remaining steps declare. A needed field goes only
    when nothing else is left, and among equals the oldest goes first. A state of at most ``keep``
    fields loses nothing.
    """
    surplus = max(0, len(state) - keep)
    unneeded_first = sorted(state, key=lambda name: name in needed)  # stable: oldest first
    return unneeded_first[:surplus]


@dataclass(frozen=True)
class Policy:
    """How a state is brought back to its budget: which fields go, and whether an entry says so.

    >>> Policy("summary", oldest_fields, leaves_summary=True).name
    'summary'
    """

    name: str
    choose: FieldChooser
    leaves_summary: bool = False


POLICIES = MappingProxyType(
    {
        "summary": Policy("summary", oldest_fields, leaves_summary=True),
        "selective": Policy("selective", fields_to_drop),
    }
)


def compact_state(state: State, keep: int, policy: Policy, needed: Sequence[str]) -> list[str]:
    """Drop fields of ``state`` in place until ``keep`` remain; return the names of the dropped.

    >>> state = {"abone": "A001", "anahtar": "...", "m3": 12}
    >>> compact_state(state, 2, POLICIES["summary"], needed=["abone"])
    ['abone']
    >>> state
    {'anahtar': '...', 'm3': 12, 'ozet': '1 alan dusuruldu'}

    The summary entry ``ozet`` is not held against ``keep`` now, but from the next step on it is a
    field like any other. Raises ValueError when the policy names a field that is not there, or
    leaves more than ``keep``.
    """
    if len(state) <= keep:
        return []
    # The policy gets copies: what it returns counts, what it does to its arguments does not.
    dropped = _checked_choice(policy, policy.choose(dict(state), keep, list(needed)), state, keep)
    for name in dropped:
        del state[name]
    if policy.leaves_summary:
        state["ozet"] = f"{len(dropped)} alan dusuruldu"
    return dropped


def _checked_choice(policy: Policy, chosen: object, state: State, keep: int) -> list[str]:
    if not isinstance(chosen, list | tuple | set | frozenset):
        raise ValueError(
            f"policy {policy.name}: expected a list of field names, got {type(chosen).__name__}"
        )
    for name in chosen:
        if not isinstance(name, str) or name not in state:
            raise ValueError(
                f"policy {policy.name}: {name!r} is not a field of the state ({', '.join(state)})"
            )
    dropped = list(dict.fromkeys(chosen))
    if len(state) - len(dropped) > keep:
        raise ValueError(
            f"policy {policy.name}: dropped {len(dropped)} of {len(state)} fields, "
            f"but only {keep} may remain"
        )
    return dropped


# --- Agent: one task, step by step ---------------------------------------------------------------

MAX_STEPS = 8
STEP_TOKENS = 60
"""What a step costs before anything is carried: instructions and request."""
EARLIER_CALL_TOKENS = 22
"""What each earlier call of the task adds to every later step."""
CALL_TOKENS = 30
STOP_SHARE = 0.88
"""How often the agent sees that its task is done."""


@dataclass(frozen=True)
class Outcome:
    """What one task cost and whether its answer is right; ``state`` is the state at its end.

    ``lacked_dropped`` says that a call failed for want of a field that had been dropped.
    """

    task: str
    steps: int
    calls: int
    tokens: int
    errors: int
    lacked_dropped: bool
    correct: bool
    state: Mapping[str, object]


def run_task(
    task: Task,
    keep: int | None = None,
    policy: str | Policy | FieldChooser = "summary",
    seed: int = SEED,
    *,
    carrying: bool = True,
) -> Outcome:
    """Let the agent work on one task and return what came of it.

    >>> run_task(tasks()[0], keep=3, policy="selective").correct
    True

    ``keep`` is the budget in fields (None: nothing is dropped), ``policy`` as in :func:`simulate`;
    ``carrying=False`` leaves the state's tokens out and drops nothing. Raises ValueError as
    :func:`simulate` does.
    """
    keep, policy, seed = _checked_keep(keep), _policy(policy), _checked_int("seed", seed)
    return _work(task, keep, policy, seed, carrying)


def _work(task: Task, keep: int | None, policy: Policy, seed: int, carrying: bool) -> Outcome:
    draw = rng(seed ^ trace_id(task.name))
    state: State = {"abone": task.subscriber, "anahtar": task.request, "sutun": "bedel"}
    position = steps = calls = tokens = errors = 0
    dropped_ever: set[str] = set()
    lacked_dropped = False

    while steps < MAX_STEPS:
        steps += 1
        tokens += STEP_TOKENS + EARLIER_CALL_TOKENS * calls
        if carrying:
            tokens += state_tokens(state)

        target = task.sequence[position] if position < len(task.sequence) else None
        if target is None and draw() < STOP_SHARE:
            break
        tool = _pick_tool(target, position, draw)

        if tool is WRITE_RECORD:
            state["deger"] = state.get("sonuc")
        result = tool.call(state)
        calls += 1
        tokens += CALL_TOKENS
        if "hata" in result:
            errors += 1
            lacked_dropped |= any(
                name in dropped_ever and name not in state for name in tool.declares
            )
            continue

        state.update(result)
        if tool.result is not None:
            state["sonuc"] = result[tool.result]
        if tool is target:
            position += 1
        if carrying and keep is not None:
            needed = needed_fields(task.sequence[position:])
            dropped_ever.update(compact_state(state, keep, policy, needed))

    correct = state.get("sonuc") == task.answer
    return Outcome(task.name, steps, calls, tokens, errors, lacked_dropped, correct, state)


def _pick_tool(target: Tool | None, position: int, draw: Callable[[], float]) -> Tool:
    """Pick the target, or any tool: the further into a task, the more often the agent errs."""
    if target is not None and draw() < max(0.34, 0.80 - 0.09 * position):
        return target
    return TOOLS[int(draw() * len(TOOLS))]


# --- Run: all tasks under one budget, one policy and one seed -------------------------------------


@dataclass(frozen=True)
class Run:
    """Sums over the 24 tasks; ``needed`` and ``success`` count tasks.

    ``needed`` is the number of tasks in which a failing call lacked a dropped field; ``success``
    the share of tasks with the correct answer at the end.
    """

    steps: int
    calls: int
    tokens: int
    errors: int
    needed: int
    success: float


def simulate(
    keep: int | None = None, policy: str | Policy | FieldChooser = "summary", seed: int = SEED
) -> Run:
    """Run the 24 tasks with at most ``keep`` fields carried from step to step.

    >>> simulate(keep=3, policy="selective").tokens < simulate(keep=3, policy="summary").tokens
    True

    ``keep`` is a number of fields; None drops nothing. ``policy`` is ``"summary"``,
    ``"selective"``, or a function of your own with the arguments and the result of
    :func:`fields_to_drop`; no summary entry is left for a function (wrap it in a :class:`Policy`
    to have one). ``seed`` moves the agent's choices only: environment and tasks stay the same.

    Raises ValueError for a negative or fractional ``keep``, an unknown policy, a seed that is not
    an integer, and when a function names a field that is not there or leaves too many.
    """
    keep, policy, seed = _checked_keep(keep), _policy(policy), _checked_int("seed", seed)
    return _total([_work(task, keep, policy, seed, carrying=True) for task in tasks()])


def baseline(seed: int = SEED) -> Run:
    """Run the 24 tasks without counting what is carried, and without dropping anything.

    >>> baseline().steps == simulate().steps, baseline().tokens < simulate().tokens
    (True, True)

    Raises ValueError for a seed that is not an integer.
    """
    seed = _checked_int("seed", seed)
    policy = POLICIES["summary"]  # never asked: there is no budget
    return _total([_work(task, None, policy, seed, carrying=False) for task in tasks()])


def _total(outcomes: Sequence[Outcome]) -> Run:
    return Run(
        steps=sum(outcome.steps for outcome in outcomes),
        calls=sum(outcome.calls for outcome in outcomes),
        tokens=sum(outcome.tokens for outcome in outcomes),
        errors=sum(outcome.errors for outcome in outcomes),
        needed=sum(outcome.lacked_dropped for outcome in outcomes),
        success=sum(outcome.correct for outcome in outcomes) / len(outcomes),
    )


def _checked_int(name: str, value: object, least: int | None = None) -> int:
    expected = "an integer" if least is None else f"an integer of at least {least}"
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # any integer, no float
    except TypeError:
        raise ValueError(f"{name}: expected {expected}, got {value!r}") from None
    if isinstance(value, bool) or (least is not None and number < least):
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return number


def _checked_keep(keep: object) -> int | None:
    return None if keep is None else _checked_int("keep", keep, least=0)


def _policy(policy: object) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and policy in POLICIES:
        return POLICIES[policy]
    if callable(policy):
        return Policy(getattr(policy, "__name__", "of your own"), policy)
    known = ", ".join(f'"{name}"' for name in POLICIES)
    raise ValueError(f"policy: expected {known} or a function, got {policy!r}")


# --- Sweep: the two tables ------------------------------------------------------------------------

UNCOMPACTED = "uncompacted"


@dataclass(frozen=True)
class SweepRow:
    """One policy and budget, run under a seed (``first``) and under the next one (``second``)."""

    policy: str
    keep: int | None
    first: Run
    second: Run


def sweep(
    seed: int = SEED,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
) -> list[SweepRow]:
    """Return the rows of both tables: uncompacted, then each policy from the largest budget down.

    >>> [(row.policy, row.keep) for row in sweep(keeps=[3, 4])]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('uncompacted', None), ('summary', 4), ('summary', 3), ('selective', 4), ('selective', 3)]

    ``policies`` as in :func:`simulate`. Raises ValueError for a seed that is not an integer, for
    budgets that are not, and for an unknown policy.
    """
    seed = _checked_int("seed", seed)
    return [
        SweepRow(policy, keep, simulate(keep, chooser, seed), simulate(keep, chooser, seed + 1))
        for policy, keep, chooser in _settings(keeps, policies)
    ]


def _settings(
    keeps: Iterable[int], policies: Iterable[str | Policy | FieldChooser]
) -> list[tuple[str, int | None, Policy]]:
    """Name, budget and policy of each row of a table."""
    try:
        budgets = sorted({_checked_int("keep", keep, least=0) for keep in keeps}, reverse=True)
    except TypeError:
        raise ValueError(f"keeps: expected a list of integers, got {keeps!r}") from None
    rows: list[tuple[str, int | None, Policy]] = [(UNCOMPACTED, None, POLICIES["summary"])]
    for policy in map(_policy, policies):
        rows += [(policy.name, keep, policy) for keep in budgets]
    return rows


def sweep_table(
    seed: int = SEED,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
) -> str:
    """Return the baseline and both tables as text.

    >>> print(sweep_table(keeps=[3]).splitlines()[2][:50])
    keep policy         steps calls   tokens errors ne

    Raises ValueError as :func:`sweep` does.
    """
    base = baseline(seed)
    summary = (
        f"baseline: steps {base.steps}, calls {base.calls}, trace tokens {base.tokens}, "
        f"errors {base.errors}, success {base.success:.4f}"
    )
    head = (
        "keep policy         steps calls   tokens errors needed  success | 2nd run tokens, success"
    )
    lines = [summary, "", head]
    for row in sweep(seed, keeps, policies):
        run = row.first
        lines.append(
            f"{_budget_text(row.keep):>4} {row.policy:<14} {run.steps:>5} {run.calls:>5} "
            f"{run.tokens:>8} {run.errors:>6} {run.needed:>6} {run.success:>8.4f} | "
            f"{row.second.tokens:>6} {row.second.success:.4f}"
        )
    return "\n".join(lines)


def sweep_dict(
    seed: int = SEED,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
) -> dict[str, Any]:
    """Return the baseline and both tables as plain data, ready for JSON.

    >>> sorted(sweep_dict(keeps=[3]))
    ['baseline', 'rows', 'seeds']

    Raises ValueError as :func:`sweep` does.
    """
    seed = _checked_int("seed", seed)
    return {
        "seeds": [seed, seed + 1],
        "baseline": asdict(baseline(seed)),
        "rows": [asdict(row) for row in sweep(seed, keeps, policies)],
    }


def _budget_text(keep: int | None) -> str:
    return "--" if keep is None else str(keep)


# --- Spread: the same table over many seeds -------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its confidence interval at ``level``.

    >>> Interval(mean=2.0, low=1.5, high=2.5, level=0.95).half
    0.5
    """

    mean: float
    low: float
    high: float
    level: float

    @property
    def half(self) -> float:
        """Half of the interval's width: the number after the plus-minus sign."""
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        """Whether 0 lies outside: for a difference, whether it is more than noise."""
        return self.low > 0 or self.high < 0


SPREAD_MEASURES = ("tokens", "errors", "needed", "success")


@dataclass(frozen=True)
class SpreadRow:
    """One policy and budget over many seeds; ``runs`` holds the run of each seed, in order."""

    policy: str
    keep: int | None
    first_seed: int
    tokens: Interval
    errors: Interval
    needed: Interval
    success: Interval
    runs: tuple[Run, ...] = field(repr=False)


def spread(
    seeds: int = 200,
    keeps: Iterable[int] = KEEPS,
    policies: Iterable[str | Policy | FieldChooser] = tuple(POLICIES),
    *,
    first_seed: int = SEED,
    level: float = 0.95,
    workers: int = 1,
) -> list[SpreadRow]:
    """Run every row of the table under ``seeds`` seeds in a row and return means with intervals.

    >>> rows = spread(5, keeps=[3])
    >>> [(row.policy, row.keep, len(row.runs)) for row in rows]
    [('uncompacted', None, 5), ('summary', 3, 5), ('selective', 3, 5)]

    The intervals are Student's t intervals of the mean over seeds. They tell what the agent's
    choices add as noise; the 24 tasks are the same in every run, so they say nothing about other
    tasks. Every row sees the same seeds: compare two rows with :func:`difference`.

    With ``workers`` over 1 the seeds are shared among processes, as many as pay for their start;
    call it then from a module or a notebook, or under ``if __name__ == "__main__"``. Functions of
    your own always run in this process. Raises ValueError as :func:`sweep` does, for fewer than
    two seeds, for a level outside 0 to 1 and for fewer than one worker.
    """
    seeds = _checked_int("seeds", seeds, least=2)
    first_seed = _checked_int("first_seed", first_seed)
    workers = _checked_int("workers", workers, least=1)
    student_t(seeds - 1, level)  # refuses a bad level before the work
    settings = _settings(keeps, policies)
    runs_by_row = _run_all(settings, range(first_seed, first_seed + seeds), workers)
    return [
        SpreadRow(
            policy=policy,
            keep=keep,
            first_seed=first_seed,
            tokens=mean_interval([run.tokens for run in runs], level),
            errors=mean_interval([run.errors for run in runs], level),
            needed=mean_interval([run.needed for run in runs], level),
            success=mean_interval([run.success for run in runs], level),
            runs=tuple(runs),
        )
        for (policy, keep, _), runs in zip(settings, runs_by_row, strict=True)
    ]


RUNS_PER_WORKER = 300
"""Runs that make a further process worth its start (measured: 0.2 s of work against 0.1 s)."""


def _run_all(
    settings: Sequence[tuple[str, int | None, Policy]], seeds: range, workers: int
) -> list[list[Run]]:
    """Return the runs of each setting, in the order of the seeds."""
    # Only the library's own policies are sure to be found again in another process.
    movable = all(policy in POLICIES.values() for _, _, policy in settings)
    workers = min(workers, len(settings) * len(seeds) // RUNS_PER_WORKER) if movable else 1
    jobs = [(policy, keep, seed) for _, keep, policy in settings for seed in seeds]
    if workers <= 1:
        runs = [simulate(keep, policy, seed) for policy, keep, seed in jobs]
    else:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # "spawn": forking a process that has threads, such as a notebook's kernel, is not safe.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            named = [(policy.name, keep, seed) for policy, keep, seed in jobs]
            runs = list(pool.map(_run_job, named, chunksize=math.ceil(len(jobs) / workers / 4)))
    return [runs[start : start + len(seeds)] for start in range(0, len(runs), len(seeds))]


def _run_job(job: tuple[str, int | None, int]) -> Run:
    policy, keep, seed = job
    return simulate(keep, policy, seed)


def difference(
    row: SpreadRow, other: SpreadRow, measure: str = "tokens", level: float = 0.95
) -> Interval:
    """Return by how much ``row`` exceeds ``other`` in ``measure``, compared seed by seed.

    >>> uncompacted, summary, selective = spread(20, keeps=[3])
    >>> difference(selective, summary, "success").excludes_zero
    True

    ``measure`` is a field of :class:`Run`. Pairing takes out the luck that both rows share, so the
    interval is narrower than the two rows' own. Raises ValueError for an unknown measure and for
    rows over different seeds.
    """
    if measure not in Run.__dataclass_fields__:
        known = ", ".join(Run.__dataclass_fields__)
        raise ValueError(f"measure: expected one of {known}, got {measure!r}")
    if (row.first_seed, len(row.runs)) != (other.first_seed, len(other.runs)):
        raise ValueError("rows: expected two rows over the same seeds")
    pairs = zip(row.runs, other.runs, strict=True)
    return mean_interval([getattr(a, measure) - getattr(b, measure) for a, b in pairs], level)


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of ``values`` and its Student's t confidence interval.

    >>> interval = mean_interval([9, 10, 11])
    >>> interval.mean, round(interval.half, 2)
    (10.0, 2.48)

    Raises ValueError for fewer than two values and for a level outside 0 to 1.
    """
    if len(values) < 2:
        raise ValueError(f"values: expected at least 2, got {len(values)}")
    n = len(values)
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    half = student_t(n - 1, level) * math.sqrt(variance / n)
    return Interval(mean, mean - half, mean + half, level)


@lru_cache(maxsize=64)
def student_t(freedom: int, level: float = 0.95) -> float:
    """Return t such that Student's distribution holds ``level`` of its mass within -t to t.

    >>> round(student_t(2), 3), round(student_t(199), 3)
    (4.303, 1.972)

    ``freedom`` is the number of degrees of freedom. The mass is the finite series of Abramowitz
    and Stegun, 26.7.3 and 26.7.4; t is found by bisection. Raises ValueError for a level that is
    not between 0 and 1 and for less than one degree of freedom.
    """
    if not (isinstance(level, int | float) and 0 < level < 1):
        raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
    freedom = _checked_int("freedom", freedom, least=1)
    low, high = 0.0, math.pi / 2  # bisect the angle: t itself has no upper end
    for _ in range(60):
        angle = (low + high) / 2
        if _central_mass(angle, freedom) < level:
            low = angle
        else:
            high = angle
    return math.tan(low) * math.sqrt(freedom)


def _central_mass(angle: float, freedom: int) -> float:
    """Mass of Student's distribution within plus and minus tan(angle) times root of freedom."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    series = term if freedom > 1 else 0.0
    for k in range(2 + odd, freedom, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        series += term
    if odd:
        return (angle + math.sin(angle) * series) * 2 / math.pi
    return math.sin(angle) * series


def spread_table(rows: Sequence[SpreadRow]) -> str:
    """Return the rows of :func:`spread` as text, and below them which differences are noise.

    >>> print(spread_table(spread(20, keeps=[3])).splitlines()[2])
    keep policy                 tokens         errors        needed           success

    Raises ValueError when there are no rows.
    """
    first, level = _first(rows)
    lines = [
        f"{len(first.runs)} seeds from {first.first_seed}, the same {len(tasks())} tasks each time",
        f"mean ± half of the {level:.0%} interval (Student's t over the seeds)",
        "keep policy                 tokens         errors        needed           success",
    ]
    lines += [
        (
            f"{_budget_text(row.keep):>4} {row.policy:<14}"
            f" {_plus_minus(row.tokens, 0):>14} {_plus_minus(row.errors, 1):>14}"
            f" {_plus_minus(row.needed, 1):>13} {_plus_minus(row.success, 4):>17}"
        )
        for row in rows
    ]
    lines += [
        "",
        "difference, seed by seed             tokens beyond noise           success beyond noise",
    ]
    for row, other in _comparisons(rows):
        tokens = difference(row, other, "tokens", level)
        success = difference(row, other, "success", level)
        lines.append(
            f"{_label(row) + ' - ' + _label(other):<26} {_plus_minus(tokens, 0):>16} "
            f"{_yes(tokens.excludes_zero):>12} {_plus_minus(success, 4):>17} "
            f"{_yes(success.excludes_zero):>12}"
        )
    return "\n".join(lines)


def spread_dict(rows: Sequence[SpreadRow]) -> dict[str, Any]:
    """Return the rows of :func:`spread` and their differences as plain data, ready for JSON.

    >>> sorted(spread_dict(spread(5, keeps=[3])))
    ['differences', 'first_seed', 'level', 'rows', 'seeds']

    Raises ValueError when there are no rows.
    """
    first, level = _first(rows)
    return {
        "first_seed": first.first_seed,
        "seeds": len(first.runs),
        "level": level,
        "rows": [
            {"policy": row.policy, "keep": row.keep}
            | {name: _interval_dict(getattr(row, name)) for name in SPREAD_MEASURES}
            for row in rows
        ],
        "differences": [
            {"row": _label(row), "other": _label(other)}
            | {
                name: _interval_dict(difference(row, other, name, level))
                for name in SPREAD_MEASURES
            }
            for row, other in _comparisons(rows)
        ],
    }


def _first(rows: Sequence[SpreadRow]) -> tuple[SpreadRow, float]:
    if not rows:
        raise ValueError("rows: expected at least one, got none")
    return rows[0], rows[0].tokens.level


def _comparisons(rows: Sequence[SpreadRow]) -> list[tuple[SpreadRow, SpreadRow]]:
    """Each row against the uncompacted one, then the policies against each other, by budget."""
    against_uncompacted = [
        (row, other) for other in rows if other.keep is None for row in rows if row.keep is not None
    ]
    against_each_other = [
        (row, other)
        for position, other in enumerate(rows)
        for row in rows[position + 1 :]
        if row.keep is not None and row.keep == other.keep
    ]
    return against_uncompacted + against_each_other


def _label(row: SpreadRow) -> str:
    return row.policy if row.keep is None else f"{row.policy} {row.keep}"


def _plus_minus(interval: Interval, digits: int) -> str:
    return f"{interval.mean:.{digits}f} ± {interval.half:.{digits}f}"


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def _interval_dict(interval: Interval) -> dict[str, float]:
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}
