"""Made-up conversations of a service desk: one call at a time, JSON results, long policies."""

from __future__ import annotations

import json
import random
from typing import Any

Message = dict[str, Any]

POLICY = """\
# Desk of the Harbour Ferry Company

You help passengers to book, change and cancel crossings.

- Before you change anything, list what you are about to do and wait for a yes.
- Make one call at a time, and do not talk while you call.
- A crossing may be changed until two hours before it leaves; the fare difference is charged.
- A cancelled crossing is refunded to the payment it was made with, less 4.50 for the saver fare.
- Vehicles need a vehicle fare; bicycles travel free.
- What the rules do not cover goes to a colleague: use transfer_to_person.
"""

NAMES = ("mira_lund", "joao_reis", "chen_wei", "ana_petrova", "sam_okoye")
PORTS = ("Northgate", "Saltholm", "Vell", "Port Arran", "Stenna")
FARES = ("saver", "standard", "flex")


def desk_conversation(draw: random.Random) -> list[Message]:
    """Return one conversation of 14 to 70 messages, valid for an API."""
    name, number = draw.choice(NAMES), draw.randint(1000, 9999)
    user_id = f"{name}_{number}"
    history: list[Message] = [
        {"role": "system", "content": POLICY},
        {"role": "user", "content": "Hello, I need some help with my crossing."},
        {"role": "assistant", "content": "Of course. May I have your user id?"},
        {"role": "user", "content": f"It is {user_id}."},
    ]
    calls = 0

    def call(tool: str, arguments: dict[str, Any], answer: Any) -> None:
        nonlocal calls
        calls += 1
        call_id = f"call_{number}_{calls}"
        function = {"name": tool, "arguments": json.dumps(arguments)}
        history.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": call_id, "type": "function", "function": function}],
            }
        )
        content = answer if isinstance(answer, str) else json.dumps(answer)
        history.append({"role": "tool", "tool_call_id": call_id, "name": tool, "content": content})

    bookings = [_booking(draw) for _ in range(draw.randint(2, 5))]
    call("get_user", {"user_id": user_id}, {"id": user_id, "bookings": [b["id"] for b in bookings]})
    for booking in bookings:
        call("get_booking", {"booking_id": booking["id"]}, booking)
    for booking in bookings[: draw.randint(1, 4)]:
        wish = draw.choice(["change", "cancel", "ask"])
        history.append({"role": "user", "content": _request(wish, booking, draw)})
        if wish == "ask":
            call("search_crossings", {"from": booking["from"]}, [_booking(draw) for _ in range(4)])
            history.append({"role": "assistant", "content": "There are four. Which one suits you?"})
            continue
        question = (
            f"I will {wish} booking {booking['id']}. The cost is 12.50. Do you agree (yes/no)?"
        )
        history.append({"role": "assistant", "content": question})
        history.append({"role": "user", "content": "Yes, please."})
        if draw.random() < 0.3:
            refusal = "Error: the crossing leaves in less than two hours"
            call(f"{wish}_booking", {"booking_id": booking["id"]}, refusal)
            call(
                "transfer_to_person", {"summary": f"{wish} {booking['id']} refused"}, "transferred"
            )
            history.append({"role": "assistant", "content": "A colleague will go on from here."})
        else:
            done = {**booking, "status": f"{wish}d"}
            call(f"{wish}_booking", {"booking_id": booking["id"]}, done)
            history.append({"role": "assistant", "content": f"Booking {booking['id']} is {wish}d."})
    history.append({"role": "user", "content": "That was all, thank you. " * draw.randint(1, 3)})
    history.append({"role": "assistant", "content": "You are welcome. A good crossing to you!"})
    return history


def _booking(draw: random.Random) -> dict[str, Any]:
    start, end = draw.sample(PORTS, 2)
    return {
        "id": "".join(draw.choices("ABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=6)),
        "from": start,
        "to": end,
        "leaves": f"2026-0{draw.randint(1, 9)}-{draw.randint(10, 28)}T{draw.randint(10, 22)}:00:00",
        "fare": draw.choice(FARES),
        "passengers": [
            {
                "first": draw.choice(["Mira", "João", "伟"]),
                "born": f"19{draw.randint(50, 99)}-05-11",
            }
            for _ in range(draw.randint(1, 4))
        ],
        "payments": [
            {"method": f"card_{draw.randint(10**6, 10**7)}", "amount": draw.randint(20, 300)}
        ],
        "vehicle": draw.choice([None, "car", "bicycle"]),
        "status": "confirmed",
    }


def _request(wish: str, booking: dict[str, Any], draw: random.Random) -> str:
    reason = draw.choice(["My plans have changed.", "My mother is ill.", "It is for work."])
    if wish == "ask":
        return f"Which crossings leave from {booking['from']} that day? {reason}"
    pin = " Remember: I only travel after noon." if draw.random() < 0.4 else ""
    return f"I would like to {wish} the crossing {booking['id']} to {booking['to']}. {reason}{pin}"
