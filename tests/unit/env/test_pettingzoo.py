"""Parallel environments by their names, and what breaks their interface."""

import importlib.util
import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from gymnasium import spaces

from slm_lab.core.errors import LabError, MissingExtraError, SpecError
from slm_lab.core.plugins import code_name, module_in, typed_modules, zoo_module
from slm_lab.env.check import check_env
from slm_lab.env.lookup import find_env
from slm_lab.env.make import make_one
from slm_lab.env.pettingzoo import Team
from slm_lab.env.versions import code_digest, env_record
from slm_lab.records.trust import modules_at
from tests import team

needs_pettingzoo = pytest.mark.skipif(
    importlib.util.find_spec("pettingzoo") is None,
    reason="the extra pettingzoo is not installed",
)
TEAM = "pettingzoo:tests.team"


class Changed(team.Team):
    """A team whose step returns what `change` makes of it."""

    def __init__(self, change) -> None:
        super().__init__(size=2)
        self.change = change

    def step(self, actions):
        return self.change(self, super().step(actions))


def begun(env):
    """A `Team` around `env`, reset."""
    made = Team(env, "pettingzoo:some.where")
    made.reset(seed=0)
    return made


def step(made):
    return made.step(dict.fromkeys(made.agents, 0))


def module_of(monkeypatch, **names):
    """A module of these names, imported as "some_zoo"."""
    monkeypatch.setitem(sys.modules, "some_zoo", SimpleNamespace(**names))
    return "pettingzoo:some_zoo"


# Names


@pytest.mark.parametrize("family", ["atari", "butterfly", "classic", "sisl"])
def test_the_families_of_pettingzoo_name_no_module_to_trust(family):
    name = f"pettingzoo:{family}.some_v1"
    assert code_name(name) is None
    assert code_name(f"pettingzoo:pettingzoo.{family}.some_v1") is None
    assert modules_at([{"env.name": name}]) == ()


def test_the_package_of_the_extra_needs_no_trust():
    name = "pettingzoo:mpe2.simple_spread_v3"
    assert code_name(name) is None
    assert modules_at([{"env.name": name}]) == ()
    assert code_name("pettingzoo:mpe2_of_others.hunt") is not None


def test_another_module_needs_the_same_trust_as_one_before_an_id(
    env_spec, tmp_path, monkeypatch
):
    name = "pettingzoo:my_team.hunt"
    assert modules_at([{"env.name": name}]) == ("my_team.hunt",)
    assert [*map(module_in, env_spec(name).code_names)] == ["my_team.hunt"]
    monkeypatch.chdir(tmp_path)
    assert typed_modules(name) == ()
    (tmp_path / "my_team").mkdir()
    assert typed_modules(name) == ("my_team.hunt",)


def test_a_folder_called_like_a_family_is_not_imported_for_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sisl").mkdir()
    assert typed_modules("pettingzoo:sisl.pursuit_v5") == ()


def test_a_module_that_is_missing_is_named(assert_refused):
    assert_refused("pettingzoo:no_such_zoo.hunt_v1", "… no_such_zoo is not installed")
    assert_refused("pettingzoo:tests.no_such_team", "… tests has no module")
    assert_refused(
        "pettingzoo:mpe.simple_spread_v3", "… write pettingzoo:mpe2.simple_spread_v3"
    )


@pytest.mark.parametrize("module", ["", "..x"])
def test_what_is_no_module_is_refused(assert_refused, module):
    assert_refused(f"pettingzoo:{module}", "… names no module")


def test_agents_that_take_turns_are_refused(monkeypatch, assert_refused):
    assert_refused(module_of(monkeypatch, env=team.Team), "… take turns")
    assert_refused(module_of(monkeypatch), "… no parallel_env")


@pytest.mark.skipif(
    importlib.util.find_spec("pettingzoo") is not None, reason="it is installed"
)
def test_without_pettingzoo_its_families_name_the_command(env_spec):
    with pytest.raises(MissingExtraError, match=r"slm-lab\[pettingzoo\]"):
        find_env(env_spec("pettingzoo:sisl.pursuit_v5"))


@needs_pettingzoo
def test_a_misspelt_environment_of_pettingzoo_is_corrected(assert_refused):
    assert_refused(
        "pettingzoo:sisl.pursuit_v4", "… did you mean pettingzoo:sisl.pursuit_v5"
    )


@needs_pettingzoo
@pytest.mark.parametrize("typed", ["simple_spread_v3", "mpe2.simple_spred_v3"])
def test_a_misspelt_environment_of_mpe_is_corrected(assert_refused, typed):
    assert_refused(
        f"pettingzoo:{typed}", "… did you mean pettingzoo:mpe2.simple_spread_v3"
    )


