"""The log of a search: events are read back, also after a kill or a full disk."""

import hashlib
import json
import math
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slm_lab.core.errors import LabError, UsageError
from slm_lab.metrics.trial_state import Status
from slm_lab.records.event_log import (
    Began,
    Confirmed,
    Copied,
    Ended,
    EventLog,
    Interrupted,
    Paused,
    Proposed,
    Reported,
    Retried,
    StudyState,
)

TRIAL = st.integers(0, 200)
NUMBER = st.floats(allow_nan=False, allow_infinity=True)
SECONDS = st.floats(0, 1e6)
TEXT = st.text(max_size=20)  # also with line ends and what is not ASCII
VALUE = st.one_of(
    st.none(), st.booleans(), NUMBER, TEXT, st.lists(st.integers(), max_size=3)
)
POINT = st.dictionaries(
    TEXT, st.one_of(VALUE, st.dictionaries(TEXT, VALUE, max_size=2))
)
METRICS = st.dictionaries(TEXT, st.none() | NUMBER, max_size=3)
OVER = st.sampled_from([status for status in Status if status.is_over])
EVENTS = st.one_of(
    st.builds(Proposed, TRIAL, POINT),
    st.builds(Began, TRIAL),
    st.builds(Reported, TRIAL, TRIAL, NUMBER),
    st.builds(Paused, TRIAL, SECONDS, METRICS),
    st.builds(Copied, TRIAL, TRIAL, POINT, TRIAL, SECONDS),
    st.builds(Retried, TRIAL, TEXT, SECONDS),
    st.builds(Interrupted, TRIAL, SECONDS),
    st.builds(
        Ended,
        TRIAL,
        OVER,
        TRIAL,
        st.none() | NUMBER,
        SECONDS,
        METRICS,
        st.none() | TEXT,
    ),
    st.builds(
        Confirmed, TRIAL, st.lists(NUMBER, max_size=3).map(tuple), st.none() | TEXT
    ),
)
SOME = [
    Proposed(0, {"a.x": [1, 2]}),
    Began(0),
    Reported(0, 100, 2.5),
    Interrupted(0, 3.0),
]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "small_search.jsonl"


def written(file, events):
    record = EventLog(file)
    for event in events:
        record.write(event)
    record.close()
    return file


def read(file):
    return list(EventLog(file).read())


@pytest.mark.medium
@given(st.lists(EVENTS, max_size=6))
@settings(max_examples=80)
def test_every_event_comes_back_as_it_was_written(tmp_path_factory, events):
    trials = dict.fromkeys(event.trial for event in events)
    events = [*(Proposed(trial, {}) for trial in trials), *events]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda stream: None)
        file = written(tmp_path_factory.mktemp("record") / "search.jsonl", events)
    found = read(file)
    assert found == events
    assert [type(event) for event in found] == [type(event) for event in events]
    assert all(
        type(event.status) is Status for event in found if isinstance(event, Ended)
    )


def test_a_score_of_nan_is_read_back(file):
    _, found = read(written(file, [Proposed(0, {}), Reported(0, 100, math.nan)]))
    assert math.isnan(found.score)


def test_where_nothing_was_written_nothing_is_read(file):
    assert read(file) == []
    file.touch()
    assert read(file) == []


def test_what_is_read_does_not_touch_the_file(file):
    written(file, SOME)
    content = file.read_bytes() + b'{"event": "beg'
    file.write_bytes(content)
    read(file)
    assert file.read_bytes() == content


def test_a_line_that_was_cut_off_anywhere_is_dropped_and_written_over(
    file, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda stream: None)
    whole = written(file, SOME).read_bytes()
    first = len(whole.splitlines(keepends=True)[0])
    for size in range(first, len(whole) + 1):
        file.write_bytes(whole[:size])
        left = whole[:size].count(b"\n")
        assert read(file) == SOME[:left]
        written(file, [Proposed(7, {})])
        assert read(file) == [*SOME[:left], Proposed(7, {})]


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b"",
        b'{"event": "began"',
        b'{"trial": 1}',
        b'{"event": "vanished", "trial": 1}',
        b'{"event": "began"}',
        b'{"event": "began", "trial": 1, "more": 2}',
        b'{"event": "ended", "trial": 0, "status": "gone", "frame": 1, "score": 1, '
        b'"seconds": 1, "metrics": {}}',
        b"[1]",
        b"7",
        b"null",
        b'"began"',
        b"\xff\xfe",
    ],
)
def test_a_damaged_line_in_the_middle_is_reported_by_its_number(file, line):
    lines = written(file, SOME).read_bytes().splitlines()
    file.write_bytes(b"\n".join([lines[0], lines[1], line, *lines[2:], b""]))
    with pytest.raises(UsageError, match="line 3") as caught:
        read(file)
    assert str(file) in str(caught.value)


