"""Batch normalisation of a single sample: one error, whatever the net."""

import pytest

from slm_lab.core.errors import LabError
from tests.support import randn
from tests.unit.agent.net.building import arc, build

MLP = {"hid_layers": [5]}
NETS = {
    "an MLPNet": ("MLPNet", (4,), {"batch_norm": True, **MLP}),
    "batch renormalisation": ("MLPNet", (4,), {"batch_norm": "renorm", **MLP}),
    "a ConvNet": (
        "ConvNet",
        (2, 6, 6),
        {"batch_norm": True, "conv_hid_layers": [[3, 3, 1]], "fc_hid_layers": [5]},
    ),
    "an arc": (
        "TorchArcNet",
        (4,),
        {"arc": arc(("LazyLinear", {"out_features": 5}), "LazyBatchNorm1d", "Tanh")},
    ),
    "an arc that renormalises": (
        "TorchArcNet",
        (4,),
        {"arc": arc(("LazyLinear", {"out_features": 5}), "LazyBatchRenorm1d", "Tanh")},
    ),
}


@pytest.mark.parametrize("name", NETS)
def test_one_sample_is_acted_on_and_not_learned_from(name):
    kind, shape, keys = NETS[name]
    net = build(kind, shape, **keys)
    two = randn(2, *shape)
    net.train(False)
    assert net(two[:1])[0].shape == (1, 3)
    net.train(True)
    assert net(two)[0].shape == (2, 3)
    with pytest.raises(
        LabError, match="cannot learn from one sample alone; make the batch larger"
    ):
        net(two[:1])
