"""Soft actor-critic with an ensemble of critics: the basis of every actor-critic here.

Papers: SAC (arXiv 1801.01290, 1812.05905), RLPD (arXiv 2302.02948). A transition is
(s, a, r, s', m) with m = 1 - terminated. There are critics Q_i with slow copies Q'_i, a policy pi
and a temperature alpha; a~ and a' are drawn from the policy, a~ with the reparameterisation trick.

    target            y = r + gamma^n m min_{i in S} Q'_i(s', a'),  S a random subset of critics,
                      r the discounted rewards of n steps; clipped to what is possible in s, if
                      `value_range` is given (`Batch.room`)
    critic_loss       L = mean_i mean_B (Q_i(s, a) - y)^2, or with `value_bins` a cross entropy of
                      histograms (`nets.values`)
    actor_loss        L = mean_B [ alpha log pi(a~|s) - mean_i Q_i(s, a~) ]
    temperature_loss  L = alpha mean_B( -log pi(a~|s) - H ),  alpha = softplus(x), H per dimension
    slow copies       Q' <- tau Q + (1 - tau) Q' after every critic step, encoder included; with
                      `policy_tau` < 1 a slow copy of the policy drives, moved in every actor step

One `update` is `critic_actor_ratio` critic steps on fresh batches, then one actor and temperature
step on the last of them; `demo_fraction` of every batch was driven by people (RLPD). All random
numbers are drawn on the CPU, so that a seed means the same on every device.

With cameras the critics' loss alone trains the encoder (`nets.encoder`); policy and temperature see
its features without gradient. Q' sees s' through the slow encoder; a' is drawn from features of the
encoder as it was one update ago. Each image is shifted anew per draw (DrQ with K = M = 1).

Deviations: the target has no entropy bonus, as in HIL-SERL, since it drowns a sparse reward; states
are standardised (`learn.scaling`); Q starts near 0, not at random values that the actor would chase
(so the point task takes a third of the steps); time limits bootstrap (m = 1); an averaged policy
may drive (Polyak and Juditsky 1992), because the newest policy varies from update to update, most
visibly where contact punishes haste; a step with a non-finite gradient is skipped; products may be
bfloat16 (`precision`).

Metrics: critic/loss, critic/q_mean, critic/target_mean, actor/loss, actor/entropy,
temperature/value, optimizer/skipped, optimizer/bad_in_a_row.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from robot_rl.learn.algos.agent import Agent
from robot_rl.learn.algos.base import Sampler
from robot_rl.learn.transitions import Moment, Transitions


class ActorCritic(Agent):
    """An agent with SAC's losses. `init` makes one; `update` does all of its learning."""

    losses = ("critic_loss", "actor_loss", "next_action", "see")

    def update(self, sample: Sampler) -> dict[str, Tensor]:
        """Do `critic_actor_ratio` critic steps and one actor step; return scalar metrics."""
        share = self.config.demo_fraction
        drawn = self.transitions(sample(self.batch_size * self.steps_per_update, share))
        metrics: dict[str, Tensor] = {}
        batch = drawn
        for index in range(self.steps_per_update):
            batch = self.see(drawn.part(index, self.steps_per_update))
            metrics |= self.critic_step(batch)
        seen = batch.now._replace(features=batch.now.features.detach())
        metrics |= self.actor_step(batch._replace(now=seen))
        self.updates += 1
        critic, actor = self.critic_optimizer, self.actor_optimizer
        return {k: v.detach() for k, v in metrics.items()} | {
            "optimizer/skipped": critic.skipped + actor.skipped,
            "optimizer/bad_in_a_row": torch.maximum(critic.bad_in_a_row, actor.bad_in_a_row),
        }

    def critic_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Do one gradient step of all that the critics' loss trains; return metrics."""
        loss, metrics = self.critic_loss(batch)
        self.critic_optimizer.step(loss)
        for name, tensor in self.critics.items():
            self.slow[name].lerp_(tensor.detach(), self.config.tau)
        return metrics

    def actor_step(self, batch: Transitions) -> dict[str, Tensor]:
        """Do one gradient step of policy and temperature; return metrics."""
        loss, log_prob, metrics = self.actor_loss(batch)
        temperature_loss, temperature_metrics = self.temperature_loss(log_prob)
        self.actor_optimizer.step(loss + temperature_loss)  # they share no parameter
        if "policy" in self.slow:
            self.slow["policy"].lerp_(self.actor["policy"].detach(), self.config.policy_tau)
        return metrics | temperature_metrics

    def target(self, batch: Transitions) -> Tensor:
        """Return y [B], the critics' target for (s, a), by the lowest of a random subset in s'."""
        config, slow = self.config, self.slow["critic"]
        if config.target_subset < config.critics:
            slow = slow[self._order(config.critics)[: config.target_subset]]
        value = self.q(batch.then, batch.next_action, slow).amin(0)
        return self.possible(batch, batch.reward + batch.discount * batch.mask * value)

    def critic_loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of all critics against y on the executed actions, and metrics."""
        with torch.no_grad():
            target = self.target(batch)
        output = self._critics(batch.now, batch.action[:, : self.net.pose_size], self.critic)
        loss, q = self.values.loss(output, target, batch.weight), self.values.value(output)
        named = {"critic/loss": loss, "critic/q_mean": q.mean()}
        return loss, named | {"critic/target_mean": target.mean()}

    def actor_loss(self, batch: Transitions) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Return (loss, log_prob [B], metrics); the critics' parameters take no gradient."""
        decision, log_prob = self.draw(batch.now.features)
        action = self.net.compose(decision, batch.now.base, self.actor)
        q = self.q(batch.now, action, self.critic.detach()).mean(0)
        loss = self.soft(q, log_prob)
        return loss, log_prob, {"actor/loss": loss, "actor/entropy": -log_prob.mean()}

    def temperature_loss(self, log_prob: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return a loss that raises alpha below the target entropy and lowers it above; metrics."""
        alpha = softplus(self.temperature)
        target = self.config.target_entropy_per_dim * self.net.decision_size
        loss = alpha * (-log_prob.detach() - target).mean()
        return loss, {"temperature/value": alpha}

    def next_action(self, moment: Moment) -> Tensor:
        """Return a' [B, pose] in s' for the target."""
        decision, _ = self.draw(moment.features)
        return self.net.compose(decision, moment.base, self.actor)

    def soft(self, value: Tensor, log_prob: Tensor) -> Tensor:
        """Return SAC's actor loss, from values [B] and log probabilities [B] of drawn actions."""
        return (softplus(self.temperature.detach()) * log_prob - value).mean()

    def possible(self, batch: Transitions, value: Tensor) -> Tensor:
        """Return values [B] in the states of a batch, clipped to what is possible there."""
        if self.config.value_range is None:
            return value
        (low, high), (above, below) = self.config.value_range, batch.room.unbind(-1)
        return torch.minimum(torch.maximum(value, low + above), high - below)
