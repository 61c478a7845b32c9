"""What parts that are no text cost, and that no counter reads them as nothing."""

from __future__ import annotations

import base64
import io
import struct

import pytest

from compaction.attachments import (
    LOW_DETAIL_TOKENS,
    PAGE_TOKENS,
    SECOND_TOKENS,
    attachment_tokens,
)
from compaction.calibration import FeatureMeter, TokenMeter
from compaction.messages import (
    Attachment,
    attachments_of,
    content_of,
    text_of,
    thoughts_of,
    transcript,
)
from compaction.tokens import IMAGE_TOKENS

LONG = "The survey of the northern coast took nine days. " * 80


def png(width, height, n_bytes=2000):
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height)
    return base64.b64encode(head + bytes(n_bytes)).decode()


def user(*parts):
    return {"role": "user", "content": list(parts)}


def image(url, **more):
    return {"type": "image_url", "image_url": {"url": url, **more}}


def file(data, **more):
    return {"type": "file", "file": {"file_data": data, **more}}


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        (image("https://example.org/a.png"), 765),
        (image("data:image/png;base64,AAAA"), 765),
        (image("https://example.org/a.png", detail="low"), LOW_DETAIL_TOKENS),
        (image("data:image/png;base64," + png(512, 512)), 85 + 170),
        (image("data:image/png;base64," + png(1024, 1024)), 765),
        (image("data:image/png;base64," + png(4096, 2048)), 85 + 170 * 6),
        ({"type": "image", "source": {"type": "base64", "data": png(100, 100)}}, 85 + 170),
        (file("data:application/pdf;base64," + "A" * 400), PAGE_TOKENS),
        (file("data:application/pdf;base64," + "A" * 400_000), 6 * PAGE_TOKENS),
        ({"type": "file", "file": {"file_id": "file-1"}}, PAGE_TOKENS),
        (file("data:text/plain;base64," + "A" * 4000), 750),
        ({"type": "input_audio", "input_audio": {"data": "A" * 64_000, "format": "mp3"}}, 96),
        ({"type": "input_audio", "input_audio": {"data": "A" * 64_000, "format": "wav"}}, 32),
        ({"type": "input_audio", "input_audio": {}}, SECOND_TOKENS),
    ],
)
def test_prices(part, tokens):
    assert attachment_tokens(user(part)) == tokens


@pytest.mark.parametrize("form", ["PNG", "GIF", "JPEG", "WEBP", "lossless", "with alpha"])
def test_an_image_says_its_size_in_each_form(form):
    from PIL import Image

    options = {"format": "WEBP", "lossless": form == "lossless"} if form.islower() else {}
    written = io.BytesIO()
    picture = Image.new("RGBA" if form == "with alpha" else "RGB", (700, 300))
    picture.save(written, **{"format": form, **options})
    url = "data:image/x;base64," + base64.b64encode(written.getvalue()).decode()
    assert attachment_tokens(user(image(url))) == 85 + 170 * 2


def test_the_size_of_a_photograph_stands_behind_the_camera_s_notes():
    notes = b"\xff\xe1" + struct.pack(">H", 60_002) + bytes(60_000)
    frame = b"\xff\xc2" + struct.pack(">HBHH", 17, 8, 300, 700) + bytes(10)
    url = "data:image/jpeg;base64," + base64.b64encode(b"\xff\xd8" + notes + frame).decode()
    assert attachment_tokens(user(image(url))) == 85 + 170 * 2


@pytest.mark.parametrize(
    "head", [b"\xff\xd8", b"\xff\xd8\xff\xe0\0\0", b"GIF8", b"RIFF\0\0\0\0WEBP", b"\xff\xd8\xff"]
)
def test_an_image_cut_short_counts_as_one_of_unknown_size(head):
    url = "data:image/x;base64," + base64.b64encode(head).decode()
    assert attachment_tokens(user(image(url))) == 765