def test_a_package_names_its_environments(assert_refused, tmp_path, monkeypatch):
    package = tmp_path / "own_zoo"
    package.mkdir()
    for name in ("__init__", "hunt_v1", "tag_v0", "helpers"):
        (package / f"{name}.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert_refused(
        "pettingzoo:own_zoo.hnut_v1", "… did you mean pettingzoo:own_zoo.hunt_v1"
    )
    assert_refused(
        "pettingzoo:own_zoo.other",
        "… it has pettingzoo:own_zoo.hunt_v1, pettingzoo:own_zoo.tag_v0",
    )
    assert_refused("pettingzoo:own_zoo", "… own_zoo is a package of environments: …")


# Keys


def test_keys_that_it_does_not_have_are_refused(assert_refused):
    assert_refused(TEAM, "… stepped in this process", vectorization_mode="async")
    assert_refused(TEAM, "… no parallel environments", backend="torch")
    assert_refused(
        TEAM,
        "… stays; write a value",
        size={
            "name": "linear_decay",
            "start_val": 2,
            "end_val": 3,
            "start_step": 0,
            "end_step": 9,
        },
    )


def test_an_argument_that_it_does_not_take_is_refused(assert_refused):
    assert_refused(TEAM, "… did you mean size", sizes=3)


def test_agents_of_different_spaces_are_named(build):
    with pytest.raises(SpecError, match=r"leaves, comes_back, joins are Box.*\(5,\)"):
        build(TEAM, same=False)


def test_the_record_of_a_run_has_its_module_and_code(env_spec):
    record = env_record(env_spec(TEAM, size=3))
    assert (record["id"], record["arguments"]) == (TEAM, {"size": 3})
    assert code_digest(env_spec(TEAM)) != code_digest(env_spec("CartPole-v1"))


# The interface


def keeps(env, result):
    env.agents = ["stays", "leaves"]
    return result


def invents(env, result):
    env.agents = [*env.agents, "stranger"]
    return result


def hides(env, result):
    del result[0]["stays"]
    return result


def pays_nothing(env, result):
    del result[1]["stays"]
    return result


def old_interface(env, result):
    obs, rewards, terminations, _, infos = result
    return obs, rewards, terminations, infos


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (keeps, "leaves has terminated or was truncated, and is still in its list"),
        (invents, "stranger is none of its possible_agents"),
        (hides, "no observation of stays"),
        (pays_nothing, "no reward of stays"),
        (old_interface, "five dicts by agent"),
    ],
)
def test_what_breaks_the_interface_is_one_clear_error(change, fault):
    made = begun(Changed(change))
    with pytest.raises(LabError, match=fault):
        list(map(step, [made] * 3))


def test_a_reset_without_infos_is_one_clear_error():
    env = team.Team()
    env.reset = lambda seed, options: {"stays": np.zeros(4)}
    with pytest.raises(LabError, match=r"reset\(\) must return"):
        begun(env)


def test_an_environment_must_know_its_agents():
    env = team.Team()
    env.possible_agents = []
    with pytest.raises(SpecError, match="possible_agents"):
        Team(env, "pettingzoo:some.where")


def silently(env, result):
    obs, rewards, terminations, truncations, infos = result
    if env.t == 3:
        for part in (obs, rewards, terminations, truncations, infos):
            part.pop("leaves", None)
    return obs, rewards, terminations, truncations, infos


def test_an_agent_that_leaves_without_a_word_has_terminated():
    made = begun(Changed(silently))
    step(made)
    before = step(made)[0].acted["leaves"].obs
    last = step(made)[0].acted["leaves"]
    assert last.terminated
    assert not last.truncated
    assert last.reward == 0.0
    np.testing.assert_array_equal(last.obs, before)
    assert last.info["time"] == 2  # that of the last observation
    assert made.agents == ("stays",)


def test_all_that_are_done_at_once_may_stay_in_the_list():
    def stay(env, result):
        env.agents = list(env.possible_agents)
        obs, rewards, terminations, truncations, infos = result
        over = dict.fromkeys(terminations, env.t == 2)
        return obs, rewards, over, truncations, infos

    env = Changed(stay)
    made = begun(env)
    step(made)
    _, _, is_over, *_ = step(made)
    assert is_over
    joined, _ = made.reset()
    assert joined.keys() == {"stays", "leaves"}


def test_every_episode_has_a_seed_of_its_own_which_a_repeat_has_too():
    first, second = (team.Team() for _ in range(2))
    for env, rounds in ((first, 4), (second, 4)):
        made = Team(env, "pettingzoo:some.where")
        made.reset(seed=5)
        for _ in range(rounds):
            made.reset()
    assert first.seeds == second.seeds
    assert len(set(first.seeds)) == 5
    assert None not in first.seeds


def test_a_step_limit_truncates_all_agents():
    made = begun(team.Team(size=1))
    made.limit = 2
    step(made)
    result, _, is_over, *_ = step(made)
    assert is_over
    assert result.acted["stays"].truncated
    assert not result.acted["stays"].terminated


