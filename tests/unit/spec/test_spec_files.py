"""Reading files: JSON, YAML, and everything that can be wrong before a spec is looked
at."""

import json
import logging
import re
from pathlib import Path

import pytest

from slm_lab.core.errors import SpecError
from slm_lab.core.registry import ALGORITHMS, MEMORIES, NETS
from slm_lab.spec.load import check_file, load_spec, load_specs, parse_spec, spec_names
from slm_lab.spec.parse import parse
from slm_lab.spec.read import find_file, read_file, shipped_files
from slm_lab.spec.schema.agent import USUAL_NAMES
from tests.unit.spec.spec_data import A3C, ALL, PPO, RANDOM, SAC, changed, fillings


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="specs.json"):
        path = tmp_path / name
        path.write_text(
            text if isinstance(text, str) else json.dumps(text), encoding="utf-8"
        )
        return path

    return write_file


def message(action, *args, **kwargs):
    with pytest.raises(SpecError) as caught:
        action(*args, **kwargs)
    return str(caught.value)


@pytest.mark.parametrize("path", shipped_files(), ids=lambda path: path.stem)
def test_every_shipped_spec_loads_and_survives_a_round_trip(path):
    for name, spec in load_specs(path, fillings(path)).items():
        data = json.loads(json.dumps(spec.to_json()))
        assert parse_spec(name, data) == spec


@pytest.mark.parametrize("name", ["PPO", "RANDOM"])
def test_resolved_specs_load_without_a_warning(name, caplog):
    spec = parse_spec(name, ALL[name])
    with caplog.at_level(logging.WARNING):
        assert parse_spec(name, spec.to_json()) == spec
    assert caplog.messages == []


@pytest.mark.parametrize("file", ["demo", "demo.json"])
def test_a_shipped_file_is_found_by_its_name(file):
    assert find_file(file).name == "demo.json"


@pytest.mark.parametrize(
    "file", ["ppo_acrobot", "ppo_acrobot.json", "benchmark/ppo/ppo_acrobot.json"]
)
def test_a_shipped_benchmark_is_found_by_its_name(file):
    assert load_spec(file).env.name == "Acrobot-v1"


@pytest.mark.parametrize(
    ("given", "successor", "why"),
    [
        (
            "slm_lab/spec/benchmark/async_sac/async_sac_roboschool.json",
            "async_sac_mujoco.json",
            "Roboschool is gone, and MuJoCo simulates its robots",
        ),
        ("ppo_roboschool", "ppo_mujoco.json", "Roboschool is gone"),
        (
            "benchmark/sac/sac_inverted_double_pendulum.json",
            "sac_mujoco.json",
            "MuJoCo",
        ),
        ("async_sac_halfcheetah_pybullet.json", "async_sac_mujoco.json", "MuJoCo"),
        ("ppo_qbert.json", "ppo_atari.json", "Atari"),
    ],
)
def test_a_missing_file_of_slm_lab_is_answered_with_the_file_that_replaced_it(
    given, successor, why
):
    text = message(load_spec, given)
    assert f"there is no such file, here or shipped; {successor} replaces it: " in text
    assert why in text
    assert find_file(successor).is_file()


def test_a_file_is_said_to_be_replaced_only_by_a_shipped_file():
    assert "replaces" not in message(load_spec, "a2c_gae_roboschool.json")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("somewhere/ppo_acrobat.yaml", "ppo_acrobot.json"),
        ("benchmark/ppo/ppo_acrobat", "ppo_acrobot"),
        ("nofile.json", None),
        ("my_spec.json", None),
        ("nofile", None),
        (".json", None),
    ],
)
def test_only_a_file_whose_own_name_is_alike_is_suggested(given, meant):
    hint = ""
    if meant:
        hint = f"; did you mean {meant}?"
    assert message(load_spec, given).endswith(
        f"there is no such file, here or shipped{hint}"
    )


