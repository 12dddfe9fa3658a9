"""Trains twenty specs that are made ill on purpose, and has the doctor treat them.

python -m bench.treat ill [NAME …]
python -m bench.treat healthy FOLDER
python -m bench.treat chance RUN FRAME

The first writes a row for each illness to `bench/treatments.csv`: whether the doctor
finds the right illness, and whether its remedy cures it. It takes about a minute for
each. The second counts the finished runs below a folder that the doctor would treat.
The third counts how often one Session of a run, or several, counts as better than as
many others, which nothing but chance tells apart."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from slm_lab.records.run_record import RunRecord
from slm_lab.storage.run_dir import RunDir
from slm_lab.studies.treat.effect import Returns, late_returns
from slm_lab.studies.treat.plan import TriedRemedy

TABLE = Path(__file__).with_name("treatments.csv")
ENVIRONMENTS = Path(__file__).parents[1] / "tests" / "learning"
"""Where the module `sick_envs` is."""
SEED = 202
DRAWS = 4000
"""Draws of Sessions of which a share is counted."""
RATE = "agent.net.optim_spec.lr"


class Illness(NamedTuple):
    """A spec with a fault, what the doctor should find, and the key that cures it."""

    name: str
    spec: str
    frames: int
    settings: tuple[str, ...]
    findings: tuple[str, ...]
    """Any of them is right."""
    key: str


EXPLODED = (
    "the entropy collapsed: the policy explores no more",
    "most units of a layer are dead",
    "the training explodes",
)
LARGE = ("values are far larger than a net learns well",)
NEVER = ("the target network never moved",)
SIGHT = ("the agent does not look far ahead",)
GREEDY = "agent.algorithm.explore_var_spec"
ILLNESSES = (
    Illness(
        "PPO, lr × 1,000", "ppo_cartpole", 20_000, (f"{RATE}=1.0",), EXPLODED, RATE
    ),
    Illness(
        "A2C, lr × 100", "a2c_gae_cartpole", 40_000, (f"{RATE}=0.2",), EXPLODED, RATE
    ),
    Illness("SAC, lr × 100", "sac_pendulum", 10_000, (f"{RATE}=0.2",), EXPLODED, RATE),
    Illness(
        "PPO, lr × 1,000,000",
        "ppo_cartpole",
        20_000,
        (f"{RATE}=1000.0",),
        (*EXPLODED, "1 of 1 Sessions failed"),
        RATE,
    ),
    Illness(
        "PPO, lr ÷ 1,000",
        "ppo_cartpole",
        30_000,
        (f"{RATE}=1e-6",),
        ("PPO's updates hardly change the policy", "the policy is still random"),
        RATE,
    ),
    Illness(
        "PPO, γ 0.5",
        "ppo_cartpole",
        40_000,
        ("agent.algorithm.gamma=0.5",),
        SIGHT,
        "agent.algorithm.gamma",
    ),
    Illness(
        "SAC, γ 0.5",
        "sac_pendulum",
        10_000,
        ("agent.algorithm.gamma=0.5",),
        SIGHT,
        "agent.algorithm.gamma",
    ),
    Illness(
        "PPO, rewards × 10,000",
        "ppo_cartpole",
        20_000,
        ("env.reward_scale=10000.0",),
        LARGE,
        "env.",
    ),
    Illness(
        "SAC, rewards × 10,000",
        "sac_pendulum",
        10_000,
        ("env.reward_scale=10000.0",),
        LARGE,
        "env.",
    ),
    Illness(
        "DQN, rewards × 10,000",
        "dqn_cartpole",
        20_000,
        ("env.reward_scale=10000.0",),
        LARGE,
        "env.",
    ),
    Illness(
        "SAC, rewards ÷ 100,000,000, normalised",
        "sac_pendulum",
        10_000,
        ("env.reward_scale=1e-8", "env.normalize_reward=true"),
        ("rewards are too small to be normalised",),
        "env.reward_scale",
    ),
    Illness(
        "SAC, bounds of actions × 1,000",
        "sac_pendulum",
        10_000,
        ("env.name=Wide-v0",),
        ("the bounds of actions are far too wide",),
        "",
    ),
    Illness(
        "SAC, no time limit",
        "sac_pendulum",
        12_000,
        ("env.name=Endless-v0", "env.num_envs=1"),
        ("no episode has ended",),
        "env.max_t",
    ),
    Illness(
        "PPO, time limit of five steps",
        "ppo_cartpole",
        20_000,
        ("env.max_t=5",),
        ("a time limit cuts every episode short",),
        "env.max_t",
    ),
    Illness(
        "DQN, a target that never moves",
        "dqn_cartpole",
        20_000,
        ("agent.net.update_frequency=1000000",),
        NEVER,
        "agent.net.update_frequency",
    ),
    Illness(
        "SAC, a target that hardly moves",
        "sac_pendulum",
        10_000,
        ("agent.net.polyak_coef=1e-6",),
        NEVER,
        "agent.net.polyak_coef",
    ),
    Illness(
        "A2C, entropy weight 5",
        "a2c_gae_cartpole",
        40_000,
        ("agent.algorithm.entropy_coef_spec.start_val=5.0",),
        ("the policy is still random",),
        "agent.algorithm.entropy_coef_spec",
    ),
    Illness(
        "DQN, no exploration",
        "dqn_acrobot",
        40_000,
        (f'{GREEDY}={{"name": "no_decay", "start_val": 0.0}}',),
        ("hardly any exploration",),
        GREEDY,
    ),
    Illness(
        "PPO, a schedule that ends early",
        "ppo_cartpole",
        20_000,
        ("agent.net.lr_scheduler_spec.frame=2000",),
        ("the learning rate is zero",),
        "agent.net.lr_scheduler_spec",
    ),
    Illness(
        "DQN, a memory smaller than the warm-up",
        "dqn_cartpole",
        20_000,
        ("agent.memory.max_size=200", "agent.algorithm.training_start_step=1000"),
        ("the replay memory is smaller than the warm-up",),
        "agent.memory.max_size",
    ),
)


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    """The command line, in a process of its own."""
    paths = [str(ENVIRONMENTS), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "slm_lab", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        check=False,
    )


def treated(illness: Illness, data: Path) -> dict[str, Any]:
    """A row about an illness: it is trained, diagnosed and treated in `data`."""
    settings = ("meta.max_session=1", f"env.max_frame={illness.frames}")
    sets = [w for each in (*settings, *illness.settings) for w in ("-s", each)]
    modules = ["--import", "sick_envs"] if "-v0" in str(illness.settings) else []
    common = ["--data", str(data), *modules]
    spec = illness.spec
    lab("run", spec, spec, "train", "--seed", str(SEED), *common, *sets)
    done = lab("doctor", "latest", "--treat", "--json", *common)
    if done.returncode:
        raise SystemExit(f"{illness.name}: {done.stderr}")
    document = json.loads(done.stdout)
    names = [finding["what"] for finding in document["findings"]]
    found = [name for name in names if name in illness.findings]
    treatment = document["treatment"] or {"sentence": "nothing to treat", "effects": []}
    own = [
        effect
        for effect in treatment["effects"]
        if illness.key and effect["set"][0].startswith(illness.key)
    ]
    best = own[0] if own else {}
    return {
        "illness": illness.name,
        "spec": spec,
        "frames": illness.frames,
        "set": " ".join(illness.settings),
        "found": found[0] if found else "",
        "own_remedy": " ".join(best.get("set", [])),
        "verdict": best.get("verdict", ""),
        "return": best.get("return", ""),
        "untreated": best.get("untreated", ""),
        "sentence": treatment["sentence"],
    }


def treat_ill(names: list[str]) -> None:
    """Writes the row of each illness; those with `names` in theirs, or all."""
    rows = {}
    if TABLE.is_file():
        rows = {row["illness"]: row for row in read_table()}
    chosen = [
        illness
        for illness in ILLNESSES
        if not names or any(name in illness.name for name in names)
    ]
    for illness in chosen:
        with TemporaryDirectory() as data:
            rows[illness.name] = treated(illness, Path(data))
        print(*rows[illness.name].values(), sep=" | ", flush=True)
        with TABLE.open("w", newline="") as table:
            writer = csv.DictWriter(table, rows[illness.name])
            writer.writeheader()
            writer.writerows(rows[each.name] for each in ILLNESSES if each.name in rows)
    right = sum(bool(row["found"]) for row in rows.values())
    cured = sum(row["verdict"] == "cured" for row in rows.values())
    print(f"{right} of {len(rows)} found, {cured} cured by the own remedy")


def table_lines(rows: list[dict[str, str]]) -> list[str]:
    """The rows as lines of a Markdown table."""
    lines = []
    for row in rows:
        returns = (row["untreated"], row["return"])
        before, after = (f"{float(x):,.0f}" if x else "–" for x in returns)
        key = f"`{row['own_remedy']}`" if row["own_remedy"] else "–"
        cells = (row["illness"], row["found"], key, before, after, row["verdict"])
        lines.append(f"| {' | '.join(cell or '–' for cell in cells)} |")
    return lines


def read_table() -> list[dict[str, str]]:
    """The rows of the file."""
    with TABLE.open() as lines:
        return list(csv.DictReader(lines))


def healthy_runs(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Each run below a folder, and the findings that the doctor would treat."""
    for file in sorted(folder.rglob("*_t0_spec.json")):
        done = lab("doctor", str(file.parent), "--json")
        findings = json.loads(done.stdout)
        yield file.parent, [f["what"] for f in findings if f["remedies"]]


