"""The command `new`: a commented spec for an environment that has none."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from slm_lab.cli.display.screen import console, print_line
from slm_lab.core.errors import Problem, SpecError, UsageError
from slm_lab.core.text import count_text, duration_text, significant, with_spread
from slm_lab.recipes.env_facts import EnvFacts, env_facts
from slm_lab.recipes.recipe import choose_recipe, draft, plain_env
from slm_lab.records.trust import command_text
from slm_lab.spec.load import load_spec
from slm_lab.spec.override import apply_settings, parse_setting
from slm_lab.spec.read import find_file, read_file
from slm_lab.storage.run_dir import safe_name


def write_new(
    env_id: str,
    algorithm: str,
    out: Path | None,
    sets: Sequence[str],
    imports: Sequence[str],
) -> None:
    """Probes the environment, writes the file with `sets` ("key=value"), prints what to
    do next. Raises LabError if the environment cannot be used, UsageError for a file
    that exists."""
    env = plain_env(env_id, sets)
    screen = console()
    recipe = choose_recipe(algorithm, env)
    name = f"{algorithm}_{safe_name(env_id.rpartition(':')[2].rpartition('/')[2])}"
    path = out
    if path is None:
        path = Path(f"{name}.yaml")
    if os.path.exists(path):
        raise UsageError(f"{path} exists: remove it, or choose another file with --out")
    if path.suffix not in (".yaml", ".yml") or not os.path.isdir(path.parent):
        raise UsageError(f"--out {path}: must be a .yaml file in a folder that exists")
    found = env_facts(env)
    _print_facts(screen, env_id, found)
    sets = recipe.with_sets(sets)
    try:
        spec = load_spec(recipe.file, recipe.name, sets).model_copy(
            update={"name": name}
        )
    except SpecError as error:
        raise SpecError(
            error.where, [_of_recipe(each, sets) for each in error.problems]
        ) from None
    every = [parse_setting(each) for each in sets]
    raw = read_file(find_file(recipe.file))[recipe.name]
    raw, _ = apply_settings(raw, every, lambda _: spec.to_json())
    title = (
        f"{spec.agent.algorithm.name} on {env_id}, by the recipe {recipe.name}.",
        f"Observations: {found.observations}",
        f"Actions: {found.actions}",
    )
    path.write_text(draft(spec, raw, title, imports), encoding="utf-8")
    print_line(
        screen, f"wrote {path}: {spec.agent.algorithm.name}, recipe {recipe.name}"
    )
    budget = spec.env.max_frame
    seconds = spec.env.max_frame / found.play.steps_per_s
    purpose = (
        f"the budget of {budget:,} frames: {duration_text(seconds)} of steps alone"
    )
    _print_next(screen=screen, path=path, name=name, imports=imports, budget=purpose)


def _of_recipe(problem: Problem, sets: Sequence[str]) -> Problem:
    """The problem; with what to type for a key of the recipe that the user's part does
    not know."""
    path = problem.path
    is_unknown = problem.message.startswith("unknown key")
    block = path.rpartition(".")[0]
    typed = [each.partition("=")[0] for each in sets]
    parts = [each for each in typed if each in (f"{block}.type", f"{block}.name")]
    if not is_unknown or path in typed or not parts:
        return problem
    key = parts[-1].rpartition(".")[2]
    fix = f"the recipe has it; give the whole block: -s '{block}={{\"{key}\": …}}'"
    return replace(problem, message=f"unknown key; {fix}")


def _print_facts(screen: Console, env: str, found: EnvFacts) -> None:
    play = found.play
    returns = (
        f"{significant(play.unfinished)} so far: no episode ended in {play.steps:,} "
        "steps"
    )
    if play.returns:
        length = significant(sum(play.lengths) / len(play.lengths))
        of = f"{count_text(len(play.returns), 'episode')} of {length} steps"
        spread = None
        if len(play.returns) > 1:
            spread = float(np.std(play.returns))
        returns = f"{with_spread(float(np.mean(play.returns)), spread)} ({of})"
    print_line(screen, Text(env, "bold"))
    for label, text in (
        ("observations", found.observations),
        ("actions", found.actions),
        ("speed", f"{significant(play.steps_per_s)} steps/s of one copy"),
        ("random return", returns),
    ):
        print_line(screen, f"  {label:<14}{' '.join(text.split())}")
    for note in found.notes:
        print_line(screen, Text(f"  note: {note}", "yellow"))


def _print_next(
    screen: Console, path: Path, name: str, imports: Sequence[str], budget: str
) -> None:
    # With the file, its imports are allowed; a run folder alone may import nothing.
    played = [str(path), f"eval@{name}"] if imports else [f"eval@{name}"]
    purposes = (
        ([str(path), "dev"], "a few training events, with extra checks"),
        ([str(path), "train"], budget),
        (played, "greedy episodes of the trained agents"),
    )
    commands = [
        (command_text(["run", *words], ()), purpose) for words, purpose in purposes
    ]
    width = max(len(command) for command, _ in commands)
    print_line(screen, "next:")
    for command, purpose in commands:
        print_line(screen, f"  {command:<{width}}  # {purpose}")