def test_an_environment_in_place_of_a_file_is_answered_with_the_order_of_words():
    hint = "write the algorithm first: slm-lab run ppo Shop-v0"
    assert message(load_spec, "Shop-v0").endswith(hint)


@pytest.mark.parametrize(
    "given", ["ppo_Shop-v0.yml", "ppo_Shop-v0", "ppo_Shopp-v0.yaml"]
)
def test_a_file_of_the_user_is_suggested_with_its_suffix(given, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ppo_Shop-v0.yaml").write_text("")
    (tmp_path / "ppo_Shop-v0.txt").write_text("")
    for folder in ("", "../" + tmp_path.name + "/"):
        meant = f"did you mean {folder}ppo_Shop-v0.yaml?"
        assert message(load_spec, f"{folder}{given}").endswith(meant)


@pytest.mark.parametrize("file", ["demo.json", "benchmark/ppo/ppo_acrobot.json"])
def test_paths_as_from_the_root_of_a_clone_work_from_any_folder(
    file, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert find_file(f"slm_lab/spec/{file}") == find_file(file)
    assert find_file(f"./slm_lab/spec/{file}") == find_file(file)


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b", "", "."])
def test_names_that_no_file_can_have_are_refused(name):
    assert "file" in message(load_spec, name)


def test_a_missing_spec_is_reported_with_the_nearest(write):
    path = write({"ppo_cartpole": PPO, "other": RANDOM})
    assert "there is no spec of this name; did you mean ppo_cartpole?" in message(
        load_spec, path, "ppo_cartpol"
    )
    assert "the file holds ppo_cartpole, other" in message(load_spec, path, None)


def test_the_name_may_be_left_out_if_there_is_one_spec(write):
    assert load_spec(write({"_common": [1, 2], "only": PPO})).name == "only"


def test_the_message_has_the_form_of_the_style_guide(write):
    path = write(
        {"ppo_cartpole": changed(PPO, agent__algorithm__gamma=1.5) | {"met": {}}}
    )
    assert message(load_spec, path, "ppo_cartpole") == (
        "specs.json: ppo_cartpole has 2 problems\n"
        "  agent.algorithm.gamma = 1.5: must be <= 1\n"
        "  met = {}: unknown key; did you mean meta?"
    )


def test_the_spec_file_of_a_run_is_named_with_its_folder(tmp_path):
    file = tmp_path / "s_2026" / "s_spec.json"
    file.parent.mkdir()
    file.write_text("{")
    assert message(load_spec, file).startswith(f"{file} has 1 problem\n")


def test_a_misspelt_alias_is_answered_with_the_alias(write):
    raw = changed(PPO, agent__algorithm__clip_val_los=False)
    assert "clip_val_los = false: unknown key; did you mean clip_val_loss?" in message(
        load_spec, write({"s": raw})
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{\n "a": {\n  "env": {},\n  "env": {}\n }\n}',
            'line 4: the key "env" is given twice',
        ),
        (
            '{"a": [{"x": 1}, {"x": 2, "y": {"x": 1}}], "a": 1}',
            'line 1: the key "a" is given twice',
        ),
        (
            '{"a": {"env": {}, "env": {}}}\n]',
            "file: has a key twice, or a number that is not finite",
        ),
        ('{\n "a" 1}', "line 2: is not JSON: Expecting ':' delimiter"),
        ('{"a": NaN}', "line 1: a is NaN, and must be a finite number"),
        ("", "file: is empty"),
        ("[1]", "file: must hold {spec_name: {agent, env, meta}, …}"),
        ("[" * 100_000, "file: is nested too deeply"),
    ],
)
def test_a_file_that_is_not_json_is_refused_with_the_line(write, text, expected):
    assert expected in message(load_spec, write(text), "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:\n  env: 1\n  env: 2\n", 'line 3: the key "env" is given twice'),
        ("a: [1\n", "line 2: is not YAML"),
        ("a: *nothing\n", "line 1: is not YAML"),
        ("? [1, 2]\n: 3\n", "must hold"),
        ("a: !!python/object:os.system {}\n", "line 1: is not YAML"),
        ("- 1\n", "file: must hold"),
        ("a: !!bool x\n", "its tag, such as !!int, says"),
        ("a: !!int ''\n", "its tag, such as !!int, says"),
        ("a: !!float ''\n", "its tag, such as !!int, says"),
        ("a: !!timestamp x\n", "its tag, such as !!int, says"),
    ],
)
def test_a_file_that_is_not_yaml_is_refused_with_the_line(write, text, expected):
    text_or_any = message(load_spec, write(text, "specs.yaml"), "a")
    assert expected in text_or_any or "is not YAML" in text_or_any