def chance_of_better(run: Path, frame: int) -> None:
    """Prints the share of draws of Sessions that are better than others, with the rows
    until a frame."""
    run_dir = RunDir.at(run)
    assert run_dir is not None
    record = RunRecord(run_dir)
    sessions = record.meta.num_sessions
    remedy = TriedRemedy(findings=(), settings=(), frame=0, since=0, until=frame)
    returns = [late_returns(record, remedy, [each]) for each in range(sessions)]
    generator = np.random.default_rng(0)
    for count in (1, 2, 4):
        better = 0
        for _ in range(DRAWS):
            chosen = generator.permutation(sessions)[: 2 * count]
            treated, untreated = (
                np.concatenate([returns[each] for each in half])
                for half in np.split(chosen, 2)
            )
            better += Returns(treated, untreated, random=None).are_better
        print(f"{count} against {count}: {better / DRAWS:.2%}")


def main() -> None:
    """Runs the command line."""
    verb, *rest = sys.argv[1:]
    if verb == "ill":
        treat_ill(rest)
        return
    if verb == "chance":
        chance_of_better(Path(rest[0]), int(rest[1]))
        return
    runs = list(healthy_runs(Path(rest[0])))
    for run, findings in runs:
        print(run.name, *findings, sep=" | ")
    print(f"{sum(bool(f) for _, f in runs)} of {len(runs)} would be treated")


if __name__ == "__main__":
    main()