DAMAGES = {
    "dropped": lambda lines, at: lines[:at] + lines[at + 1 :],
    "doubled": lambda lines, at: lines[: at + 1] + lines[at:],
    "moved": lambda lines, at: [
        *lines[:at],
        lines[at + 1],
        lines[at],
        *lines[at + 2 :],
    ],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("at", range(len(SOME) - 1))
def test_a_missing_or_moved_line_is_noticed(file, damage, at):
    lines = written(file, SOME).read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(DAMAGES[damage](lines, at)))
    with pytest.raises(UsageError, match="does not follow from the lines before"):
        read(file)


def test_any_bit_that_has_changed_is_noticed(file):
    whole = written(file, SOME).read_bytes()
    ends = [place for place, byte in enumerate(whole) if byte == ord("\n")]
    for place in range(len(whole)):
        if place not in ends:
            file.write_bytes(
                whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            )
            with pytest.raises(UsageError):
                read(file)


def test_a_record_of_an_earlier_version_is_read_as_it_is(file):
    file.write_text(
        '{"event": "proposed", "trial": 0, "point": {}}\n{"event": "began", "trial": '
        "0}\n"
    )
    assert read(file) == [Proposed(0, {}), Began(0)]


def test_an_event_of_a_trial_without_a_number_is_refused(file):
    file.write_text('{"event": "began", "trial": []}\n')
    with pytest.raises(
        UsageError, match=r"line 1, is no event: the trial \[\] is no number"
    ):
        read(file)


def test_a_line_that_is_written_in_part_is_an_error_and_no_event(file, monkeypatch):
    record = EventLog(file)
    record.write(SOME[0])
    write = os.write
    monkeypatch.setattr(os, "write", lambda stream, line: write(stream, line[:-3]))
    with pytest.raises(LabError, match="No space left"):
        record.write(SOME[1])
    record.close()
    assert read(file) == SOME[:1]


def test_after_a_full_disk_the_record_continues_where_it_was_whole(file, monkeypatch):
    record = EventLog(file)
    record.write(SOME[0])
    with monkeypatch.context() as patch:
        write = os.write
        patch.setattr(os, "write", lambda stream, line: write(stream, line[:5]))
        with pytest.raises(LabError, match="No space left"):
            record.write(SOME[1])
    record.write(SOME[1])
    record.close()
    assert read(file) == SOME[:2]


def test_every_event_is_in_the_file_at_once(file):
    record = EventLog(file)
    for count, event in enumerate(SOME, 1):
        record.write(event)
        assert read(file) == SOME[:count]
    record.close()
    record.close()