def test_yaml_numbers_are_numbers_and_anchors_are_no_specs(write):
    path = write(
        """
_net: &net {type: MLPNet, optim_spec: {name: GlobalAdam, lr: 3e-4}}
_algorithm: &ppo
  name: PPO
  gamma: 0.99
  time_horizon: 1_28
common: {x: 1}
fast:
  agent:
    algorithm: {<<: *ppo, gamma: 9.9e-1, minibatch_size: 64}
    memory: {name: OnPolicyBatchReplay}
    net: {<<: *net, hid_layers: [32]}
  env: {name: CartPole-v1, max_frame: 3e6}
  meta: {random_seed: 12}
""",
        "specs.yaml",
    )
    assert spec_names(read_file(path)) == ["fast"]
    spec = load_spec(path)
    assert spec.agent.net.optim_spec.args == {"lr": 3e-4}
    assert spec.env.max_frame == 3_000_000
    assert type(spec.env.max_frame) is int
    assert spec.agent.algorithm.gamma == 0.99
    assert spec.agent.algorithm.time_horizon == 128


@pytest.mark.parametrize("text", ["2024-01-01", "1:30", "0o17", "010", "e4"])
def test_yaml_dates_and_times_stay_text(write, text):
    assert read_file(write(f"a: {text}", "s.yaml")) == {"a": text}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3e6", 3e6),
        ("3e-4", 3e-4),
        ("-1E+2", -100.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-7", -7),
    ],
)
def test_every_way_to_write_a_number_in_yaml_is_a_number(write, text, number):
    assert read_file(write(f"a: {text}", "s.yaml")) == {"a": number}


def test_keys_that_are_no_strings_are_refused_with_their_path(write):
    text = (
        "s:\n  agent: {algorithm: {name: Random}}\n  env: {name: X, max_frame: 3, on: "
        "1}\n"
    )
    assert "env.True: a key must be a string" in message(
        load_spec, write(text, "s.yaml")
    )


def test_the_old_form_with_lists_of_one_loads_as_the_new(write, caplog):
    old = {
        "agent": [PPO["agent"]],
        "env": [PPO["env"]],
        "body": {"product": "outer", "num": 1},
        "meta": PPO["meta"] | {"num_gpus": 0},
        "search": {"agent": [{"algorithm": {"lam__grid_search": [0.9, 0.95]}}]},
    }
    new = PPO | {"search": {"agent": {"algorithm": {"lam__grid_search": [0.9, 0.95]}}}}
    with caplog.at_level(logging.WARNING):
        assert load_spec(write({"s": old})) == load_spec(write({"s": new}))
    assert len(caplog.messages) == 1
    assert "body (" in caplog.messages[0]
    assert "meta.num_gpus (" in caplog.messages[0]


def test_an_algorithm_without_nets_may_have_empty_ones(write, caplog):
    raw = changed(RANDOM, agent__net={}, agent__critic_net={})
    with caplog.at_level(logging.WARNING):
        assert load_spec(write({"s": raw})) == load_spec(write({"s": RANDOM}))
    assert caplog.messages == []
    assert "agent.net.type: is missing" in message(
        load_spec, write({"s": changed(PPO, agent__net={})})
    )


