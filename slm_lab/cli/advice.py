"""What to change where a training would end again as it has ended."""

from collections.abc import Iterator

from slm_lab.spec.role import optimizer_paths
from slm_lab.spec.schema.spec import Spec


def what_to_change(spec: Spec) -> str:
    """In one line, of a training whose loss or gradients are not finite any more."""
    return (
        "resuming would repeat it, because nothing that led to numbers that are not finite may "
        f"change in a resume. Start a new run: {' or '.join(_changes(spec))}"
    )


def _changes(spec: Spec) -> Iterator[str]:
    """The likeliest first, each with the key and the value that it has."""
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
