"""The error and the cost of `slm-lab ab`, measured on stored trainings.

python -m bench.ab measure    measures, from bench/ab_final_returns.csv
python -m bench.ab train      trains what that file lacks, about 4 minutes

The file has the final returns of PPO on CartPole under many seeds: a base, and three
changes of it whose effects are known from these seeds. Each repeat draws its seeds from
them anew, with replacement.

false alarms   the base against itself: how often one is called better
trainings      on average over the repeats
fixed design   the trainings of a paired t-test of 5 % that finds the effect as often,
               with the number of seeds chosen beforehand for this effect
"""

import argparse
import csv
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from slm_lab.core.types import FloatArray
from slm_lab.spec.load import load_spec
from slm_lab.studies.ab.verdict import Answer, StoppingRule, verdict_of
from slm_lab.testing.sessions import read_rows, run_session

BANK = Path(__file__).with_name("ab_final_returns.csv")
BASE = "base"
SEEDS = {BASE: 200}
"""How many seeds of each variant are trained."""
FEWER_SEEDS = 48
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


REPEATS = 400
"""Tests of A against A."""
REPEATS_OF_EFFECTS = 1000
ALLOWED = (20, 100)
"""The most seeds of each: the default, and so many that few tests are undecided."""
RULE = StoppingRule(confidence=0.95, smallest=None)
POWER_REPEATS = 20_000
"""Repeats for the power of a fixed design, which costs little."""


def measure() -> None:
    """Prints the false alarms, and a line for each known effect."""
    bank = read_bank()
    returns = {
        name: np.array(
            [value for (variant, _), value in bank.items() if variant == name]
        )
        for name in VARIANTS
    }
    generator = np.random.default_rng(0)
    base = returns[BASE]
    print(f"{BASE} ({len(base)} seeds: {base.mean():.1f} ± {base.std(ddof=1):.1f})")
    for allowed in ALLOWED:
        print(f"\nat most {allowed} seeds of each")
        answers, trainings = repeats(base, base, allowed, REPEATS, generator)
        alarms = sum(answer in (Answer.A, Answer.B) for answer in answers)
        print(
            f"A against A: {alarms} of {REPEATS} tests call one better "
            f"({alarms / REPEATS:.1%}), {np.mean(trainings):.1f} trainings each"
        )
        for name in list(VARIANTS)[1:]:
            print(effect_text(name, base, returns[name], allowed, generator))


def repeats(
    a: FloatArray,
    b: FloatArray,
    allowed: int,
    count: int,
    generator: np.random.Generator,
) -> tuple[list[Answer | None], list[int]]:
    """The answers of all repeats, and the trainings of each."""
    answers = []
    trainings = []
    for _ in range(count):
        drawn = zip(
            generator.choice(a, allowed), generator.choice(b, allowed), strict=True
        )
        pairs = [(float(x), float(y)) for x, y in drawn]
        verdict = verdict_of(pairs, RULE, allowed)
        answers.append(verdict.answer)
        trainings.append(2 * verdict.pairs)
    return answers, trainings


def effect_text(
    name: str,
    a: FloatArray,
    b: FloatArray,
    allowed: int,
    generator: np.random.Generator,
) -> str:
    """What a known effect costs with the test, and with a fixed design."""
    effect = b.mean() - a.mean()
    better = Answer.B if effect > 0 else Answer.A
    answers, trainings = repeats(a, b, allowed, REPEATS_OF_EFFECTS, generator)
    right = np.mean([answer == better for answer in answers])
    wrong = sum(answer not in (better, Answer.UNKNOWN) for answer in answers)
    # where all answers are right, so many repeats show no more than this
    power = min(float(right), 1 - 1 / REPEATS_OF_EFFECTS)
    fixed = 2 * fixed_pairs(a, b, power, generator)
    usual = 2 * fixed_pairs(a, b, 0.8, generator)
    deviations = effect / np.hypot(a.std(ddof=1), b.std(ddof=1))
    mean = np.mean(trainings)
    count = f"{wrong} of {REPEATS_OF_EFFECTS}"
    return (
        f"{name}: {effect:+.1f}, {deviations:+.2f} deviations of a difference\n"
        f"  right in {right:.2%}, wrong in {count}, {mean:.1f} trainings\n"
        f"  a fixed design of that power takes {fixed}: {1 - mean / fixed:.0%} fewer "
        f"(and {usual} for a power of 80 %)"
    )


def fixed_pairs(
    a: FloatArray, b: FloatArray, power: float, generator: np.random.Generator
) -> int:
    """The fewest pairs with which a paired t-test of 5 % finds it that often."""
    pairs = 2
    while t_test_power(a, b, pairs, generator) < power:
        pairs += 1
    return pairs


def t_test_power(
    a: FloatArray, b: FloatArray, pairs: int, generator: np.random.Generator
) -> float:
    """The share of repeats in which a two-sided paired t-test rejects."""
    shape = (POWER_REPEATS, pairs)
    differences = generator.choice(b, shape) - generator.choice(a, shape)
    error = differences.std(axis=1, ddof=1) / np.sqrt(pairs)
    limit = t_limit(pairs - 1)
    return float(np.mean(np.abs(differences.mean(axis=1)) > limit * error))


@cache
def t_limit(freedom: int) -> float:
    """The absolute value that Student's t exceeds in 5 %, to three digits."""
    drawn = np.random.default_rng(0).standard_t(freedom, 1_000_000)
    return float(np.quantile(np.abs(drawn), 0.95))


def main() -> None:
    """Measures, or trains."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["measure", "train"])
    if parser.parse_args().what == "train":
        train_bank()
    else:
        measure()


if __name__ == "__main__":
    main()