BAD_SEARCHES = {
    "sampler": {"agent.algorithm.gamma__unifrom": [0.9, 0.99]},
    "path": {"agent.algorithm.gama__uniform": [0.9, 0.99]},
    "list": {"agent": [1, 2]},
    "variable": {"agent.algorithm.gamma__choice": ["${gamma}"]},
    "no block": 5,
}


@pytest.mark.parametrize("name", BAD_SEARCHES)
def test_a_search_block_with_problems_hinders_a_search_and_no_training(
    name, write, caplog
):
    path = write({"s": changed(PPO, search=BAD_SEARCHES[name])})
    with caplog.at_level(logging.WARNING):
        spec = load_spec(path, None, ["agent.algorithm.gamma=0.5"])
    assert (
        spec.agent == parse_spec("s", changed(PPO, agent__algorithm__gamma=0.5)).agent
    )
    (line,) = caplog.messages
    assert line.startswith("specs.json: a training ignores problems of search: search")
    refused = message(load_spec, path, for_search=True)
    assert refused.splitlines()[1].strip() in line
    (checked,) = check_file(path)
    assert checked.problems or checked.variables


def test_other_problems_beside_a_bad_search_are_problems_of_a_training(write):
    raw = changed(PPO, search=BAD_SEARCHES["path"], agent__algorithm__gamma=2)
    assert message(load_spec, write({"s": raw})) == (
        "specs.json: s has 1 problem\n  agent.algorithm.gamma = 2: must be <= 1"
    )


@pytest.mark.parametrize(
    ("block", "given", "meant"),
    [
        (
            "algorithm",
            {"name": "A3C"},
            "unknown algorithm; did you mean ActorCritic, with meta.distributed "
            '"synced"?',
        ),
        (
            "algorithm",
            {"name": "D3QN"},
            "unknown algorithm; did you mean DoubleDQN, with the net type "
            "DuelingMLPNet",
        ),
        (
            "algorithm",
            {"name": "rainbow"},
            "is C51 with double true, num_step_returns 3, PrioritizedReplay and a net "
            "of type DuelingMLPNet or DuelingConvNet",
        ),
        (
            "algorithm",
            {"name": "MaskablePPO"},
            "is PPO with env.action_mask, which names the mask",
        ),
        (
            "net__optim_spec",
            {"name": "Ranger", "lr": 0.001},
            'is Lookahead around RAdam: {"name": "Lookahead", "k": 6, …}',
        ),
        (
            "algorithm",
            {"name": "Recurrent-PPO"},
            "unknown algorithm; did you mean PPO, with the net type RecurrentNet?",
        ),
    ],
)
def test_a_name_from_another_library_is_answered_with_the_labs_name(
    write, block, given, meant
):
    raw = changed(PPO, **{f"agent__{block}": given})
    assert f": {meant}" in message(load_spec, write({"s": raw}))


@pytest.mark.parametrize(
    ("changes", "lab_name"),
    [
        ({"algorithm__name": "A2C"}, "ActorCritic"),
        ({"algorithm__name": "SAC"}, "SoftActorCritic"),
        ({"algorithm__name": "DDQN"}, "DoubleDQN"),
        ({"algorithm__name": "vpg"}, "Reinforce"),
        ({"algorithm__name": "REINFORCE"}, "Reinforce"),
        ({"algorithm__name": "Sarsa"}, "SARSA"),
        ({"algorithm__name": "QR-DQN"}, "QRDQN"),
        ({"algorithm__name": "double_dqn"}, "DoubleDQN"),
        ({"algorithm__name": "ppo"}, "PPO"),
        ({"memory__name": "PER"}, "PrioritizedReplay"),
        ({"memory__name": "ReplayBuffer"}, "Replay"),
        ({"net__type": "CNN"}, "ConvNet"),
        ({"net__type": "mlp"}, "MLPNet"),
    ],
)
def test_a_name_of_another_library_is_replaced_and_reported(changes, lab_name):
    raw = changed(PPO, **{f"agent__{path}": name for path, name in changes.items()})
    own = changed(PPO, **{f"agent__{path}": lab_name for path in changes})
    assert parse("s", raw).problems == parse("s", own).problems
    ((path, name),) = changes.items()
    assert parse("s", raw).renamed == [
        f'agent.{path.replace("__", ".")} "{name}" means {lab_name}'
    ]
    assert parse("s", own).renamed == []