def test_an_image_inside_a_result_is_one():
    result = {"type": "tool_result", "content": [image("a.png"), {"type": "text", "text": "ok"}]}
    assert [found.kind for found in attachments_of(user(result))] == ["image"]
    assert text_of(user(result)) == "ok"


def test_a_document_in_plain_text_is_text():
    part = {"type": "document", "title": "notes", "source": {"type": "text", "data": LONG}}
    assert LONG in text_of(user(part))
    assert attachment_tokens(user(part)) == 0


def test_an_attachment_tells_its_name_and_form():
    part = file("data:application/pdf;base64,AAAA", filename="a.pdf")
    assert attachments_of(user(part)) == [Attachment("file", "a.pdf", "application/pdf", "AAAA")]
    assert text_of(user(part)) == "a.pdf"


CARRIERS = {
    "an older call": {"role": "assistant", "function_call": {"name": "f", "arguments": LONG}},
    "a call with an object": {
        "role": "assistant",
        "function_call": {"name": "f", "arguments": {"text": LONG}},
    },
    "a result as text": user({"type": "tool_result", "content": LONG}),
    "a result in parts": user({"type": "tool_result", "content": [{"type": "text", "text": LONG}]}),
    "a result in a result": user(
        {"type": "tool_result", "content": [{"type": "tool_result", "content": LONG}]}
    ),
    "another API's call": {
        "role": "assistant",
        "content": [{"type": "tool_use", "name": "f", "input": {"text": LONG}}],
    },
    "a call's output": user({"type": "function_call_output", "output": LONG}),
    "the words of a recording": {"role": "assistant", "audio": {"id": "a", "transcript": LONG}},
    "a refusal": {"role": "assistant", "content": [{"type": "refusal", "refusal": LONG}]},
}

THINKERS = {
    "reasoning_content": {"role": "assistant", "content": "4", "reasoning_content": LONG},
    "reasoning": {"role": "assistant", "content": "4", "reasoning": LONG},
    "reasoning_details": {
        "role": "assistant",
        "content": "4",
        "reasoning_details": [{"type": "reasoning.text", "text": LONG}],
    },
    "a thinking part": {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": LONG}]},
            {"type": "text", "text": "4"},
        ],
    },
}


@pytest.mark.parametrize("meter", [TokenMeter, FeatureMeter])
@pytest.mark.parametrize("message", [*CARRIERS.values(), *THINKERS.values()])
def test_every_part_counts(meter, message):
    plain = meter().count([{"role": "user", "content": LONG}])
    assert 0.9 * plain <= meter().count([message]) <= 1.2 * plain
    assert "nine days" in transcript([message])


@pytest.mark.parametrize("message", CARRIERS.values(), ids=CARRIERS)
def test_what_lies_deeper_is_text(message):
    assert "nine days" in text_of(message)


@pytest.mark.parametrize("message", THINKERS.values(), ids=THINKERS)
def test_a_thought_is_not_said(message):
    assert thoughts_of(message) == LONG
    assert text_of(message) == content_of(message) == "4"


def test_a_thought_that_is_sent_twice_counts_once():
    message = {**THINKERS["reasoning"], **THINKERS["reasoning_details"]}
    assert TokenMeter().count([message]) == TokenMeter().count([THINKERS["reasoning"]])


def test_the_course_keeps_its_flat_price():
    small, large = user(image("a.png", detail="low")), user(image("data:," + "A" * 90_000))
    counted = TokenMeter().count([small]), TokenMeter().count([large])
    assert counted[0] == counted[1] == TokenMeter().count([user()]) + IMAGE_TOKENS


@pytest.mark.parametrize(
    "content",
    [None, 3, {}, [None], [3], [{"type": []}], [{"type": "file"}], [{"type": "image"}], "text"],
)
def test_anything_may_stand_in_a_file(content):
    message = {"role": "user", "content": content}
    assert attachment_tokens(message) >= 0
    assert isinstance(text_of(message), str)
    assert thoughts_of(message) == ""
