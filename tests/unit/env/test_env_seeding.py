from slm_lab.env.vector.raw import env_seeds


def test_an_environment_keeps_its_seed_when_more_are_added():
    assert env_seeds(3, 8)[:4] == env_seeds(3, 4)
    assert len({*env_seeds(0, 1000), *env_seeds(1, 1000)}) > 1995
    assert all(0 <= seed < 2**31 for seed in env_seeds(7, 1000))
