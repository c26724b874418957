import uuid

from outbox import get_tracking_ids, tracking


def test_outside_of_tracking_there_are_no_ids() -> None:
    assert get_tracking_ids() == []


def test_tracking_nests_and_ends() -> None:
    with tracking() as outer:
        assert [uuid.UUID(each).version for each in outer] == [4]
        with tracking() as inner:
            assert inner[:1] == outer
            assert len(set(inner)) == 2
            assert get_tracking_ids() == inner
        assert get_tracking_ids() == outer
    assert get_tracking_ids() == []


def test_a_history_can_be_continued() -> None:
    with tracking(["a", "b"]):
        assert get_tracking_ids() == ["a", "b"]
