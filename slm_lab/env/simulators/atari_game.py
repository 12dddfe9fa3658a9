"""One Atari game with the preprocessing of ale-py's vector environment, equal frame by
frame."""

from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec
from gymnasium.utils import RecordConstructorArgs
from typing_extensions import override

from slm_lab.core.types import Array
from slm_lab.env.interface import Env
from slm_lab.env.simulators.atari import AtariKeys
from slm_lab.env.vector.raw import CONTINUES

NO_OP = ale_py.Action.NOOP.value

PASSED_ON = (
    "full_action_space",
    "continuous",
    "continuous_action_threshold",
    "mode",
    "difficulty",
    "render_mode",
)
"""Keys that ale-py's single environment implements."""


class AtariGame(gymnasium.Wrapper[Array, Any, Array, Any], RecordConstructorArgs):
    """Observations (L, H, W) uint8, or (L, H, W, 3) in colour: the last L frames, the
    newest last.

    A game starts with FIRE, if it has it, and a random number of no-ops. Then the stack
    has only its newest frame. After a lost life that counts as the end, `reset`
    continues the game and reports `CONTINUES`.

    This class draws sticky actions itself, frame by frame as ALE does. ALE does not
    save the action that it repeats."""

    def __init__(self, env: Env, keys: AtariKeys) -> None:
        RecordConstructorArgs.__init__(self, keys=keys)
        super().__init__(env)
        game = env.unwrapped
        assert isinstance(game, ale_py.AtariEnv)
        self._game = game
        self.ale = game.ale
        self._keys = keys
        self.actions = [action.value for action in game._action_set]
        self._fires = keys.use_fire_reset and ale_py.Action.FIRE.value in self.actions
        self._size = (keys.img_width, keys.img_height)
        colours = () if keys.grayscale else (3,)
        raw_size = self.ale.getScreenDims()
        self._resizes = raw_size != (keys.img_height, keys.img_width)
        stack = (keys.stack_num, keys.img_height, keys.img_width, *colours)
        self.observation_space = spaces.Box(0, 255, stack, np.uint8)
        self._screens = np.zeros((2, *raw_size, *colours), np.uint8)
        """The two newest frames; the first is pooled with the second, the older one."""
        self._stack = np.zeros(stack, np.uint8)
        self._elapsed = 0
        """Frames since the start of the game, without its no-ops."""
        self._lives = 0
        self._continues = False
        self._held = NO_OP
        self._held_strength = 1.0
        """The strength of the last frame's action. A sticky action repeats that
        action."""

    @override
    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        """A new game, or after a lost life the last observation of the same game."""
        if self._continues and seed is None:
            self._continues = False
            return self._stack, {CONTINUES: True}
        _, info = self.env.reset(seed=seed, options=options)
        self._begin()
        self._stack = np.zeros_like(self._stack)
        self._screens[1] = 0
        self._look(0)
        self._push()
        self._elapsed = 0
        self._lives = self.ale.lives()
        self._continues = False
        return self._stack, info

    def _begin(self) -> None:
        self._held = NO_OP
        self._held_strength = 1.0
        frames = [ale_py.Action.FIRE.value] if self._fires else []
        frames += [NO_OP] * (self.draw_no_ops() - len(frames))
        for pressed, draw in zip(frames, self._draws(len(frames)), strict=True):
            self._act(pressed, 1.0, draw)
            if self.ale.game_over():
                self.ale.reset_game()
                self._held = NO_OP

    def _draws(self, frames: int) -> list[float]:
        """A random number for each frame, which decides whether the action is
        repeated."""
        return self._game.np_random.random(frames).tolist()

    def _act(self, pressed: int, strength: float, draw: float) -> int:
        if draw >= self._keys.repeat_action_probability:
            self._held = pressed
            self._held_strength = strength
        return self.ale.act(self._held, self._held_strength)

    def draw_no_ops(self) -> int:
        """The number of frames at the start of a game in which nothing is done."""
        bound = self._keys.noop_max
        if bound > 0:
            return int(self._game.np_random.integers(bound))
        return 0

    @override
    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Repeats the action for `frameskip` frames, fewer if the game ends."""
        pressed, strength = self._pressed(action)
        frameskip = self._keys.frameskip
        reward = 0.0
        over = False
        cut = False
        for frames_left, draw in zip(
            range(frameskip, 0, -1), self._draws(frameskip), strict=True
        ):
            reward += self._act(pressed, strength, draw)
            self._elapsed += 1
            over = self.ale.game_over(with_truncation=False)
            cut = self._elapsed >= self._keys.max_num_frames_per_episode
            if over or cut:
                break
            if frames_left <= 2:
                self._look(frames_left - 1)
        self._push()
        lives = self.ale.lives()
        lost = self._keys.life_loss_info and 0 < lives < self._lives
        self._lives = lives
        self._continues = lost and not (over or cut)
        terminated = over or lost
        return self._stack, reward, terminated, cut and not terminated, {"lives": lives}

    def _pressed(self, action: Any) -> tuple[int, float]:
        """The buttons of an action, and the turn of a paddle."""
        if not self._keys.continuous:
            return self.actions[action], 1.0
        radius, angle, fire = (float(part) for part in action)
        across = radius * np.cos(angle)
        up = radius * np.sin(angle)
        bound = self._keys.continuous_action_threshold
        pressed = self._game.map_action_idx(
            int(across > bound) - int(across < -bound),
            int(up > bound) - int(up < -bound),
            fire > bound,
        )
        return pressed.value, radius

    def _look(self, index: int) -> None:
        if self._keys.grayscale:
            self.ale.getScreenGrayscale(self._screens[index])
        else:
            self.ale.getScreenRGB(self._screens[index])

    def _push(self) -> None:
        screen = self._screens[0]
        if self._keys.maxpool:
            np.maximum(screen, self._screens[1], out=screen)
        frame = screen
        if self._resizes:
            frame = cv2.resize(screen, self._size, interpolation=cv2.INTER_AREA)
        stack = np.empty_like(self._stack)
        stack[:-1] = self._stack[1:]
        stack[-1] = frame
        self._stack = stack


def make_game(entry: GymnasiumSpec, keys: AtariKeys) -> AtariGame:
    """One game of `entry`, which is registered without a step limit or wrappers."""
    # no banner of each process
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    cv2.setNumThreads(1)  # a frame is too small for several threads
    passed_on = {key: getattr(keys, key) for key in PASSED_ON}
    env = gymnasium.make(
        entry,
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=None,
        **passed_on,
    )
    return AtariGame(env, keys)
