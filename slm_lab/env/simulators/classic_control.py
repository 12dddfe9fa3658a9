"""The dynamics of Gymnasium's classic control, for any number of copies at once.

A state is a tensor (S, N): one row per variable, in float64, as Gymnasium computes.
Every function takes and returns tensors of one device, and reads no number from it."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor
from typing_extensions import override


class Motion(NamedTuple):
    """The result of one step of N copies."""

    state: Tensor
    """(S, N) float64"""
    reward: Tensor
    """(N,) float64"""
    terminated: Tensor
    """(N,) bool"""


class Dynamics(ABC):
    """One kind of environment. Its fields are the arguments that the class in Gymnasium
    takes. An episode begins in a state from a uniform distribution."""

    first_low: ClassVar[Sequence[float]]
    """(S,) the lower bounds of first states"""
    first_high: ClassVar[Sequence[float]]
    """(S,) their upper bounds"""

    @abstractmethod
    def step(self, state: Tensor, action: Tensor) -> Motion:
        """One step from each state (S, N) by actions, (N,) int64 or (N, 1) float32."""

    def observe(self, state: Tensor) -> Tensor:
        """The observations (N, D) float32 of states (S, N), by default the states
        themselves."""
        return state.t().float()


@final
@dataclass(frozen=True)
class CartPole(Dynamics):
    """A pole on a cart that is pushed to the left (0) or right (1): Barto, Sutton and
    Anderson, 1983. The variables are x, ẋ, θ, θ̇."""

    first_low = (-0.05,) * 4
    first_high = (0.05,) * 4

    sutton_barto_reward: bool = False

    GRAVITY = 9.8
    POLE_MASS = 0.1
    TOTAL_MASS = 1.1
    HALF_LENGTH = 0.5
    FORCE = 10.0
    SECONDS = 0.02
    MOST_X = 2.4
    MOST_THETA = 12 * 2 * math.pi / 360

    @override
    def step(self, state: Tensor, action: Tensor) -> Motion:
        x, x_dot, theta, theta_dot = state
        moment = self.POLE_MASS * self.HALF_LENGTH
        force = (2 * action - 1) * self.FORCE
        cos = theta.cos()
        sin = theta.sin()
        pushed = (force + moment * theta_dot.square() * sin) / self.TOTAL_MASS
        inertia = self.HALF_LENGTH * (
            4.0 / 3.0 - self.POLE_MASS * cos.square() / self.TOTAL_MASS
        )
        theta_acc = (self.GRAVITY * sin - cos * pushed) / inertia
        x_acc = pushed - moment * theta_acc * cos / self.TOTAL_MASS
        following = torch.stack(
            [
                x + self.SECONDS * x_dot,
                x_dot + self.SECONDS * x_acc,
                theta + self.SECONDS * theta_dot,
                theta_dot + self.SECONDS * theta_acc,
            ]
        )
        terminated = following[0].abs() > self.MOST_X
        terminated |= following[2].abs() > self.MOST_THETA
        reward = torch.ones_like(x)
        if self.sutton_barto_reward:
            reward = -terminated.to(x.dtype)
        return Motion(following, reward, terminated)


@final
@dataclass(frozen=True)
class Pendulum(Dynamics):
    """A pendulum that a torque swings up. The variables are θ and θ̇; θ = 0 is upright.
    No state ends an episode."""

    first_low = (-math.pi, -1.0)
    first_high = (math.pi, 1.0)

    g: float = 10.0

    MOST_TORQUE = 2.0
    MOST_SPEED = 8.0
    SECONDS = 0.05

    @override
    def step(self, state: Tensor, action: Tensor) -> Motion:
        theta, theta_dot = state
        torque = action[:, 0].clamp(-self.MOST_TORQUE, self.MOST_TORQUE)
        angle = (theta + math.pi) % (2 * math.pi) - math.pi
        costs = angle.square() + 0.1 * theta_dot.square() + 0.001 * torque.square()
        acceleration = 1.5 * self.g * theta.sin() + 3.0 * torque
        speed = theta_dot + acceleration * self.SECONDS
        speed = speed.clamp(-self.MOST_SPEED, self.MOST_SPEED)
        following = torch.stack([theta + speed * self.SECONDS, speed])
        return Motion(following, -costs, torch.zeros_like(theta, dtype=torch.bool))

    @override
    def observe(self, state: Tensor) -> Tensor:
        theta, theta_dot = state
        return torch.stack([theta.cos(), theta.sin(), theta_dot], -1).float()


@final
@dataclass(frozen=True)
class Acrobot(Dynamics):
    """Two links of one metre and one kilogram, with a torque at the joint between them.
    It is −1, 0 or 1 N m (actions 0, 1, 2). The equations are from Sutton and Barto's
    book. The variables are θ₁, θ₂, θ̇₁, θ̇₂."""

    first_low = (-0.1,) * 4
    first_high = (0.1,) * 4

    GRAVITY = 9.8
    SECONDS = 0.2
    MOST_SPEED_1 = 4 * math.pi
    MOST_SPEED_2 = 9 * math.pi

    @override
    def step(self, state: Tensor, action: Tensor) -> Motion:
        moved = self._integrated(state, (action - 1).to(state.dtype))
        following = torch.stack(
            [
                _wrapped(moved[0]),
                _wrapped(moved[1]),
                moved[2].clamp(-self.MOST_SPEED_1, self.MOST_SPEED_1),
                moved[3].clamp(-self.MOST_SPEED_2, self.MOST_SPEED_2),
            ]
        )
        tip = -following[0].cos() - (following[1] + following[0]).cos()
        terminated = tip > 1.0
        return Motion(following, terminated.to(state.dtype) - 1.0, terminated)

    def _integrated(self, state: Tensor, torque: Tensor) -> Tensor:
        """The states after one step of the classical Runge-Kutta method."""
        half = self.SECONDS / 2
        k1 = self._rates(state, torque)
        k2 = self._rates(state + half * k1, torque)
        k3 = self._rates(state + half * k2, torque)
        k4 = self._rates(state + self.SECONDS * k3, torque)
        return state + self.SECONDS / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)

    def _rates(self, state: Tensor, torque: Tensor) -> Tensor:
        """The derivatives of states by time, (S, N). Centres of mass are in the middle
        of the links, whose moments of inertia are 1."""
        theta1, theta2, speed1, speed2 = state
        cos2 = theta2.cos()
        sin2 = theta2.sin()
        inertia1 = 0.25 + (1.25 + cos2) + 2.0
        inertia2 = (0.25 + 0.5 * cos2) + 1.0
        gravity = 0.5 * self.GRAVITY
        phi2 = gravity * (theta1 + theta2 - math.pi / 2).cos()
        phi1 = (
            -0.5 * speed2.square() * sin2
            - speed2 * speed1 * sin2
            + 1.5 * self.GRAVITY * (theta1 - math.pi / 2).cos()
            + phi2
        )
        ratio = inertia2 / inertia1
        pulled = torque + ratio * phi1 - 0.5 * speed1.square() * sin2 - phi2
        acceleration2 = pulled / (1.25 - inertia2 * ratio)
        acceleration1 = -(inertia2 * acceleration2 + phi1) / inertia1
        return torch.stack([speed1, speed2, acceleration1, acceleration2])

    @override
    def observe(self, state: Tensor) -> Tensor:
        theta1, theta2, speed1, speed2 = state
        columns = [
            theta1.cos(),
            theta1.sin(),
            theta2.cos(),
            theta2.sin(),
            speed1,
            speed2,
        ]
        return torch.stack(columns, -1).float()


def _wrapped(angle: Tensor) -> Tensor:
    """The angles, less the whole turns by which they leave [−π, π]."""
    above = ((angle - math.pi) / (2 * math.pi)).ceil().clamp(min=0.0)
    below = ((angle + math.pi) / (2 * math.pi)).floor().clamp(max=0.0)
    return angle - 2 * math.pi * (above + below)


LEFT = -1.2
RIGHT = 0.6
MOST_SPEED = 0.07
"""The valley of both mountain cars."""


def _move_in_valley(position: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
    """Positions and velocities after a step at these velocities. The wall on the left
    stops a car."""
    velocity = velocity.clamp(-MOST_SPEED, MOST_SPEED)
    position = (position + velocity).clamp(LEFT, RIGHT)
    at_wall = (position == LEFT) & (velocity < 0)
    return position, velocity.masked_fill(at_wall, 0.0)


@final
@dataclass(frozen=True)
class MountainCar(Dynamics):
    """A weak car in a valley (Moore, 1990). It pushes to the left, not at all, or to
    the right (actions 0, 1, 2). The variables are position and velocity."""

    first_low = (-0.6, 0.0)
    first_high = (-0.4, 0.0)

    goal_velocity: float = 0

    GOAL = 0.5
    FORCE = 0.001
    GRAVITY = 0.0025

    @override
    def step(self, state: Tensor, action: Tensor) -> Motion:
        position, velocity = state
        push = (action - 1) * self.FORCE
        velocity = velocity + (push - self.GRAVITY * (3 * position).cos())
        position, velocity = _move_in_valley(position, velocity)
        terminated = (position >= self.GOAL) & (velocity >= self.goal_velocity)
        following = torch.stack([position, velocity])
        return Motion(following, -torch.ones_like(position), terminated)


@final
@dataclass(frozen=True)
class MountainCarContinuous(Dynamics):
    """A mountain car that pushes as strongly as it likes, which costs. Gymnasium rounds
    its states to float32."""

    first_low = (-0.6, 0.0)
    first_high = (-0.4, 0.0)

    goal_velocity: float = 0

    GOAL = 0.45
    POWER = 0.0015
    GRAVITY = 0.0025

    @override
    def step(self, state: Tensor, action: Tensor) -> Motion:
        position, velocity = state
        force = action[:, 0].to(state.dtype)
        push = force.clamp(-1.0, 1.0) * self.POWER
        velocity = velocity + push - self.GRAVITY * (3 * position).cos()
        position, velocity = _move_in_valley(position, velocity)
        terminated = (position >= self.GOAL) & (velocity >= self.goal_velocity)
        reward = 100.0 * terminated - 0.1 * force.square()
        following = torch.stack([position, velocity]).float().to(state.dtype)
        return Motion(following, reward, terminated)
