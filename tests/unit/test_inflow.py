"""Bytes cut into frames: whatever the reads are, the frames are those that were sent."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outbox_core.inflow import BODY, HEADER, METHOD, Frame, FramingError, Inflow

FRAME_MAX = 131_072

frames = st.lists(
    st.tuples(st.sampled_from([METHOD, HEADER, BODY, 8]), st.integers(0, 65_535), st.binary(max_size=40)),
    max_size=8,
)


def encoded(frame: Frame) -> bytes:
    kind, channel, payload = frame
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def fed(inflow: Inflow, pieces: list[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in inflow.feed(piece)]


@given(sent=frames, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_frames_come_out_as_they_were_sent_wherever_they_are_cut(sent: list[Frame], cuts: list[int]) -> None:
    data = b"".join(map(encoded, sent))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in pairwise(places)]

    assert fed(Inflow(FRAME_MAX), pieces) == sent


def test_a_frame_is_handed_out_with_its_last_byte_and_not_before() -> None:
    data = encoded((BODY, 3, b"hello"))
    inflow = Inflow(FRAME_MAX)

    for byte in data[:-1]:
        assert inflow.feed(bytes((byte,))) == []

    assert inflow.feed(data[-1:]) == [(BODY, 3, b"hello")]
    assert inflow.feed(data) == [(BODY, 3, b"hello")]


@pytest.mark.parametrize("cut", range(26))
def test_two_frames_may_be_cut_anywhere(cut: int) -> None:
    sent = [(METHOD, 1, b"hello"), (BODY, 2, b"world")]
    data = b"".join(map(encoded, sent))
    assert len(data) == 26
    inflow = Inflow(FRAME_MAX)

    first = inflow.feed(data[:cut])

    assert first == (sent[:1] if cut >= 13 else [])
    assert first + inflow.feed(data[cut:]) == sent


def test_a_large_frame_in_many_pieces_is_put_together() -> None:
    payload = bytes(range(256)) * 4096
    data = encoded((BODY, 1, payload))
    pieces = [data[start : start + 1000] for start in range(0, len(data), 1000)]

    assert fed(Inflow(0), pieces) == [(BODY, 1, payload)]


def test_a_frame_that_does_not_end_as_one_is_refused() -> None:
    broken = encoded((METHOD, 1, b"abc"))[:-1] + b"\x00"
    with pytest.raises(FramingError, match="a frame of 3 bytes does not end"):
        Inflow(FRAME_MAX).feed(encoded((METHOD, 1, b"ok")) + broken)


def test_a_frame_larger_than_agreed_is_refused_before_it_has_arrived() -> None:
    """Else whoever sends garbage could have us wait for gigabytes, and keep them."""
    with pytest.raises(FramingError, match="a frame of 131073 bytes where 131072 are agreed upon"):
        Inflow(FRAME_MAX).feed(struct.pack(">BHI", BODY, 1, FRAME_MAX - 7))

    assert Inflow(FRAME_MAX).feed(struct.pack(">BHI", BODY, 1, FRAME_MAX - 8)) == []
    assert Inflow(0).feed(struct.pack(">BHI", BODY, 1, 2**31)) == []
