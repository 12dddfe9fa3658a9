from slm_lab.charts.labels import MOST_LETTERS, Named, labels
from slm_lab.core.values import leaves


def spec(**changes):
    plain = {
        "agent": {
            "algorithm": {"name": "PPO", "gamma": 0.99},
            "net": {"lr": 1e-3, "hid": [64]},
        },
        "env": {"name": "CartPole-v1", "kwargs": {}},
    }
    return leaves(plain) | {
        path.replace("__", "."): value for path, value in changes.items()
    }


def named(name="ppo", stamp="now", tag="", **changes):
    return Named(name, spec(**changes), stamp, tag)


def test_leaves_have_dotted_paths_and_empty_blocks_are_leaves():
    assert leaves({"a": {"b": 1, "c": [2]}, "d": {}}) == {"a.b": 1, "a.c": [2], "d": {}}


def test_different_names_are_enough():
    assert labels([named("ppo"), named("a2c", agent__net__lr=1.0)]) == ["ppo", "a2c"]


def test_specs_of_one_name_are_told_apart_by_what_differs_in_them():
    trainings = [named(agent__net__lr=0.001), named(agent__net__lr=3e-05), named("a2c")]
    assert labels(trainings) == ["ppo  lr 0.001", "ppo  lr 3e-05", "a2c"]


def test_keys_that_distinguish_more_trainings_come_first():
    trainings = [
        named(agent__algorithm__gamma=gamma, agent__net__lr=lr)
        for gamma, lr in ((0.9, 1.0), (0.9, 2.0), (0.99, 3.0))
    ]
    assert labels(trainings)[0] == "ppo  lr 1, gamma 0.9"


def test_a_key_that_a_spec_lacks_is_not_in_its_label():
    trainings = [named(), named(agent__algorithm__lam=0.9)]
    assert labels(trainings) == ["ppo", "ppo  lam 0.9"]


def test_values_are_written_as_in_a_spec():
    trainings = [
        named(env__name="Pong"),
        named(env__name=None),
        named(env__name=[1, {"a": True}]),
    ]
    assert labels(trainings) == [
        "ppo  env.name Pong",
        "ppo  env.name null",
        'ppo  env.name [1, {"a": true}]',
    ]


def test_equal_specs_are_told_apart_by_when_they_were_run():
    assert labels([named(stamp="1"), named(stamp="2")]) == ["ppo  1", "ppo  2"]
    trainings = [
        named(stamp="1"),
        named(stamp="2"),
        named(stamp="3", agent__net__lr=1.0),
    ]
    assert labels(trainings) == ["ppo  lr 0.001  1", "ppo  lr 0.001  2", "ppo  lr 1"]


def test_trials_of_a_search_have_their_number():
    trainings = [
        named(tag="t0", agent__net__lr=1.0),
        named(tag="t1", agent__net__lr=1.0),
    ]
    assert labels(trainings) == ["ppo t0", "ppo t1"]


def test_a_long_difference_is_cut_and_stays_different():
    many = [
        named(
            stamp=str(n), **{f"agent__algorithm__a_long_key_{k}": n for k in range(20)}
        )
        for n in range(3)
    ]
    found = labels(many)
    assert len(set(found)) == 3
    assert all(len(label) <= len("ppo  ") + MOST_LETTERS + 3 for label in found)
    assert found[0].endswith(", …")
    alike = [named(stamp=str(n), env__name="x" * 80 + str(n)) for n in range(2)]
    assert len(set(labels(alike))) == 2
