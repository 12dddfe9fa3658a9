"""What an older torch lacks is replaced, or reported in one line."""

import numpy as np
import pytest
import torch

from slm_lab.agent.torch_versions import attribute_of, cpu_capabilities, saves_unsigned
from slm_lab.core.errors import LabError
from slm_lab.storage import checkpoint
from slm_lab.storage.checkpoint import from_bytes, to_bytes


def test_a_name_that_torch_lacks_is_reported_with_the_version():
    assert attribute_of(torch.optim, "Adam") is torch.optim.Adam
    message = f"torch {torch.__version__} has no Nonesuch: use a newer torch"
    with pytest.raises(LabError) as caught:
        attribute_of(torch.optim, "Nonesuch")
    assert str(caught.value) == message


@pytest.mark.parametrize("is_able", [False, saves_unsigned()])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_integers_come_back_whether_or_not_torch_saves_them(
    kind, is_able, monkeypatch
):
    largest = np.iinfo(kind).max
    for shape in ((), (2, 3)):
        state = {"a": np.full(shape, largest, kind)}
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint, "saves_unsigned", lambda: is_able)
            content = bytes(to_bytes(state))
        back = from_bytes(content)["a"]
        np.testing.assert_array_equal(back, state["a"], strict=True)


def test_an_older_torch_finds_the_same_instructions(monkeypatch):
    found = cpu_capabilities()
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    for name, has in cpu_capabilities().items():
        assert has == found.get(name, False), name
