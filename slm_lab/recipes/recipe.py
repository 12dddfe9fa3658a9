"""Recipes: shipped templates with tuned defaults, by algorithm and kind of spaces.

They are the files of `spec/recipe`, one per algorithm: `ppo.yaml` holds `ppo` (vectors,
discrete actions), `ppo_continuous`, `ppo_image` and `ppo_image_continuous`. Atari games
have templates in `spec/benchmark`, because their environment resizes and stacks frames
itself. So have MinAtar's."""

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from slm_lab.core.errors import SpecError, UsageError
from slm_lab.core.observation import BYTE, ObservationLayout, Part
from slm_lab.core.plugins import import_plugins, typed_modules
from slm_lab.env.convert.parts import LARGEST_GRID
from slm_lab.env.lookup import find_env
from slm_lab.env.make import Spaces, describe_spaces
from slm_lab.env.simulators.atari import is_atari
from slm_lab.records.run_source import RunSource
from slm_lab.records.trust import FLATTEN
from slm_lab.spec.checks.algorithm import action_space_problems
from slm_lab.spec.checks.parts import named_parts
from slm_lab.spec.load import load_spec, spec_names
from slm_lab.spec.read import SHIPPED, find_file, read_file
from slm_lab.spec.schema.agent import ADVICE_BY_NAME
from slm_lab.spec.schema.conv import SMALL_LAYERS, SMALLEST_IMAGE
from slm_lab.spec.schema.env import EnvSpec

GAMES: Mapping[str, str] = {
    "ppo": "ppo_atari",
    "a2c": "a2c_gae_atari",
    "ddqn": "ddqn_per_atari",
    "rainbow": "rainbow_atari",
}
"""The templates of Atari games, file and spec of one name, by algorithm."""

MINATAR: Mapping[str, str] = {
    "ppo": "ppo_minatar",
    "dqn": "dqn_minatar",
    "qrdqn": "qrdqn_minatar",
    "rainbow": "rainbow_minatar",
    "pqn": "pqn_minatar",
}
"""The templates of MinAtar's games, whose planes suit small convolutions. Other
algorithms get the recipe of vectors."""

_ENV_ID = re.compile(r"-v\d+$")


class Recipe(NamedTuple):
    """A template: the spec `name` of `file`, which `sets` ("key=value") fit to an
    environment."""

    file: str
    name: str
    sets: tuple[str, ...]

    def with_sets(self, sets: Sequence[str]) -> tuple[str, ...]:
        """The recipe's `sets` and the user's, whose wrappers the recipe may have
        extended."""
        extended = any(change.startswith("env.wrappers=") for change in self.sets)
        other_sets = [
            change
            for change in sets
            if not (extended and change.startswith("env.wrappers="))
        ]
        return (*self.sets, *other_sets)


@cache
def recipe_files() -> dict[str, Path]:
    """The file of each algorithm's recipes."""
    files = sorted((SHIPPED / "recipe").glob("*.yaml"))
    return {file.stem: file for file in files}


@cache
def recipe_names(algorithm: str) -> tuple[str, ...]:
    """The names of an algorithm's recipes, the general one first; none for an unknown
    algorithm."""
    file = recipe_files().get(algorithm)
    if file is None:
        return ()
    return tuple(spec_names(read_file(file)))


def is_algorithm(word: str) -> bool:
    """Whether a word in place of a spec file names an algorithm with recipes, "SAC"
    too. A file of this name comes first."""
    return word.lower() in {*recipe_files(), *GAMES} and not os.path.isfile(word)


def images_in(layout: ObservationLayout) -> list[Part]:
    """The images among the agent's observations, which may be an image themselves."""
    if layout.parts and not layout.is_bytes:
        return []
    return [part for part in named_parts(layout).values() if part.is_image]


def has_image(spaces: Spaces) -> bool:
    """Whether the agent sees an image."""
    return bool(images_in(spaces.layout))


def choose_recipe(algorithm: str, env: EnvSpec) -> Recipe:
    """The recipe of `algorithm` for the spaces of `env`, which is constructed. Raises
    UsageError without such a recipe, and names the algorithms that have one."""
    if algorithm not in {*recipe_files(), *GAMES}:
        raise UsageError(_no_recipe(algorithm))
    if is_atari(find_env(env)) and not env.wrappers:
        if algorithm in GAMES:
            return _template(GAMES[algorithm], env)
        raise _none_fits(algorithm, "Atari games", env, GAMES)
    is_minatar = env.name.startswith("MinAtar/") and not env.wrappers
    spaces = describe_spaces(env)
    of_env = [f"env={env.name}"]
    if _is_grid(spaces.layout):
        env = env.model_copy(update={"wrappers": [*env.wrappers, FLATTEN]})
        spaces = describe_spaces(env)
        of_env.append(f"env.wrappers={json.dumps(env.wrappers)}")
    if is_minatar and algorithm in MINATAR:
        return _template(MINATAR[algorithm], env)
    recipe = _fitting(algorithm, spaces, of_env)
    if recipe is not None:
        return recipe
    fitting = [a for a in recipe_files() if _fitting(a, spaces, of_env)]
    if is_minatar:
        fitting += [a for a in MINATAR if a not in fitting]
    actions = spaces.actions.kind.replace("box", "continuous").replace("_", "-")
    if not all(spaces.actions[1:]):
        actions = f"unbounded {actions}"
    kind = f"{'images' if has_image(spaces) else 'vectors'} and {actions} actions"
    raise _none_fits(algorithm, kind, env, fitting)


