"""The error and the cost of `slm-lab ab`, measured on stored trainings.

python -m bench.ab            measures, from bench/ab_final_returns.csv
python -m bench.ab train      trains what that file lacks, about 6 minutes

The file has the final returns of PPO on CartPole under many seeds: a base, and four
changes of it whose effects are known from these seeds.
"""

import argparse
import csv
import tempfile
from pathlib import Path

from slm_lab.spec.load import load_spec
from slm_lab.testing.sessions import read_rows, run_session

BANK = Path(__file__).with_name("ab_final_returns.csv")
BASE = "base"
SEEDS = {BASE: 200}
"""How many seeds of each variant are trained."""
FEWER_SEEDS = 60
SETS = (
    "env.max_frame=10000",
    "meta.max_session=1",
    "meta.log_frequency=500",
    "meta.save_interval=10000",
)
VARIANTS = {
    BASE: (),
    "lr 0.0008": ("agent.net.optim_spec.lr=0.0008",),
    "lr 0.0013": ("agent.net.optim_spec.lr=0.0013",),
    "training_epoch 8": ("agent.algorithm.training_epoch=8",),
    "lam 0.9": ("agent.algorithm.lam=0.9",),
}


def read_bank() -> dict[tuple[str, int], float]:
    """The final return of each variant and seed."""
    if not BANK.is_file():
        return {}
    with BANK.open() as file:
        return {
            (row["variant"], int(row["seed"])): float(row["final_return"])
            for row in csv.DictReader(file)
        }


def train_bank() -> None:
    """Trains each variant and seed that the file lacks, and writes the file."""
    bank = read_bank()
    for variant, sets in VARIANTS.items():
        for seed in range(SEEDS.get(variant, FEWER_SEEDS)):
            if (variant, seed) not in bank:
                bank[variant, seed] = final_return(sets, seed)
                write_bank(bank)
        print(f"{variant}: trained", flush=True)


def write_bank(bank: dict[tuple[str, int], float]) -> None:
    """Writes the file."""
    with BANK.open("w") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["variant", "seed", "final_return"])
        for (name, number), value in bank.items():
            writer.writerow([name, number, f"{value:.6g}"])


def final_return(sets: tuple[str, ...], seed: int) -> float:
    """Of one training in this process."""
    spec = load_spec("demo", "ppo_cartpole", (*SETS, *sets), {}, warn=False)
    with tempfile.TemporaryDirectory() as folder:
        session = run_session(spec, Path(folder), seed=seed)
        return float(read_rows(session.paths.rows)["final_return"].iloc[-1])


def main() -> None:
    """Measures, or trains."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=["measure", "train"])
    if parser.parse_args().what == "train":
        train_bank()


if __name__ == "__main__":
    main()