def test_random_search_of_an_old_file_is_the_random_searcher():
    parsed = parse("s", changed(PPO, meta__search="RandomSearch"))
    assert parsed.spec == parse("s", PPO).spec
    assert parsed.legacy == []
    assert parsed.renamed == ['meta.search "RandomSearch" means search_alg random']


@pytest.mark.parametrize(
    "changes",
    [
        {"meta__search": "EvolutionarySearch", "meta__max_generation": 4},
        {"meta__search": "RandomSearch", "meta__search_alg": "optuna"},
        {"meta__search": ["RandomSearch"], "meta__resources": {"num_cpus": 12}},
        {"meta__search": None, "meta__max_tick_unit": "total_t"},
    ],
)
def test_other_words_for_the_search_of_an_old_file_are_ignored(changes):
    parsed = parse("s", changed(PPO, **changes))
    assert parsed.problems == []
    assert "meta.search (search_alg chooses the searcher)" in parsed.legacy
    expected = {path.replace("__", ".") for path in changes} - {"meta.search_alg"}
    assert {note.partition(" ")[0] for note in parsed.legacy} == expected


def test_a_loss_that_the_algorithm_does_not_have_is_ignored_whatever_it_is():
    raw = changed(
        PPO,
        agent__algorithm={"name": "Reinforce", "gamma": 0.99},
        agent__memory={"name": "OnPolicyReplay"},
        agent__net={"type": "MLPNet", "loss_spec": {"name": "CrossEntropyLoss"}},
    )
    parsed = parse("s", raw)
    assert parsed.problems == []
    assert parsed.legacy == [
        "agent.net.loss_spec (the algorithm has a loss of its own)"
    ]
    named = changed(raw, agent__net__loss_spec={"name": "CrossEntropyLos"})
    assert "did you mean CrossEntropyLoss" in str(parse("s", named).problems[0])


def test_a_name_that_stands_for_a_mode_too_needs_the_mode():
    own = changed(A3C, meta__distributed="synced")
    named = changed(own, agent__algorithm__name="A3C")
    assert parse("s", named).spec == parse("s", own).spec
    elsewhere = parse("s", changed(named, meta__distributed="shared"))
    assert 'with meta.distributed "synced"' in str(elsewhere.problems[0])


def test_every_usual_name_is_answered_with_an_existing_part():
    for registry in (ALGORITHMS, MEMORIES, NETS):
        own = {name.lower() for name in registry.names()}
        for usual, meaning in USUAL_NAMES[registry.kind].items():
            assert usual.lower() not in own
            assert meaning.name in registry.names()


DDPG = {"num_critics": 1, "policy_delay": 1, "target_noise": 0.0}


