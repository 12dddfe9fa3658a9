"""Advice for a training that would diverge again."""

from collections.abc import Iterator

from slm_lab.spec.role import optimizer_paths
from slm_lab.spec.schema.spec import Spec


def what_to_change(spec: Spec) -> str:
    """One line of advice for a training whose loss or gradients are no longer finite."""
    return (
        "resuming would repeat it, because a resume cannot change the keys that led to numbers "
        f"that are not finite. Start a new run: {' or '.join(_changes(spec))}"
    )


def _changes(spec: Spec) -> Iterator[str]:
    """Changes to try, the most promising first, each with its key and current value."""
    for path, optimizer in optimizer_paths(spec.agent.net, spec.agent.critic_net):
        if (rate := optimizer.args.get("lr")) is not None:
            yield f"lower {path}.lr = {rate:g}"
    for key, net in spec.agent.nets.items():
        if net.clip_grad_val is None:
            yield f"limit gradients with agent.{key}.clip_grad_val (null; 0.5 is usual)"
        else:
            yield f"lower agent.{key}.clip_grad_val = {net.clip_grad_val:g}"
    if not spec.env.normalize_reward and spec.env.reward_scale is None:
        yield "scale rewards (env.normalize_reward, env.reward_scale)"