# One agent


def test_one_agent_is_an_environment_of_its_own(env_spec):
    env, _ = make_one(env_spec(TEAM))
    assert env.observation_space == spaces.Box(-1.0, 1e6, (4,), np.float32)
    obs, _ = env.reset(seed=0)
    assert obs[2] == 0.0
    ended = [env.step(0)[2] for _ in range(8)]
    assert ended == [False] * 7 + [True]


def test_the_others_draw_actions_that_masks_allow(env_spec):
    env, _ = make_one(env_spec(TEAM, action_mask="info.action_mask", masked=True))
    row, _ = env.reset(seed=0)
    for _ in range(40):
        allowed = row[-2:]
        row, _, terminated, truncated, _ = env.step(int(allowed.argmax()))
        if terminated or truncated:
            row, _ = env.reset()


class Pairs(team.Team):
    """The action is a pair, and its mask has another name."""

    metadata: ClassVar = {"name": "pairs"}

    def action_space(self, agent):
        return spaces.MultiDiscrete([2, 3])

    def step(self, actions):
        assert all(pair[0] == 1 and pair[1] != 1 for pair in actions.values())
        firsts = {agent: pair[0] for agent, pair in actions.items()}
        return super().step(firsts)

    def _infos(self, agents):
        return {agent: {"legal": [[0, 1], [1, 0, 1]]} for agent in agents}


def test_the_others_read_their_masks_where_the_spec_says(env_spec, monkeypatch):
    name = module_of(monkeypatch, parallel_env=Pairs)
    env, _ = make_one(env_spec(name, action_mask="info.legal"))
    env.reset(seed=0)
    ended = [env.step(np.array([1, 0]))[2] for _ in range(8)]
    assert ended == [False] * 7 + [True]


def test_metadata_without_render_modes_give_no_warning(env_spec, monkeypatch, recwarn):
    name = module_of(monkeypatch, parallel_env=Pairs)
    make_one(env_spec(name))
    assert not recwarn.list


def test_a_function_without_metadata_makes_an_environment(env_spec, monkeypatch):
    """Such as one that puts wrappers around an environment."""

    def wrapped(**arguments):
        return team.Team(**arguments)

    name = module_of(monkeypatch, parallel_env=wrapped)
    env, _ = make_one(env_spec(name, size=2))
    assert env.metadata == team.Team.metadata
    assert check_env(env_spec(name, size=2)) == []


def test_its_block_is_accepted(env_spec):
    assert check_env(env_spec(TEAM, size=2, max_t=5, reset_options={"a": 1})) == []


@needs_pettingzoo
@pytest.mark.parametrize(
    "name",
    [
        "butterfly.knights_archers_zombies_v11",
        "sisl.multiwalker_v9",
        "classic.rps_v2",
        "mpe2.simple_spread_v3",
    ],
)
def test_rows_are_what_pettingzoo_gives_to_each_agent(build, name, monkeypatch):
    """Side by side with the environment of PettingZoo itself, under the same seeds."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    keys = {"wrappers": ["gymnasium.wrappers:FlattenObservation"]}
    module = zoo_module(f"pettingzoo:{name}")
    pytest.importorskip(module.partition(".")[0])
    ours = build(f"pettingzoo:{name}", num_envs=1, **keys)
    theirs = importlib.import_module(module).parallel_env()
    drawn = []
    reset = ours.raw._teams[0].env.reset

    def noted(seed=None, options=None):
        drawn.append(seed)
        return reset(seed=seed, options=options)

    ours.raw._teams[0].env.reset = noted
    rows = ours.reset()
    obs, _ = theirs.reset(seed=drawn[-1])
    names = theirs.possible_agents
    rng = np.random.default_rng(0)
    space = ours.action_space
    for _ in range(150):
        for row, agent in enumerate(names):
            assert (agent in obs) or ours.raw.absent[row]
            if agent in theirs.agents:
                flat = spaces.flatten(theirs.observation_space(agent), obs[agent])
                np.testing.assert_allclose(rows[row], flat, rtol=1e-6)
        if isinstance(space, spaces.Discrete):
            action = rng.integers(0, space.n, ours.num_envs)
        else:
            action = rng.uniform(-1, 1, (ours.num_envs, *space.shape)).astype("f4")
        acting = list(theirs.agents)
        obs, rewards, terminated, _, _ = theirs.step(
            {agent: action[names.index(agent)] for agent in acting}
        )
        result = ours.step(action)
        rows = result.obs
        for agent in acting:
            row = names.index(agent)
            assert result.reward[row] == np.float32(rewards[agent])
            assert result.terminated[row] == terminated[agent]
        if not theirs.agents:
            obs, _ = theirs.reset(seed=drawn[-1])
    theirs.close()
