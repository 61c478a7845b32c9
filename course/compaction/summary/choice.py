"""Choose what goes into summaries: within a room, what matters most and costs least first.

About a fifth to a third of the room goes first to prose (the request, rules, changes, more of
the user's words), the rest to the index of values by their chance of being used per token; what
the index leaves goes back to prose. Weights are quarters of a token by the two-term default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import count

from compaction.summary.format import CHANGES, FACTS
from compaction.summary.gather import Material
from compaction.summary.prose import (
    CHANGED,
    CONCLUDED,
    LONGEST_LINE,
    OPENING,
    PINNED,
    REPORTED,
    SAID,
    TASK,
    Line,
    is_pleasantry,
)
from compaction.summary.records import Entry, Record, origin_of
from compaction.summary.values import values_in
from compaction.tokens import DEFAULT, count_chars

_PER_TOKEN = 1 / DEFAULT.other
_CJK_EXTRA = DEFAULT.cjk * _PER_TOKEN - 1
_LINE_WEIGHT = 3  # "- " and the line's end
_SHORTEST = 48  # requests are cut to no less; what then does not fit is left out
_FIXED = 8  # what a value costs besides its characters, when values are ranked
_STUB = 12  # characters below which a cut line says nothing


def weight(text: str) -> float:
    """Return a text's weight: four to a token of the two-term default.

    >>> weight("make all"), weight("构建")
    (8, 8.0)
    """
    if text.isascii():
        return len(text)
    chars = count_chars(text)
    return chars.other + chars.cjk * (1 + _CJK_EXTRA)


def weight_of_tokens(tokens: int) -> float:
    """Return the weight that so many tokens may have."""
    return tokens * _PER_TOKEN


def parts_of(text: str) -> set[str]:
    """Return the values that a text holds, and the ends of its paths, which it holds as well.

    >>> sorted(parts_of("see /srv/app/main.py"))
    ['/srv/app/main.py', 'app/main.py', 'main.py', 'srv/app/main.py']
    """
    found = set(values_in(text))
    for value in list(found):
        while "/" in value:
            value = value.partition("/")[2]
            found.add(value)
    return found - {""}


@dataclass
class Room:
    """Weight for new text, and for what earlier summaries hold: beside it, or as a part of it."""

    size: float
    earlier: float
    beside: bool = True
    prose: float = 0.3  # the share that goes to prose before the index
    users: float = 0.5  # the same with more of the user's words


@dataclass
class Choice:
    """What goes into the summaries of some stretches; ``dropped`` names what gave way."""

    lines: list[Line]
    entries: list[Entry]
    dropped: list[str]
    languages: list[str]


def choose(
    material: Material,
    rooms: Sequence[Room],
    known: Iterable[str] = (),
) -> Choice:
    """Choose from the candidates of some stretches, each with its room, or one room for several.

    ``known`` are values that stand elsewhere in the history: they need no second place.
    """
    chooser = _Chooser(material, rooms, set(known))
    shared: dict[int, list[int]] = {}
    for stretch, room in enumerate(rooms):
        shared.setdefault(id(room), []).append(stretch)
    for stretches in shared.values():
        chooser.take_earlier(stretches)
        chooser.take_prose(stretches)
    chooser.take_values()
    for stretches in shared.values():
        chooser.take_rest(stretches)
    return chooser.result()


@dataclass
class _Chooser:
    material: Material
    rooms: Sequence[Room]
    known: set[str]
    chosen: dict[str, Line] = field(default_factory=dict)  # by text
    entries: list[Entry] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = {id(room): room.size for room in self.rooms}
        self.left_earlier = {id(room): room.earlier for room in self.rooms}
        self.opened: dict[tuple[int, str, str], set[str]] = {}  # records with their labels
        self.lines: dict[int, list[Line]] = {n: [] for n in range(len(self.rooms))}
        for line in self.material.lines:
            self.lines[line.stretch].append(line)

    # --- lines

    def of(self, stretches: Sequence[int], *, earlier: bool) -> list[Line]:
        return [line for n in stretches for line in self.lines[n] if line.earlier is earlier]

    def put(self, line: Line) -> float:
        """Take a line, whatever it costs, and return what it costs."""
        if line.text in self.chosen:
            return 0
        self.chosen[line.text] = line
        self.learn(line.text)
        self.known.add(line.short)
        cost = weight(line.text) + _LINE_WEIGHT
        self.left[id(self.rooms[line.stretch])] -= cost
        return cost

    def learn(self, text: str) -> None:
        """Note the values that a chosen text holds, and the parts by which paths are found."""
        self.known |= parts_of(text)

    def take_earlier(self, stretches: Sequence[int]) -> None:
        """Take what earlier summaries hold: it gives way from the end of this order."""
        room = self.rooms[stretches[0]]
        left = self.left_earlier[id(room)]
        order = (PINNED, TASK, SAID, CHANGED, OPENING, CONCLUDED, REPORTED)
        lines = self.of(stretches, earlier=True)
        for line in sorted(lines, key=lambda line: order.index(line.rank)):
            cost = weight(line.text) + _LINE_WEIGHT
            if line.rank == PINNED or cost <= left:
                left -= self.put(line)
                self.left[id(room)] += cost * room.beside
            else:
                self.dropped.append(line.text)
        self.left_earlier[id(room)] = max(0.0, left)

    def take_prose(self, stretches: Sequence[int]) -> None:
        """Take pinned facts, the requests and rules, changes, and more of the user's words."""
        room = self.rooms[stretches[0]]
        lines = self.of(stretches, earlier=False)
        spent = sum(self.put(line) for line in lines if line.rank == PINNED)
        spent += self.take_task([line for line in lines if line.rank == TASK], room)
        opening = [line for line in lines if line.rank == OPENING and line.key == FACTS]
        users = sum(weight(line.text) + _LINE_WEIGHT for line in opening)
        changes = [line for line in lines if line.rank == CHANGED]
        spent += self.take_changes(changes, room, room.size * room.users - spent - users)
        bound = min(room.size * room.users, self.left[id(room)] + spent)
        concluded = [line for line in lines if line.rank == CONCLUDED]
        # What the assistant says that it changed says why; the newest matter most.
        rest = [line for line in reversed(concluded) if line.key == CHANGES]
        rest += [
            line for line in lines if line.rank in (OPENING, SAID) and not is_pleasantry(line.text)
        ]
        for line in sorted(rest, key=lambda line: line.rank):
            if spent + weight(line.text) + _LINE_WEIGHT <= bound:
                spent += self.put(line)
        bound = min(room.size * room.prose, self.left[id(room)] + spent)
        # The newest conclusion, and the newest error.
        rest = [line for line in concluded if line.key != CHANGES][-1:]
        for line in [*rest, *[line for line in lines if line.rank == REPORTED][-1:]]:
            if spent + weight(line.text) + _LINE_WEIGHT <= bound:
                spent += self.put(line)

    def take_task(self, lines: Sequence[Line], room: Room) -> float:
        """Take each request's first sentence and the rules; with little room, shortened."""
        bound = min(room.size * room.prose * 1.2, self.left[id(room)])
        needed = sum(weight(line.text) + _LINE_WEIGHT for line in lines)
        each = LONGEST_LINE
        if needed > bound and lines:
            each = max(_SHORTEST, int(bound / len(lines)) - _LINE_WEIGHT)
            # What short lines leave of their share goes to the long ones.
            spare = sum(max(0, each - weight(line.text)) for line in lines)
            long = [line for line in lines if weight(line.text) > each]
            each += int(spare / max(1, len(long)))
        spent = 0.0
        # The first request of the history leads; then the newest matter most.
        for line in [*lines[:1], *reversed(lines[1:])]:
            text = _cut(line.text, min(each, self.left[id(room)] - _LINE_WEIGHT))
            cost = weight(text) + _LINE_WEIGHT
            if (spent + cost > bound and spent) or len(text) < min(_STUB, len(line.text)):
                self.dropped.append(line.text)
                continue
            if text != line.text:
                self.dropped.append(line.text)
            spent += self.put(replace(line, text=text))
        return spent

    def take_changes(self, lines: Sequence[Line], room: Room, detailed: float) -> float:
        """Take the changes, the newest first; the older in short where room is little.

        ``detailed`` is the room in which a change may have its details: what the user said
        comes before them.
        """
        bound = min(room.size * room.prose, self.left[id(room)])
        shortest = sum(weight(line.short) + _LINE_WEIGHT for line in lines)
        spent = 0.0
        taken: list[Line] = []
        for line in reversed(lines):
            shortest -= weight(line.short) + _LINE_WEIGHT
            long = weight(line.text) + _LINE_WEIGHT
            short = weight(line.short) + _LINE_WEIGHT
            if spent + long + shortest <= min(bound, detailed):
                taken.append(line)
                spent += long
            elif spent + short <= max(bound, self.left[id(room)] / 2):
                taken.append(replace(line, text=line.short))
                spent += short
            else:
                self.dropped.append(line.short)
        return sum(self.put(line) for line in reversed(taken))

    def take_rest(self, stretches: Sequence[int]) -> None:
        """Give to prose what the index left."""
        room = self.rooms[stretches[0]]
        lines = self.of(stretches, earlier=False)
        for line in sorted(lines, key=lambda line: (line.rank, -line.position)):
            if line.rank in (OPENING, SAID, CONCLUDED, REPORTED):
                cost = weight(line.text) + _LINE_WEIGHT
                if cost <= self.left[id(room)]:
                    self.put(line)

    # --- values

    def take_values(self) -> None:
        """Take values by their chance of being used per weight, each with its record.

        A record's first value pays for naming the origin, later ones do not: they rise when the
        record is opened. So values stay together, and a full room is not spent on origins.
        """
        entries = self.material.index.entries
        of_place: dict[tuple[int, str, str], list[Entry]] = {}
        for entry in entries.values():
            for record, _ in [(entry.record, ""), *entry.others]:
                of_place.setdefault(_place(record), []).append(entry)
        ties = count()
        queue = [(self.rank_of(entry), next(ties), entry) for entry in entries.values()]
        heapify(queue)
        while queue:
            _, _, entry = heappop(queue)
            if entry.value in self.known:
                continue
            place = self.take_value(self.cheapest(entry))
            if place is not None:  # newly opened: what else stood there costs less now
                for other in of_place[place]:
                    if other.value not in self.known:
                        heappush(queue, (self.rank_of(other), next(ties), other))

    def rank_of(self, entry: Entry) -> tuple[float, int]:
        cost = self.cost_of(self.cheapest(entry))
        return -entry.chance / (cost + _FIXED), -entry.last_seen

    def cheapest(self, entry: Entry) -> Entry:
        """Return the entry in an opened record where there is one, the latest; else its own."""
        for record, label in reversed(entry.others):
            if _place(entry.record) in self.opened:
                break
            if _place(record) in self.opened:
                return entry.at(record, label)
        return entry

    def take_value(self, entry: Entry) -> tuple[int, str, str] | None:
        """Take a value where there is room; return its record's place if it opened the record."""
        record, place = entry.record, _place(entry.record)
        cost = self.cost_of(entry)
        key = id(self.rooms[record.stretch])
        if (
            record.is_earlier
            and self.rooms[record.stretch].beside
            and cost <= self.left_earlier[key]
        ):
            self.left_earlier[key] -= cost
        elif cost <= self.left[key]:
            self.left[key] -= cost
        else:
            if record.is_earlier:
                self.dropped.append(entry.value)
            return None
        if entry.value == record.about:  # the call says it
            entry = Entry(f"{record.origin} {record.about}", record, is_command=True)
        self.entries.append(entry)
        is_new = place not in self.opened
        if record.about or not entry.is_command:
            self.opened.setdefault(place, set()).add(entry.label)
            self.learn(record.about)
            self.known.add(f"{record.origin} {record.about}")
        self.learn(entry.value)
        self.known.add(entry.value)
        return place if is_new and place in self.opened else None

    def cost_of(self, entry: Entry) -> float:
        if entry.is_command and not entry.record.about:
            return weight(entry.value) + _LINE_WEIGHT
        if entry.is_command or entry.value == entry.record.about:
            return weight(origin_of(entry.record, "en")) + _LINE_WEIGHT  # it opens its record
        cost = weight(entry.value) + 2 + 2 * (" " in entry.value)
        labels = self.opened.get(_place(entry.record))
        if labels is None:
            cost += weight(origin_of(entry.record, "en")) + _LINE_WEIGHT
        if entry.label and (labels is None or entry.label not in labels):
            cost += weight(entry.label) + 1
        return cost

    def result(self) -> Choice:
        return Choice(
            list(self.chosen.values()), self.entries, self.dropped, self.material.languages
        )


def _place(record: Record) -> tuple[int, str, str]:
    return record.stretch, record.origin, record.about


def _cut(text: str, room: float) -> str:
    """Cut a line to a weight, at a word's end where there is one near."""
    if weight(text) <= room:
        return text
    if room <= 0:
        return ""
    cut = text[: int(room * len(text) / weight(text))]
    return cut[: cut.rindex(" ")] if " " in cut[len(cut) // 2 :] else cut
