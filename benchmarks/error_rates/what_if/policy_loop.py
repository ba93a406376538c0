"""Plays pendulums simulated by NumPy with a policy on the GPU, four reads per move: one read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

from benchmarks.error_rates.what_if.parts import Alone, Step


class Pendulums:
    """Angle and speed of many pendulums, which an action pushes left, right or not at all."""

    def __init__(self, number: int) -> None:
        self.state = np.random.default_rng(5).uniform(-1, 1, (number, 2)).astype(np.float32)

    def step(self, actions: Any) -> Any:
        angle, speed = self.state.T
        speed = speed + 0.05 * (np.sin(angle) + actions.astype(np.float32) - 1)
        angle = angle + 0.05 * speed
        self.state = np.stack([angle, np.clip(speed, -8, 8)], axis=1)
        return -(angle**2)


class ActorCritic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh())
        self.actor, self.critic = nn.Linear(256, 3), nn.Linear(256, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.body(x)
        return self.actor(features), self.critic(features)


def build(remedies: Collection[str], device: str) -> Step:
    torch.manual_seed(5)
    pendulums = Pendulums(64)
    net = ActorCritic().to(device)

    def step() -> float:
        with torch.no_grad():
            returned = 0.0
            for _ in range(8):
                logits, value = net(torch.as_tensor(pendulums.state, device=device))
                policy = Categorical(logits=logits, validate_args=False)
                action = policy.sample()
                if "one_read" in remedies:
                    parts = [action, policy.log_prob(action), value.squeeze(-1), policy.entropy()]
                    actions, log_probs, values, entropies = torch.stack(parts).cpu().numpy()
                else:
                    actions = action.cpu().numpy()
                    log_probs = policy.log_prob(action).cpu().numpy()
                    values = value.squeeze(-1).cpu().numpy()
                    entropies = policy.entropy().cpu().numpy()
                rewards = pendulums.step(actions)
                advantages = rewards + 0.01 * entropies - values
                returned += float((log_probs * advantages).mean())
            return returned

    return step


def alone(_: str) -> Alone:
    return {}
