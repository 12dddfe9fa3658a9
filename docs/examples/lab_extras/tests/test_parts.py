"""The parts of this package keep the contracts of the lab."""

from slm_lab.testing import (
    AlgorithmCase,
    AlgorithmContract,
    EnvironmentCase,
    EnvironmentContract,
    MemoryCase,
    MemoryContract,
    ModeCase,
    ModeContract,
    NetCase,
    NetContract,
)

RESIDUAL = {"type": "ResidualMLP", "num_blocks": 2, "width": 8}
AWR = {"name": "AWR", "gamma": 0.9, "training_frequency": 16}
AGENT = {
    "algorithm": AWR,
    "memory": {"name": "OnPolicyBatchReplay"},
    "net": {**RESIDUAL, "optim_spec": {"name": "GlobalAdam", "lr": 1e-3}},
}
DISCRETE = {"agent": AGENT, "env": {"name": "CartPole-v1", "num_envs": 4}}
CONTINUOUS = {"agent": AGENT, "env": {"name": "Pendulum-v1", "num_envs": 4}}


class TestAWR(AlgorithmContract):
    """A normal distribution may draw actions outside of the space of Pendulum."""

    cases = {
        "discrete": AlgorithmCase(DISCRETE),
        "continuous": AlgorithmCase(CONTINUOUS, bounded=False),
    }


class TestReservoir(MemoryContract):
    """One size has it drop steps within the test, the other does not."""

    cases = {
        "full": MemoryCase({"name": "Reservoir", "batch_size": 8, "max_size": 60}),
        "all": MemoryCase({"name": "Reservoir", "batch_size": 8, "max_size": 500}),
    }


class TestResidualMLP(NetContract):
    cases = {
        "relu": NetCase(RESIDUAL, obs_shape=(4,)),
        "tanh": NetCase(
            {**RESIDUAL, "hid_layers_activation": "tanh", "init_fn": "orthogonal_"},
            obs_shape=(4,),
        ),
    }


class TestTarget(EnvironmentContract):
    cases = {"short": EnvironmentCase({"name": "Target-v0", "length": 5})}


class TestLocalSGD(ModeContract):
    """Its processes import the package, which need not be installed."""

    cases = {
        "awr": ModeCase(
            "local_sgd",
            DISCRETE,
            keys={"sync_every": 4},
            imports=("lab_extras",),
        )
    }