@pytest.mark.parametrize(
    ("base", "block", "named", "meant", "note"),
    [
        (
            SAC,
            "algorithm",
            {"name": "DDPG"},
            {"name": "TD3", **DDPG},
            "TD3, with num_critics 1, policy_delay 1 and target_noise 0.0",
        ),
        (
            SAC,
            "algorithm",
            {"name": "ddpg", "policy_delay": 2, "target_noise": 0.1},
            {"name": "TD3", **DDPG, "policy_delay": 2, "target_noise": 0.1},
            "TD3, with num_critics 1",
        ),
        (
            SAC,
            "memory",
            {"name": "CER", "batch_size": 16, "max_size": 200},
            {"name": "Replay", "batch_size": 16, "max_size": 200, "use_cer": True},
            "Replay, with use_cer true",
        ),
        (
            PPO,
            "net",
            {"type": "LSTM", "rnn_hidden_size": 8},
            {"type": "RecurrentNet", "rnn_hidden_size": 8, "cell_type": "LSTM"},
            'RecurrentNet, with cell_type "LSTM"',
        ),
    ],
)
def test_the_keys_that_belong_to_a_name_are_added_unless_the_file_has_them(
    base, block, named, meant, note
):
    gamma = {"gamma": 0.99} if block == "algorithm" else {}
    raw = changed(base, **{f"agent__{block}": {**gamma, **named}})
    own = changed(base, **{f"agent__{block}": {**gamma, **meant}})
    parsed = parse("s", raw)
    assert parsed.problems == []
    assert parsed.spec == parse("s", own).spec
    assert [line.partition(" means ")[2] for line in parsed.renamed] == [note]


def test_legacy_keys_are_dropped_with_one_warning(write, caplog):
    raw = changed(
        PPO,
        agent__net__normalize=True,
        agent__memory__use_cer=True,
        agent__algorithm__training_frequency=32,
        meta__param_spec_process=4,
    )
    with caplog.at_level(logging.WARNING):
        assert load_spec(write({"s": raw})) == load_spec(write({"s": PPO}))
    assert len(caplog.records) == 1
    assert caplog.records[0].name == "slm_lab.spec.load"
    for key in ("agent.net.normalize", "agent.memory.use_cer", "training_frequency"):
        assert key in caplog.messages[0]


def test_a_file_of_many_specs_warns_once(write, caplog):
    raw = changed(PPO, agent__net__normalize=True)
    with caplog.at_level(logging.WARNING):
        assert list(load_specs(write({"a": raw, "b": raw, "c": PPO}))) == [
            "a",
            "b",
            "c",
        ]
    assert len(caplog.messages) == 1


def test_a_template_is_checked_but_for_its_variables(write):
    raw = changed(PPO, env__name="${env}", env__max_frame="${max_frame}")
    path = write({"s": raw, "bad": changed(raw, agent__algorithm__gamma=2)})
    template, bad = check_file(path)
    assert template.problems == []
    assert template.variables == ["env", "max_frame"]
    assert template.env is None
    assert [problem.path for problem in bad.problems] == ["agent.algorithm.gamma"]
    filled = check_file(path, ["env=Acrobot-v1", "max_frame=1e5"])[0]
    assert filled.variables == []
    assert filled.env.max_frame == 100_000


def test_a_file_without_specs_cannot_be_checked(write):
    assert "holds no spec" in message(check_file, write({"_x": {}}))


def hogwild_specs():
    for path in shipped_files():
        for name, spec in load_specs(path, fillings(path)).items():
            if spec.meta.distributed in ("shared", "synced"):
                yield name, spec


def test_the_tutorial_states_the_number_of_workers_of_every_hogwild_spec():
    tutorial = Path(__file__).parents[3] / "docs" / "tutorial" / "hogwild.md"
    rows = [line.split("|") for line in tutorial.read_text("utf-8").splitlines()]
    documented = {
        name: int(row[2])
        for row in rows
        if len(row) == 5 and row[2].strip().isdigit()
        for name in re.findall(r"`(\w+)`", row[1])
    }
    assert documented == {name: spec.meta.max_session for name, spec in hogwild_specs()}


def test_atari_workers_learn_at_a_rate_that_is_stable_for_two_of_them():
    """At 7e-4 nearly all of their ReLU units die."""
    games = [spec for _, spec in hogwild_specs() if spec.env.name.startswith("ALE/")]
    assert len(games) == 4
    for spec in games:
        assert spec.agent.net.optim_spec.args["lr"] <= 3e-4
        assert spec.agent.algorithm.training_frequency * spec.env.num_envs == 64
