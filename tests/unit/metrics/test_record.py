import io

from hypothesis import given
from hypothesis import strategies as st
from tensorboard.summary.writer.record_writer import RecordWriter

from slm_lab.metrics.record import crc32c, framed


def test_the_checksum_is_the_one_of_the_standard():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, appendix B.4


@given(data=st.binary(max_size=200))
def test_a_record_is_the_one_that_tensorboard_writes(data):
    file = io.BytesIO()
    RecordWriter(file).write(data)
    assert framed(data) == file.getvalue()