def test_events_that_rows_can_restore_are_not_synced(file, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", synced.append)
    record = EventLog(file)
    counts = []
    for event in SOME:
        record.write(event)
        counts.append(len(synced))
    record.close()
    assert counts == [1, 2, 2, 3]


def study_state(*events):
    found = StudyState()
    for event in events:
        found.apply(event)
    return found


def statuses(*events):
    """The status after each event."""
    return [
        study_state(*events[:n]).trials[0].status for n in range(1, len(events) + 1)
    ]


POINT_0 = {"a.x": 1}
LIFE = [
    (Proposed(0, POINT_0), Status.WAITING),
    (Began(0), Status.RUNNING),
    (Reported(0, 100, 1.0), Status.RUNNING),
    (Paused(0, 5.0, {"strength": 2.0}), Status.PAUSED),
    (Began(0), Status.RUNNING),
    (Reported(0, 200, 3.0), Status.RUNNING),
    (Retried(0, "gone", 7.0), Status.WAITING),
    (Began(0), Status.RUNNING),
    (Interrupted(0, 11.0), Status.WAITING),
    (Began(0), Status.RUNNING),
    (Copied(0, 4, {"a.x": 2}, 150, 13.0), Status.PAUSED),
    (Began(0), Status.RUNNING),
    (Reported(0, 300, 4.0), Status.RUNNING),
    (Ended(0, Status.FINISHED, 400, 4.5, 17.0, {"strength": 3.0}), Status.FINISHED),
]


def test_the_status_of_a_trial_through_its_life():
    assert statuses(*(event for event, _ in LIFE)) == [status for _, status in LIFE]


def test_the_record_of_a_trial_at_its_end():
    state = study_state(*(event for event, _ in LIFE)).trials[0]
    assert state.params == {"a.x": 2}
    assert (state.frame, state.score, state.metrics) == (400, 4.5, {"strength": 3.0})
    assert state.seconds == 5 + 7 + 11 + 13 + 17
    assert (state.reports, state.restarts, state.copies, state.donor) == (3, 1, 1, 4)
    assert state.has_begun
    assert state.error is None


def test_the_frame_of_a_trial_that_took_over_is_that_of_the_checkpoint():
    state = study_state(*(event for event, _ in LIFE[:11])).trials[0]
    assert state.frame == 150


def test_a_trial_that_failed_keeps_its_error_and_has_no_score():
    state = study_state(
        *SOME[:3], Ended(0, Status.FAILED, 100, None, 1.0, {}, "why")
    ).trials[0]
    assert (state.status, state.score, state.error) == (Status.FAILED, None, "why")


def test_trials_are_found_by_where_they_stand():
    found = study_state(Proposed(0, {}), Proposed(1, {}), Began(1), Proposed(2, {}))
    assert [state.trial for state in found.of(Status.WAITING)] == [0, 2]
    assert [state.trial for state in found.of(Status.RUNNING, Status.WAITING)] == [
        0,
        1,
        2,
    ]
    assert found.of(Status.FAILED) == []


def test_a_search_is_over_when_all_of_its_trials_are():
    end = Ended(0, Status.STOPPED, 1, 1.0, 1.0, {})
    assert study_state().is_over
    assert not study_state(*SOME[:3]).is_over
    assert study_state(*SOME[:3], end).is_over
    assert not study_state(*SOME[:3], end, Proposed(1, {})).is_over


def test_fresh_seeds_are_no_part_of_a_trial():
    found = study_state(*SOME, Confirmed(0, (1.0, 2.0)))
    assert found.confirmed[0].scores == (1.0, 2.0)
    assert found.trials[0] == study_state(*SOME).trials[0]


def chained(events):
    """Lines as an earlier version wrote them: each is summed with the one before."""
    lines = []
    before = b""
    for event in events:
        kind = type(event).__name__.lower()
        content = json.dumps({"event": kind, **event._asdict()}).encode()
        before = hashlib.sha256(before + content).hexdigest()[:16].encode()
        lines.append(content[:-1] + b', "chain": "' + before + b'"}\n')
    return lines


def test_a_log_that_an_earlier_version_began_is_continued(file):
    file.write_bytes(b"".join(chained(SOME)))
    written(file, [Proposed(7, {})])
    assert read(file) == [*SOME, Proposed(7, {})]


@pytest.mark.parametrize("fault", ["changed", "lost", "moved"])
def test_the_checksums_of_an_earlier_version_count_too(file, fault):
    lines = chained([Proposed(0, {}), *(Reported(0, n, 1.0) for n in range(4))])
    if fault == "changed":
        lines[2] = lines[2].replace(b"1.0", b"2.0")
    elif fault == "lost":
        del lines[2]
    else:
        lines[2:4] = lines[3], lines[2]
    file.write_bytes(b"".join(lines))
    with pytest.raises(UsageError, match="line 3, is no event: it does not follow"):
        read(file)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[1, 2]", "it is cut, or no JSON object"),
        (b'{"event": "repo', "it is cut, or no JSON object"),
        (b'{"event": "began", "trial": 3}', "no line before it proposes t3"),
    ],
)
def test_a_line_without_a_checksum_is_named_with_its_fault(file, line, words):
    file.write_bytes(line + b"\n")
    with pytest.raises(UsageError, match=f"line 1, is no event: {words}"):
        read(file)
