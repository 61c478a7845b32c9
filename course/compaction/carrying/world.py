"""A water company: the world in which the simulated agent works.

A seed flows in; subscribers, tools and 24 tasks flow out. In order: generator, token count,
environment, tools, tasks. The words that are counted as tokens stay Turkish, since other words
would give other counts:

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
        """Run the tool on what ``state`` holds of its fields; an error is listed under ``hata``."""
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
