"""Greedy episodes of the saved agents of a run, and the file that keeps their
numbers."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from slm_lab.core.files import write_json
from slm_lab.core.process import global_generators_seeded
from slm_lab.env.vector_env import FinishedEpisodes
from slm_lab.metrics.tracker import info_means
from slm_lab.records.checkpoints import AgentCheckpoint
from slm_lab.records.playable_run import PlayableRun
from slm_lab.records.run_source import RunSource
from slm_lab.session.build import set_up_torch
from slm_lab.session.play_episodes import join_episodes, summarise_episodes
from slm_lab.session.seeding import session_seeds
from slm_lab.storage.run_dir import RunDir

Evaluated: TypeAlias = tuple[AgentCheckpoint, FinishedEpisodes]
"""An agent and the episodes that it played."""


def play_greedily(
    run: PlayableRun,
    agent: AgentCheckpoint,
    count: int,
    keep_playing: Callable[[int], bool] = lambda done: True,
) -> FinishedEpisodes:
    """`count` greedy episodes of `agent`, whose seeds the training did not use.
    `keep_playing` gets the number of episodes so far, and may end it. Raises as
    `PlayableRun.play`."""
    seeds = session_seeds(run.root_seed, run.record.trial, agent.session)
    parts: list[FinishedEpisodes] = []
    done = 0
    with (
        global_generators_seeded(seeds.eval_command),
        closing(run.play(agent, count)) as playing,
    ):
        for finished in playing:
            parts.append(finished)
            done += len(finished.env_index)
            if not keep_playing(done):
                break
    return join_episodes(parts)


def evaluation_document(
    run: PlayableRun, results: Sequence[Evaluated]
) -> dict[str, Any]:
    """The numbers of an evaluation as JSON data."""
    keys = run.spec.env.info_keys
    agents = [
        {
            "session": agent.session,
            "agent": agent.which,
            "frame": agent.frame,
            **summarise_episodes(episodes),
            **info_means(keys, episodes.info, run.agents),
            "returns": episodes.episode_return.tolist(),
        }
        for agent, episodes in results
    ]
    return {"run": run.record.folder.name, "seed": run.root_seed, "agents": agents}


def evaluate_latest(
    run_dir: RunDir,
    imports: tuple[str, ...],
    count: int,
    keep_playing: Callable[[], bool],
) -> None:
    """Plays `count` greedy episodes with the latest agent of each Session of a run. It
    keeps the numbers in its folder, but nothing of an evaluation that `keep_playing`
    ends. Raises LabError, OSError."""
    source = RunSource(
        spec_file=str(run_dir.spec_file),
        spec_name=run_dir.spec_name,
        run=str(run_dir.root),
        data_dir=run_dir.root.parent,
        imports=imports,
    )
    run = PlayableRun(source)
    set_up_torch(run.spec.meta.threads)
    results: list[Evaluated] = []
    for session in run.sessions(None):
        if not keep_playing():
            return
        agent = run.checkpoints.load(session, "latest")
        episodes = play_greedily(run, agent, count, lambda done: keep_playing())
        results.append((agent, episodes))
    if keep_playing():
        write_json(run.record.evaluation_file, evaluation_document(run, results))