def _template(name: str, env: EnvSpec) -> Recipe:
    return Recipe(f"{name}.json", name, (f"env={env.name}",))


def _none_fits(
    algorithm: str, kind: str, env: EnvSpec, fitting: Iterable[str]
) -> UsageError:
    others = ", ".join(fitting) or "none"
    return UsageError(
        f"{algorithm} has no recipe for {kind} of {env.name}; choose one of: {others}"
    )


def _is_grid(layout: ObservationLayout) -> bool:
    """Whether observations are small images alone."""
    return len(layout.shape) == 3 and max(layout.shape[1:]) <= LARGEST_GRID


def _no_recipe(word: str) -> str:
    for name, why in ADVICE_BY_NAME.items():
        if name.lower() == word.lower():
            return f"{name} {why}"
    return f"{word}: there is no recipe; recipes are {', '.join(recipe_files())}"


def _fitting(algorithm: str, spaces: Spaces, of_env: Sequence[str]) -> Recipe | None:
    """The algorithm's recipe for these spaces, if it has one."""
    image = "_image" if has_image(spaces) else ""
    continuous = "_continuous" if spaces.actions.kind == "box" else ""
    name = f"{algorithm}{image}{continuous}"
    if name not in recipe_names(algorithm):
        return None
    kind_sets = _image_sets(spaces) if image else _vector_sets(spaces)
    sets = (*of_env, *kind_sets)
    recipe = Recipe(f"recipe/{algorithm}.yaml", name, sets)
    spec = load_spec(*recipe, warn=False)
    if action_space_problems(spec.agent.algorithm, *spaces.actions):
        return None
    if spaces.num_agents == 1:
        return recipe
    # as many rows as of an environment of one agent
    copies = math.ceil(spec.env.num_envs / spaces.num_agents)
    return recipe._replace(sets=(*sets, f"env.num_envs={copies}"))


def _vector_sets(spaces: Spaces) -> tuple[str, ...]:
    """A row of indices and bits alone has nothing to normalise."""
    if spaces.layout.num_floats:
        return ()
    return ("env.normalize_obs=false",)


def _image_sets(spaces: Spaces) -> tuple[str, ...]:
    """Leaves images as they are where they can be: resizing is slow and cannot be
    exported."""
    images = images_in(spaces.layout)
    sides = [side for image in images for side in image.image_shape[1:]]
    is_float = spaces.layout.dtype != BYTE
    sets = ["agent.net.normalize=false"] if is_float else []
    if spaces.layout.num_floats and not is_float:
        sets.append("env.normalize_obs=true")
    if min(sides) < SMALLEST_IMAGE:
        small = json.dumps(SMALL_LAYERS)
        sets.append(f"agent.net.conv_hid_layers={small}")
    if is_float or min(sides) < SMALLEST_IMAGE or max(sides) <= 84:
        sets.append("env.image_downsize=null")
    return tuple(sets)


def resolve_recipe(
    file: str, name: str | None, sets: Sequence[str], imports: Sequence[str]
) -> tuple[str, str | None, tuple[str, ...]]:
    """File, name and `-s` of the recipe that "ppo MyEnv-v0" names; other words as they
    are. A file of this name, or a spec of this name in the shipped file, comes first.
    `imports` are imported, because they may register the environment. Raises
    LabError."""
    word = file.lower()
    is_recipe = is_algorithm(file)
    if not is_recipe and not Path(file).suffix and _ENV_ID.search(name or ""):
        try:
            find_file(file)
        except SpecError:
            raise UsageError(_no_recipe(file)) from None
    if is_recipe and name is None:
        raise UsageError(f"add an environment: slm-lab run {file} ENV")
    if not is_recipe or name is None or name in recipe_names(word):
        return file, name, tuple(sets)
    import_plugins(imports)
    recipe = choose_recipe(word, plain_env(name, sets))
    return recipe.file, recipe.name, recipe.with_sets(sets)


def with_recipe(source: RunSource) -> RunSource:
    """The source with the file, the name and the `sets` of the recipe that it names;
    unchanged if it names none. Raises LabError."""
    modules = (*source.imports, *typed_modules(source.spec_name or ""))
    modules = tuple(dict.fromkeys(modules))
    file, name, sets = resolve_recipe(
        source.spec_file, source.spec_name, source.sets, modules
    )
    resolved = replace(source, spec_file=file, spec_name=name, sets=sets)
    if name != source.spec_name:
        resolved = replace(resolved, imports=modules)
    return resolved


def plain_env(env: str, sets: Sequence[str]) -> EnvSpec:
    """An environment's block env with the keys of `sets`, none of a recipe. Raises
    SpecError."""
    of_env = (f"env={env}", *(change for change in sets if change.startswith("env.")))
    plain = dict.fromkeys(("frame_op", "frame_op_len", "image_downsize"))
    env_spec = load_spec("recipe/ppo.yaml", "ppo", of_env, warn=False).env
    return env_spec.model_copy(
        update={**plain, "normalize_obs": False, "normalize_reward": False}
    )
